"""How ranks are dealt out to classes and rows to folds: by the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankrange.core.aggregates import quotas
from rankrange.crossfit.folds import deal, draw_folds, given_folds

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@given(SIZES, st.data())
def test_whole_quotas_go_to_the_largest_remainders(sizes, data):
    m = data.draw(st.integers(0, sum(sizes)))
    found = quotas(np.array([float(m)]), np.array([sizes], dtype=float))[0]
    exact = m * np.array(sizes) / sum(sizes)
    assert found.sum() == m
    assert (found == np.floor(found)).all()
    assert (np.abs(found - exact) < 1.0 + 1e-9).all()
    assert (found <= sizes).all()
    remainder = exact - np.floor(exact + 1e-9)
    raised = found > np.floor(exact + 1e-9)
    if raised.any() and not raised.all():
        assert remainder[raised].min() >= remainder[~raised].max() - 1e-9


@given(SIZES, st.integers(2, 6), st.integers(0, 10_000))
def test_folds_are_even_within_each_class_and_over_all(sizes, folds, seed):
    strata = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    fold = deal(strata, folds, np.random.default_rng(seed))
    for rows in [np.ones(len(strata), dtype=bool), *(strata == c for c in range(len(sizes)))]:
        assert np.ptp(np.bincount(fold[rows], minlength=folds)) <= 1


def test_every_row_is_dealt_into_every_fold_by_some_seed():
    """Rows of a table are often sorted: which are held out together must not follow their order."""
    strata = np.repeat([0, 1], 20)
    dealt = np.array([deal(strata, 4, np.random.default_rng(seed)) for seed in range(60)])
    assert all(len(set(column)) == 4 for column in dealt.T.tolist())
    repeats = draw_folds(40, np.random.default_rng(0), strata=strata, n_folds=4, n_repeats=3).test.reshape(3, 4, 40)
    assert not (repeats[0] == repeats[1]).all()


def test_folds_that_test_their_training_rows_are_errors():
    rows = np.arange(10)
    with pytest.raises(ValueError, match="must not overlap, got 2 rows"):
        given_folds([(rows[:6], rows[4:])], None, rows)
