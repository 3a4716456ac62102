"""Losses of one sample as functions of its target y and its score z. They do not depend on X.

Conventions:
- y comes first. Binary y is -1 or +1, class y a code 0..C-1, label y a 0/1 mask (n, L), regression y a number.
- z holds one score per sample (n,), or one per class or label (n, C).
- `value` returns s (n,); `value_and_derivative` returns (s, ds/dz), where ds/dz has the shape of z. At a kink the
  derivative is a subgradient; at tied maxima it is the mean of the derivatives of the tied terms.
- `fenchel` returns the convex conjugate at slopes a minus a z, and `balanced` makes weighted sums of slopes equal to a
  target, for example 0 for an intercept without a penalty. They prove lower bounds on objectives.
- Solvers need further methods, which `needs` checks. A smooth loss of one score has its second derivative `curvature`
  (n,), one of several scores `hessian_operator`, the map dz -> (second derivative of each row's loss) dz. A piecewise
  linear loss is the maximum of 0 and its `margins` (n, J), linear functions of the scores, far below 0 for one that
  does not exist; or the absolute value of its one margin if `signed_margins`. `margins_adjoint(y, a)` is the derivative
  of the sum of the margins weighted by a (n, J). With several scores, `margins_matrix` has the linear part of some
  margins as rows of a sparse matrix.
- A loss is convex in z; one that is not has `convex = False`.
- The logistic, softmax, squared and Huber losses also take PyTorch tensors, for fits on a device.
- Logarithms are natural; the paper's base-2 logistic loss is this one divided by log(2).

A new loss is one class and one entry in `LOSSES`; the contract tests run over the table, and the estimators take every
loss of their kind of target by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from scipy.special import xlog1py, xlogy

from .arrays import Array, namespace

# Tolerance for rounding errors of slopes at the end of their domain and of their sums.
_ROUNDING = 1e-12


class Loss:
    """What a loss has: `value_and_derivative`, and these methods, which suit most losses.

    A new loss may do without this base class, but then needs the methods.
    """

    targets: ClassVar[str]  # "binary", "classes", "labels" or "numbers"
    convex: ClassVar[bool] = True

    def value(self, y: Array, z: Array) -> Array:
        """The losses s (n,) of the rows."""
        return self.value_and_derivative(y, z)[0]

    def value_and_derivative(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The losses s (n,) and their derivative ds/dz, of the shape of z."""
        raise NotImplementedError

    def balanced(self, y: Array, a: Array, h: Array, target: Array | float = 0.0) -> Array | None:
        """Slopes of the form of a whose sums over the rows, weighted by h, equal the target; None if there are none.

        Suits losses whose conjugate is finite at every slope between 0 and a derivative.
        """
        return shrunk_to_balance(a, h, target)


def needs(loss: Loss, n_outputs: int) -> None:
    """Raise a TypeError if the loss lacks what the solver needs: convexity, and margins or second derivatives."""
    linear, name = hasattr(loss, "margins"), type(loss).__name__
    if not getattr(loss, "convex", True):
        raise TypeError(f"the solver needs a convex loss; {name} is not convex. Use another loss.")
    several = "margins_matrix" if linear else "hessian_operator"
    wanted = several if n_outputs > 1 else "margins" if linear else "curvature"
    if not hasattr(loss, wanted):
        raise TypeError(f"the solver needs a loss with {wanted}; {name} has none. Use another loss.")


def log_of_sum(e: Array, u: Array) -> Array:
    """log(1 + e) for e >= 0 and u = 1 + e as rounded; e is overwritten.

    It is the logarithm of u plus a correction for the rounding of u. It is as accurate as np.log1p, which is not
    vectorised and takes several times as long.
    """
    e -= u - 1
    e /= u
    e += namespace(u).log(u)
    return e


def softmax(Z: Array) -> Array:
    """Softmax along the rows of Z (n, K), in the memory order of Z.

    It is faster than SciPy's, which spends most of the time on validation.
    """
    P = np.exp(Z - Z.max(axis=1)[:, None])
    P /= P.sum(axis=1)[:, None]
    return P


def shrunk_to_balance(a: Array, h: Array, target: Array | float = 0.0) -> Array | None:
    """The slopes a (n,) or (n, C), shrunk so that their sums over the rows, weighted by h, equal the target.

    The positive or the negative slopes of each score are multiplied by a factor in [0, 1]; None if no factor suffices.
    """
    up, down = h @ np.maximum(a, 0.0), h @ np.maximum(-a, 0.0)
    less_up = np.minimum(1.0, np.divide(down + target, up, out=np.ones_like(up), where=up > 0))
    less_down = np.minimum(1.0, np.divide(up - target, down, out=np.ones_like(down), where=down > 0))
    if np.min(less_up) < 0 or np.min(less_down) < 0:
        return None
    balanced = np.where(a > 0, less_up, less_down) * a
    off = np.abs(h @ balanced - target) > _ROUNDING * (up + down + np.abs(target))
    return None if np.any(off) else balanced


