"""Correction factors for the scale of least trimmed squares, which make it consistent for normal errors.

The consistency factor is exact for many rows. The small-sample factor was fitted to simulations by Pison, Van Aelst and
Willems, "Small sample corrections for LTS and MCD", Metrika 55 (2002); its constants are those of R's robustbase.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import norm

# The factor is 1 / f(n) with f(n) = 1 - exp(a) / n^b, tabulated for h/n = 1/2 and 7/8, with and without an intercept.
# For one slope the table has (a, b). For no slope it has (a, b) of the squared factor. For more slopes f is known at n
# = 3 p^2 and n = 5 p^2, where it is 1 - c / p^e, and the table has (c, e).
_RAW = {
    True: {
        0: ((0.262024211897096, 0.604756680630497), (-0.351584646688712, 1.01646567502486)),
        1: ((0.630869217886906, 0.650789250442946), (0.565065391014791, 1.03044199012509)),
        2: (
            ((0.746945886714663, 0.56264937192689), (0.535478048924724, 0.543323462033445)),
            ((0.458580153984614, 1.12236071104403), (0.267178168108996, 1.1022478781154)),
        ),
    },
    False: {
        1: ((-0.0181777452315321, 0.697629772271099), (-0.310122738776431, 1.06241615923172)),
        2: (
            ((0.487338281979106, 0.405511279418594), (0.340762058011, 0.37972360544988)),
            ((0.251778730491252, 0.883966931611758), (0.146660023184295, 0.86292940340761)),
        ),
    },
}
_REWEIGHTED = {
    True: {
        0: ((1.11098143415027, 1.5182890270453), (-0.66046776772861, 0.88939595831888)),
        1: ((1.58609654199605, 1.46340162526468), (0.391653958727332, 1.03167487483316)),
        2: (
            ((0.773365715932083, 2.02013996406346), (0.337571678986723, 2.02037467454833)),
            ((0.474174840843602, 1.39681715704956), (0.276640353112907, 1.42543242287677)),
        ),
    },
    False: {
        1: ((0.6329852387657, 1.40361879788014), (-0.642240988645469, 0.926325452943084)),
        2: (
            ((0.417574780492848, 1.83958876341367), (0.175753709374146, 1.8313809497999)),
            ((0.267522855927958, 1.17559984533974), (0.161200683014406, 1.21675019853961)),
        ),
    },
}


def half(n: int, p: int) -> int:
    """The number of rows kept at the largest breakdown point: floor((n + p + 1) / 2), at most n.

    p includes the intercept.
    """
    return min((n + p + 1) // 2, n)


def kept_rows(alpha: float, n: int, p: int) -> int:
    """The number of rows kept for a share alpha from 1/2 to 1; it lies between `half` and n."""
    least = half(n, p)
    return min(math.floor(2 * least - n + 2 * (n - least) * alpha), n)


def share_of(h: int, n: int, p: int) -> float:
    """An alpha from 1/2 to 1 for which h rows are kept, up to rounding; several values of alpha keep as many."""
    least = half(n, p)
    return 1.0 if least >= n else min(max((h - 2 * least + n) / (2 * (n - least)), 0.5), 1.0)


def consistency(share: float) -> float:
    """The standard deviation of a normal distribution over that of the central `share` of its mass."""
    if share >= 1.0:
        return 1.0
    q = norm.ppf((1 + share) / 2)
    return float(1 / np.sqrt(1 - 2 * q * norm.pdf(q) / share))


def small_sample(n: int, slopes: int, fit_intercept: bool, alpha: float, *, reweighted: bool) -> float:
    """The small-sample factor of the scale of the trimmed or of the reweighted fit; it tends to 1 for large n.

    `slopes` is the number of coefficients without the intercept; alpha is as in `kept_rows`. The factor is 1 without
    any coefficient, and at most 20.
    """
    if slopes == 0 and not fit_intercept:
        return 1.0
    table = (_REWEIGHTED if reweighted else _RAW)[fit_intercept]
    at_half, at_most = (_known(n, slopes, pair) for pair in table[min(slopes, 2)])
    if alpha <= 0.875:
        f = at_half + (at_most - at_half) * (alpha - 0.5) / 0.375
    else:
        f = at_most + (1 - at_most) * (alpha - 0.875) / 0.125
    # The simulations do not cover few rows with many columns; there the interpolation may cross zero.
    f = max(f, 0.05)
    return float(1 / np.sqrt(f) if slopes == 0 else 1 / f)


def _known(n: int, slopes: int, pair: tuple) -> float:
    if slopes <= 1:
        return 1 - math.exp(pair[0]) / n ** pair[1]
    (c3, e3), (c5, e5) = pair
    y3, y5 = math.log(c3 / slopes**e3), math.log(c5 / slopes**e5)
    b = (y3 - y5) / math.log(5 / 3)
    return 1 - math.exp(y3 + b * math.log(3 * slopes**2)) / n**b


def spread_of_core(residuals: np.ndarray, cut: float) -> float:
    """The standard deviation of a normal that has, within +-cut, the mean square of the residuals within +-cut.

    Unlike the consistency factor, this does not mistake gross outliers for the tails of a normal. It is `cut` if the
    residuals within +-cut are nearly uniform, and at least cut / 50.
    """
    inside = residuals[np.abs(residuals) <= cut]
    ratio = float(np.mean(inside**2)) / cut**2 if len(inside) and cut > 0 else 0.0
    if ratio >= 0.3:  # nearly uniform within the cut: the standard deviation is not identifiable
        return cut
    low, high = 0.5, 50.0
    for _ in range(60):
        a = (low + high) / 2
        mass = 2 * norm.cdf(a) - 1
        low, high = (a, high) if (1 - 2 * a * norm.pdf(a) / mass) / a**2 > ratio else (low, a)
    return cut / a
