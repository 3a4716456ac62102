"""Out-of-core fits keep to their folds and their sample: no row is scored by a fit that has seen it."""

from itertools import pairwise

import numpy as np
import pytest

from rankrange import AoRRClassifier, find_label_issues
from rankrange.shards import ShardList, array_shards
from rankrange.shards.describe import describe
from rankrange.shards.engine import LazyRows
from rankrange.shards.fold_models import predict_rows
from rankrange.shards.holdout import Candidate, Scoring, confirmed, score_held_out
from rankrange.shards.label_issues import issues_in_shards
from rankrange.shards.row_blocks import Batch, joined
from rankrange.shards.shard_kernels import Model, Rows, Sampling, _without_repetition

N, D = 1_500, 3


def table(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    y = (np.hypot(X[:, 0], X[:, 1]) > 1.2).astype(int)  # trees see the ring, a line does not
    return X, np.where(rng.random(N) < 0.1, 1 - y, y)


def sharded(X, y, weight=None, edges=(0, 300, 300, 1_100, N)):
    parts = [[part[a:b] for a, b in pairwise(edges)] for part in (X, y, weight) if part is not None]
    return ShardList(array_shards(*parts))


def test_no_label_of_a_scan_has_a_say_in_its_own_prediction():
    X, y = table()

    def predicted(labels):
        found = issues_in_shards(sharded(X, labels), AoRRClassifier(C=0.1), 3, True, 0, 0)
        assert found.task.members.trees is not None
        return predict_rows(found.task, 0, X, np.where(labels == 1, 1.0, -1.0)).mean

    before = predicted(y)
    for row in (3, 700):
        other = y.copy()
        other[row] = 1 - other[row]
        after = predicted(other)
        np.testing.assert_allclose(after[row], before[row], atol=1e-2)
        assert np.abs(after - before).max() > 0.02


@pytest.mark.parametrize("weighted", [False, True])
def test_unseen_rows_are_all_rows_without_the_sample(weighted):
    X, y = table()
    weight = np.random.default_rng(1).integers(0, 4, N).astype(float) if weighted else None
    model = Model("logistic", 1, True, np.float64, classes=np.array([0, 1]))
    sampling = Sampling(seed=7, threshold=2**62, classify=True)
    inside = sampling.chosen(0, N)
    assert 0.1 < inside.mean() < 0.5
    found = sharded(X, y, weight).reduce(score_held_out, Scoring(model, (np.ones((1, D + 1)),), sampling))
    mass = np.ones(N) if weight is None else weight
    expected = [mass[~inside & (y == c)].sum() for c in (0, 1)]
    np.testing.assert_allclose(found.sums.total()[-1], expected)
    right = (X.sum(axis=1) + 1 > 0) == (y == 1)
    np.testing.assert_allclose(found.sums.total()[0], [mass[~inside & right & (y == c)].sum() for c in (0, 1)])


def test_zero_weight_is_absence_from_the_suspects_of_a_scan():
    X, y = table()
    weight = np.where(np.arange(N) % 3 == 0, 0.0, 1.0)
    found = find_label_issues(sharded(X, y, weight), random_state=0)
    assert len(found) > 20
    assert (weight[found["row"]] > 0).all()
    ranked = found.top(N)["row"]
    assert len(ranked) > len(found)
    assert (weight[ranked] > 0).all()
    assert (np.asarray(found.p_wrong)[weight == 0] == 0).all()


def test_rows_without_weight_count_in_no_sum_of_a_scan():
    """Sums by class: rows, likely wrong ones, and those that the ordinary and the robust model predict correctly."""
    X, y = table()
    weight = np.where(np.arange(N) % 3 == 0, 0.0, 1.0)
    sums = issues_in_shards(sharded(X, y, weight), AoRRClassifier(C=0.1), 3, False, 0, 0).suspects.sums
    np.testing.assert_array_equal(sums[0], np.bincount(y[weight > 0]))
    assert (sums[1:4] <= sums[0]).all()


def test_scores_of_candidates_on_unseen_rows_are_means_over_classes_with_their_errors():
    X, y = table()
    rng = np.random.default_rng(2)
    weight = rng.integers(0, 3, N).astype(float)
    model = Model("logistic", 1, True, np.float64, classes=np.array([0, 1]))
    sampling = Sampling(seed=7, threshold=2**62, classify=True)
    tried = [Candidate(10.0 * i, 1.0, rng.normal(size=(1, D + 1))) for i in range(3)]
    _, found = confirmed(sharded(X, y, weight), model, sampling, tried, 1.0, lambda name: None)
    mass = np.where(sampling.chosen(0, N), 0.0, weight)
    right = np.array([((X @ one.W[0, :D] + one.W[0, D]) > 0) == (y == 1) for one in tried]).astype(float)
    for name, values in (("score", right), ("gain", right - right[0])):
        by_class = np.array([np.average(values[:, y == c], axis=1, weights=mass[y == c]) for c in (0, 1)])
        np.testing.assert_allclose(found[name], by_class.mean(axis=0))
    gains = right - right[0]
    errors = []
    for c in (0, 1):
        mean = np.average(gains[:, y == c], axis=1, weights=mass[y == c])
        spread = np.average((gains[:, y == c] - mean[:, None]) ** 2, axis=1, weights=mass[y == c])
        errors.append(spread / mass[y == c].sum())
    np.testing.assert_allclose(found["error"], np.sqrt(np.sum(errors, axis=0)) / 2)


def test_rows_of_no_weight_are_in_no_sample():
    X, y = table()
    weight = np.where(np.arange(N) % 3 == 0, 0.0, 2.0)
    everyone = Sampling(seed=7, threshold=2**64 - 1, classify=True)
    found = sharded(X, y, weight).reduce(describe, everyone)
    np.testing.assert_array_equal(np.concatenate(found.numbers), np.flatnonzero(weight))
    assert found.n == N
    assert found.mass.total()[0] == weight.sum()
    assert found.labels == {c: [int((y == c).sum()), int(((y == c) & (weight > 0)).sum())] for c in (0, 1)}


def test_equal_rows_are_merged_with_their_common_mass():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 4, 400)
    mass = rng.uniform(0.5, 2.0, 400)
    X = np.stack([3.0 - values, values**2.0], axis=1)
    rows = Rows(X, np.ones(400), values.astype(float), -values[None] * 1.0, 2.0 * values[None], mass)
    merged = _without_repetition(rows)
    assert len(merged.y) == 4
    for i, value in enumerate(merged.losses):
        assert merged.mass[i] == pytest.approx(mass[values == value].sum())
        np.testing.assert_array_equal(merged.X[i], [3.0 - value, value**2])
        assert (merged.slopes[0, i], merged.scores[0, i]) == (-value, 2.0 * value)


