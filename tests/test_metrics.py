"""Top-k metrics against the definition of section 5 and against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import top_k_accuracy_score

from rankrange import metrics


def by_definition(Y, scores, k):
    """Z holds the k best labels, the higher index first among ties; right when Z in Y or Y in Z."""
    right = []
    for truth, row in zip(np.asarray(Y), np.asarray(scores), strict=True):
        Z = set(sorted(range(len(row)), key=lambda j: (row[j], j), reverse=True)[:k])
        true = set(np.flatnonzero(truth))
        right.append(true >= Z or true <= Z)
    return np.mean(right)


problems = st.tuples(st.integers(1, 12), st.integers(1, 7)).flatmap(
    lambda shape: st.tuples(
        st.lists(st.integers(0, 1), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]),
        st.lists(st.integers(-2, 2), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]),
        st.just(shape),
        st.integers(1, shape[1]),
    )
)


@given(problems)
def test_top_k_multilabel_accuracy_is_section_5s_definition_ties_included(problem):
    Y, scores, shape, k = problem
    Y, scores = np.reshape(Y, shape), np.reshape(scores, shape) * 0.1
    assert metrics.top_k_multilabel_accuracy(Y, scores, k) == pytest.approx(by_definition(Y, scores, k))
    assert metrics.top_k_labels(scores, k).sum(axis=1).tolist() == [k] * shape[0]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_one_true_label_is_scikit_learns_top_k_accuracy_ties_included(k):
    rng = np.random.default_rng(k)
    y, scores = rng.integers(5, size=400), rng.integers(4, size=(400, 5)) / 3
    expected = top_k_accuracy_score(y, scores, k=k)
    assert metrics.top_k_multilabel_accuracy(np.eye(5)[y], scores, k) == pytest.approx(expected)


def test_sample_weight_is_repetition():
    rng = np.random.default_rng(0)
    Y, scores, weight = rng.integers(2, size=(30, 4)), rng.normal(size=(30, 4)), rng.integers(4, size=30)
    repeated = metrics.top_k_multilabel_accuracy(np.repeat(Y, weight, axis=0), np.repeat(scores, weight, axis=0), 2)
    assert metrics.top_k_multilabel_accuracy(Y, scores, 2, sample_weight=weight) == pytest.approx(repeated)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array, np.asfortranarray])
def test_the_container_of_y_does_not_matter(kind):
    rng = np.random.default_rng(0)
    Y, scores = rng.integers(2, size=(30, 4)), rng.normal(size=(30, 4))
    for same in (kind(Y), kind(Y.astype(float)), kind(Y.astype(bool))):
        assert metrics.top_k_multilabel_accuracy(same, scores, 2) == by_definition(Y, scores, 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f: f([[1, 0]], [[0.1, 0.2]], 0), ValueError, "1 <= k <= number of labels, got k=0"),
        (lambda f: f([[1, 0]], [[0.1, 0.2]], 3), ValueError, "k=3 for 2 labels"),
        (lambda f: f([[1, 0]], [[0.1, 0.2]], 1.0), TypeError, "float"),
        (lambda f: f([[1, 0]], [[0.1, 0.2, 0.3]], 1), ValueError, r"shape \(1, 3\) for Y of shape \(1, 2\)"),
        (lambda f: f([[1, 0]], [[0.1, np.nan]], 1), ValueError, "finite"),
        (lambda f: f([[1, 0]], [0.1, 0.2], 1), ValueError, "matrix"),
        (lambda f: f([[1, -1]], [[0.1, 0.2]], 1), ValueError, "only 0 and 1, or NaN for unknown labels, got -1"),
        (lambda f: f([[1, np.inf]], [[0.1, 0.2]], 1), ValueError, "only 0 and 1, or NaN for unknown labels, got inf"),
        (lambda f: f([[1], [0, 1]], [[0.1, 0.2]], 1), ValueError, "MultiLabelBinarizer"),
        (lambda f: f([1, 0], [[0.1, 0.2]], 1), ValueError, r"shape \(2,\)"),
        (lambda f: f([[1, 0]], [[0.1, 0.2]], 1, sample_weight=[-1]), ValueError, "negative"),
    ],
)
def test_bad_input_gets_rule_value_and_remedy(call, error, message):
    with pytest.raises(error, match=message):
        call(metrics.top_k_multilabel_accuracy)
