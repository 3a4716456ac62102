"""Solvers of the AoRR objective, by name. Each is run(objective, start) -> Result; see `Result`."""

from .base import Log, Result
from .minmax import minmax
from .monotone import bilevel, certify, dca
from .multistart import multistart
from .subgradient import subgradient
from .tkml import by_separation

__all__ = ["Log", "Result", "bilevel", "by_separation", "certify", "dca", "minmax", "multistart", "subgradient"]
