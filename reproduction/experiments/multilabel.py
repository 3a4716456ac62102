"""Tables 7 and 8: one logistic regression per label (LR), LSEP and TKML on Emotions, Scene and Yeast.

Held-out protocol: three quarters of the rows train, a fifth of them chooses C, and the last quarter is used once. TKML
has the two-sided loss and the estimator's own choice of C; "TKML, paper's loss" is fitted in the same way.

The paper's protocol: half of the rows train, a quarter validates. TKML runs Algorithm 1 with Table 15's 20 x 1,000
steps at a rate of 0.1 and C = 10^4; every tenth iterate is evaluated, and the best on the validation quarter is kept.
The paper does not state its start: TKML starts at zero, and "TKML, started at LR" at LR.
LR and LSEP choose C from 1 to 10^5 there. AP has the usual definition, in which the best-ranked true label counts; of
TKML it is the mean over k = 1 to 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import label_ranking_average_precision_score

from rankrange import TKMLClassifier, algorithms
from rankrange.metrics import top_k_multilabel_accuracy

from .. import baselines, data
from . import Cell, Row, every

TITLE = "Tables 7 and 8: top-k multi-label accuracy and average precision"
NEEDS = ("emotions", "scene", "yeast")
METRIC, AP = "top-k accuracy %", "AP %"
TABLES = {METRIC: ("Table 7: top-k multi-label accuracy, %", "higher"), AP: ("Table 8: AP, %", "higher")}
KS = (1, 2, 3, 4, 5)
CS, PAPERS_CS = (3.0, 10.0, 30.0), (1e0, 1e1, 1e2, 1e3, 1e4, 1e5)  # relative to the mean of the losses
MAKERS: dict[str, Callable[..., Any]] = {"LR": baselines.one_vs_rest, "LSEP": baselines.lsep}
OUTER, INNER, RATE, PRINTED_C = 20, 1000, 0.1, 1e4  # Table 15
EVALUATE_EVERY = 10


def cells(protocol: str, quick: bool) -> list[Cell]:
    """One cell for each data set and split."""
    return every("multilabel", protocol, quick, NEEDS[:1] if quick else NEEDS, ["all"], 2 if quick else 10)


def accuracy(Y: Any, scores: Any, k: int) -> float:
    """Top-k multi-label accuracy, in percent."""
    return 100.0 * float(top_k_multilabel_accuracy(Y, scores, k))


def precision(Y: Any, scores: Any) -> float:
    """Average precision, in percent."""
    return 100.0 * float(label_ranking_average_precision_score(Y, scores))


def tuned(method: str, X: Any, Y: Any) -> Any:
    """LR or LSEP with the C that has the smallest own loss on the last fifth of the rows, fitted to all of them."""
    make, first = MAKERS[method], len(X) * 4 // 5
    fits = {C: make(C / first).fit(X[:first], Y[:first]) for C in CS}

    def held_out_loss(C: float) -> float:
        (loss,) = fits[C].losses
        return float(loss(Y[first:] == 1, fits[C].decision_function(X[first:]))[0].sum())

    return make(min(CS, key=held_out_loss) / len(X)).fit(X, Y)


def run(cell: Cell) -> tuple[list[Row], dict[str, Any]]:
    """Top-k accuracy for k = 1 to 5, and AP, of all methods on the test quarter."""
    scores, Y = (_held_out if cell.protocol == "held-out" else _papers_steps)(cell)
    rows = []
    for method, by_k in scores.items():
        rows += [Row(method, f"k={k}", METRIC, accuracy(Y, f, k)) for k, f in zip(KS, by_k, strict=True)]
        rows.append(Row(method, "all", AP, float(np.mean([precision(Y, f) for f in by_k]))))
    return rows, {}


def _held_out(cell: Cell) -> tuple[dict[str, list[Any]], Any]:
    (X, Y), (X_test, Y_test) = data.split(cell.dataset, cell.seed, (0.75, 0.25))
    scores = {"constant label set": [np.tile(Y.mean(axis=0), (len(Y_test), 1))] * len(KS)}
    for method in MAKERS:
        scores[method] = [tuned(method, X, Y).decision_function(X_test)] * len(KS)
    for method, loss in (("TKML", "two_sided"), ("TKML, paper's loss", "paper")):
        fits = (TKMLClassifier(k, C="auto", loss=loss, random_state=cell.seed).fit(X, Y) for k in KS)
        scores[method] = [fit.decision_function(X_test) for fit in fits]
    return scores, Y_test


class Iterates:
    """Scores of held-out and test rows along the steps, with the accuracy on the former."""

    def __init__(self, k: int, held: Any, test: Any) -> None:
        self.k, self.held, self.test = k, held, test
        self.count, self.best, self.on_test = 0, (-1.0, None), (-1.0, None)

    def __call__(self, theta: Any) -> None:
        """Keep the best of every tenth iterate, on the validation rows and on the test rows."""
        self.count += 1
        if self.count % EVALUATE_EVERY:
            return
        scores = self.test[0] @ theta.T
        self.last = scores
        right = accuracy(self.held[1], self.held[0] @ theta.T, self.k)
        self.best = max(self.best, (right, scores), key=lambda pair: pair[0])
        right = accuracy(self.test[1], scores, self.k)
        self.on_test = max(self.on_test, (right, scores), key=lambda pair: pair[0])


def _papers_steps(cell: Cell) -> tuple[dict[str, list[Any]], Any]:
    parts = data.split(cell.dataset, cell.seed)
    train, held, test = ((np.column_stack([X, np.ones(len(X))]), Y) for X, Y in parts)
    scores: dict[str, list[Any]] = {}
    starts: dict[int, Any] = {}
    for method, make in MAKERS.items():
        fits = [make(C / len(parts[0][0])).fit(*parts[0]) for C in PAPERS_CS]
        for k in KS:
            best = max(fits, key=lambda fit, k=k: accuracy(held[1], fit.decision_function(parts[1][0]), k))
            scores.setdefault(method, []).append(best.decision_function(parts[2][0]))
            starts.setdefault(k, np.column_stack([best.coef_, best.intercept_]))  # those of LR, which comes first
    steps = {"outer_steps": OUTER, "inner_steps": 20 if cell.quick else INNER, "step": RATE, "C": PRINTED_C}
    for method, theta in (("TKML", dict.fromkeys(KS)), ("TKML, started at LR", starts)):
        for k in KS:
            iterates = Iterates(k, held, test)
            algorithms.tkml(*train, k, theta=theta[k], watch=iterates, **steps)
            scores.setdefault(method, []).append(iterates.best[1])
            scores.setdefault(f"{method}, last iterate", []).append(iterates.last)
            scores.setdefault(f"{method}, best iterate on test rows", []).append(iterates.on_test[1])
    return scores, test[1]


def figures(results: Any) -> dict[str, Any]:
    """None: the paper shows tables."""
    return {}
