"""`LabelNoiseModel`: the posterior probability that each label is wrong, from out-of-fold predictions.

**Likelihood.** The members of an ensemble are mixed with the weights under which the given labels are most likely. Rows
that the mixture predicts to be of class c have the label c with a probability that increases with the confidence of the
prediction (`reliability`). Errors at low confidence come from overlap of the classes; errors that remain at high
confidence come from label noise. Overlap gives the reliability curve a slope, and noise adds a floor of errors.
Confidence is measured in two ways: by the log odds of the predicted class, and by the rank of these log odds among the
rows that are predicted to be of this class. Log odds express how certain the models are. Ranks are not affected by
models that have learnt how noisy the labels are.

**Prior** (`NoisePrior`). No label is wrong; or all classes share one rate; or each class has a different rate, often
zero. The steepness of the curves is similar for all classes of a table, so a single class with a floor stands out. The
distribution of the wrong labels of a class over the other classes has a symmetric Dirichlet prior. If the predictions
are hardly better than the class frequencies, the curves show nothing: either the true classes cannot be predicted, or
wrong labels hide them. In the first case the rates keep their prior; in the second, high rates are more likely. Both
likelihoods are averaged geometrically.

**Posterior.** The posterior of the rates is computed on a grid, exactly given the curves. Likelihoods are raised to
powers below 1, because out-of-fold predictions depend on the same labels. Otherwise one label could decide between two
hypotheses, and the posterior would be overconfident.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, log_softmax, logsumexp, ndtr, softmax

from ..core.arrays import Array
from .reliability import CurvePrior, Curves, Groups, fit_curves

# The grid of rates of wrong labels of a class: dense where the posterior of a clean table has its mass.
RATES = np.array([0, 3, 10, 20, 35, 50, 75, 100, 130, 160, 200, 240, 280, 330, 380, 440, 500, 560]) / 1000.0
# Rates above this share of the rate of random labels are excluded, because such labels are uninformative.
_LARGEST = 0.95
# Probabilities are at least this number divided by n, because n rows cannot show a higher certainty.
_LEAST_OF_ROWS = 0.5
# The number of EM steps for the weights of the members, and the largest number of rows, which gives weights to .01 to
# .02.
_EM_STEPS, _WEIGHT_ROWS = 300, 200_000
# The number of rounds for the distribution of the wrong labels of each true class.
_ROUNDS = 2
# Hypotheses with a smaller probability are left out.
_NEGLIGIBLE = 1e-4
# The log likelihood that fitted mixture weights gain over the class frequencies by chance.
_CHANCE_GAIN = 8.0


@dataclass(frozen=True)
class NoisePrior:
    """The prior of the label-noise model. Its defaults were chosen by log loss on development tables.

    Parameters
    ----------
    no_error : float
        Probability that no label is wrong.
    shared_rate : float
        If some labels are wrong: probability that all classes have the same rate.
    class_unaffected : float
        If rates differ: probability that a class has no wrong label.
    rate_decay : float
        The density of rates decreases as exp(-rate / rate_decay).
    uninformative : float
        Probability that the predictions hold too little information about the labels to show the rates. In this case
        all labels of a class have the same p_wrong.
    surprises : float
        Least probability that the predicted class is not the true one, even with the highest confidence.
    log_steepness, steepness_loss, log_steepness_sd : float
        Normal prior of the log steepness with which errors decrease with the rank of the confidence: its mean if no row
        of a class is hard, the decrease of the mean per share of hard rows, and its standard deviation. A row is hard
        if its prediction is wrong, whatever its label.
    class_sd : float
        Standard deviation of the log steepness between the classes of one table.
    log_scale_sd : float
        Standard deviation of the log scale of the log odds, relative to calibrated predictions.
    odds_shift_sd, rank_shift_sd : float
        Standard deviations of the shift of the curves by log odds and by rank.
    odds_power, rank_power : float
        Powers to which the likelihoods by log odds and by rank are raised.
    direction_rows : float
        Weight of the Dirichlet prior for the wrong labels of a true class, in rows.

    Examples
    --------
    >>> from rankrange.label_noise import LabelNoiseModel, NoisePrior
    >>> LabelNoiseModel(NoisePrior(no_error=0.0)).prior.no_error  # some labels are known to be wrong
    0.0
    """

    no_error: float = 0.4
    shared_rate: float = 0.5
    class_unaffected: float = 0.5
    rate_decay: float = 0.4
    uninformative: float = 0.13
    surprises: float = 0.003
    log_steepness: float = 1.8
    steepness_loss: float = 6.0
    log_steepness_sd: float = 0.6
    class_sd: float = 0.5
    log_scale_sd: float = 0.7
    odds_shift_sd: float = 1.0
    rank_shift_sd: float = 2.0
    odds_power: float = 0.7
    rank_power: float = 0.4
    direction_rows: float = 2.0

    def rates(self, n_classes: int) -> tuple[Array, Array]:
        """Prior probabilities of the grid `RATES`: of a rate that all classes share, and of the rate of one class."""
        density = np.exp(-RATES / self.rate_decay) * np.gradient(RATES)
        density[(RATES == 0.0) | (_LARGEST * (1.0 - 1.0 / n_classes) < RATES)] = 0.0
        shared = density / density.sum()
        by_class = (1.0 - self.class_unaffected) * shared
        by_class[0] = self.class_unaffected
        return shared, by_class


class RowPosterior(NamedTuple):
    """p_wrong (n,) and p_true (n, classes) of some rows."""

    p_wrong: Array
    p_true: Array


@dataclass(frozen=True)
class LabelNoisePosterior:
    """The posterior of the label-noise model; the result of `LabelNoiseModel.fit`.

    Parameters
    ----------
    p_wrong : ndarray of shape (n,)
        The probability that each label is wrong; for rows without a prediction, the share of wrong labels.
    p_true : ndarray of shape (n, classes)
        The posterior probability of each true class.
    share, interval : float and tuple of float
        The expected share of wrong labels, and its 95% interval.
    no_error : float
        The probability that no label is wrong.
    transition : ndarray of shape (classes, classes)
        The expected transition matrix: rates of each given label (columns) for each true class (rows).
    weights : dict of str to float
        The weight of each member of the ensemble.
    gains : dict of str to float
        The gain in log likelihood of each member, and of "ensemble", over the class frequencies, after calibration.
    mean : ndarray of shape (n, classes)
        The mixture of the members; NaN for rows without a prediction.
    _rule : object
        The rule that computes the posterior of new rows.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.label_noise import LabelNoiseModel
    >>> P = np.tile([[0.9, 0.1], [0.1, 0.9]], (50, 1))
    >>> posterior = LabelNoiseModel().fit({"model": P}, np.tile([0, 1], 50))
    >>> posterior.predict({"model": P[:2]}, np.array([0, 1])).p_wrong.max() < 0.1
    True
    """

    p_wrong: Array
    p_true: Array
    share: float
    interval: tuple[float, float]
    no_error: float
    transition: Array
    weights: dict[str, float]
    gains: dict[str, float]
    mean: Array
    _rule: _Rule = field(repr=False)

    def predict(self, predictions: Mapping[str, Array], codes: Array) -> RowPosterior:
        """The posterior of new rows, from predictions of the same members by models not fitted to these rows.

        Members with weight 0 may be left out. `codes` (n,) are the given labels.
        """
        missing = [name for name, weight in self.weights.items() if weight > 0.0 and name not in predictions]
        if missing:
            raise ValueError(
                f"predict needs predictions of all members of the fit, got none of {', '.join(missing)}; pass them too"
            )
        P = _mixed({name: predictions[name] for name in self.weights if name in predictions}, self.weights)
        return self._rule.rows(P, np.asarray(codes))

    def without_rows(self) -> LabelNoisePosterior:
        """The posterior with empty p_wrong, p_true and mean, which is small enough to send to workers."""
        none = np.empty(0)
        return LabelNoisePosterior(
            none,
            none,
            self.share,
            self.interval,
            self.no_error,
            self.transition,
            self.weights,
            self.gains,
            none,
            self._rule,
        )


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

    def fit(self, predictions: Mapping[str, Array], codes: Array, weight: Array | None = None) -> LabelNoisePosterior:
        """Fit the weights of the members and the posterior of all hypotheses.

        Parameters
        ----------
        predictions : mapping of str to ndarray of shape (n, classes)
            Out-of-fold probabilities by each member of the ensemble. Rows with NaN in any member have no prediction:
            they get the share of wrong labels as p_wrong.
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
        known = np.all([np.isfinite(P).all(axis=1) for P in every.values()], axis=0)
        mass = np.ones(len(codes)) if weight is None else np.asarray(weight, dtype=np.float64)
        rows = np.flatnonzero(known & (mass > 0.0))
        if not len(rows):
            raise ValueError(
                f"label noise needs rows with a prediction and a positive weight, got none of {len(codes)} rows; pass "
                "finite predictions and weights above 0"
            )
        training = {name: P[rows] for name, P in every.items()}
        weights = dict(zip(every, mixture_weights(_of_labels(training, codes[rows]), mass[rows]).tolist(), strict=True))
        P = _mixed(training, weights)
        rule, hypotheses, wide = _learn(self.prior, P, codes[rows], mass[rows])
        mean = _mixed(every, weights)
        predicted = np.flatnonzero(known)
        found = rule.rows(mean[predicted], codes[predicted])
        share = float(mass[predicted] @ found.p_wrong / mass[predicted].sum())
        p_wrong, p_true = np.full(len(codes), share), np.full(mean.shape, (share / max(mean.shape[1] - 1, 1)))
        p_true[np.arange(len(codes)), codes] = 1.0 - share
        p_wrong[predicted], p_true[predicted] = found
        intervals = [part.interval(rule, P, codes[rows], mass[rows], share) for part in (hypotheses, wide)]
        interval = intervals[0][0], max(high for _, high in intervals)  # the true share is more often above than below
        gains = {name: _gain(Q, codes[rows], mass[rows]) for name, Q in {**training, "ensemble": P}.items()}
        return LabelNoisePosterior(
            p_wrong, p_true, share, interval, hypotheses.no_error, rule.transition, weights, gains, mean, rule
        )


