"""Which labels are wrong? Every row is judged by fits that have not seen it, and the suspects come worst first.

The score of a row joins what its label costs with the probability of being wrong under a model of flips
(`rankrange.mislabel`), which knows that labels of one class may be wrong more often than those of another. Three
sources are put together: the ordinary fit; a fit that cuts as many rows as seem wrong, where it predicts better; and
the labels of the nearest rows, where they add to the likelihood of the labels by more than two standard errors, which
is where a linear model misses part of the structure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state, column_or_1d
from sklearn.utils.validation import _num_samples

from ..core.flips import WrongLabels, wrong_labels
from ..crossfit.folds import Folds, test_parts
from ..crossfit.models import Task, fit_folds
from ..crossfit.numeric import numeric_view
from ..crossfit.opinions import label_shares, log_probabilities, logistic_objective, trimmed_fits
from ..estimators import AoRRClassifier

Array = NDArray[Any]
Report = Callable[[str], Any]
# Of so many rows at most the neighbours are asked first, whether they add anything.
_ASKED = 2000
_SURE, _LIKELY, _POSSIBLE = 0.8, 0.5, 0.2


@dataclass(frozen=True)
class LabelIssues:
    """The suspects, worst first, and what is known of all rows.

    table : structured array, a suspect a row: "row" (its place in X), "given" and "suggested" label, "p_wrong", "loss"
        (out of sample), "distance" (loss less the cut lam_hat), "cut" (how often the loss was above the cut, of all
        fits that had not seen the row), "fdr" (estimated share of right labels among the suspects up to here) and
        "action": "relabel" (likely wrong, and one other label fits), "drop" (likely wrong), "look" (possibly wrong).
    score : (n,) the higher, the more suspect; what the table is sorted by
    noise_estimate, noise_interval : estimated share of wrong labels, and its 95% interval
    neighbour_weight : how much the labels of the nearest rows count; 0 where they add nothing to the linear model
    opinions : what p_wrong is made of, as (source, weight, probabilities (n, classes) out of sample)
    """

    table: Array
    score: Array
    p_wrong: Array
    given: Array
    suggested: Array
    noise_estimate: float
    noise_interval: tuple[float, float]
    neighbour_weight: float
    opinions: tuple[tuple[str, float, Array], ...] = ()

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __repr__(self) -> str:
        names = self.table.dtype.names or ()
        lines = ["  ".join(f"{name:>9}" for name in names)]
        for suspect in self.table[:10]:
            lines.append("  ".join(f"{_shown(value):>9}" for value in suspect.tolist()))
        low, high = self.noise_interval
        head = f"{len(self)} suspects among {len(self.score)} rows; wrong labels: about {self.noise_estimate:.1%}"
        return "\n".join([f"{head} ({low:.1%} to {high:.1%})", *lines, *(["..."] if len(self) > 10 else [])])

    def _repr_html_(self) -> str | None:
        """For notebooks; without Jinja2 they show the text."""
        try:
            from .notebook import issues_fragment
        except ImportError:
            return None
        return str(issues_fragment(self))

    def to_pandas(self) -> Any:
        """The table as a DataFrame."""
        return _pandas("to_pandas").DataFrame({name: self.table[name] for name in self.table.dtype.names or ()})

    def to_cleanlab(self) -> Any:
        """A DataFrame of all rows, in their order, with the columns of cleanlab's `CleanLearning.get_label_issues`."""
        return _pandas("to_cleanlab").DataFrame(
            {
                "is_label_issue": self.p_wrong >= _LIKELY,
                "label_quality": 1.0 - self.score,
                "given_label": self.given,
                "predicted_label": self.suggested,
            }
        )


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)[:9]


def _pandas(purpose: str) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            f"{purpose}() needs pandas, which is not installed; run: pip install 'rankrange[data]'"
        ) from error
    return pandas


