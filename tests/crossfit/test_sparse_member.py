"""The l1-penalised members of the label-noise ensemble: on wide tables only, and worth having."""

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score

from rankrange import find_label_issues
from rankrange.audit import audit_table
from rankrange.crossfit.folds import draw_folds
from rankrange.crossfit.predictions import sparse_predictions


def genes(seed, n=120, d=400, classes=2):
    """Columns in correlated groups of ten, four of them matter, and a tenth of the labels is wrong."""
    rng = np.random.default_rng(seed)
    X = 0.6 * np.repeat(rng.normal(size=(n, d // 10)), 10, axis=1) + 0.8 * rng.normal(size=(n, d))
    t = X[:, [5, 25, 45, 65]] @ np.array([2.0, -2.0, 2.0, -2.0])
    y = np.digitize(t, np.quantile(t, np.arange(1, classes) / classes))
    wrong = rng.choice(n, n // 10, replace=False)
    y[wrong] = (y[wrong] + 1) % classes
    return X, y, wrong


def test_narrow_and_constant_columns_add_nothing():
    X, y, _ = genes(1)
    folds = draw_folds(len(y), np.random.default_rng(2), n_folds=4, n_repeats=1)
    assert sparse_predictions(X[:, :100], y, 2, folds) == {}
    for constant in (np.zeros((120, 200)), np.ones((120, 200))):
        flat = sparse_predictions(constant, y, 2, folds)["sparse"]
        assert all(np.ptp(flat[test], axis=0).max() < 1e-9 for test in folds.test)


def test_wrong_labels_of_a_wide_table_are_found_by_the_columns_that_matter():
    X, y, wrong = genes(2, 150)
    truth = np.isin(np.arange(150), wrong)
    issues = find_label_issues(X, y, trees=True, random_state=0)
    without = find_label_issues(X, y, trees=False, random_state=0)
    weight = {name: share for name, share, _ in issues.members}
    assert weight["sparse"] + weight["sparse robust"] > 0.5
    assert average_precision_score(truth, issues.p_wrong) > average_precision_score(truth, without.p_wrong) + 0.1


def test_an_audit_names_sparse_models_in_words():
    X, y, _ = genes(4, 100, 200)
    table = pd.DataFrame(X).add_prefix("gene ").assign(label=np.where(y == 1, "ill", "well"))
    audit = audit_table(table, "label")
    disagreeing = [s.why for s in audit.suspects(20) if "sparse" in s.why]
    assert disagreeing
    assert all("; the sparse linear model '" in text for text in disagreeing)
    assert any("The best, the sparse linear model, agrees" in note for note in audit.result.notes)
