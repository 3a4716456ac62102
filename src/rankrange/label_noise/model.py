"""`LabelNoiseModel`: the posterior probability that each label is wrong, from out-of-fold predictions.

**Likelihood.** The members of an ensemble are mixed with the weights under which the given labels are most likely. Rows
that the mixture predicts to be of class c have the label c with a probability that increases with the confidence of the
prediction: overlap gives this curve (`reliability`) a slope, label noise a floor of errors at high confidence. The rank
of the log odds gives the evidence of the rates, because models may have learnt how noisy the labels are; the log odds
themselves give the probabilities of rows.

**Prior** (`NoisePrior`). No label is wrong; or all classes share one rate; or each class has a different rate, often
zero. The hardness of the table is a latent variable, and the wrong labels of a class have a Dirichlet prior.

**Posterior.** A sum over grids of rates, latent variables and curves. The likelihood of the rates is raised to a power
below 1, because out-of-fold predictions depend on the same labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logit, logsumexp, ndtr, softmax

from ..core.arrays import Array
from .prior import RATES, NoisePrior
from .reliability import POINTS, Destinations, Groups, OddsCurves, bounded, by_hardness, latent_log_prior, rank_evidence

# The number of EM steps for the weights of the members: enough for an accuracy of .01.
_EM_STEPS = 100
# A row counts as predicted to be of each class in proportion to this power of its probabilities, so that p_wrong does
# not jump where two probabilities are equal. The log loss of development tables is the same with 8, higher with 1 or 2.
_SHARPNESS = 4.0
# Hypotheses with a smaller probability are left out.
_NEGLIGIBLE = 1e-4
# If errors are hidden, these parts of the labels that may be wrong unnoticed are equally likely. All of them have the
# probability .05, so the upper limit of the interval is at least the contradicted share.
_PARTS = np.arange(1, 11) / 10


class RowPosterior(NamedTuple):
    """p_wrong (n,) and p_true (n, classes) of some rows, as in `LabelNoisePosterior`."""

    p_wrong: Array
    p_true: Array


@dataclass(frozen=True)
class LabelNoisePosterior:
    """The posterior of the label-noise model; the result of `LabelNoiseModel.fit`.

    Parameters
    ----------
    p_wrong, p_true : ndarray of shape (n,) and (n, classes)
        The probability that each label is wrong, and that of each true class. For rows without a prediction p_wrong is
        the share of wrong labels, which the other classes divide equally.
    share, interval : float and tuple of float
        The expected share of wrong labels among the rows with a prediction, by weight, and its 95% interval.
    contradicted, no_error : float
        The share of labels that are not the most probable class of the mixture, and the probability that none is wrong.
    transition : ndarray of shape (classes, classes)
        The expected transition matrix: rates of each given label (columns) for each true class (rows).
    weights, gains : dict of str to float
        The weight of each member, and its gain in log likelihood over the class frequencies, after calibration: a sum
        over the rows, at least 0. Gains include that of "ensemble".
    mean : ndarray of shape (n, classes)
        The mixture of the members. Rows without a prediction contain NaN or infinity.
    _rule : object
        Computes the posterior of new rows.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.label_noise import LabelNoiseModel
    >>> P = np.tile([[0.9, 0.1], [0.1, 0.9]], (50, 1))
    >>> posterior = LabelNoiseModel().fit({"model": P}, np.tile([0, 1], 50))
    >>> bool(posterior.predict({"model": P[:2]}, np.array([0, 1])).p_wrong.max() < 0.1)
    True
    """

    p_wrong: Array = field(repr=False)
    p_true: Array = field(repr=False)
    share: float
    interval: tuple[float, float]
    contradicted: float
    no_error: float
    transition: Array
    weights: dict[str, float]
    gains: dict[str, float]
    mean: Array = field(repr=False)
    _rule: _Rule = field(repr=False)

    def predict(self, predictions: Mapping[str, Array], codes: Array) -> RowPosterior:
        """The posterior of new rows with labels `codes` (n,), from predictions of the same members for these rows.

        Members with weight 0 may be left out. Rows with NaN in a prediction get NaN.
        """
        missing = [name for name, weight in self.weights.items() if weight > 0.0 and name not in predictions]
        if missing:
            raise ValueError(
                f"predict needs predictions of all members of the fit, got none of {', '.join(missing)}; pass them too"
            )
        used = {name: predictions[name] for name in self.weights if name in predictions}
        P, codes = _mixed(_checked(used, codes), self.weights), np.asarray(codes)
        _check_codes(codes, len(self.transition))
        return self._rule.rows(P, codes)

    def without_rows(self) -> LabelNoisePosterior:
        """The posterior with empty p_wrong, p_true and mean, which is small enough to send to workers."""
        none = np.empty(0)
        return replace(self, p_wrong=none, p_true=none, mean=none)


@dataclass(frozen=True)
class LabelNoiseModel:
    """Model of class-conditional label noise, given out-of-fold predictions.

    Parameters
    ----------
    prior : NoisePrior
        The prior.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.label_noise import LabelNoiseModel
    >>> rng = np.random.default_rng(0)
    >>> true = rng.integers(0, 2, 400)
    >>> P = np.where(true[:, None] == np.arange(2), 0.95, 0.05)
    >>> given = np.where(rng.random(400) < 0.1, 1 - true, true)
    >>> posterior = LabelNoiseModel().fit({"model": P}, given)
    >>> bool((posterior.p_wrong[given != true] > 0.5).all()), round(posterior.share, 1)
    (True, 0.1)
    """

    prior: NoisePrior = field(default_factory=NoisePrior)

    def __post_init__(self) -> None:
        if not isinstance(self.prior, NoisePrior):
            raise TypeError(
                f"prior must be a NoisePrior, got {self.prior!r}; pass for example NoisePrior(no_error=0.9)"
            )

    def fit(self, predictions: Mapping[str, Array], codes: Array, weight: Array | None = None) -> LabelNoisePosterior:
        """Fit the weights of the members and the posterior of all hypotheses.

        Parameters
        ----------
        predictions : mapping of str to ndarray of shape (n, classes)
            Out-of-fold probabilities by each member of the ensemble, for at least two classes. Rows with NaN or
            infinity in any member have no prediction: they get the share of wrong labels as p_wrong.
        codes : ndarray of shape (n,)
            The given labels, 0..classes-1.
        weight : ndarray of shape (n,), optional
            Weights of the rows; weight 2 equals the row twice. Rows with weight 0 are predicted but not used in the
            fit.

        Returns
        -------
        LabelNoisePosterior
            The posterior of all rows.
        """
        codes, every = np.asarray(codes), _checked(predictions, codes)
        _check_codes(codes, next(iter(every.values())).shape[1])
        known = np.all([np.isfinite(P).all(axis=1) for P in every.values()], axis=0)
        mass = np.ones(len(codes)) if weight is None else np.asarray(weight, dtype=np.float64)
        if mass.shape != codes.shape:
            raise ValueError(f"weight must have one number per label, shape {codes.shape}, got {mass.shape}")
        rows = np.flatnonzero(known & (mass > 0.0))
        if not len(rows):
            raise ValueError(
                f"label noise needs rows with a prediction and a positive weight, got none of {len(codes)} rows; pass "
                "finite predictions and weights above 0"
            )
        training = {name: P[rows] for name, P in every.items()}
        likelihood = _of_labels(training, codes[rows])
        found_weights = mixture_weights(likelihood, mass[rows], self.prior.dirichlet_rows)
        weights = dict(zip(every, found_weights.tolist(), strict=True))
        P = _mixed(training, weights)
        rule, hypotheses = _learn(self.prior, P, codes[rows], mass[rows])
        mean = _mixed(every, weights)
        predicted = np.flatnonzero(known)
        found = rule.rows(mean[predicted], codes[predicted])
        share = float(mass[predicted] @ found.p_wrong / mass[predicted].sum())
        p_wrong, p_true = np.full(len(codes), share), np.full(mean.shape, (share / max(mean.shape[1] - 1, 1)))
        p_true[np.arange(len(codes)), codes] = 1.0 - share
        p_wrong[predicted], p_true[predicted] = found
        contradicted = float(mass[rows] @ (P.argmax(axis=1) != codes[rows]) / mass[rows].sum())
        interval = hypotheses.interval(self.prior, rule, P, codes[rows], mass[rows], share)
        gains = {name: _gain(Q, codes[rows], mass[rows]) for name, Q in {**training, "ensemble": P}.items()}
        return LabelNoisePosterior(
            p_wrong,
            p_true,
            share,
            interval,
            contradicted,
            hypotheses.no_error,
            rule.transition,
            weights,
            gains,
            mean,
            rule,
        )


def mixture_weights(likelihood: Array, mass: Array, rows: float = NoisePrior.dirichlet_rows) -> Array:
    """The most likely mixture weights (members,), by EM.

    `likelihood` (members, n) has the probability of the given label under each member, `mass` (n,) the row weights. The
    Dirichlet prior favours equal weights as so many `rows` would.
    """
    n = float(mass.sum())
    likelihood, mass, equal = bounded(likelihood, n), mass / n, rows / (rows + n)
    weights = np.full(len(likelihood), 1.0 / len(likelihood))
    for _ in range(_EM_STEPS if len(likelihood) > 1 else 0):
        weights = (1.0 - equal) * weights * (likelihood @ (mass / (weights @ likelihood))) + equal / len(likelihood)
    return np.asarray(weights)


def _checked(predictions: Mapping[str, Array], codes: Array) -> dict[str, Array]:
    if not isinstance(predictions, Mapping):
        raise TypeError(
            f"predictions must be a mapping of names to arrays (n, classes), got {type(predictions).__name__}; pass "
            'for example {"model": P}'
        )
    found = {name: np.asarray(P, dtype=np.float64) for name, P in predictions.items()}
    shapes = {P.shape for P in found.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2 or next(iter(shapes))[0] != len(codes):
        raise ValueError(
            f"predictions must be arrays (n, classes) of one shape with n = {len(codes)} labels, got {sorted(shapes)}"
        )
    n_classes = next(iter(shapes))[1]
    if n_classes < 2:
        raise ValueError(f"need predictions of at least two classes, got {n_classes}; pass a column for each class")
    for name, P in found.items():
        values = P[np.isfinite(P)]
        if len(values) and (values.min() < 0.0 or values.max() > 1.01):
            raise ValueError(
                f"predictions must be probabilities from 0 to 1, got {values.min():.3g} to {values.max():.3g} of "
                f"{name!r}; convert scores by softmax, or divide each row by its sum"
            )
    return found


def _check_codes(codes: Array, n_classes: int) -> None:
    if codes.ndim != 1 or codes.dtype.kind not in "iu" or not ((codes >= 0) & (codes < n_classes)).all():
        found = f"{codes.dtype} {np.unique(codes)[:5].tolist()}"
        raise ValueError(
            f"codes must be integers from 0 to {n_classes - 1}, the columns of the predictions, got {found}; use "
            "np.unique(labels, return_inverse=True)[1]"
        )


def _of_labels(predictions: Mapping[str, Array], codes: Array) -> Array:
    return np.stack([P[np.arange(len(codes)), codes] for P in predictions.values()])


def _mixed(predictions: Mapping[str, Array], weights: Mapping[str, float]) -> Array:
    return np.asarray(sum(weights[name] * np.asarray(P, dtype=np.float64) for name, P in predictions.items()))


def _gain(P: Array, codes: Array, mass: Array) -> float:
    """The gain in log likelihood over the class frequencies, at least 0, of predictions that are calibrated by a power.

    Overconfident predictions may still be informative.
    """
    frequency = np.bincount(codes, weights=mass, minlength=P.shape[1]) / mass.sum()
    usual = np.log(np.maximum(frequency, 1e-12))
    logs, labels = np.log(bounded(P, mass.sum())) - usual, codes[:, None]

    def loss(power: float) -> float:
        found = np.take_along_axis(log_softmax(power * logs + usual, axis=1), labels, axis=1)[:, 0]
        return float(mass @ (usual[codes] - found))

    return max(0.0, -minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded").fun)


def _confidence(P: Array, label: int, n: float) -> Array:
    return np.asarray(logit(bounded(P[:, label], n)))


def _rank_score(confidence: Array, mass: Array) -> Array:
    """Array (n,): log((1 + total mass) / rank), which is large for confident rows.

    The rank is the mass from the most confident row on, at least 1/2; ties get their mean rank.
    """
    values, value_of = np.unique(-confidence, return_inverse=True)
    tied = np.bincount(value_of, weights=mass, minlength=len(values))
    rank = np.cumsum(tied) - 0.5 * (tied - 1.0)
    return np.asarray(np.log((1.0 + tied.sum()) / np.maximum(rank, 0.5))[value_of])


# ---- the posterior of a row ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Rule:
    """The posterior of a row from its prediction and its label.

    `weights` (classes, rates) are the probabilities of each rate, `curves` (classes, rates, points) those that the
    predicted class is the true one at each confidence in `points`, `to` (true, given) has the distribution of the wrong
    labels of each class, and `n` is the number of rows of the fit, by weight.
    """

    weights: Array
    points: Array
    curves: Array
    to: Array
    n: float

    @property
    def mean_rates(self) -> Array:
        return np.asarray(self.weights @ RATES)

    @property
    def transition(self) -> Array:
        return _transition(self.mean_rates, self.to)

    def rows(self, P: Array, codes: Array) -> RowPosterior:
        """The posterior of rows: an average over predicted classes and their rates; other classes have mean rates."""
        p_true = np.zeros(P.shape)
        predicted = bounded(P, self.n) ** _SHARPNESS
        predicted /= predicted.sum(axis=1, keepdims=True)
        for label in range(P.shape[1]):
            rows = np.flatnonzero(~(predicted[:, label] < _NEGLIGIBLE))
            for rate in np.flatnonzero(self.weights[label] > _NEGLIGIBLE).tolist() if len(rows) else ():
                weight = self.weights[label, rate] * predicted[rows, label, None]
                p_true[rows] += weight * self.given_rate(label, rate, P[rows], codes[rows])
        p_true /= p_true.sum(axis=1, keepdims=True)
        return RowPosterior(1.0 - p_true[np.arange(len(codes)), codes], p_true)

    def given_rate(self, label: int, rate: int, P: Array, codes: Array) -> Array:
        """p_true (n, classes) of rows predicted to be of class `label`, under its rate with this index of `RATES`."""
        true = np.interp(_confidence(P, label, self.n), self.points, self.curves[label, rate])
        # predictions of noisy labels are less confident than those of true classes
        others = bounded(P, self.n) ** (1.0 / (1.0 - RATES[rate] - _incoming(P.shape[1])[rate]))
        others[:, label] = 0.0
        classes = (1.0 - true)[:, None] * others / others.sum(axis=1, keepdims=True)
        classes[:, label] = true
        rates = self.mean_rates
        rates[label] = RATES[rate]
        joint = classes * _transition(rates, self.to)[:, codes].T
        return np.asarray(joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300))


def _incoming(n_classes: int) -> Array:
    """Array (rates,): the rate at which labels of another class become a given class, if all are equally likely."""
    return np.asarray(RATES / max(n_classes - 1, 1))


def _transition(rates: Array, to: Array) -> Array:
    T = rates[:, None] * to
    T[np.diag_indices(len(T))] = 1.0 - rates
    return T


# ---- hypotheses about the rates --------------------------------------------------------------------------------------


class _Hypotheses(NamedTuple):
    """Posterior probabilities of the hypotheses, each together with the latent variables of the table.

    `none` (latents,): no label is wrong. `shared` (latents, rates): all classes have this rate. `by_class` (latents,):
    each class has a rate, whose posterior given the latent variables is `rates` (classes, latents, rates).
    """

    none: Array
    shared: Array
    by_class: Array
    rates: Array

    @classmethod
    def of(cls, prior: NoisePrior, evidence: Array) -> _Hypotheses:
        """Prior times evidence, normalised; `evidence` (classes, latents, rates) has the logarithms of the evidence."""
        some = 1.0 - prior.no_error
        with np.errstate(divide="ignore"):
            shared, rates = (np.log(part) for part in prior.rates(len(evidence)))
            kinds = np.log([prior.no_error, some * prior.shared_rate, some * (1.0 - prior.shared_rate)])
        latent, rates = latent_log_prior(prior), rates + evidence
        logs = (
            kinds[0] + latent + evidence[:, :, 0].sum(axis=0),
            kinds[1] + latent[:, None] + shared + evidence.sum(axis=0),
            kinds[2] + latent + logsumexp(rates, axis=2).sum(axis=0),
        )
        total = logsumexp([logsumexp(part) for part in logs])
        none, same, by_class = (np.exp(part - total) for part in logs)
        return cls(none, same, by_class, softmax(rates, axis=2))

    @property
    def joint(self) -> Array:
        """Array (classes, latents, rates): the joint probability of the rate of a class and the latent variables."""
        found = self.by_class[:, None] * self.rates + self.shared
        found[:, :, 0] += self.none
        return np.asarray(found)

    @property
    def no_error(self) -> float:
        return float(self.none.sum() + self.by_class @ self.rates[:, :, 0].prod(axis=0))

    def interval(
        self, prior: NoisePrior, rule: _Rule, P: Array, codes: Array, mass: Array, share: float
    ) -> tuple[float, float]:
        """The 95% interval of the share. The upper limit is at least share + 3 / n (rule of three).

        Its limits are quantiles of a mixture: a point at 0, a normal distribution for each shared rate, and one for
        each value of the latent variables. The binomial variance of the share is added. Errors near class boundaries
        look like overlap, so a part of the labels that `_most_hidden` counts is added to each, from the prior
        `hidden_errors`. Limits lie on a grid of steps of 0.0005; a lower limit of one step is reported as 0.
        """
        predicted, n, weights = P.argmax(axis=1), float(mass.sum()), rule.weights
        by_rate, part = np.zeros(weights.shape), np.bincount(predicted, weights=mass, minlength=len(weights)) / n
        for label in np.flatnonzero(part).tolist():
            rows = np.flatnonzero(predicted == label)
            for rate in np.flatnonzero(weights[label] > _NEGLIGIBLE).tolist():
                true = rule.given_rate(label, rate, P[rows], codes[rows])[np.arange(len(rows)), codes[rows]]
                by_rate[label, rate] = 1.0 - mass[rows] @ true / mass[rows].sum()
        spread = np.gradient(RATES) / np.sqrt(12.0) / np.maximum(RATES, RATES[1])  # a rate stands for its interval
        mean, square = (self.rates @ part[:, :, None] for part in (by_rate, by_rate**2 * (1.0 + spread**2)))
        variance = part**2 @ (square - mean**2)[:, :, 0].clip(0.0)
        centres = np.concatenate([[0.0], part @ by_rate, part @ mean[:, :, 0]])
        deviations = np.concatenate([[0.0], spread * (part @ by_rate), np.sqrt(variance)])
        chances = np.concatenate([[self.none.sum()], self.shared.sum(axis=0), self.by_class])
        deviations = np.hypot(deviations, np.where(centres > 0.0, np.sqrt(share * (1.0 - share) / n), 0.0)) + 1e-9
        likely = chances > _NEGLIGIBLE**2
        centres, deviations, chances = centres[likely], deviations[likely], chances[likely]
        parts = np.append(0.0, _PARTS)[:, None]
        hidden = np.append(1.0 - prior.hidden_errors, np.full(len(_PARTS), prior.hidden_errors / len(_PARTS)))
        most = _most_hidden(predicted == codes, codes, mass, len(weights))
        error = np.sqrt(most * (1.0 - most) / n)
        centres = centres + parts * np.maximum(most - centres, 0.0)
        deviations = np.hypot(np.maximum(1.0 - parts, 0.0) * deviations, parts * error) + 1e-9
        grid = np.linspace(0.0, 1.0, 2001)
        below = hidden @ (ndtr((grid[:, None, None] - centres) / deviations) @ chances).T
        low, high = np.searchsorted(below, [0.025, 0.975]).clip(0, 2000)
        return (0.0 if low <= 1 else float(grid[low])), float(min(1.0, max(grid[high], share + 3.0 / n)))


def _most_hidden(confirmed: Array, codes: Array, mass: Array, n_classes: int) -> float:
    """The largest share of wrong labels if errors are hidden: the contradicted labels, and those that models learnt.

    If models confirm less than a fourth of the labels of a class, most of its members may have another label, with
    which models agree. Each contradicted label of the class that is not offset by a third of a confirmed one then
    stands for up to two of them. Labels are random at a share of 1 - 1 / n_classes.
    """
    contradicted, confirmed = (
        np.bincount(codes, mass * part, n_classes) / mass.sum() for part in (~confirmed, confirmed)
    )
    learnt = 2.0 * np.maximum(contradicted - 3.0 * confirmed, 0.0).sum()
    return float(max(contradicted.sum(), min(contradicted.sum() + learnt, 1.0 - 1.0 / n_classes)))


def _learn(prior: NoisePrior, P: Array, codes: Array, mass: Array) -> tuple[_Rule, _Hypotheses]:
    K, predicted, n = P.shape[1], P.argmax(axis=1), float(mass.sum())
    frequency = np.bincount(codes, weights=mass, minlength=K) / n
    possible = np.flatnonzero(prior.rates(K)[1] > 0.0)
    low, high = _incoming(K)[possible], RATES[possible]
    evidence = np.full((K, len(latent_log_prior(prior)), len(RATES)), -np.inf)
    curves = []
    for label in range(K):
        rows = np.flatnonzero(predicted == label)
        odds, agree = _confidence(P[rows], label, n), (codes[rows] == label).astype(np.float64)
        by_rank = Groups.of(_rank_score(odds, mass[rows]), agree, mass[rows])
        share = float(frequency[label])
        curves.append(OddsCurves.of(prior, Groups.of(odds, agree, mass[rows]), low, high, share, n))
        others = Destinations.of(by_rank, bounded(P[rows], n), label, codes[rows], mass[rows]) if K > 2 else None
        # A class that no row has as its label is not hard: it would make the whole table look hard.
        evidence[label][:, possible] = (
            rank_evidence(prior, by_rank, others, low, high, share, n) if share > 0.0 else 0.0
        )
    hypotheses = _Hypotheses.of(prior, evidence)
    joint, points = by_hardness(hypotheses.joint), _points(n)
    means = np.zeros((K, len(RATES), len(points)))
    for label, found in enumerate(curves):
        means[label, possible] = found.mean(prior, joint[label][:, possible], points)
    even = (1.0 - np.eye(K)) / max(K - 1, 1)
    rule = _Rule(joint.sum(axis=1), points, means, even, n)
    if K == 2:
        return rule, hypotheses
    p_true = rule.rows(P, codes).p_true
    flow = np.stack([mass[codes == label] @ p_true[codes == label] for label in range(K)], axis=1)
    np.fill_diagonal(flow, 0.0)
    flow += prior.dirichlet_rows * even
    return replace(rule, to=flow / flow.sum(axis=1, keepdims=True)), hypotheses


def _points(n: float) -> Array:
    """Sorted confidences, as log odds: equal steps of probabilities and of log odds, for curves to be interpolated."""
    low, high = bounded(np.array([0.0, 1.0]), n)
    by_probability = logit(np.linspace(low, high, POINTS))
    return np.unique(np.concatenate([by_probability, np.linspace(logit(low), logit(high), POINTS)]))
