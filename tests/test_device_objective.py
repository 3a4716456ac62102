"""The objective on a device: cuts by their definition, and a Hessian that knows which rows cross them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankrange.core.losses import Logistic
from rankrange.core.objective import Design, Objective
from rankrange.shards.shard_kernels import Model

torch = pytest.importorskip("torch")
from rankrange.device.device_objective import DeviceData, cut_among  # noqa: E402
from rankrange.device.device_rows import DeviceRows  # noqa: E402
from rankrange.device.passes import Sizes  # noqa: E402
from rankrange.device.tensors import Labels  # noqa: E402


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), min_size=1, max_size=30), st.floats(0.01, 1.2), st.data()
)
def test_a_cut_is_where_the_mass_from_the_top_reaches_its_target(pairs, share, data):
    values, mass = np.array(pairs, dtype=np.float64).T
    above = data.draw(st.integers(0, 3))
    target = share * mass.sum()
    found = cut_among(torch.as_tensor(values), torch.as_tensor(mass), above, target)
    ends = [
        value for value in values if above + mass[values > value].sum() < target <= above + mass[values >= value].sum()
    ]
    if not ends:
        assert found is None
        return
    value = ends[0]
    assert found.value == value
    assert found.tied == mass[values == value].sum()
    assert found.taken == pytest.approx(target - above - mass[values > value].sum())


def objective_there(m, k, n=60_000, seed=0, weighted=False, sizes=None):
    """F of rows on a device, with 8% of the labels flipped, and the rows themselves."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = (X @ [2.0, -1.0, 0.5] + rng.logistic(size=n) > 0) ^ (rng.random(n) < 0.08)
    weight = rng.integers(1, 4, n).astype(np.float64) if weighted else None
    there = None if weight is None else torch.as_tensor(weight)
    labels = Labels(np.array([0, 1]), torch.as_tensor(y).to(torch.int8))
    rows = DeviceRows(torch.as_tensor(X), labels, there, sizes=sizes)
    model = Model("logistic", 1, True, np.dtype(float), np.array([0, 1]))
    some = np.arange(0, n, 50)
    total = float(n if weight is None else weight.sum())
    sample = Objective(
        Design(X[some], True), np.where(y[some], 1.0, -1.0), Logistic(), 1e4, 1, m=m * len(some), k=k * len(some),
        sample_weight=None if weight is None else weight[some],
    )  # fmt: skip
    return (
        DeviceData(rows, model, sample, n, total, round(m * total), round(k * total)),
        X,
        np.where(y, 1.0, -1.0),
        weight,
    )


@pytest.mark.parametrize(
    ("m", "k", "weighted"), [(0.1, 1.0, False), (0.1, 0.7, False), (0, 0.8, True), (0.3, 0.32, False)]
)
def test_an_evaluation_is_the_mean_of_the_ranked_losses(m, k, weighted):
    data, X, y, weight = objective_there(m, k, weighted=weighted, sizes=Sizes(bracket_rows=5000))
    for W in (np.array([[1.5, -1.0, 0.2, 0.1]]), np.array([[1.6, -0.9, 0.3, 0.0]])):
        s = np.logaddexp(0.0, -y * (X @ W[0, :3] + W[0, 3]))
        ranked = np.sort(s if weight is None else np.repeat(s, weight.astype(int)))[::-1][int(data.m) : int(data.k)]
        iterate = data.evaluate_at(W)
        assert iterate.value == pytest.approx(ranked.mean() + data.sample.penalty(W), rel=1e-10)
        assert iterate.gradient == pytest.approx(
            np.array(
                [[(data.evaluate_at(W + e).value - data.evaluate_at(W - e).value) / 2e-5 for e in 1e-5 * np.eye(4)]]
            ),
            abs=1e-3,
        )


@pytest.mark.parametrize(("m", "k"), [(0.1, 1.0), (0, 0.6), (0.15, 0.7)])
def test_the_hessian_less_what_crosses_the_cuts_is_how_the_gradient_changes(m, k):
    # Of so few parameters: less noise than steps need.
    data, *_ = objective_there(m, k, n=400_000, sizes=Sizes(crossing_rows=5000))
    W = np.array([[1.5, -1.0, 0.2, 0.1]])
    kept, crossing = data.hessians(data.evaluate_at(W))
    bends = kept - crossing + np.diag([1.0, 1.0, 1.0, 0.0]) / data.sample.C
    for v in np.eye(4):
        change = (data.evaluate_at(W + 0.02 * v).gradient - data.evaluate_at(W - 0.02 * v).gradient)[0] / 0.04
        size = np.linalg.norm(change)
        assert np.linalg.norm(bends @ v - change) < 0.1 * size
        assert np.linalg.norm(crossing @ v) > 0.1 * size  # which without it would be far off
