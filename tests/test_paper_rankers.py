"""The multi-label experiments of the paper on made data: what is chosen does not depend on what it is tested on."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import log_loss

from rankrange.paper import experiment
from rankrange.paper.experiments import mnist_asymmetric, multilabel, tkml_aorr
from rankrange.paper.harness import cells, rankers
from rankrange.paper.harness.cells import Cell, Measure, Outcome, Results


def made(seed=0, n=80, n_labels=7):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    scores = X @ rng.normal(size=(5, n_labels)) + 0.5 * rng.normal(size=(n, n_labels))
    Y = (scores > 0.5).astype(int)
    Y[np.arange(n), scores.argmax(axis=1)] = 1
    return SimpleNamespace(data=X, target=Y)


def test_lsep_loss_is_the_log_of_one_plus_a_sum_over_pairs():
    rng = np.random.default_rng(0)
    Y, f = rng.integers(0, 2, (30, 5)), rng.normal(size=(30, 5))
    Y[0], Y[1] = 0, 1
    pairs = [
        [math.exp(f[i, u] - f[i, v]) for u, v in itertools.product(range(5), repeat=2) if Y[i, v] and not Y[i, u]]
        for i in range(30)
    ]
    assert rankers.lsep_loss(Y, f) == pytest.approx(sum(math.log(1 + sum(row)) for row in pairs), rel=1e-12)


def test_log_loss_is_scikit_learns():
    rng = np.random.default_rng(1)
    Y, f = rng.integers(0, 2, (40, 3)), rng.normal(size=(40, 3))
    expected = sum(log_loss(Y[:, j], 1 / (1 + np.exp(-f[:, j])), normalize=False) for j in range(3))
    assert rankers.log_loss(Y, f) == pytest.approx(expected, rel=1e-9)


def test_parts_are_scaled_by_the_training_rows_alone():
    data = made()
    rows = rankers.cut(data.data, data.target, 50)
    np.testing.assert_allclose(rows.X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(rows.X.std(axis=0), 1, rtol=1e-12)
    other = data.data.copy()
    other[50:] *= 100.0
    np.testing.assert_array_equal(rankers.cut(other, data.target, 50).X, rows.X)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("module", "part"), [(multilabel, "chosen"), (tkml_aorr, "noise=0.2")])
def test_choices_do_not_depend_on_the_test_part(module, part):
    """Other labels for the test rows give other accuracies and the same C, steps, k and m."""
    data, cell = made(), Cell(module.NAME, "yeast", part, 0, "honest", "smoke")
    rows = rankers.cut(data.data, data.target, 60)
    one, other = (module.measured(cell, replace(rows, Y_test=np.roll(rows.Y_test, shift, axis=1))) for shift in (0, 1))
    choices = [{key: value for key, value in outcome.extra.items() if key != "curves"} for outcome in (one, other)]
    assert choices[0] == choices[1]
    assert [m.value for m in one.measures] != [m.value for m in other.measures]


def test_ranks_count_the_classes_above_the_true_one():
    scores = np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1]])
    np.testing.assert_array_equal(mnist_asymmetric._ranks(scores, np.array([2, 0])), [1, 0])


def test_a_difference_is_decided_by_two_standard_errors():
    assert cells.at_least(1.0, 0.4) == "holds"
    assert cells.at_least(1.0, 0.6) == cells.at_least(-1.0, 0.6) == "not decided"
    assert cells.at_least(-1.0, 0.4) == cells.at_least(9.0, 0.4, bar=10.0) == "does not hold"
    assert cells.together(["holds", "not decided"]) == "not decided"
    assert cells.together(["holds", "does not hold"]) == "does not hold"
    assert cells.together(["holds"]) == "holds"


@pytest.mark.parametrize("name", ["multilabel", "tkml-aorr", "mnist-asymmetric"])
def test_nothing_is_claimed_without_results(name):
    assert experiment(name).claims(Results([])) == []


@pytest.mark.parametrize("protocol", ["honest", "paper"])
def test_the_two_sided_loss_is_spoken_of_only_where_it_ran(protocol):
    """In the paper protocol TKML is the paper's loss."""
    finished = []
    for split in range(3):
        measures = [
            Measure(method, f"k={k}", rankers.METRIC, 50.0 + k + split * k + (method == "TKML"))
            for method in ("LR", "LSEP", "TKML")
            for k in rankers.KS
        ]
        finished.append((Cell("multilabel", "yeast", "chosen", split, protocol, "full"), Outcome(measures, {})))
    texts = [claim.text for claim in experiment("multilabel").claims(Results(finished))]
    assert any("TKML beats LR" in text for text in texts)
    assert any("two-sided" in text for text in texts) == (protocol == "honest")
