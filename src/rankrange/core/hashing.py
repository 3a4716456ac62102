"""The mixing function of splitmix64, by which rows and row numbers are hashed."""

from __future__ import annotations

import numpy as np

from .arrays import Array

__all__ = ["splitmix64"]


def splitmix64(x: Array) -> Array:
    """Mix the bits of unsigned 64-bit integers; the result depends on every bit, and 0 maps to 0."""
    with np.errstate(over="ignore"):
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return x ^ (x >> np.uint64(31))