class InParts:
    """Shards whose values are known."""

    def __init__(self, parts):
        self.parts = parts

    def map_lazy(self, kernel, message):
        return iter(self.parts)


@pytest.mark.parametrize("edges", [(0, 50), (0, 7, 7, 30, 50), (0, 1, 49, 50)])
def test_lazy_values_have_the_places_of_one_array(edges):
    values = np.random.default_rng(0).random(50) < 0.4
    lazy = LazyRows(InParts([values[a:b] for a, b in pairwise(edges)]), None, None, 50)
    np.testing.assert_array_equal(np.asarray(lazy), values)
    np.testing.assert_array_equal(lazy.indices(), np.flatnonzero(values))


@pytest.mark.parametrize("weighted", [(True, True), (True, False), (False, True), (False, False)])
def test_batches_without_weights_count_once_beside_those_with_weights(weighted):
    rng = np.random.default_rng(0)
    sizes, first, parts, mass = (5, 8), 0, [], []
    for size, some in zip(sizes, weighted, strict=True):
        weight = rng.uniform(0.0, 3.0, size) if some else None
        parts.append(Batch(first, rng.normal(size=(size, 2)), rng.integers(0, 2, size), weight))
        mass.append(np.ones(size) if weight is None else weight)
        first += size
    whole = joined(parts)
    np.testing.assert_array_equal(np.ones(13) if whole.weight is None else whole.weight, np.concatenate(mass))
    np.testing.assert_array_equal(whole.X, np.concatenate([part.X for part in parts]))
    np.testing.assert_array_equal(whole.y, np.concatenate([part.y for part in parts]))
