"""Engines that stand above the estimators, by name: the package registers them, and they are loaded when asked for.

An estimator that meets rows on a device needs an engine that itself is built from parts of estimators. The name
keeps imports in one direction.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES: dict[str, tuple[str, str]] = {}


def register(name: str, module: str, function: str) -> None:
    """Say where the function behind an engine is."""
    _HOMES[name] = module, function


def engine(name: str) -> Any:
    """The function that was registered under this name."""
    module, function = _HOMES[name]
    return getattr(importlib.import_module(module), function)
