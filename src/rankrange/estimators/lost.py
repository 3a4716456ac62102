"""A warning that names the class of which more than half was cut."""

from __future__ import annotations

import warnings

import numpy as np

from ..core.arrays import Array


def warn_of_lost_class(classes: Array, codes: Array, mass: Array, dropped: Array, advice: str, stacklevel: int) -> None:
    """Warn of the class that lost the largest share of its rows, where that is more than half."""
    size = np.bincount(codes, weights=mass, minlength=len(classes))
    cut = np.bincount(codes, weights=mass * dropped, minlength=len(size))
    lost = np.divide(cut, size, out=np.zeros_like(cut), where=size > 0)
    worst = int(lost.argmax())
    if lost[worst] > 0.5:
        warnings.warn(
            f"{lost[worst]:.0%} of the rows of class {classes.tolist()[worst]!r} were cut ({cut[worst]:g} of "
            f"{size[worst]:g}): {advice}",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
