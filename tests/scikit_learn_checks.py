"""scikit-learn's checks of an estimator, for those whose fits take long."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

# The same check with sparse arrays, and with a read-only map of float32 and a writable array, stays in the default run.
REPEATED = {
    "check_estimator_sparse_matrix",
    "check_classifiers_train(readonly_memmap=True)",
    "check_regressors_train(readonly_memmap=True)",
}


def parametrize_with_fewer_checks(estimators):
    """As scikit-learn's decorator; checks that repeat another one with a container of another kind are slow."""
    decorator = parametrize_with_checks(estimators)
    names, cases = decorator.args
    name_of = decorator.kwargs["ids"]
    marked = [pytest.param(*case, marks=pytest.mark.slow if name_of(case[1]) in REPEATED else ()) for case in cases]
    return pytest.mark.parametrize(names, marked, ids=name_of)
