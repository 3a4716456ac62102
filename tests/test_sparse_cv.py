"""The choice of a penalty and m together: outliers in test folds do not decide, and the path is what it is called."""

import itertools
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
import scipy.sparse as sp
from matplotlib.figure import Figure
from sklearn.datasets import make_regression
from sklearn.utils.estimator_checks import check_estimator

from rankrange import AoRRClassifier, AoRRClassifierCV, AoRRRegressor, AoRRRegressorCV, find_label_issues
from rankrange.plots import plot_path

matplotlib.use("Agg")
# Few penalties and little noise: most choices lie at the end of the path, which has its own test.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{start}:UserWarning") for start in ("the chosen C", "all coefficients are zero")
]


def wide(seed, share, n=80, d=100):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = X[:, :3] @ np.array([2.0, -2.0, 2.0]) + 0.5 * rng.normal(size=n)
    bad = rng.choice(n, size=int(share * n), replace=False)
    y[bad] += 40.0
    return X, y, bad


def test_m_and_the_penalty_are_chosen_in_spite_of_outliers():
    X, y, bad = wide(0, 0.15)
    model = AoRRRegressorCV((0.0, 0.2), n_penalties=8, cv=3, n_starts=2, random_state=0).fit(X, y)
    assert model.m_ == 0.2
    assert model.dropped_[bad].all()
    assert set(range(3)) <= set(np.flatnonzero(model.coef_))
    clean = np.setdiff1d(np.arange(80), bad)
    assert np.mean((model.predict(X[clean]) - y[clean]) ** 2) < 2.0


def test_one_outlier_in_a_test_fold_changes_no_score_by_its_size():
    X, y, _ = wide(1, 0.0, d=40)
    tables = []
    for size in (1e3, 1e6):
        y[5] = size
        tables.append(AoRRRegressorCV((0.1,), n_penalties=6, cv=3, n_starts=0, random_state=0).fit(X, y))
    assert tables[0].path_["score"].min() == pytest.approx(tables[1].path_["score"].min(), rel=0.5)
    assert tables[0].path_["score"].min() < 2.0


@pytest.mark.parametrize(
    ("density", "kind"),
    [
        (1.0, AoRRRegressorCV),
        (0.1, AoRRClassifierCV),
        pytest.param(1.0, AoRRClassifierCV, marks=pytest.mark.slow),
        pytest.param(0.1, AoRRRegressorCV, marks=pytest.mark.slow),
    ],
)
def test_sparse_rows_have_the_choice_of_the_same_rows_as_a_dense_array(kind, density):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 100)) * (rng.random((60, 100)) < density)
    y = 3 * X[:, 0] - 3 * X[:, 1] + 0.1 * rng.normal(size=60)
    y = y > 0 if kind is AoRRClassifierCV else y
    settings = {"n_penalties": 10, "cv": 3, "n_starts": 2, "random_state": 0}
    dense, sparse = (kind((0.0, 0.1), **settings).fit(rows, y) for rows in (X, sp.csr_matrix(X)))
    assert sparse.m_ == dense.m_
    assert pytest.approx(dense.C_, rel=1e-10) == sparse.C_
    np.testing.assert_allclose(sparse.path_["score"], dense.path_["score"], rtol=1e-6)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-6)


def test_the_one_standard_error_rule_takes_the_larger_penalty():
    X, y, _ = wide(2, 0.0)
    models = {
        rule: AoRRRegressorCV((0.0,), rule=rule, n_penalties=12, random_state=0).fit(X, y)
        for rule in ("one-se", "best")
    }
    assert models["one-se"].C_ <= models["best"].C_
    table = models["one-se"].path_
    best = table["score"].argmin()
    chosen = np.flatnonzero(table["C"] == models["one-se"].C_)[0]
    assert table["score"][0, chosen] <= table["score"][0, best] + table["error"][0, best]
    assert (table["score"][0, :chosen] > table["score"][0, best] + table["error"][0, best]).all()


def test_the_path_starts_with_few_coefficients_and_is_drawn():
    X, y, _ = wide(3, 0.0)
    model = AoRRRegressorCV((0.0,), n_penalties=8, random_state=0).fit(X, y)
    coef = model.path_["coef"]
    assert coef.shape == (8, 1, 100)
    assert np.count_nonzero(coef[0]) <= 3 < np.count_nonzero(coef[-1])
    assert len(plot_path(model).get_lines()) == 1 + np.count_nonzero(coef.any(axis=(0, 1)))
    with pytest.raises(ValueError, match="path needs"):
        plot_path(AoRRRegressorCV())


