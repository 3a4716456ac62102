"""Solvers of the AoRR objective, by name. Each is run(objective, start) -> Result; see `Result`."""

from .base import Log, Result
from .monotone import bilevel, certify, dca
from .multistart import multistart
from .subgradient import subgradient

__all__ = ["Log", "Result", "bilevel", "certify", "dca", "multistart", "subgradient"]
