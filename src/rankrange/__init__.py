"""Learning with the ranked range: keep the losses ranked m+1..k, drop the rest.

Importing the package is light: names and submodules are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .core.engines import register
from .core.ranges import RankedRange, ThresholdRange

if TYPE_CHECKING:
    from .core.aggregates import RankWeights
    from .core.select import range_weights, ranked_range, thresholds
    from .estimators import (
        AoRRClassifier,
        AoRRRegressor,
        PartialAUCClassifier,
        RankedRangeClassifier,
        RankedRangeRegressor,
        TKMLClassifier,
    )
    from .issues import find_label_issues
    from .shards import scan

__version__ = "0.1.0"

register("rows", "rankrange.shards.fit", "fit")
register("issues", "rankrange.shards.issues", "find")
register("lazy", "rankrange.shards.dask_rows", "predicted")

_MODULE_OF = {
    "find_label_issues": "issues",
    "RankWeights": "core.aggregates",
    "ranked_range": "core.select",
    "range_weights": "core.select",
    "thresholds": "core.select",
    "AoRRClassifier": "estimators",
    "AoRRRegressor": "estimators",
    "PartialAUCClassifier": "estimators",
    "RankedRangeClassifier": "estimators",
    "RankedRangeRegressor": "estimators",
    "TKMLClassifier": "estimators",
    "scan": "shards",
}
_SUBMODULES = (
    "algorithms",
    "audit",
    "boosting",
    "issues",
    "label_noise",
    "metrics",
    "noise",
    "onnx",
    "plots",
    "regression",
    "risk",
    "torch",
)

__all__ = [
    "AoRRClassifier",
    "AoRRRegressor",
    "PartialAUCClassifier",
    "RankWeights",
    "RankedRange",
    "RankedRangeClassifier",
    "RankedRangeRegressor",
    "TKMLClassifier",
    "ThresholdRange",
    "__version__",
    "find_label_issues",
    "range_weights",
    "ranked_range",
    "scan",
    "thresholds",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
        globals()[name] = value  # later accesses do not call __getattr__
        return value
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_SUBMODULES})
