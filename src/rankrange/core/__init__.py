"""The mathematics of the package: ranges, selection, losses, aggregates, objectives, and a first model of label noise.

May import: `errors`, NumPy, SciPy and threadpoolctl. Modules are imported when they are first used.
"""

import importlib
from types import ModuleType

_MODULES = ("aggregates", "arrays", "cuts", "losses", "objective", "ranges", "select", "transition")


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
