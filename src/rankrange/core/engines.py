"""A registry of engines: functions that are registered by name and imported when they are first requested.

An estimator needs an engine to fit rows on a device, and the engine imports estimators. The registry avoids this
circular import.
"""

from __future__ import annotations

import importlib
from typing import Any

_REGISTERED: dict[str, tuple[str, str]] = {}


def register(name: str, module: str, function: str) -> None:
    """Register an engine under `name`: the function `function` of `module`, which is not imported yet."""
    _REGISTERED[name] = module, function


def engine(name: str) -> Any:
    """Import and return the function that is registered under this name."""
    module, function = _REGISTERED[name]
    return getattr(importlib.import_module(module), function)
