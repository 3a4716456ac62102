"""A registry of engines: the package registers a function by name, and it is imported when it is used.

An estimator that gets rows on a device needs an engine, which imports estimators. The registry avoids a circular
import.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES: dict[str, tuple[str, str]] = {}


def register(name: str, module: str, function: str) -> None:
    """Register the function of an engine by module and name."""
    _HOMES[name] = module, function


def engine(name: str) -> Any:
    """The function that was registered under this name."""
    module, function = _HOMES[name]
    return getattr(importlib.import_module(module), function)