def test_seeds_are_those_of_scikit_learn():
    X, y, _ = wide(5, 0.0, n=40, d=10)
    seeds = (3, np.int64(3), np.random.RandomState(3), 4)
    scores = [
        AoRRRegressorCV((0.0,), n_penalties=2, cv=2, random_state=seed).fit(X, y).path_["score"] for seed in seeds
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])
    assert not np.array_equal(scores[0], scores[3])  # other folds


def test_classes_of_two_and_three_kinds():
    X, t, _ = wide(4, 0.0, n=100, d=20)
    for labels in (t > 0, np.digitize(t, [-2, 2])):
        model = AoRRClassifierCV((0.1,), n_penalties=3, cv=2, n_starts=1, random_state=0).fit(X, labels)
        assert model.score(X, labels) > 0.8
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"m": (1.5,)}, "fractions of the rows"),
        ({"cv": 1}, "cv must be an int"),
        ({"l1_ratio": 0.0}, "l1_ratio must be in"),
        ({"rule": "worst"}, "rule must be"),
        ({"score_trim": 1.0}, "score_trim must be"),
        ({"loss": "hinge"}, "loss must be"),
    ],
)
def test_settings_that_make_no_sense_are_errors(settings, message):
    X, y, _ = wide(0, 0.0)
    with pytest.raises(ValueError, match=message):
        AoRRRegressorCV(**settings).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"m": "auto"}, "m must hold fractions .* got m='auto'"),
        ({"m": ("half",)}, "m must hold fractions"),
        ({"l1_ratio": (0.5, 1.0)}, r"l1_ratio must be .* got l1_ratio=\(0.5, 1.0\)"),
        ({"eps": "small"}, "eps must be in"),
        ({"score_trim": None}, "score_trim must be in"),
    ],
    ids=str,
)
def test_each_wrong_setting_has_its_own_message(settings, message):
    with pytest.raises(ValueError, match=message):
        AoRRRegressorCV(**settings).fit(np.eye(4), np.arange(4.0))
    with pytest.raises(TypeError, match=r"AoRRRegressorCV.__init__\(\) got an unexpected keyword argument 'C'"):
        AoRRRegressorCV(C=1.0)


@pytest.mark.parametrize("kind", [AoRRRegressor, AoRRRegressorCV])
def test_words_as_a_numeric_target_are_an_error_that_names_y(kind):
    for y in (["low", "high"] * 3, np.array(["low", "high"] * 3, dtype=object)):
        with pytest.raises(ValueError, match="y must be numeric, got the string 'low'"):
            kind().fit(np.eye(6), y)


def test_a_model_without_columns_and_a_choice_at_the_end_are_warned_of():
    X, y, _ = wide(0, 0.0, n=40, d=20)
    noise = np.random.default_rng(0).normal(size=40)
    with pytest.warns(
        UserWarning, match=r"all coefficients are zero.*score_trim above the share of outliers \(got 0.3\)"
    ):
        assert not AoRRRegressorCV((0.0,), n_penalties=5, random_state=0).fit(X, noise).coef_.any()
    with pytest.warns(UserWarning, match="set eps below 0.5"):
        model = AoRRRegressorCV((0.0,), n_penalties=5, eps=0.5, random_state=0).fit(X, y)
    assert model.path_["C"][-1] == model.C_


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"n_penalties": 1}, "no smaller penalty was compared; raise n_penalties"),
        ({"rule": "best", "n_penalties": 5}, "no smaller penalty predicts better; use another m"),
        ({"n_penalties": 5}, "no smaller penalty predicts better by one standard error; use rule='best'"),
    ],
)
def test_the_remedy_for_a_model_without_columns_is_never_the_setting_in_use(settings, advice):
    X = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.warns(UserWarning, match=f"all coefficients are zero.*{advice}"):
        AoRRRegressorCV((0.0,), random_state=0, **settings).fit(X, np.ones(40))


