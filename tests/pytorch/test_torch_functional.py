"""ranked_range and tkml in PyTorch: against the definition, the NumPy primitive, and finite differences."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import rankrange as rr
import rankrange.torch as rrt
from definitions import tkml_by_definition
from rankrange.core.losses import TKML

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@st.composite
def losses_and_ranks(draw):
    """Losses with many ties (a few small integers) or none, and any ranks 0 <= m < k <= n."""
    n = draw(st.integers(1, 40))
    whole = st.integers(-3, 3).map(float)
    values = draw(st.lists(draw(st.sampled_from([whole, st.floats(-1e6, 1e6)])), min_size=n, max_size=n))
    k = draw(st.integers(1, n))
    return np.array(values), draw(st.integers(0, k - 1)), k


def value_and_gradient(losses, *args, **kwargs):
    leaf = losses.clone().requires_grad_()
    value = rrt.ranked_range(leaf, *args, **kwargs)
    value.sum().backward()
    return value.detach(), leaf.grad


@given(losses_and_ranks())
def test_value_is_the_mean_of_the_sorted_slice_and_gradient_the_numpy_weights(case):
    s, m, k = case
    value, gradient = value_and_gradient(torch.tensor(s), m, k)
    np.testing.assert_allclose(value, np.mean(sorted(s, reverse=True)[m:k]), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(gradient * (k - m), rr.range_weights(s, m, k), rtol=1e-12, atol=1e-15)


@given(losses_and_ranks(), st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
def test_narrow_dtypes_give_the_float64_weights_of_the_same_values(case, dtype):
    s, m, k = case
    narrow = torch.tensor(np.clip(s, -6e4, 6e4)).to(dtype)
    value, gradient = value_and_gradient(narrow, m, k, reduction="sum")
    assert value.dtype == gradient.dtype == dtype
    eps = torch.finfo(dtype).eps
    expected = sum(sorted(narrow.tolist(), reverse=True)[m:k])
    if abs(expected) < torch.finfo(dtype).max:
        np.testing.assert_allclose(value.double(), expected, rtol=2 * eps, atol=1e-6 * narrow.double().abs().sum())
    np.testing.assert_allclose(gradient.double(), rr.range_weights(narrow.double().numpy(), m, k), atol=eps)


@pytest.mark.parametrize(("m", "k"), [(0, 1.0), (0, 1), (0.1, 0.9), (2, 3), (0.5, 1.0), (0, 0.25)])
@pytest.mark.parametrize("dim", [None, 0, 1, -1])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_equals_numpy_along_every_dimension(m, k, dim, reduction):
    s = torch.randn(8, 12, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    value, gradient = value_and_gradient(s, m, k, dim=dim, reduction=reduction)
    np.testing.assert_allclose(value, rr.ranked_range(s.numpy(), m, k, axis=dim, reduction=reduction), atol=1e-12)
    weights = rr.range_weights(s.numpy(), m, k, axis=dim)
    kept = weights.sum() if dim is None else weights.sum(axis=dim, keepdims=True)
    np.testing.assert_allclose(gradient, weights / (kept if reduction == "mean" else 1), atol=1e-12)


@pytest.mark.parametrize("keep", [rr.RankedRange.median(), rr.RankedRange.kth(0.9), rr.RankedRange.trimmed(3)])
def test_a_range_object_stands_for_both_ranks(keep):
    s = torch.randn(11, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert rrt.ranked_range(s, keep).item() == pytest.approx(float(rr.ranked_range(s.numpy(), keep)))


def test_no_losses_give_zero_and_one_loss_itself():
    empty = torch.zeros(0, requires_grad=True)
    rrt.ranked_range(empty, 0.1, 0.9).backward()
    assert rrt.ranked_range(empty, 0.1, 0.9) == 0
    assert empty.grad.shape == (0,)
    assert rrt.ranked_range(torch.zeros(3, 0), 0.1, 0.9, dim=1).tolist() == [0, 0, 0]
    assert rrt.ranked_range(torch.tensor([5.0]), 0.1, 0.9) == 5


INF, NAN = torch.inf, torch.nan
EDGES = {
    "an infinite loss is dropped without a trace": ([INF, 1, 2, -INF], 1, 3, 1.5, [0, 0.5, 0.5, 0]),
    "or shows": ([INF, INF, 1], 1, 2, INF, [0.5, 0.5, 0]),
    "a NaN shows even where it would be dropped": ([NAN, 1, 2], 1, 3, NAN, [NAN] * 3),
    "and where its rank is not among the kept": ([1, NAN, 2], 0, 2, NAN, [NAN] * 3),
    "the mean of huge losses does not overflow": ([3e38] * 8, 2, 8, 3e38, [0.125] * 8),
    "zero and minus zero are tied": ([0.0, -0.0, 1], 0, 2, 0.5, [0.25, 0.25, 0.5]),
}


@pytest.mark.parametrize(("losses", "m", "k", "expected", "weights"), EDGES.values(), ids=EDGES)
def test_edges(losses, m, k, expected, weights):
    found = value_and_gradient(torch.tensor([losses, [1.0] * len(losses)]), m, k, dim=1)
    both = torch.tensor([expected, 1.0]), torch.tensor([weights, [1 / len(losses)] * len(losses)])
    torch.testing.assert_close(found, both, equal_nan=True)


# --- TKML ---------------------------------------------------------------------------------------------------------


@st.composite
def scored_rows(draw):
    n_rows, n_labels = draw(st.integers(1, 5)), draw(st.integers(2, 8))
    score = draw(st.sampled_from([st.integers(-2, 2).map(float), st.floats(-100, 100)]))
    scores = draw(st.lists(st.lists(score, min_size=n_labels, max_size=n_labels), min_size=n_rows, max_size=n_rows))
    mask = draw(
        st.lists(st.lists(st.booleans(), min_size=n_labels, max_size=n_labels), min_size=n_rows, max_size=n_rows)
    )
    return np.array(scores), np.array(mask), draw(st.integers(1, n_labels - 1)), draw(st.booleans())


@given(scored_rows())
def test_tkml_is_its_definition_and_its_gradient_the_numpy_one(case):
    z, y, k, two_sided = case
    scores = torch.tensor(z, requires_grad=True)
    losses = rrt.tkml(scores, torch.tensor(y), k, two_sided=two_sided, reduction="none")
    losses.sum().backward()
    expected = [tkml_by_definition(mask, row, k, two_sided) for row, mask in zip(z, y, strict=True)]
    np.testing.assert_allclose(losses.detach(), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(scores.grad, TKML(k, two_sided).value_and_derivative(y, z)[1], atol=1e-12)


@given(scored_rows())
def test_label_indices_mean_the_same_as_the_mask(case):
    z, y, k, two_sided = case
    width = y.shape[1] + 1  # one wider than the labels: a target of the scores' shape would be a mask
    index = np.full((len(y), width), -1)
    for row, mask in zip(index, y, strict=True):
        labels = np.flatnonzero(mask)
        row[-len(labels) or width :] = labels  # padding may stand anywhere
    scores = torch.tensor(z)
    by_mask = rrt.tkml(scores, torch.tensor(y), k, two_sided=two_sided, reduction="none")
    by_index = rrt.tkml(scores, torch.tensor(index), k, two_sided=two_sided, reduction="none")
    torch.testing.assert_close(by_index, by_mask, rtol=0, atol=0)


def test_one_class_index_a_row_is_top_k_multi_class():
    scores = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 1.0]])
    losses = rrt.tkml(scores, torch.tensor([2, 0]), 1, reduction="none")
    assert losses.tolist() == [1.0, 2.0]  # [1 + 2 - 2]_+ and [1 + 1 - 0]_+


@pytest.mark.parametrize("dtype", DTYPES)
def test_tkml_keeps_the_dtype_and_the_reductions_agree(dtype):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 7, generator=generator).to(dtype)
    mask = torch.rand(6, 7, generator=generator) < 0.4
    losses = rrt.tkml(scores, mask, 2, reduction="none")
    expected = TKML(2).value(mask.numpy(), scores.double().numpy())
    eps = torch.finfo(dtype).eps
    np.testing.assert_allclose(losses.double(), expected, rtol=4 * eps, atol=eps)
    for reduction, value in (("mean", expected.mean()), ("sum", expected.sum())):
        found = rrt.tkml(scores, mask, 2, reduction=reduction)
        assert found.dtype == dtype
        assert found.item() == pytest.approx(value, rel=8 * eps)


def test_a_label_masked_out_by_minus_infinity_and_an_empty_batch_cost_nothing():
    scores = torch.tensor([[2.0, -torch.inf, -torch.inf]], requires_grad=True)
    loss = rrt.tkml(scores, torch.tensor([0]), 1)
    loss.backward()
    assert loss == 0
    assert scores.grad.tolist() == [[0, 0, 0]]
    assert rrt.tkml(torch.zeros(0, 5), torch.zeros(0, 5), 2) == 0


@pytest.mark.parametrize("broken", [[2.0, NAN, 0.0], [-INF, -INF, -INF]])
def test_a_nan_score_makes_the_loss_of_its_row_nan(broken):
    scores = torch.tensor([broken, [2.0, 1.0, 0.0]], requires_grad=True)
    losses = rrt.tkml(scores, torch.tensor([0, 1]), 1, reduction="none")
    losses.sum().backward()
    assert losses[0].isnan()
    assert losses[1] == 1.0
    assert scores.grad[0].isnan().all()
    assert scores.grad[1].isfinite().all()


@pytest.mark.parametrize("wrong", [6, 7, -2])
def test_an_index_outside_of_the_labels_is_an_error(wrong):
    scores = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([[0, -1], [2, wrong], [5, -1]])
    with pytest.raises(ValueError, match="count labels from 0"):
        rrt.tkml(scores, target, 2)
    # In a transform no value can be read, so the row is NaN; the others are what they were.
    rows = lambda z: (z.sum(), rrt.tkml(z, target, 2, reduction="none"))  # noqa: E731
    _, (_, losses) = torch.func.grad_and_value(rows, has_aux=True)(scores)
    valid = rrt.tkml(scores, target.masked_fill(target == wrong, -1), 2, reduction="none")
    valid[1] = torch.nan
    torch.testing.assert_close(losses, valid, equal_nan=True)


@pytest.mark.parametrize(
    "weights", [rr.RankWeights("extremile"), rr.RankWeights("winsorised", m=0.2, k=0.9), rr.RankWeights([3, 1])]
)
def test_weights_by_rank_are_those_of_numpy(weights):
    s = np.round(np.random.default_rng(0).exponential(size=31), 1)
    losses = torch.tensor(s, requires_grad=True)
    value = rrt.rank_weighted_mean(losses, weights)
    assert value.item() == pytest.approx(weights.mean(s))
    value.backward()
    np.testing.assert_allclose(losses.grad, weights.on(s), atol=1e-12)
    assert rrt.rank_weighted_mean(torch.zeros(0), weights) == 0
    assert rrt.rank_weighted_mean(torch.tensor([1.0, NAN]), rr.RankWeights([1, 0])).isnan()
