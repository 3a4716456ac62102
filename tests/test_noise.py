"""Label noise: exact counts, uniform choice, and the given labels untouched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats

from rankrange import noise

PAPER_FLIPS = {2: 7, 3: 8, 5: 6, 6: 5, 7: 1}


@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.floats(0, 1), st.integers(0, 2**31))
def test_symmetric_changes_exactly_the_count(labels, rate, seed):
    y = np.array(labels + [0, 1])
    before = y.copy()
    noisy = noise.symmetric(y, rate, seed)
    assert (noisy != y).sum() == round(rate * len(y))
    assert set(noisy) <= set(y)
    assert noisy.dtype == y.dtype
    np.testing.assert_array_equal(y, before)


def test_symmetric_is_uniform_over_rows_and_other_classes():
    y = np.repeat([0, 1, 2], 20)
    noisy = np.array([noise.symmetric(y, 0.25, seed) for seed in range(2000)])
    flipped_per_row = (noisy != y).sum(axis=0)
    assert stats.chisquare(flipped_per_row).pvalue > 1e-3
    for source in range(3):
        became = np.bincount(noisy[:, y == source].ravel(), minlength=3)
        assert stats.chisquare(np.delete(became, source)).pvalue > 1e-3


@pytest.mark.parametrize(
    "y",
    [
        ["cat", "dog", "elephant", "dog"] * 5,
        np.array(["cat", "dog", "elephant", "dog"] * 5, dtype=object),
        np.array([-1.0, 1.0] * 10, dtype=np.float32),
        np.array([True, False] * 10),
        np.array([200, 7, 255, 0] * 5, dtype=np.uint8),
    ],
)
def test_any_kind_of_label(y):
    noisy = noise.symmetric(y, 0.5, 3)
    assert noisy.dtype == np.asarray(y).dtype
    assert (noisy != np.asarray(y)).sum() == 10
    assert set(noisy.tolist()) <= set(np.asarray(y).tolist())


def test_a_seed_gives_the_same_labels_and_another_seed_others():
    y, Y = np.arange(100) % 10, np.eye(10, dtype=int)[np.arange(100) % 10]
    for make in (
        lambda seed: noise.symmetric(y, 0.3, seed),
        lambda seed: noise.asymmetric(y, PAPER_FLIPS, 0.3, seed),
        lambda seed: noise.multilabel(Y, 0.3, seed),
    ):
        np.testing.assert_array_equal(make(5), make(5))
        np.testing.assert_array_equal(make(5), make(np.random.RandomState(5)))
        assert (make(5) != make(6)).any()


@given(st.lists(st.integers(0, 9), max_size=80), st.floats(0, 1), st.integers(0, 2**31))
def test_asymmetric_flips_exactly_the_count_of_each_class(labels, rate, seed):
    y = np.array(labels + list(range(10)))
    before = y.copy()
    noisy = noise.asymmetric(y, PAPER_FLIPS, rate, seed)
    for label in range(10):
        became = noisy[y == label]
        changed = became[became != label]
        expected = round(rate * len(became)) if label in PAPER_FLIPS else 0
        assert changed.tolist() == [PAPER_FLIPS.get(label)] * expected
    np.testing.assert_array_equal(y, before)


indicator = st.integers(2, 6).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 1), min_size=width, max_size=width), min_size=1, max_size=30)
)


@given(indicator, st.floats(0, 1), st.integers(0, 2**31))
def test_multilabel_moves_the_labels_of_exactly_the_count_of_rows(rows, rate, seed):
    Y = np.array(rows)
    n_true, n_labels = Y.sum(axis=1), Y.shape[1]
    movable = (n_true > 0) & (n_true < n_labels)
    before = Y.copy()
    if round(rate * len(Y)) > movable.sum():
        with pytest.raises(ValueError, match="lower the rate"):
            noise.multilabel(Y, rate, seed)
        return
    noisy = noise.multilabel(Y, rate, seed)
    changed = (noisy != Y).any(axis=1)
    assert changed.sum() == round(rate * len(Y))
    np.testing.assert_array_equal(noisy.sum(axis=1), n_true)
    kept = (noisy & Y).sum(axis=1)
    np.testing.assert_array_equal(kept[changed], np.maximum(0, 2 * n_true - n_labels)[changed])
    np.testing.assert_array_equal(Y, before)
    assert noisy.dtype == Y.dtype


def test_multilabel_is_uniform_over_the_other_labels():
    Y = np.tile([1, 0, 0, 1, 0], (4000, 1))
    noisy = noise.multilabel(Y, 1.0, 0)
    pairs = noisy[:, [1, 2, 4]] @ [1, 2, 4]
    assert stats.chisquare([(pairs == p).sum() for p in (3, 5, 6)]).pvalue > 1e-3


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.coo_array, sparse.lil_matrix])
def test_multilabel_of_a_sparse_matrix_is_that_of_the_dense_one(kind):
    Y = np.random.default_rng(0).integers(2, size=(50, 7))
    Y[:, 0], Y[:, 1] = 0, 1
    noisy = noise.multilabel(kind(Y), 0.3, 1)
    assert type(noisy) is kind
    assert noisy.dtype == Y.dtype
    np.testing.assert_array_equal(noisy.toarray(), noise.multilabel(Y, 0.3, 1))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: noise.symmetric([0, 1], 1.5), ValueError, "rate=1.5"),
        (lambda: noise.symmetric([0, 1], float("nan")), ValueError, "rate=nan"),
        (lambda: noise.symmetric([0, 1], "0.1"), TypeError, "str"),
        (lambda: noise.symmetric([1, 1], 0.5), ValueError, r"two classes in y, got only \[1\]"),
        (lambda: noise.symmetric([], 0.5), ValueError, "n >= 1"),
        (lambda: noise.symmetric([[0], [1]], 0.5), ValueError, r"shape \(2, 1\)"),
        (lambda: noise.symmetric([[0], [1, 2]], 0.5), ValueError, "ragged"),
        (lambda: noise.symmetric([0.0, np.nan], 0.5), ValueError, "got 1 of 2"),
        (lambda: noise.symmetric(np.array(["a", None], dtype=object), 0.5), TypeError, "one kind"),
        (lambda: noise.asymmetric([0, 1], {0: 2}, 0.5), ValueError, r"got \[2\] for the classes \[0, 1\]"),
        (lambda: noise.asymmetric([0, 1], {"0": 1}, 0.5), ValueError, "1 and '1' are different"),
        (lambda: noise.asymmetric([0, 1], {0: 0}, 0.5), ValueError, "mapped to itself"),
        (lambda: noise.asymmetric([0, 1], {}, 0.5), ValueError, "empty"),
        (lambda: noise.asymmetric([0, 1], [(0, 1)], 0.5), TypeError, "must be a dict"),
        (lambda: noise.multilabel([["a", "b"]], 0.5), TypeError, "dtype"),
        (lambda: noise.multilabel([[1, 1], [0, 1]], 1.0), ValueError, "1 such rows of 2"),
    ],
)
def test_bad_input_gets_rule_value_and_remedy(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_one_class_and_rate_zero_is_no_error():
    assert noise.symmetric([1, 1], 0.0).tolist() == [1, 1]
