"""Partial AUC as an objective: the pair loss between kept positives and kept negatives of a linear model.

For a decreasing pair loss, all positives rank the negatives in the same order, by score. The partial AUC between two
false positive rates is therefore a ranked range over the n negatives, with m = lo n and k = hi n. A range of true
positive rates is a ranked range over the positives, starting from the lowest score. Each cut may fall inside a row. The
objective is

    G(w) = ||w||^2 / 2 + C M (mean of l(u_i - v_j) over the kept pairs, with weights p_i q_j)

with the squared hinge l(t) = max(0, 1 - t)^2, the scores u_i of the positives and v_j of the negatives, and the mass M
of the kept positives.

An intercept cancels in every pair. If no hard rows are dropped (lo = 0, and tpr up to 1), G is the maximum of convex
functions over the weights p and q. `PairTop` fixes the dropped rows. It is convex, an upper bound on G, and equal to G
at the w that defines the dropped rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .arrays import Array
from .cuts import select, top_within
from .objective import Design


def squared_hinge_sums(u: Array, v: Array, R: Array, orders: tuple[int, ...]) -> list[Array]:
    """Sums over the negatives of the pair loss l = max(0, 1 - (u_i - v_j))^2, or of its derivatives.

    For each order the result is sum_j D(u_i - v_j) R_j with D = l, -l', l'' (order 0, 1, 2), of shape (a,) or (a, c),
    for the scores u (a,) of the positives and v (b,) of the negatives, and the weights R (b,) or (b, c) of the
    negatives. It comes from cumulative sums of R, v R and v^2 R with v sorted and centred, in O(n log n): no matrix of
    pairs is formed. By symmetry, `squared_hinge_sums(-v, -u, ...)` adds over the positives for each negative.
    """
    order = np.argsort(v, kind="stable")
    middle = float(v[order[len(v) // 2]]) if len(v) else 0.0
    sorted_v, weights = v[order] - middle, R[order]
    reach = 1.0 - (u - middle)  # the margin of a pair is reach + v
    index = np.searchsorted(sorted_v, -reach, side="right")
    columns = (slice(None), *[None] * (R.ndim - 1))
    powers = [weights, weights * sorted_v[columns], weights * (sorted_v**2)[columns]][: 3 - min(orders)]
    above = [_sums_from_the_top(power)[index] for power in powers]
    reach = reach[columns]
    found = {
        2: lambda: 2.0 * above[0],
        1: lambda: 2.0 * (above[1] + reach * above[0]),
        0: lambda: above[2] + reach * (2.0 * above[1] + reach * above[0]),
    }
    return [found[each]() for each in orders]


def _sums_from_the_top(values: Array) -> Array:
    """Entry j is the sum of values[j:]; the last one is 0."""
    out = np.zeros((len(values) + 1, *values.shape[1:]))
    np.cumsum(values[::-1], axis=0, out=out[1:])
    return out[::-1]


class Masses(NamedTuple):
    """The ranks of one class to keep, m+1 to k, as masses; rank 1 is the hardest row."""

    m: float
    k: float

    @property
    def kept(self) -> float:
        """The kept mass, k - m."""
        return self.k - self.m


class PairPoint(NamedTuple):
    """The objective at w: its value and gradient, scores and weights.

    The positives have the scores u and the weights p, the negatives v and q. The weights of each class sum to 1.
    """

    w: Array
    value: float
    gradient: Array
    u: Array
    v: Array
    p: Array
    q: Array


@dataclass(frozen=True, eq=False)
class PairTop:
    """The convex problem with the dropped rows fixed: the mean loss of the hardest pairs, with capped row weights.

    The rows of the two classes have no intercept. `scale` is the factor of the mean loss of the kept pairs, `kept_...`
    the masses to keep, and `..._caps` the largest weight of each row.
    """

    positives: Design
    negatives: Design
    scale: float
    kept_positives: float
    kept_negatives: float
    positive_caps: Array
    negative_caps: Array

    def scores(self, w: Array) -> tuple[Array, Array]:
        """Scores of the positives and of the negatives, in float64."""
        u, v = (design.scores(w[None])[0].astype(np.float64) for design in (self.positives, self.negatives))
        return u, v

    def weights(self, u: Array, v: Array) -> tuple[Array, Array]:
        """The weights p and q at these scores, each with sum 1; ties share in proportion to their caps."""
        p = _top(-u, self.positive_caps, self.kept_positives)
        return p, _top(v, self.negative_caps, self.kept_negatives)

    def at(self, w: Array) -> PairPoint:
        """The objective at w."""
        return self.at_scores(w, *self.scores(w))

    def at_scores(self, w: Array, u: Array, v: Array, weights: tuple[Array, Array] | None = None) -> PairPoint:
        """The objective at w, whose scores are u and v, with its own or the given weights (p, q).

        Other weights within the caps give a lower bound on the objective.
        """
        p, q = self.weights(u, v) if weights is None else weights
        i, j = _inside(p), _inside(q)
        losses, pull = squared_hinge_sums(u[i], v[j], q[j], (0, 1))
        (push,) = squared_hinge_sums(-v[j], -u[i], p[i], (1,))
        gradient = w + self.scale * (
            _adjoint(self.negatives, j, q[j] * push) - _adjoint(self.positives, i, p[i] * pull)
        )
        value = self.scale * float(p[i] @ losses) + 0.5 * float(w @ w)
        return PairPoint(w, value, gradient, u, v, p, q)

    def hessian(self, point: PairPoint) -> Array:
        """The (generalised) second derivative (p, p) with fixed weights, in O(n p^2)."""
        i, j = _inside(point.p), _inside(point.q)
        u, v, p, q = point.u[i], point.v[j], point.p[i], point.q[j]
        (bend,) = squared_hinge_sums(u, v, q, (2,))
        (bend_back,) = squared_hinge_sums(-v, -u, p, (2,))
        X, Y = _dense(self.positives, i), _dense(self.negatives, j)
        matrix = _gram(X, p * bend) + _gram(Y, q * bend_back)
        if len(X) <= len(Y):  # sum over the smaller class
            (mixed,) = squared_hinge_sums(-v, -u, p[:, None] * X, (2,))
            cross = mixed.T @ (q[:, None] * Y)
        else:
            (mixed,) = squared_hinge_sums(u, v, q[:, None] * Y, (2,))
            cross = (p[:, None] * X).T @ mixed
        return np.eye(len(point.w)) + self.scale * (matrix - cross - cross.T)

    def lines(self, point: PairPoint, positive: bool, rows: Array) -> tuple[Array, Array]:
        """The loss per unit of weight of each of these rows, times `scale`, and its gradient (rows, p).

        The weights of the other class are fixed. `rows` are indices of positives if `positive` is True, otherwise of
        negatives.
        """
        sign = -1.0 if positive else 1.0
        scores, other = (point.u, point.v) if positive else (point.v, point.u)
        weights = point.q if positive else point.p
        design, opposite = (self.positives, self.negatives) if positive else (self.negatives, self.positives)
        j = _inside(weights)
        at, others = -sign * scores[rows], -sign * other[j]
        held = weights[j][:, None] * np.column_stack([np.ones(len(weights[j])), _dense(opposite, j)])
        (losses,) = squared_hinge_sums(at, others, held[:, 0], (0,))
        (pulls,) = squared_hinge_sums(at, others, held, (1,))
        gradient = sign * (pulls[:, :1] * _dense(design, rows) - pulls[:, 1:])
        return self.scale * losses, self.scale * gradient


@dataclass(frozen=True, eq=False)
class PairObjective:
    """Partial AUC of a linear model: the ranked range over the negatives, and over the positives.

    C is relative to the sum over the kept positives of their mean loss, and `..._mass` is the mass of each row. The
    masses to keep are counted from the lowest score for the positives and from the highest for the negatives.
    """

    positives: Design
    negatives: Design
    C: float
    positive_mass: Array
    negative_mass: Array
    of_positives: Masses
    of_negatives: Masses

    @property
    def convex(self) -> bool:
        """Whether the objective is convex: no hard rows are dropped."""
        return self.of_positives.m == 0 and self.of_negatives.m == 0

    def cutting(self, w: Array) -> PairTop:
        """The convex problem in which the rows dropped at w stay dropped."""
        top = self._top()
        u, v = top.scores(w)
        dropped = _top(-u, self.positive_mass, self.of_positives.m) * self.of_positives.m
        positive_caps = np.maximum(self.positive_mass - dropped, 0.0)
        dropped = _top(v, self.negative_mass, self.of_negatives.m) * self.of_negatives.m
        return replace(top, positive_caps=positive_caps, negative_caps=np.maximum(self.negative_mass - dropped, 0.0))

    def at(self, w: Array) -> PairPoint:
        """The objective at w with one of its gradients and its weights."""
        top = self._top()
        u, v = top.scores(w)
        p = select(-u, *self.of_positives, self.positive_mass).weights / self.of_positives.kept
        q = select(v, *self.of_negatives, self.negative_mass).weights / self.of_negatives.kept
        return top.at_scores(w, u, v, (p, q))

    def value(self, w: Array) -> float:
        """The objective at w."""
        return self.at(w).value

    def _top(self) -> PairTop:
        kept = self.of_positives.kept
        return PairTop(
            self.positives,
            self.negatives,
            self.C * kept,
            kept,
            self.of_negatives.kept,
            self.positive_mass,
            self.negative_mass,
        )


def _top(s: Array, caps: Array, kept: float) -> Array:
    """Weights of the largest s, at most `caps`, that sum to `kept`; then scaled to sum to 1. All 0 if `kept` is 0.

    If the caps sum to `kept` or less, the weights are the scaled caps.
    """
    if kept <= 0:
        return np.zeros_like(s)
    if float(caps.sum()) * (1.0 - 1e-12) <= kept:
        return caps / caps.sum()
    return top_within(s, caps, kept) / kept


def _inside(weights: Array) -> Array | slice:
    """The rows with positive weight; a slice if all rows have one, which avoids a copy."""
    rows = np.flatnonzero(weights)
    return slice(None) if len(rows) == len(weights) else rows


def _dense(design: Design, rows: Array | slice) -> Array:
    X = design.X if isinstance(rows, slice) else design.X[rows]
    return np.asarray(X.toarray() if design.sparse else X, dtype=np.float64)


def _gram(X: Array, h: Array) -> Array:
    """sum_i h_i x_i x_i' for h >= 0."""
    weighted = X * np.sqrt(h)[:, None]
    return np.asarray(weighted.T @ weighted)


def _adjoint(design: Design, rows: Array | slice, r: Array) -> Array:
    """sum_i r_i x_i over these rows."""
    X = design.X if isinstance(rows, slice) else design.X[rows]
    return np.asarray(X.T @ r, dtype=np.float64)
