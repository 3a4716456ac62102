"""The array type of the whole package: NumPy arrays of any dtype."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def namespace(values: Any) -> Any:
    """The module of an array: PyTorch for tensors, otherwise NumPy."""
    return sys.modules["torch"] if hasattr(values, "cpu") else np
