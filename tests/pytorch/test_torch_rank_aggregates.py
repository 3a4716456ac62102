"""Worst groups and weights by rank in PyTorch: NumPy's aggregates, gradients, the module."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import rankrange.torch as rrt  # noqa: E402
from rankrange import RankWeights  # noqa: E402
from rankrange.core.aggregates import WorstGroup  # noqa: E402


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("worst", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("m", [0, 7])
def test_worst_groups_are_those_of_numpy(m, worst, ties):
    rng = np.random.default_rng(m)
    s, groups = rng.exponential(size=40), rng.integers(0, 4, size=40)
    s = np.round(s) if ties else s
    losses = torch.tensor(s, requires_grad=True)
    value = rrt.worst_group_mean(losses, torch.tensor(groups) * 10 - 3, m, worst=worst)
    found = WorstGroup(groups, worst).select(s, m, 40, None)
    assert value.item() == pytest.approx(found.total / (40 - m))
    value.backward()
    np.testing.assert_allclose(losses.grad, found.weights / (40 - m), atol=1e-12)


@pytest.mark.parametrize(
    "weights", [RankWeights("extremile"), RankWeights("winsorised", m=0.2, k=0.9), RankWeights([3, 1])]
)
def test_weights_by_rank_are_those_of_numpy(weights):
    s = np.round(np.random.default_rng(0).exponential(size=31), 1)
    losses = torch.tensor(s, requires_grad=True)
    value = rrt.rank_weighted_mean(losses, weights)
    assert value.item() == pytest.approx(weights.mean(s))
    value.backward()
    np.testing.assert_allclose(losses.grad, weights.on(s), atol=1e-12)


def test_the_module_takes_groups_of_the_call_or_of_the_data_set():
    rng = np.random.default_rng(1)
    losses, groups = torch.tensor(rng.exponential(size=20)), torch.tensor(rng.integers(0, 3, size=50))
    index = torch.randperm(50)[:20]
    by_call = rrt.AoRRLoss(m=0.1, aggregate="group-cvar", group_share=0.6)
    by_index = rrt.AoRRLoss(m=0.1, aggregate="group-cvar", group_share=0.6, groups=groups)
    expected = rrt.worst_group_mean(losses, groups[index], 0.1, worst=0.6)
    assert torch.equal(by_call(losses, groups=groups[index]), expected)
    assert torch.equal(by_index(losses, index=index), expected)
    assert by_index.last_weights.shape == (20,)
    criterion = rrt.AoRRLoss(
        torch.nn.CrossEntropyLoss(reduction="none"), aggregate=RankWeights("superquantile", alphas=[0.5])
    )
    output, target = torch.randn(8, 3), torch.randint(0, 3, (8,))
    own = torch.nn.functional.cross_entropy(output, target, reduction="none")
    assert float(criterion(output, target)) == pytest.approx(float(own.sort().values[4:].mean()), rel=1e-5)


def test_an_empty_batch_is_zero_and_wrong_input_is_refused():
    assert float(rrt.worst_group_mean(torch.zeros(0), torch.zeros(0, dtype=torch.long))) == 0
    assert float(rrt.rank_weighted_mean(torch.zeros(0), RankWeights([1]))) == 0
    with pytest.raises(ValueError, match="one integer per loss"):
        rrt.worst_group_mean(torch.zeros(3), torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match="needs the group of each sample"):
        rrt.AoRRLoss(aggregate="worst-group")(torch.zeros(3))
    with pytest.raises(ValueError, match="aggregate must be None"):
        rrt.AoRRLoss(aggregate="worst")
    with pytest.raises(ValueError, match=r"k=0\.5"):
        rrt.AoRRLoss(m=0.1, k=0.5, aggregate="worst-group")
