"""Solvers of the AoRR objective, by name. Each is run(objective, start) -> Result; see `Result`."""

from .label_ranking import by_separation
from .majorise import bilevel, certify, dca
from .minmax import minmax
from .multistart import multistart
from .result import Log, Result
from .subgradient import subgradient

__all__ = ["Log", "Result", "bilevel", "by_separation", "certify", "dca", "minmax", "multistart", "subgradient"]