def test_one_split_has_no_standard_error_and_takes_the_best():
    X, y, _ = wide(1, 0.0, n=60, d=20)
    split = [(np.arange(40), np.arange(40, 60))]
    model = AoRRRegressorCV((0.0,), n_penalties=8, eps=1e-3, cv=split, random_state=0).fit(X, y)
    assert model.path_["C"][model.path_["score"][0].argmin()] == model.C_


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AoRRRegressorCV, AoRRClassifierCV])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_accepts_the_estimators(kind):
    check_estimator(kind((0.0, 0.1), n_penalties=3, cv=2, n_starts=1))


def test_the_path_is_that_of_single_fits_and_passes_through_the_model():
    X, y = make_regression(80, 120, n_informative=5, noise=5.0, random_state=1)
    model = AoRRRegressorCV(m=(0.0,), l1_ratio=1.0, n_penalties=30, random_state=0).fit(X, y)
    Cs, coefs = model.path_["C"], model.path_["coef"][:, 0]
    np.testing.assert_array_equal(coefs[Cs == model.C_][0], model.coef_)
    for C, coef in list(zip(Cs, coefs, strict=True))[::3]:
        alone = AoRRRegressor(0, 1.0, C=C, l1_ratio=1.0).fit(X, y)
        np.testing.assert_allclose(coef, alone.coef_, atol=1e-3 * np.abs(coefs).max())
    y[:8] += 1000.0
    model = AoRRRegressorCV(m=(0.0, 0.15), l1_ratio=1.0, n_penalties=10, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.path_["coef"][model.path_["C"] == model.C_][0, 0], model.coef_)


def test_more_folds_than_rows_are_an_error():
    X, y = make_regression(40, 5, random_state=0)
    with pytest.raises(ValueError, match="at least 100 rows, got 40"):
        AoRRRegressorCV(cv=100).fit(X, y)


@pytest.mark.parametrize("least", [1, 2, 3])
def test_a_class_of_fewer_rows_than_folds_is_warned_of(least, recwarn):
    """As StratifiedKFold does."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = np.where(np.arange(60) < least, "rare", np.where(X[:, 0] > 0, "up", "down"))
    AoRRClassifierCV(m=0.0, n_penalties=3, cv=3, random_state=0).fit(X, y)
    found = [str(warning.message) for warning in recwarn if "every fold" in str(warning.message)]
    assert len(found) == (least < 3)
    assert all(f"got {least} rows of the smallest class and cv=3" in message for message in found)


@pytest.mark.filterwarnings("ignore:a coefficient needs kept rows")
def test_a_row_stays_however_large_m_is():
    X, y = make_regression(60, 5, random_state=0)
    assert np.isfinite(AoRRRegressorCV(m=(0.99,), n_penalties=3).fit(X, y).coef_).all()


@pytest.mark.parametrize("eps", [0.5, 0.1, 0.02, 1e-5])
def test_the_labels_of_a_drawn_path_do_not_overlap(eps):
    Cs = 0.0173 * np.geomspace(1, 1 / eps, 20)
    model = SimpleNamespace(path_={"C": Cs, "coef": np.ones((20, 1, 2))}, C_=Cs[3], m_=0.1)
    figure = Figure(figsize=(4, 3))
    ax = plot_path(model, ax=figure.subplots())
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in ax.get_xticklabels(which="both") if label.get_text()]
    boxes = [box for box in boxes if box.x1 > ax.bbox.x0 and box.x0 < ax.bbox.x1]
    assert len(boxes) >= 2
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(sorted(boxes, key=lambda box: box.x0)))


def test_messages_name_what_can_be_changed():
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    with pytest.raises(ValueError, match="loss='logistic' in a classifier"):
        AoRRClassifier(m=0.1, l1_ratio=1.0, loss="hinge", C=1.0).fit(X, y)
    with pytest.raises(AttributeError, match="l1_ratio=0"):
        AoRRClassifier(m=0.1, l1_ratio=1.0, C=1.0).fit(X, y).summary()
    for cv in ("a", 0.5):
        with pytest.raises(ValueError, match="cv must be a"):
            AoRRRegressorCV(cv=cv).fit(X, y.astype(float))
        with pytest.raises(ValueError, match="cv must be a number of folds"):
            find_label_issues(X, y, cv=cv)
    with pytest.raises(ValueError, match="at most the number of rows, 40"):
        find_label_issues(X, y, cv=1000)


@pytest.fixture(scope="module")
def named():
    """A table with column names, of which twelve matter, and the fitted CV estimator."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(60, 20)), columns=[f"gene {j}" for j in range(20)])
    y = X.to_numpy()[:, :12] @ np.linspace(5, 1, 12) + 0.1 * rng.normal(size=60)
    return X, AoRRRegressorCV((0.0, 0.1), n_penalties=8, cv=3, rule="best", eps=0.002, random_state=0).fit(X, y)


