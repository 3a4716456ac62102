"""The mathematics: what to keep (`ranges`), selection, losses, aggregates, the objective, the model of label flips.

May import: nothing of the package but `errors`; NumPy and SciPy only, never scikit-learn. Importing it is light: its
modules are attributes that are loaded when first used.
"""

import importlib
from types import ModuleType

_MODULES = ("aggregates", "arrays", "cuts", "flips", "losses", "objective", "ranges", "select")


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
