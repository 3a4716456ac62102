"""The experiment of symmetric noise on made images: shares of noise are exact, and choices see no test row."""

import numpy as np
import pytest

from rankrange.paper.experiments import mnist_symmetric
from rankrange.paper.harness.cells import Cell, Measure, Outcome, Plan, Results


@pytest.fixture(scope="module")
def images():
    """Ten classes, each a dim image of its own with noise; 900 to train and 300 to test."""
    rng = np.random.default_rng(0)
    centres = rng.uniform(0, 1, (10, 196))
    labels = rng.integers(0, 10, 1200)
    X = np.clip(centres[labels] + rng.normal(scale=0.35, size=(1200, 196)), 0, 1).astype(np.float32)
    return mnist_symmetric.Images(X[:900], labels[:900], X[900:], labels[900:])


def cell(part="noise=0.3", split=0, protocol="honest"):
    return Cell(mnist_symmetric.NAME, "mnist", part, split, protocol, "smoke")


def split_of(images, **which):
    return mnist_symmetric.split_of(cell(**which), images, 100, 60)


def test_exactly_the_share_is_wrong_and_clean_rows_are_no_training_rows(images):
    split = split_of(images)
    assert split.wrong.sum() == 30
    assert (split.X.shape, split.X_clean.shape) == ((100, 196), (60, 196))
    train, clean = ({row.tobytes() for row in part} for part in (split.X, split.X_clean))
    assert not train & clean
    assert (split_of(images, split=1).given != split.given).any()
    np.testing.assert_array_equal(split_of(images).given, split.given)


def test_a_cell_measures_every_method_and_both_estimates(images):
    outcome = mnist_symmetric.measured(cell(), split_of(images))
    found = {(m.method, m.metric): m.value for m in outcome.measures}
    assert {method for method, metric in found if metric == "accuracy %"} == set(mnist_symmetric.METHODS)
    assert found["truth", "m"] == 30
    assert found["AoRR", "|m - truth|"] == abs(found["AoRR", "m"] - 30)
    printed = mnist_symmetric.measured(cell(protocol="paper"), split_of(images))
    assert {m.method for m in printed.measures if m.metric == "accuracy %"} == {"Average", "AT_k", "AoRR"}
    assert printed.extra["AoRR"]["looks"] == []  # a fit with the m of the last look


def test_no_choice_looks_at_the_test_rows(images):
    split = split_of(images)
    before, after = (
        mnist_symmetric.measured(cell(), split._replace(y_test=labels))
        for labels in (split.y_test, (split.y_test + 1) % 10)
    )
    assert before.extra["AoRR"]["looks"]
    for name in ("AoRR", mnist_symmetric.ALONE, "k", "C of Average, C tuned"):
        assert after.extra[name] == before.extra[name]


def test_claims_and_figures_are_read_off_made_results():
    def outcome(rate, split):
        gains = {"Average": 0.0, "AT_k": 0.1, "AoRR": 3.0, mnist_symmetric.ALONE: 2.9, mnist_symmetric.TUNED: 1.0}
        measures = [Measure(m, f"noise={rate}", "accuracy %", 88 + g + 0.1 * split) for m, g in gains.items()]
        measures.append(Measure("truth", f"noise={rate}", "m", 100.0))
        for method, m in (("AoRR", 105.0), (mnist_symmetric.ALONE, 130.0)):
            measures += [Measure(method, f"noise={rate}", name, v) for name, v in (("m", m), ("|m - truth|", m - 100))]
        return Outcome(measures, {"k": float(mnist_symmetric.ROWS["smoke"][0])})

    cells = mnist_symmetric.cells(Plan(size="full"))
    assert len(cells) == 15
    made = [cell(f"noise={rate:g}", split) for rate in mnist_symmetric.RATES for split in range(3)]
    results = Results([(one, outcome(one.part.split("=")[1], one.split)) for one in made])
    verdicts = [claim.verdict for claim in mnist_symmetric.claims(results)]
    assert verdicts == ["holds"] * 5 + ["does not hold", "holds"]
    pytest.importorskip("matplotlib")
    assert set(mnist_symmetric.figures(results)) == {"mnist-symmetric"}