def test_a_path_names_the_largest_coefficients_in_different_colours(named):
    ax = plot_path(named[1], ax=Figure().subplots())
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "gene 0" in texts
    assert len(texts) == 10
    lines = [line for line in ax.get_lines() if line.get_label() in texts]
    assert len({matplotlib.colors.to_hex(line.get_color()) for line in lines}) == 10


def test_the_fitted_model_has_the_column_names_and_no_prediction_warns_of_them(named, recwarn):
    X, model = named
    np.testing.assert_array_equal(model.best_estimator_.feature_names_in_, X.columns)
    np.testing.assert_allclose(model.best_estimator_.predict(X), model.predict(X))
    assert not recwarn.list
    with pytest.warns(UserWarning, match="AoRRRegressorCV was fitted with feature names") as seen:
        model.predict(X.to_numpy())
    assert len(seen) == 1


def test_cv_estimators_have_a_certificate_and_sparse_coefficients(named):
    X, model = named
    assert model.certificate_ == model.best_estimator_.certificate_ <= 1e-6
    before, dense = model.predict(X), model.coef_
    assert sp.issparse(model.sparsify().coef_)
    assert sp.issparse(model.best_estimator_.coef_)
    np.testing.assert_allclose(model.predict(X), before)
    np.testing.assert_array_equal(model.densify().coef_, dense)


@pytest.mark.parametrize(("name", "value"), [("n_starts", 1.5), ("fit_intercept", "no"), ("n_starts", -1)])
def test_a_wrong_parameter_is_refused_before_the_search(name, value):
    X = np.random.default_rng(0).normal(size=(30, 4))
    for model in (AoRRClassifierCV(random_state=0), AoRRClassifier(0.1, l1_ratio=1.0), AoRRClassifier(0.1)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            model.set_params(**{name: value}).fit(X, X[:, 0] > 0)
        assert not hasattr(model, "coef_")


@pytest.mark.parametrize("as_sparse", [False, True])
def test_of_two_equal_columns_none_has_a_coefficient_of_rounding_errors(as_sparse):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(80, 120))
    y = 3 * X[:, 0] - 2 * X[:, 1] + 0.3 * rng.normal(size=80)
    y[:8] += 20
    twice = np.column_stack([X[:, 0], X])
    model = AoRRRegressor(0.1, l1_ratio=1.0, C=0.05, random_state=0).fit(
        sp.csr_matrix(twice) if as_sparse else twice, y
    )
    used = np.abs(model.coef_[model.coef_ != 0])
    assert used.min() > 1e-12 * used.max()


def test_without_a_penalty_too_many_columns_are_named_and_not_m():
    with pytest.raises(ValueError, match="got 20 rows; leave out columns, or pass a finite C"):
        AoRRRegressor(0.1, C=np.inf).fit(np.random.default_rng(0).normal(size=(20, 30)), np.arange(20.0))


def test_messages_of_find_label_issues_name_what_is_wrong():
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["a", "b"])
    y = np.repeat(["u", "v"], 10)
    gap, infinite = X.to_numpy().copy(), X.to_numpy().copy()
    gap[0, 0], infinite[0, 0] = np.nan, np.inf
    with pytest.raises(ValueError, match=r"got dates or times in \['when'\]"):
        find_label_issues(X.assign(when=pd.Timestamp("2020")), y)
    with pytest.raises(ValueError, match="sparse X must not have missing values"):
        find_label_issues(sp.csr_matrix(gap), y)
    for rows in (infinite, sp.csr_matrix(infinite)):
        with pytest.raises(ValueError, match="X must be finite, got infinite values"):
            find_label_issues(rows, y)
    with pytest.raises(ValueError, match="got the text 'b'; pass the column itself"):
        find_label_issues(X, "b")
    with pytest.raises(ValueError, match="needs a classifier with predict_proba, got the regressor AoRRRegressor"):
        find_label_issues(X, y, estimator=AoRRRegressor())
    with pytest.raises(ValueError, match="estimator must be a classifier, got 'forest'; pass for example"):
        find_label_issues(X, y, estimator="forest")
