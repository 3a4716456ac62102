"""The member of the ensemble that reads texts."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from rankrange import find_label_issues, noise

OF_FILMS = "film plot actor scene story music camera ending script dialogue director cast"
WORDS = {
    "good": ["bright", "warm", "lovely", "clever", "honest", "funny", "moving", "quick", "brave", "gentle"],
    "bad": ["dull", "cold", "ugly", "stupid", "false", "boring", "tedious", "slow", "weak", "harsh"],
    "both": OF_FILMS.split(),
}
CROWD = Path(os.environ.get("RANKRANGE_DATA", ""), "label_errors", "movie_reviews_crowd.csv.gz")


def reviews(n=240, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(["bad", "good"], n)
    return [" ".join([*rng.choice(WORDS[label], 3), *rng.choice(WORDS["both"], 8)]) for label in y], y


def by_logistic_regression(texts, y, wrong, seed):
    """The average precision of TF-IDF with logistic regression."""
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    X, codes = TfidfVectorizer().fit_transform(texts), np.unique(y, return_inverse=True)[1]
    P = cross_val_predict(LogisticRegression(max_iter=300), X, codes, cv=folds, method="predict_proba")
    return average_precision_score(wrong, 1.0 - P[np.arange(len(codes)), codes])


@pytest.mark.parametrize("seed", [0, 1])
def test_wrong_labels_of_texts_are_found_without_any_features(seed):
    texts, true = reviews(seed=seed)
    given = noise.symmetric(true, 0.1, random_state=seed)
    issues = find_label_issues(y=given, texts=texts, random_state=0)
    assert [name for name, _, _ in issues.members] == ["text"]
    found = average_precision_score(given != true, issues.score)
    assert found >= max(0.9, by_logistic_regression(texts, given, given != true, seed) - 0.01)
    flagged, wrong = issues.p_wrong >= 0.5, given != true
    assert flagged[wrong].mean() >= 0.8  # what a reader sees at once is flagged
    assert flagged[~wrong].mean() <= 0.01


def test_texts_join_the_ensemble_of_features_that_say_nothing():
    texts, true = reviews(seed=2)
    given = noise.symmetric(true, 0.1, random_state=2)
    X = np.random.default_rng(0).normal(size=(len(given), 2))
    issues = find_label_issues(X, given, texts=texts, random_state=0)
    weights = {name: weight for name, weight, _ in issues.members}
    assert weights["text"] > 0.5
    assert average_precision_score(given != true, issues.score) > 0.85


def test_the_prediction_of_a_text_does_not_depend_on_its_own_label():
    texts, y = reviews(100, seed=3)
    changed = y.copy()
    changed[5] = "good" if y[5] == "bad" else "bad"
    folds = [(np.delete(np.arange(100), part), part) for part in np.arange(100).reshape(5, 20)]
    issues = [find_label_issues(y=labels, texts=texts, cv=folds, random_state=0) for labels in (y, changed)]
    order = [issue.members[0][2][5].argsort().tolist() for issue in issues]
    assert order[0] == order[1]


def test_texts_of_another_length_or_without_words_are_errors():
    with pytest.raises(ValueError, match="one text per label, 4, got 3"):
        find_label_issues(y=[0, 1, 0, 1], texts=["a", "b", "c"])
    with pytest.raises(ValueError, match="words in common"):
        find_label_issues(y=[0, 1] * 20, texts=[""] * 40)


@pytest.mark.skipif(not CROWD.exists(), reason="needs RANKRANGE_DATA")
@pytest.mark.slow
def test_human_errors_are_ranked_at_least_as_well_as_by_logistic_regression():
    import pandas as pd

    data = pd.read_csv(CROWD)
    texts, given, wrong = data["text"].tolist(), data["given_label"].to_numpy(), data["is_error"].to_numpy(bool)
    issues = find_label_issues(y=given, texts=texts, random_state=0)
    assert average_precision_score(wrong, issues.score) >= by_logistic_regression(texts, given, wrong, 0)
    low, high = issues.noise_interval
    assert low <= wrong.mean() <= high