def mixture_weights(likelihood: Array, mass: Array) -> Array:
    """The mixture weights (members,) that maximise the likelihood of the labels, by EM.

    `likelihood` (members, n) has the probability of the given label under each member, `mass` (n,) the row weights.
    """
    some = _sample(len(mass))
    likelihood, mass = likelihood[:, some], mass[some]
    likelihood, mass = np.clip(likelihood, _least(mass), 1.0), mass / mass.sum()
    weights = np.full(len(likelihood), 1.0 / len(likelihood))
    for _ in range(_EM_STEPS if len(likelihood) > 1 else 0):
        weights = weights * (likelihood @ (mass / (weights @ likelihood)))
    return np.asarray(weights)


def _sample(n: int) -> Any:
    """The rows to which mixture weights and calibration are fitted: all, or a fixed random sample of 200,000."""
    if n <= _WEIGHT_ROWS:
        return slice(None)
    return np.sort(np.random.default_rng(0).choice(n, _WEIGHT_ROWS, replace=False))


def _checked(predictions: Mapping[str, Array], codes: Array) -> dict[str, Array]:
    found = {name: np.asarray(P, dtype=np.float64) for name, P in predictions.items()}
    shapes = {P.shape for P in found.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2 or next(iter(shapes))[0] != len(codes):
        raise ValueError(
            f"predictions must be arrays (n, classes) of one shape with n = {len(codes)} labels, got {sorted(shapes)}"
        )
    return found


def _of_labels(predictions: Mapping[str, Array], codes: Array) -> Array:
    """Array (members, n): the probability of the given label under each member."""
    return np.stack([P[np.arange(len(codes)), codes] for P in predictions.values()])


def _mixed(predictions: Mapping[str, Array], weights: Mapping[str, float]) -> Array:
    return np.asarray(sum(weights[name] * np.asarray(P, dtype=np.float64) for name, P in predictions.items()))


def _gain(P: Array, codes: Array, mass: Array) -> float:
    """The gain in log likelihood of calibrated predictions over the class frequencies.

    Predictions are calibrated by a power that shrinks them towards the class frequencies, because overconfident
    predictions may still be informative.
    """
    frequency = np.bincount(codes, weights=mass, minlength=P.shape[1]) / mass.sum()
    usual = np.log(np.maximum(frequency, 1e-12))
    some = _sample(len(codes))
    logs, labels = np.log(np.clip(P[some], _least(mass), 1.0)) - usual, codes[some, None]
    share = mass[some] / mass[some].sum()

    def loss(power: float) -> float:
        found = np.take_along_axis(log_softmax(power * logs + usual, axis=1), labels, axis=1)[:, 0]
        return float(share @ (usual[labels[:, 0]] - found))

    return max(0.0, -mass.sum() * minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded").fun)


def _least(mass: Array) -> float:
    return _LEAST_OF_ROWS / max(float(mass.sum()), 1.0)


def _confidence(P: Array, predicted: Array, least: float) -> Array:
    """Array (n,): the log odds of the predicted class. Calibrated predictions have a curve with a = 1 and b = 0."""
    p = np.clip(P[np.arange(len(P)), predicted], least, 1.0 - least)
    return np.asarray(np.log(p) - np.log1p(-p))


def _rank_score(confidence: Array, mass: Array) -> Array:
    """Array (n,): log((1 + total mass) / rank).

    The rank is the mass from the most confident row on; ties get their mean rank.
    """
    values, value_of = np.unique(-confidence, return_inverse=True)
    tied = np.bincount(value_of, weights=mass, minlength=len(values))
    rank = np.cumsum(tied) - 0.5 * (tied - 1.0)
    return np.asarray(np.log((1.0 + tied.sum()) / np.maximum(rank, 0.5))[value_of])


# ---- the posterior of a row ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Rule:
    """The rule that computes the posterior of a row from its prediction and its label.

    `weights` (classes, rates) are the joint probabilities of each rate and of informative predictions, `blind` those of
    each rate and of uninformative predictions, for which the class `frequency` replaces the `curves`. `to` (true,
    given) has the distribution of the wrong labels of each true class. `least` is the lower bound of probabilities.
    """

    weights: Array
    curves: tuple[Curves, ...]
    to: Array
    blind: Array
    frequency: Array
    least: float

    @property
    def mean_rates(self) -> Array:
        return np.asarray((self.weights + self.blind) @ RATES)

    @property
    def transition(self) -> Array:
        return _transition(self.mean_rates, self.to)

    def rows(self, P: Array, codes: Array) -> RowPosterior:
        """The posterior of rows: an average over the rates of the predicted class, with mean rates of other classes."""
        blind = self.frequency[:, None] * _transition(_mean_rates(self.blind), self.to)
        p_true = self.blind[0].sum() * (blind / np.maximum(blind.sum(axis=0), 1e-300)).T[codes]
        predicted = P.argmax(axis=1)
        for label in range(P.shape[1]):
            rows = np.flatnonzero(predicted == label)
            for rate in np.flatnonzero(self.weights[label] > _NEGLIGIBLE).tolist() if len(rows) else ():
                p_true[rows] += self.weights[label, rate] * self.given_rate(label, rate, P[rows], codes[rows])
        p_true /= p_true.sum(axis=1, keepdims=True)
        return RowPosterior(1.0 - p_true[np.arange(len(codes)), codes], p_true)

    def given_rate(self, label: int, rate: int, P: Array, codes: Array) -> Array:
        """p_true (n, classes) of rows that are predicted to be of one class, under one rate of that class."""
        curve = self.curves[label]
        true = curve.true(rate, _confidence(P, np.full(len(P), label), self.least))
        # predictions of noisy labels are less confident than those of true classes
        power = max(1.0, float(np.exp(curve.scale[rate])))
        others = np.clip(P, self.least, 1.0) ** power
        others[:, label] = 0.0
        classes = (1.0 - true)[:, None] * others / others.sum(axis=1, keepdims=True)
        classes[:, label] = true
        rates = self.mean_rates
        rates[label] = RATES[rate]
        joint = classes * _transition(rates, self.to)[:, codes].T
        return np.asarray(joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300))


def _mean_rates(weights: Array) -> Array:
    return np.asarray(weights @ RATES / np.maximum(weights.sum(axis=1), 1e-300))


def _transition(rates: Array, to: Array) -> Array:
    T = rates[:, None] * to
    T[np.diag_indices(len(T))] = 1.0 - rates
    return T


# ---- hypotheses about the rates --------------------------------------------------------------------------------------


class _Hypotheses(NamedTuple):
    """Posterior probabilities of no error, a shared rate and rates by class; and of the rates within the last two."""

    kinds: Array
    shared: Array
    by_class: Array

    @classmethod
    def of(cls, prior: NoisePrior, evidence: _Evidence) -> tuple[_Hypotheses, Array]:
        """The posterior, and the part (classes, rates) of its `weights` that is due to uninformative predictions."""
        informative = cls._parts(prior, evidence.shared, evidence.by_class, evidence.constant)
        uninformative = cls._parts(prior, evidence.hidden.sum(axis=0), evidence.hidden, 0.0)
        with np.errstate(divide="ignore"):
            chances = np.log([1.0 - prior.uninformative, prior.uninformative])
        chance = softmax(chances + [logsumexp(informative.kinds), evidence.unrelated])
        informative = informative._replace(kinds=chance[0] * softmax(informative.kinds))
        uninformative = uninformative._replace(kinds=chance[1] * softmax(uninformative.kinds))
        kinds = informative.kinds + uninformative.kinds
        part = uninformative.kinds / np.maximum(kinds, 1e-300)
        shared = (1.0 - part[1]) * informative.shared + part[1] * uninformative.shared
        by_class = (1.0 - part[2]) * informative.by_class + part[2] * uninformative.by_class
        return cls(kinds, shared, by_class), uninformative.weights

    @classmethod
    def _parts(cls, prior: NoisePrior, shared_evidence: Array, class_evidence: Array, constant: float) -> _Hypotheses:
        """Prior times evidence; `kinds` are unnormalised log probabilities, `shared` and `by_class` normalised."""
        some = 1.0 - prior.no_error
        with np.errstate(divide="ignore"):
            shared, by_class = (np.log(part) for part in prior.rates(len(class_evidence)))
            kinds = np.log([prior.no_error, some * prior.shared_rate, some * (1.0 - prior.shared_rate)])
        shared, by_class = shared + shared_evidence, by_class + class_evidence
        kinds += np.array([shared_evidence[0], logsumexp(shared), logsumexp(by_class, axis=1).sum() + constant])
        return cls(kinds, softmax(shared), softmax(by_class, axis=1))

    @property
    def weights(self) -> Array:
        """Array (classes, rates): the marginal probability of each rate of each class."""
        found = self.kinds[1] * self.shared + self.kinds[2] * self.by_class
        found[:, 0] += self.kinds[0]
        return np.asarray(found)

    @property
    def no_error(self) -> float:
        return float(self.kinds[0] + self.kinds[2] * self.by_class[:, 0].prod())

    def interval(self, rule: _Rule, P: Array, codes: Array, mass: Array, share: float) -> tuple[float, float]:
        """The central 95% of the posterior of the share. The upper limit is at least share + 3 / n (rule of three)."""
        predicted, n, weights = P.argmax(axis=1), float(mass.sum()), self.weights
        by_rate = np.zeros(self.by_class.shape)
        part = np.bincount(predicted, weights=mass, minlength=len(by_rate)) / n
        for label in np.flatnonzero(part).tolist():
            rows = np.flatnonzero(predicted == label)
            for rate in np.flatnonzero(weights[label] > _NEGLIGIBLE).tolist():
                true = rule.given_rate(label, rate, P[rows], codes[rows])[np.arange(len(rows)), codes[rows]]
                by_rate[label, rate] = 1.0 - mass[rows] @ true / mass[rows].sum()
        spread = np.gradient(RATES) / np.sqrt(12.0) / np.maximum(RATES, RATES[1])  # a rate stands for its interval
        mean, square = (self.by_class * by_rate).sum(axis=1), self.by_class * by_rate**2 * (1.0 + spread**2)
        deviation = np.sqrt(part**2 @ (square.sum(axis=1) - mean**2).clip(0.0))
        steps = np.linspace(-2.0, 2.0, 21)
        normal = softmax(-0.5 * steps**2)
        shares = np.concatenate([[0.0], part @ by_rate, np.clip(part @ mean + deviation * steps, 0.0, 1.0)])
        chances = np.concatenate([self.kinds[:1], self.kinds[1] * self.shared, self.kinds[2] * normal])
        error = np.full(len(shares), np.sqrt(share * (1.0 - share) / n))
        error[1 : 1 + len(RATES)] = np.hypot(error[1 : 1 + len(RATES)], spread * (part @ by_rate))
        error = np.where(shares > 0.0, error + 1e-9, 1e-9)
        grid = np.linspace(0.0, 1.0, 2001)
        low, high = np.searchsorted(ndtr((grid[:, None] - shares) / error) @ chances, [0.025, 0.975]).clip(0, 2000)
        return (0.0 if low <= 1 else float(grid[low])), float(min(1.0, max(grid[high], share + 3.0 / n)))


def _learn(prior: NoisePrior, P: Array, codes: Array, mass: Array) -> tuple[_Rule, _Hypotheses, _Hypotheses]:
    K = P.shape[1]
    curves, evidence = _evidence(prior, P, codes, mass)
    hypotheses, blind = _Hypotheses.of(prior, evidence)
    frequency = np.bincount(codes, weights=mass, minlength=K) / mass.sum()
    even = (1.0 - np.eye(K)) / max(K - 1, 1)
    rule = _Rule(hypotheses.weights - blind, curves, even, blind, frequency, _least(mass))
    for _ in range(_ROUNDS if K > 2 else 0):
        p_true = rule.rows(P, codes).p_true
        flow = np.stack(
            [(mass[codes == label, None] * p_true[codes == label]).sum(axis=0) for label in range(K)], axis=1
        )
        np.fill_diagonal(flow, 0.0)
        flow += prior.direction_rows * even
        rule = replace(rule, to=flow / flow.sum(axis=1, keepdims=True))
    return rule, hypotheses, _Hypotheses.of(prior, evidence.halved())[0]


class _Evidence(NamedTuple):
    """Log evidence from the curves by log odds and by rank, multiplied by their powers, for these hypotheses.

    `shared` (rates,): all classes have this rate; 0 is no error. `by_class` (classes, rates): one class has this rate;
    the sum over the classes plus `constant` is the evidence of a set of rates. `unrelated`: the predictions are no
    better than the class frequencies. `hidden` (classes, rates) is the evidence for the rates in this case.
    """

    shared: Array
    by_class: Array
    constant: float
    unrelated: float
    hidden: Array

    def halved(self) -> _Evidence:
        """Half of the evidence, for intervals that allow for model errors; `hidden` stays."""
        return self._replace(
            shared=0.5 * self.shared,
            by_class=0.5 * self.by_class,
            constant=0.5 * self.constant,
            unrelated=0.5 * self.unrelated,
        )


def _evidence(prior: NoisePrior, P: Array, codes: Array, mass: Array) -> tuple[tuple[Curves, ...], _Evidence]:
    """The curves by log odds, which give the posterior of rows, and the joint evidence of log odds and ranks."""
    K, predicted = P.shape[1], P.argmax(axis=1)
    low, high = RATES / max(K - 1, 1), RATES
    by_odds, by_rank = [], []
    for label in range(K):
        rows = np.flatnonzero(predicted == label)
        odds = _confidence(P[rows], predicted[rows], _least(mass))
        agree = (codes[rows] == label).astype(np.float64)
        by_odds.append(Groups.of(odds, agree, mass[rows]))
        by_rank.append(Groups.of(_rank_score(odds, mass[rows]), agree, mass[rows]))
    scale = -np.log(np.maximum(1.0 - low - high, 1.0 - _LARGEST))  # predictions of noisy labels are less confident
    odds_prior = CurvePrior(scale, prior.log_scale_sd, prior.odds_shift_sd, prior.surprises)
    curves = [fit_curves(groups, low, high, odds_prior) for groups in by_odds]
    odds = np.stack([fit.evidence for fit in curves]) - np.log(odds_prior.scale_sd * odds_prior.shift_sd)
    shared, by_class, constant = _rank_evidence(prior, by_rank, (low, high), prior.odds_power * odds)
    power = prior.odds_power + prior.rank_power
    return tuple(curves), _Evidence(
        prior.odds_power * odds.sum(axis=0) + prior.rank_power * shared,
        prior.odds_power * odds + prior.rank_power * by_class,
        prior.rank_power * constant,
        prior.odds_power * float(odds.sum(axis=0)[0])
        + prior.rank_power * float(shared[0])
        + power * (_CHANCE_GAIN - _gain(P, codes, mass)),
        _hidden(np.bincount(codes, weights=mass, minlength=K), scale),
    )


def _hidden(labels: Array, scale: Array) -> Array:
    """Array (classes, rates): the log likelihood of rates under uninformative predictions, from the mass of each label.

    The rows of a true class with a wrong label have the labels of other classes, so they cannot outnumber these labels.
    If the true classes cannot be predicted, nothing else is known of the rates. If wrong labels hide them, high rates
    are more likely: the information in predictions, as a share of the entropy of true labels, is about uniform over
    tables, and wrong labels multiply it by the square of exp(-scale), which is 1 minus the rates of errors from and to
    a class. The geometric mean of both likelihoods is taken.
    """
    odds = (labels.sum() - labels + 0.5) / (labels + 0.5)
    error = np.sqrt(odds / labels.sum())
    possible = log_ndtr((odds[:, None] - RATES) / error[:, None])
    return np.asarray(np.where(RATES > 0.0, possible, 0.0) + scale / len(labels))


def _rank_evidence(
    prior: NoisePrior, by_rank: list[Groups], low_high: tuple[Array, Array], others: Array
) -> tuple[Array, Array, float]:
    """The evidence of the ranks, in the form of `_Evidence`: shared, by class, and the constant.

    The log steepness of a class has a normal prior around its expectation (`_usual_steepness`) plus the mean deviation
    of the other classes, because the classes of one table deviate similarly. If the rate is shared, the deviations are
    those at this rate, otherwise the expected ones of each class. The expectation is over rates, weighted by prior,
    ranks and `others`, the evidence (classes, rates) of the log odds.
    """
    usual, sd = np.stack([_usual_steepness(prior, groups, *low_high) for groups in by_rank]), prior.log_steepness_sd
    wide = [CurvePrior(centre, 2.0 * sd, prior.rank_shift_sd, prior.surprises) for centre in usual]
    fits = [fit_curves(groups, *low_high, near) for groups, near in zip(by_rank, wide, strict=True)]
    off, alone = np.stack([fit.scale for fit in fits]) - usual, np.stack([fit.evidence for fit in fits])
    rates = softmax(np.log(np.maximum(prior.rates(len(fits))[1], 1e-12)) + prior.rank_power * alone + others, axis=1)
    errors = np.maximum([groups.disagree.sum() for groups in by_rank], 1.0)
    used = np.array([len(groups.agree) > 0 for groups in by_rank])
    weight = np.where(used, 1.0 / (1.0 / errors + prior.class_sd**2), 0.0)
    best = (rates * off).sum(axis=1, keepdims=True) + np.zeros(off.shape)
    found = []
    for deviation in (off, best):
        evidence = np.zeros(off.shape)
        for label in np.flatnonzero(used).tolist():
            other = (np.arange(len(used)) != label) & used
            total = sd**-2 + weight[other].sum()
            centre = usual[label] + weight[other] @ deviation[other] / total
            near = CurvePrior(
                centre, float(np.sqrt(prior.class_sd**2 + 1.0 / total)), prior.rank_shift_sd, prior.surprises
            )
            found_curves = fit_curves(by_rank[label], *low_high, near)
            evidence[label] = found_curves.evidence - np.log(near.scale_sd * near.shift_sd)
        mean = weight @ deviation / max(weight.sum(), 1e-300)
        found.append((evidence, -0.5 * (mean / sd) ** 2))
    (same, chance), (by_class, by_class_chance) = found
    return same.sum(axis=0) + chance, by_class, float(by_class_chance[0])


def _usual_steepness(prior: NoisePrior, groups: Groups, low: Array, high: Array) -> Array:
    """Array (rates,): the expected log steepness of a class. It decreases with the share of hard rows.

    The share of hard rows is the share of wrong predictions, estimated from the disagreements of labels and
    predictions under each rate of wrong labels.
    """
    contradicted = groups.disagree.sum() / max(groups.agree.sum() + groups.disagree.sum(), 1e-300)
    hard = np.clip((contradicted - high) / np.maximum(1.0 - low - high, 1.0 - _LARGEST), 0.0, 1.0)
    return np.asarray(prior.log_steepness - prior.steepness_loss * hard)