def find_label_issues(
    X: Any = None,
    y: Any = None,
    *,
    estimator: Any = None,
    cv: Any = 5,
    n_repeats: int | None = None,
    pred_probs: Any = None,
    neighbours: bool = True,
    random_state: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> LabelIssues:
    """Find the rows of X whose labels y are probably wrong; no row is judged by a fit that has seen it.

    estimator : None, an AoRRClassifier, or any classifier with predict_proba
        None is an AoRRClassifier whose C is chosen by cross-validated log loss. Any other classifier, a pipeline for
        example, may take whatever it likes for X: texts, tables with categories and missing values. Its nearest rows
        are asked where X can be read as numbers.
    cv, n_repeats : int
        Folds, and how often they are drawn anew (default: twice with two classes and up to 4,000 rows, else once). cv
        may also be a splitter or a list of (train, test) that leaves out each row equally often.
    pred_probs : (n, n_classes)
        Ready-made out-of-sample probabilities, columns in the order of the sorted classes; nothing is fitted. Without
        X the ranking is by these probabilities alone.
    neighbours : bool
        Whether the labels of the nearest rows of X may judge as well; they do only where they add to the likelihood.
    random_state, n_jobs, verbose : as in scikit-learn; n_jobs is for estimators of other packages.
    """
    own = estimator is None or isinstance(estimator, AoRRClassifier)
    data = _Data.checked(X, y, pred_probs is not None, any_X=not own)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    report: Report = print if verbose else (lambda message: None)
    if pred_probs is not None:
        views = _given_views(pred_probs, data)
    else:
        few = len(data.classes) == 2 and len(data.codes) <= 4000
        tests, repeats = test_parts(data.codes, cv, (2 if few else 1) if n_repeats is None else n_repeats, rng)
        if own:
            views = _trimmed_views(data, estimator, tests, repeats, report)
        else:
            views = _foreign_views(data, X, estimator, tests, repeats, n_jobs, report)
    return _judge(data, views, neighbours, rng, report)


@dataclass(frozen=True)
class _Data:
    X: Any
    codes: Array
    classes: Array

    @classmethod
    def checked(cls, X: Any, y: Any, fitted: bool, any_X: bool) -> _Data:
        """With a model of the user's own, X is what that model takes; what is kept of it are numbers, or None."""
        if y is None or (X is None and not fitted):
            raise ValueError("find_label_issues needs y, and X or pred_probs; pass find_label_issues(X, y)")
        y = column_or_1d(y)
        if X is not None:
            X = X if any_X else check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
            if _num_samples(X) != len(y):
                raise ValueError(
                    f"X and y must have as many rows, got {_num_samples(X)} and {len(y)}; pass one label a row"
                )
            X = numeric_view(X) if any_X else X
        classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        if len(classes) < 2:
            raise ValueError(f"need at least two classes in y, got only {classes.tolist()}; nothing can be wrong here")
        if not fitted and counts.min() < 2:
            rare = classes.tolist()[int(counts.argmin())]
            raise ValueError(f"each class needs two rows to be judged by the others, got one of {rare!r}; drop it")
        return cls(X, codes, classes)


@dataclass(frozen=True)
class _Views:
    """Out-of-sample log probabilities, and the losses above which a row is cut.

    logs (V, R, n, K): V fits of growing m, the ordinary one first, R repeats. `best` is the fit that trains best, and
    cuts (R, n) its lam_hat in the fold where the row was left out. `plain` is the model of flips on the ordinary fit.
    """

    logs: Array
    best: int
    cuts: Array
    plain: WrongLabels | None = None


def _given_views(pred_probs: Any, data: _Data) -> _Views:
    P = check_array(pred_probs, dtype=np.float64)
    shape = (len(data.codes), len(data.classes))
    if P.shape != shape:
        raise ValueError(
            f"pred_probs must have one row a label and one column a class, shape {shape}, got {P.shape}; columns are "
            "in the order of the sorted classes of y"
        )
    if (P < 0).any() or not np.allclose(P.sum(axis=1), 1.0, atol=1e-3):
        raise ValueError("pred_probs must be probabilities: not negative, and 1 in sum in each row")
    return _views_of(np.log(np.maximum(P, 1e-12))[None, None], data)


def _views_of(logs: Array, data: _Data) -> _Views:
    """Views of one fit; rows are cut above the share of losses that are estimated to be wrong."""
    plain = wrong_labels(logs[0].mean(axis=0), data.codes)
    losses = -logs[0][:, np.arange(len(data.codes)), data.codes]
    cut = np.quantile(losses, 1.0 - max(plain.rate, 1.0 / len(data.codes)), axis=1, keepdims=True)
    return _Views(logs, 0, np.broadcast_to(cut, losses.shape), plain)


def _foreign_views(
    data: _Data, X: Any, estimator: Any, tests: Array, repeats: Array, n_jobs: int | None, report: Report
) -> _Views:
    if not hasattr(estimator, "predict_proba"):
        raise ValueError(
            f"estimator must have predict_proba, got {type(estimator).__name__}; wrap it in CalibratedClassifierCV"
        )
    task = Task(X, data.codes, np.arange(len(data.classes)))
    found = fit_folds(estimator, task, Folds(~tests, tests), n_jobs=n_jobs)
    logs = np.empty((repeats[-1] + 1, len(data.codes), len(data.classes)))
    for repeat, test, P in zip(repeats, tests, found.parts, strict=True):
        logs[repeat][test] = np.log(np.maximum(P, 1e-12))
    report(f"{len(tests)} folds fitted")
    return _views_of(logs[None], data)


def _trimmed_views(
    data: _Data, estimator: AoRRClassifier | None, tests: Array, repeats: Array, report: Report
) -> _Views:
    if estimator is not None and estimator.loss != "logistic":
        raise ValueError(f"an AoRRClassifier needs loss='logistic' to give probabilities, got {estimator.loss!r}")
    n, K = len(data.codes), len(data.classes)
    C, intercept = (0.1 * n, True) if estimator is None else (float(estimator.C), bool(estimator.fit_intercept))
    objective = logistic_objective(data.X, data.codes, K, C, intercept)
    fits, parts, plain = trimmed_fits(objective, data.codes, Folds(~tests, tests), estimator is None, report)
    logs = np.empty((len(fits.W), repeats[-1] + 1, n, K), dtype=np.float32)
    cuts = np.empty((repeats[-1] + 1, n))
    for repeat, limit, (rows, scores) in zip(repeats, fits.cuts(2), parts, strict=True):
        logs[:, repeat, rows] = log_probabilities(scores)
        cuts[repeat, rows] = limit
    return _Views(logs, 2, cuts, plain)


def _judge(data: _Data, views: _Views, neighbours: bool, rng: np.random.Generator, report: Report) -> LabelIssues:
    rows, codes = np.arange(len(data.codes)), data.codes
    plain = np.exp(views.logs[0].mean(axis=0).astype(np.float64))
    assert views.plain is not None
    useful = _useful(data, views)
    sources = [views.plain, *(wrong_labels(views.logs[v].mean(axis=0), codes) for v in useful)]
    robust = [("robust", 1.0 / len(sources), np.exp(views.logs[v].mean(axis=0))) for v in useful]
    opinions = (("ordinary", 1.0 / len(sources), plain.astype(np.float32)), *robust)
    flipped, true = (np.mean([getattr(source, name) for source in sources], axis=0) for name in ("wrong", "true"))
    model = sources[-1]
    soft = 1.0 - plain[rows, codes]
    if data.X is None:
        report("no X: rows are ranked by the probabilities alone")
        found = _tabulate(data, views, soft, flipped, true, model.rate, model.interval, 0.0)
        return replace(found, opinions=opinions)
    weight, near = _neighbour_view(data, plain, rng) if neighbours else (0.0, plain)
    report(f"the labels of the nearest rows count with a weight of {weight:.2f}")
    rate, interval = model.rate, model.interval
    if weight:
        local = wrong_labels(np.log(near), codes)
        pairs = ((soft, 1.0 - near[rows, codes]), (flipped, local.wrong), (true, local.true))
        soft, flipped, true = ((1.0 - weight) * linear + weight * nearby for linear, nearby in pairs)
        rate = (1.0 - weight) * rate + weight * local.rate
        low, high = ((1.0 - weight) * a + weight * b for a, b in zip(interval, local.interval, strict=True))
        interval = (low, high)
        opinions = (*((name, (1.0 - weight) * share, P) for name, share, P in opinions), ("neighbours", weight, near))
    found = _tabulate(data, views, (2.0 * flipped + soft) / 3.0, flipped, true, rate, interval, weight)
    return replace(found, opinions=opinions)


def _useful(data: _Data, views: _Views) -> list[int]:
    """The fit that cuts, where its balanced accuracy on the labels is higher than that of the ordinary one."""
    worth = 1.0 / np.bincount(data.codes)[data.codes]
    score = [worth @ (views.logs[v].mean(axis=0).argmax(axis=1) == data.codes) for v in (0, views.best)]
    return [views.best] if score[1] > score[0] else []


def _neighbour_view(data: _Data, plain: Array, rng: np.random.Generator) -> tuple[float, Array]:
    """The weight of the nearest rows' labels beside the probabilities `plain`, and the probabilities that they give.

    The mixture of both is fitted to the labels by maximum likelihood, first on some rows; a gain of up to two standard
    errors is none.
    """
    n = len(data.codes)
    some = np.sort(rng.choice(n, min(n, _ASKED), replace=False))
    for rows in (some, np.arange(n)) if len(some) < n else (some,):
        near = label_shares(data.X, data.codes, len(data.classes), rows, rng)
        own = np.stack([plain[rows, data.codes[rows]], near[np.arange(len(rows)), data.codes[rows]]])
        weight = _mixture_weight(own)
        gain = np.log((1.0 - weight) * own[0] + weight * own[1]) - np.log(own[0])
        if gain.mean() <= 2.0 * gain.std() / np.sqrt(len(rows)):
            return 0.0, plain
    return weight, near


def _mixture_weight(likelihood: Array) -> float:
    """The share of the second of two sources that makes the labels most likely: EM."""
    weight = 0.5
    for _ in range(200):
        second = weight * likelihood[1]
        weight = float((second / (second + (1.0 - weight) * likelihood[0])).mean())
    return weight


def _tabulate(
    data: _Data,
    views: _Views,
    score: Array,
    p_wrong: Array,
    true: Array,
    rate: float,
    interval: tuple[float, float],
    weight: float,
) -> LabelIssues:
    rows, codes = np.arange(len(data.codes)), data.codes
    losses = -views.logs[views.best][:, rows, codes].astype(np.float64)
    suggested = true.argmax(axis=1)
    order = np.argsort(-score, kind="stable")
    order = order[p_wrong[order] >= _POSSIBLE]
    sure = (p_wrong[order] >= _SURE) & (suggested[order] != codes[order]) & (true[order].max(axis=1) >= _SURE)
    table = np.zeros(
        len(order),
        dtype=[
            ("row", np.intp),
            ("given", data.classes.dtype),
            ("suggested", data.classes.dtype),
            ("p_wrong", np.float64),
            ("loss", np.float64),
            ("distance", np.float64),
            ("cut", np.float64),
            ("fdr", np.float64),
            ("action", "U7"),
        ],
    )
    table["row"] = order
    table["given"], table["suggested"] = data.classes[codes[order]], data.classes[suggested[order]]
    table["p_wrong"], table["loss"] = p_wrong[order], losses[:, order].mean(axis=0)
    table["distance"] = (losses - views.cuts)[:, order].mean(axis=0)
    table["cut"] = (losses > views.cuts)[:, order].mean(axis=0)
    table["fdr"] = np.cumsum(1.0 - p_wrong[order]) / np.arange(1, len(order) + 1)
    table["action"] = np.where(sure, "relabel", np.where(p_wrong[order] >= _LIKELY, "drop", "look"))
    return LabelIssues(
        table, score, p_wrong, data.classes[codes], data.classes[suggested], float(rate), interval, float(weight)
    )
