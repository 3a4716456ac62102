"""Out-of-core fits keep to their folds and their sample: no row is scored by a fit that has seen it."""

from itertools import pairwise

import numpy as np
import pytest

from rankrange import AoRRClassifier
from rankrange.shards import ShardList, array_shards
from rankrange.shards.label_issues import judge_shards, opinion_of
from rankrange.shards.shard_kernels import Model, Sampling
from rankrange.shards.unseen import Scoring, score_unseen

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
        found = judge_shards(sharded(X, labels), AoRRClassifier(C=0.1), 3, True, 0, 0)
        assert found.judging.tree_flips is not None
        return opinion_of(found.judging, 0, X, np.where(labels == 1, 1.0, -1.0)).mean

    before = predicted(y)
    for row in (3, 700, 1_499):
        other = y.copy()
        other[row] = 1 - other[row]
        after = predicted(other)
        np.testing.assert_allclose(after[row], before[row], atol=1e-3)
        assert np.abs(after - before).max() > 0.02


@pytest.mark.parametrize("weighted", [False, True])
def test_unseen_rows_are_all_rows_without_the_sample(weighted):
    X, y = table()
    weight = np.random.default_rng(1).integers(0, 4, N).astype(float) if weighted else None
    model = Model("logistic", 1, True, np.float64, classes=np.array([0, 1]))
    sampling = Sampling(seed=7, threshold=2**62, classify=True)
    inside = sampling.chosen(0, N)
    assert 0.1 < inside.mean() < 0.5
    found = sharded(X, y, weight).reduce(score_unseen, Scoring(model, (np.ones((1, D + 1)),), sampling))
    mass = np.ones(N) if weight is None else weight
    expected = [mass[~inside & (y == c)].sum() for c in (0, 1)]
    np.testing.assert_allclose(found.sums.total()[-1], expected)
    right = (X.sum(axis=1) + 1 > 0) == (y == 1)
    np.testing.assert_allclose(found.sums.total()[0], [mass[~inside & right & (y == c)].sum() for c in (0, 1)])


def test_zero_weight_is_absence_from_the_suspects_of_a_scan():
    X, y = table()
    from rankrange import find_label_issues

    weight = np.where(np.arange(N) % 3 == 0, 0.0, 1.0)
    found = find_label_issues(sharded(X, y, weight), random_state=0)
    assert len(found) > 20
    assert (weight[found["row"]] > 0).all()
    assert (np.asarray(found.p_wrong)[weight == 0] == 0).all()