def _within(b: Array, low: float, high: float) -> Array:
    """0 where b is in [low, high] up to rounding errors, otherwise infinity."""
    return np.where((b >= low - _ROUNDING) & (b <= high + _ROUNDING), 0.0, np.inf)


class _Linear(Loss):
    """A piecewise linear loss of one score."""

    def curvature(self, y: Array, z: Array) -> Array:
        """The second derivative, 0."""
        return np.zeros_like(z)


class Logistic(Loss):
    """log(1 + exp(-y z))."""

    targets: ClassVar[str] = "binary"

    def value_and_derivative(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The losses, and -y / (1 + exp(y z))."""
        t = y * z
        t *= -1
        s, slope = self.of_margin(t)
        slope *= -y
        return s, slope

    def of_margin(self, t: Array) -> tuple[Array, Array]:
        """The losses log(1 + exp(t)) and their derivative with respect to t, where t = -y z; t is overwritten."""
        # Every pass of a fit calls this: the exponential is computed once, and arrays are reused.
        xp = namespace(t)
        e = xp.abs(t)
        e *= -1
        xp.exp(e, out=e)  # of -|t|, in (0, 1]: it cannot overflow
        slope = xp.maximum(e, t > 0)  # 1 if t > 0; np.where is several times slower on an irregular mask
        u = 1 + e
        slope /= u
        xp.clip(t, 0, None, out=t)
        t += log_of_sum(e, u)
        return t, slope

    def curvature(self, y: Array, z: Array) -> Array:
        """The second derivative, p (1 - p) with p = 1 / (1 + exp(-z))."""
        e = namespace(z).exp(-abs(z))
        return e / (1 + e) ** 2

    def fenchel(self, y: Array, z: Array, a: Array) -> Array:
        p = np.clip(-y * a, 0.0, 1.0)
        return xlogy(p, p) + xlog1py(1 - p, -p) - a * z + _within(-y * a, 0.0, 1.0)


class Envelope:
    """A smoothed piecewise linear loss: the maximum over rho of rho . margins - width/2 |rho - centre|^2.

    `loss` has margins, and rho (n, J) are their weights: nonnegative with a sum of at most 1 in each
    row, or in [-1, 1] for one signed margin. `centre` is (n, J).
    """

    def __init__(self, loss: Any, width: float, centre: Array) -> None:
        self.loss, self.width, self.centre = loss, width, centre
        self.targets = loss.targets

    def rho(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The maximising rho (n, J), and the margins."""
        margins = self.loss.margins(y, z).astype(np.float64, copy=False)
        pushed = self.centre + margins / self.width
        if getattr(self.loss, "signed_margins", False):
            return np.clip(pushed, -1.0, 1.0), margins
        rho = np.maximum(pushed, 0.0)
        full = rho.sum(axis=1) > 1.0
        rho[full] = _onto_simplex(pushed[full])
        return rho, margins

    def value_and_derivative(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The smoothed losses, and the derivative of the margins weighted by rho."""
        rho, margins = self.rho(y, z)
        s = (rho * margins - 0.5 * self.width * (rho - self.centre) ** 2).sum(axis=1)
        return s, self.loss.margins_adjoint(y, rho)

    def curvature(self, y: Array, z: Array) -> Array:
        """The second derivative for one margin and score: 1 / width between the ends of rho, otherwise 0."""
        rho, margins = self.rho(y, z)
        return (rho == self.centre + margins / self.width)[:, 0] / self.width

    def hessian_operator(self, y: Array, z: Array) -> Callable[[Array], Array]:
        """The map dz -> (second derivative) dz: weights above 0 follow their margins, in full rows with a fixed sum."""
        rho, _ = self.rho(y, z)
        support = rho > 0
        count, full = support.sum(axis=1), rho.sum(axis=1) >= 1.0 - _ROUNDING
        support[full & (count == 1)] = False
        rows, columns = np.nonzero(support)
        matrix, share = self.loss.margins_matrix(rows, columns), (full / np.maximum(count, 1))[rows]

        def operator(dz: Array) -> Array:
            moved = matrix @ dz.ravel()
            moved -= share * np.bincount(rows, moved, minlength=len(dz))[rows]
            return np.asarray(matrix.T @ (moved / self.width)).reshape(dz.shape)

        return operator


def _onto_simplex(rows: Array) -> Array:
    """The nearest points of the simplex {x >= 0, sum x = 1}, row by row."""
    order = -np.sort(-rows, axis=1)
    excess = (np.cumsum(order, axis=1) - 1.0) / np.arange(1, rows.shape[1] + 1)
    last = (order > excess).sum(axis=1) - 1
    return np.maximum(rows - excess[np.arange(len(rows)), last][:, None], 0.0)


class Hinge(_Linear):
    """max(0, 1 - y z)."""

    targets: ClassVar[str] = "binary"

    def value_and_derivative(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The losses, and the derivative: -y if the loss is positive, otherwise 0."""
        s = np.maximum(0, 1 - y * z)
        return s, np.where(s > 0, -y, 0).astype(z.dtype, copy=False)

    def margins(self, y: Array, z: Array) -> Array:
        """The one margin, 1 - y z."""
        return (1 - y * z)[:, None]

    def margins_adjoint(self, y: Array, a: Array) -> Array:
        """The derivative of the weighted margins with respect to z."""
        return -y * a[:, 0]

    def fenchel(self, y: Array, z: Array, a: Array) -> Array:
        return y * a * (1 - y * z) + _within(-y * a, 0.0, 1.0)


class SquaredHinge(Loss):
    """max(0, 1 - y z)^2."""

    targets: ClassVar[str] = "binary"

    def value_and_derivative(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The losses, and -2 y max(0, 1 - y z)."""
        margin = np.maximum(0, 1 - y * z)
        return margin**2, -2 * y * margin

    def curvature(self, y: Array, z: Array) -> Array:
        """The second derivative: 2 if the loss is positive, otherwise 0."""
        return (2 * (y * z < 1)).astype(z.dtype)

    def fenchel(self, y: Array, z: Array, a: Array) -> Array:
        return a**2 / 4 + y * a * (1 - y * z) + _within(-y * a, 0.0, np.inf)


class Squared(Loss):
    """(z - y)^2."""

    targets: ClassVar[str] = "numbers"

    def value_and_derivative(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The losses, and 2 (z - y)."""
        r = z - y
        return r**2, 2 * r

    def curvature(self, y: Array, z: Array) -> Array:
        """The second derivative, 2."""
        return namespace(z).full_like(z, 2)

    def fenchel(self, y: Array, z: Array, a: Array) -> Array:
        return a**2 / 4 - a * (z - y)

    def balanced(self, y: Array, a: Array, h: Array, target: Array | float = 0.0) -> Array | None:
        """The slopes, shifted so that their sum over the rows, weighted by h, equals the target."""
        return a - (h @ a - target) / h.sum()


class Absolute(_Linear):
    """|z - y|."""

    targets: ClassVar[str] = "numbers"

    def value_and_derivative(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The losses, and the sign of z - y."""
        r = z - y
        return np.abs(r), np.sign(r)

    signed_margins: ClassVar[bool] = True  # the loss is |margin|: a weight on it may be negative

    def margins(self, y: Array, z: Array) -> Array:
        """The one margin, z - y."""
        return (z - y)[:, None]

    def margins_adjoint(self, y: Array, a: Array) -> Array:
        """The derivative of the weighted margins with respect to z."""
        return a[:, 0]

    def fenchel(self, y: Array, z: Array, a: Array) -> Array:
        return -a * (z - y) + _within(a, -1.0, 1.0)


class Huber(Loss):
    """The Huber loss: (z - y)^2 / 2 if |z - y| <= delta, otherwise delta (|z - y| - delta/2)."""

    targets: ClassVar[str] = "numbers"

    def __init__(self, delta: float = 1.0) -> None:
        if not 0 < delta < np.inf:
            raise ValueError(f"the huber loss needs 0 < delta < infinity, got delta={delta}; 1.0 is the usual choice")
        self.delta = delta

    def value_and_derivative(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The losses, and z - y clipped to [-delta, delta]."""
        r = z - y
        slope = r.clip(-self.delta, self.delta)
        return slope * (r - slope / 2), slope

    def curvature(self, y: Array, z: Array) -> Array:
        """The second derivative: 1 within delta of y, otherwise 0."""
        return (abs(z - y) <= self.delta) + 0 * z

    def fenchel(self, y: Array, z: Array, a: Array) -> Array:
        return a**2 / 2 - a * (z - y) + _within(a / self.delta, -1.0, 1.0)


class Softmax(Loss):
    """-log of the softmax probability of class y."""

    targets: ClassVar[str] = "classes"

    def value_and_derivative(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The losses, and the derivative: the softmax probabilities, from which 1 is subtracted for class y."""
        s, ratios, others, of_label = self._parts(y, z)
        ratios /= 1 + others
        # p_y - 1 is computed as minus the sum of the others, which is accurate if p_y is close to 1.
        flat = ratios.reshape(-1)
        flat[of_label] = 0
        flat[of_label] = -ratios.sum(0)
        return s, ratios.T

    def probabilities(self, z: Array) -> Array:
        """The softmax probabilities (n, C) of the classes."""
        return softmax(z)

    def hessian_operator(self, y: Array, z: Array) -> Callable[[Array], Array]:
        """The map dz -> p (dz - p . dz), row by row, with the probabilities p."""
        p = self.probabilities(z)
        return lambda dz: p * (dz - (p * dz).sum(axis=1, keepdims=True))

    def _parts(self, y: Array, z: Array) -> tuple[Array, Array, Array, Array]:
        """The loss, exp(z - max z) (C, n), its sum over all classes but the largest, and the flat indices of classes y.

        The logarithm of 1 plus that sum is accurate for small losses. Arrays are class-major, because NumPy sums and
        copies short rows slowly.
        """
        xp, flat = namespace(z), z.T.reshape(-1)
        z = flat.reshape(z.T.shape)
        of_label = y * len(y) + xp.cumsum(xp.ones_like(y), 0) - 1
        peak = xp.amax(z, 0)
        ratios = z - peak  # one subtraction: a second one would add a rounding error, which exp amplifies
        xp.exp(ratios, out=ratios)
        largest = z == peak
        others = (ratios * ~largest).sum(0)
        others += largest.sum(0) - 1  # of classes tied for the highest score, one counts as the largest
        return (peak - flat[of_label]) + log_of_sum(1 * others, 1 + others), ratios, others, of_label

    def fenchel(self, y: Array, z: Array, a: Array) -> Array:
        p = a.copy()
        p[np.arange(len(y)), y] += 1
        inside = np.where((p >= -_ROUNDING).all(axis=1), 0.0, np.inf)
        p = np.clip(p, 0.0, 1.0)
        return xlogy(p, p).sum(axis=1) - (a * z).sum(axis=1) + inside

    def balanced(self, y: Array, a: Array, h: Array, target: Array | float = 0.0) -> Array | None:
        """The probabilities, mixed with constant ones, so that the weighted sums of the slopes equal the target.

        A class without mass gets probability 0, because its best intercept is minus infinity: that of class y gets its
        share. None if no mixture will do.
        """
        rows = np.arange(len(y))
        p = a.copy()
        p[rows, y] += 1
        total = np.bincount(y, weights=h, minlength=p.shape[1])
        absent = total <= 0
        p[rows, y] += p[:, absent].sum(axis=1)
        p[:, absent] = 0.0
        mean = h @ p
        excess = mean - total - target
        share = float(np.max(np.divide(excess, mean, out=np.zeros_like(mean), where=(excess > 0) & (mean > 0))))
        if share > 1 or np.any(excess[mean <= 0] > 0):
            return None
        if share > 0:
            constant = np.maximum(mean - excess / share, 0.0)
            p = (1 - share) * p + share * constant / max(float(constant.sum()), 1e-300)
        p[rows, y] -= 1
        return p


class OneVsRestSquaredHinge(Loss):
    """max(0, 1 - z_y)^2 plus max(0, 1 + z_c)^2 over the other classes c: one squared hinge per class."""

    targets: ClassVar[str] = "classes"

    def value_and_derivative(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The losses, and the derivative of each class's squared hinge with respect to the score of the class."""
        margin, sign = self._margins(y, z)
        return (margin**2).sum(axis=1), -2 * sign * margin

    def hessian_operator(self, y: Array, z: Array) -> Callable[[Array], Array]:
        """The map dz -> 2 dz for scores whose hinge is positive, and 0 for the others."""
        bent = 2 * (self._margins(y, z)[0] > 0).astype(z.dtype)
        return lambda dz: bent * dz

    def _margins(self, y: Array, z: Array) -> tuple[Array, Array]:
        sign = np.full_like(z, -1)
        sign[np.arange(len(y)), y] = 1
        return np.maximum(0, 1 - sign * z), sign

    def fenchel(self, y: Array, z: Array, a: Array) -> Array:
        sign = self._margins(y, z)[1]
        b = -sign * a
        return (b**2 / 4 - b * (1 - sign * z) + _within(b, 0.0, np.inf)).sum(axis=1)


class TKML(Loss):
    """Top-k multi-label loss of one sample: a hinge on the (k+1)-th largest score.

    - Paper: [1 + f_[k+1] - lowest true score]_+, where f_[k+1] is the (k+1)-th largest of all scores.
    - Two-sided: the same if the sample has at most k true labels. If it has more, k labels cannot include them all, and
      the loss requires that the k highest are true: [1 + highest false score - k-th largest true score]_+.

    The loss is 0 for a sample without true labels, and in the two-sided form for one without false labels. `top_k` must
    be below the number of labels, which is checked with the scores.
    """

    targets: ClassVar[str] = "labels"
    convex: ClassVar[bool] = False

    def __init__(self, top_k: int = 1, two_sided: bool = True) -> None:
        if isinstance(top_k, bool) or not isinstance(top_k, int | np.integer) or top_k < 1:
            raise ValueError(f"top_k must be an int of at least 1, got {top_k!r}; pass for example top_k=3")
        self.top_k = int(top_k)
        self.two_sided = two_sided

    def value_and_derivative(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The losses, and the derivative: 1 for the score to lower plus -1 for the score to raise; ties share each.

        The derivative is 0 if the loss is 0.
        """
        s, down, up = self.rivals(y, z)
        mask, rows = np.asarray(y, dtype=bool), np.arange(len(z))
        # The scores of both terms. A label in both cancels out, for example if the lowest true label is the (k+1)-th.
        to_lower = (z == z[rows, down][:, None]) & ~(self._exceeds_k(mask)[:, None] & mask)
        to_raise = (z == z[rows, up][:, None]) & mask
        slope = _shared(to_lower, z.dtype) - _shared(to_raise, z.dtype)
        slope *= (s > 0)[:, None]
        return s, slope

    def rivals(self, y: Array, z: Array) -> tuple[Array, Array, Array]:
        """The losses, and for each row the label to lower and the label to raise, (n,) each, by selection.

        A row without a pair of labels to rank has loss 0 and arbitrary labels. Unknown labels have the score minus
        infinity.
        """
        true, rows, k, n_labels = np.asarray(y, dtype=bool), np.arange(len(z)), self.top_k, z.shape[1]
        if k >= n_labels:
            raise ValueError(
                f"top_k must be below the number of labels, got top_k={k} for {n_labels} labels; lower top_k"
            )
        n_true, n_known, exceeds_k = true.sum(axis=1), (z > -np.inf).sum(axis=1), self._exceeds_k(true)
        down, up = _label_at(z, k + 1), np.where(true, z, np.inf).argmin(axis=1)
        if exceeds_k.any():
            part, mask = z[exceeds_k], true[exceeds_k]
            down[exceeds_k] = np.where(mask, -np.inf, part).argmax(axis=1)
            up[exceeds_k] = _label_at(np.where(mask, part, -np.inf), k)
        idle = (n_true == 0) | (n_known <= k) | (exceeds_k & (n_true == n_known))
        with np.errstate(invalid="ignore"):  # the difference of two unknown labels of an idle row
            s = np.maximum(1 + (z[rows, down] - z[rows, up]), 0)
        s[idle] = 0
        return s, down, up

    def _exceeds_k(self, true: Array) -> Array:
        """Whether a row has more than k true labels; False for every row in the form of the paper."""
        return (true.sum(axis=1) > self.top_k) & self.two_sided


def _label_at(Z: Array, rank: int) -> Array:
    """The label of the `rank`-th largest score of each row."""
    place = Z.shape[1] - rank
    return np.argpartition(Z, place, axis=1)[:, place]


def _shared(chosen: Array, dtype: Any) -> Array:
    """One unit per row, divided equally among the chosen entries; 0 if none is chosen."""
    return chosen / np.maximum(chosen.sum(axis=1, keepdims=True), 1).astype(dtype)


LOSSES: dict[str, type[Any]] = {
    "logistic": Logistic,
    "hinge": Hinge,
    "squared_hinge": SquaredHinge,
    "softmax": Softmax,
    "one_vs_rest_squared_hinge": OneVsRestSquaredHinge,
    "squared": Squared,
    "absolute": Absolute,
    "huber": Huber,
    "tkml": TKML,
}
# By the name of a loss of two classes: its generalisation to more classes, which a classifier uses for these.
OF_SEVERAL: dict[str, type[Any]] = {
    "logistic": Softmax,
    "squared_hinge": OneVsRestSquaredHinge,
}


def losses_for(targets: str) -> dict[str, type[Any]]:
    """The entries of `LOSSES` for one kind of targets, such as "numbers"."""
    return {name: loss for name, loss in LOSSES.items() if loss.targets == targets}
