"""One class or function and one entry in a table, as CONTRIBUTING and docs/development/extending.md say, seen by users.

The contracts of single losses, aggregates and solvers are in test_losses.py and test_solver_table.py.
"""

import argparse
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB

from definitions import GemanMcClure
from rankrange import AoRRClassifier, AoRRRegressor, RankWeights, find_label_issues, noise, scan
from rankrange.core.aggregates import Stratified
from rankrange.core.cuts import Selection
from rankrange.core.losses import LOSSES, losses_for
from rankrange.core.rank_weights import NAMES
from rankrange.crossfit.folds import draw_folds
from rankrange.crossfit.members import MEMBERS, MemberTask

DOCS = Path(__file__).parents[2] / "docs"


def of_the_page(name, **known):
    """A function of docs/development/extending.md by its name."""
    page = (DOCS / "development" / "extending.md").read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if f"def {name}(" in block]
    names = {"__annotations__": {}, "np": np, "TYPE_CHECKING": False, **known}
    exec(compile("from __future__ import annotations\n" + code, "extending.md", "exec"), names)
    return names[name]


def rows(n=200, seed=0):
    """Features, numbers of which some are far off, and two classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=n)
    classes = (y > 0).astype(int)
    y[: n // 20] += 30.0
    return X, y, classes


# ---- losses ----------------------------------------------------------------------------------------------------------


class LogCosh:
    """log cosh(z - y)."""

    targets = "numbers"

    def value(self, y, z):
        return np.logaddexp(z - y, y - z) - np.log(2)

    def value_and_derivative(self, y, z):
        return self.value(y, z), np.tanh(z - y)

    def curvature(self, y, z):
        return 1 - np.tanh(z - y) ** 2


class SmoothedHinge:
    """A hinge with a quadratic corner, for two classes."""

    targets = "binary"

    def value(self, y, z):
        return self.value_and_derivative(y, z)[0]

    def value_and_derivative(self, y, z):
        gap = np.maximum(0, 1 - y * z)
        bounded = np.minimum(gap, 1)
        return bounded * (gap - bounded / 2), -y * bounded

    def curvature(self, y, z):
        return ((y * z >= 0) & (y * z < 1)).astype(z.dtype)


@pytest.fixture
def losses(monkeypatch):
    added = {"log_cosh": LogCosh, "geman_mcclure": GemanMcClure, "smoothed_hinge": SmoothedHinge}
    for name, loss in added.items():
        monkeypatch.setitem(LOSSES, name, loss)


@pytest.mark.parametrize(("kind", "loss"), [(AoRRRegressor, "log_cosh"), (AoRRClassifier, "smoothed_hinge")])
@pytest.mark.parametrize("options", [{"m": 0.1}, {}, {"m": 0.1, "C": "auto"}], ids=["m", "auto", "C"])
def test_a_loss_of_the_table_is_a_loss_of_the_estimators(losses, kind, loss, options):
    X, y, classes = rows()
    target = y if kind is AoRRRegressor else classes
    model = clone(kind(loss=loss, random_state=0, **options)).fit(X, target)
    assert model.certificate_ <= 1e-6
    assert model.score(X[10:], target[10:]) > 0.9


def test_a_loss_of_two_classes_says_so(losses):
    X, y, _ = rows()
    with pytest.raises(ValueError, match=r"'smoothed_hinge' is for two classes, got 3; use one of 'logistic', "):
        AoRRClassifier(loss="smoothed_hinge").fit(X, np.digitize(y, [-1, 1]))


@pytest.mark.parametrize(("kind", "loss"), [(AoRRRegressor, "log_cosh"), (AoRRClassifier, "smoothed_hinge")])
def test_where_a_loss_is_not_implemented_the_error_names_those_that_are(losses, kind, loss, tmp_path):
    X, y, classes = rows()
    target = y if kind is AoRRRegressor else classes
    others = "squared, huber" if kind is AoRRRegressor else "logistic"
    np.save(tmp_path / "t.npy", np.column_stack([X, target]))
    with pytest.raises(ValueError, match=f"needs one of the losses {others}, got loss='{loss}'"):
        kind(loss=loss).fit(scan(tmp_path / "t.npy", target=3))
    with pytest.raises(ValueError, match=r"l1_ratio=0.5 does not support loss="):
        kind(loss=loss, m=0.1, l1_ratio=0.5).fit(X, target)


def test_m_is_chosen_for_a_loss_that_is_not_convex(losses):
    X, y, _ = rows(300)
    model = AoRRRegressor(loss="geman_mcclure", random_state=0).fit(X, y)
    assert model.certificate_ == np.inf
    np.testing.assert_allclose(model.coef_, [1, -2, 0.5], atol=0.1)


# ---- aggregates ------------------------------------------------------------------------------------------------------


HARMONIC = RankWeights(lambda u: 1 / (1 + 9 * u))


@dataclass(frozen=True)
class Harmonic:
    """The weights of HARMONIC; only the methods that must be."""

    name: ClassVar[str] = "harmonic"
    uses_m: ClassVar[bool] = False

    def select(self, s, m, k, mass):
        q = (k - m) * HARMONIC.on(s, sample_weight=mass)
        return Selection(q.astype(s.dtype), float(q @ s), -np.inf, np.inf)

    def take(self, rows):
        return self


def test_an_estimator_takes_any_aggregate():
    X, y, classes = rows()
    model = clone(AoRRClassifier(aggregate=Harmonic(), random_state=0)).fit(X, classes)
    same = AoRRClassifier(aggregate=HARMONIC, random_state=0).fit(X, classes)
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-3)
    assert (model.m_, model.k_, model.dropped_.sum()) == (0, 200, 0)
    assert not hasattr(model, "noise_estimate_")
    saved = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(saved.predict(X), model.predict(X))
    assert AoRRRegressor(aggregate=Harmonic(), random_state=0).fit(X, y).m_ == 0


@dataclass(frozen=True)
class Plain:
    """The ranked range by the definition, without ties, and without the methods that exact solvers need."""

    name: ClassVar[str] = "plain"

    def select(self, s, m, k, mass):
        q = np.zeros(len(s))
        q[np.argsort(-s)[int(m) : int(k)]] = 1.0
        return Selection(q, float(q @ s), -np.inf, np.inf)

    def take(self, rows):
        return self


@pytest.mark.parametrize("m", ["auto", 0.1])
def test_an_aggregate_that_uses_m_gets_it(m):
    X, y, _ = rows()
    plain = AoRRRegressor(m=m, aggregate=Plain(), random_state=0).fit(X, y)
    sharp = AoRRRegressor(m=m, random_state=0).fit(X, y)
    assert plain.m_ == sharp.m_ > 0
    np.testing.assert_allclose(plain.coef_, sharp.coef_, atol=1e-3)
    assert plain.dropped_[:10].all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"m": 0.1}, r"Harmonic\(\) already weights the ranks, got m=0.1"),
        ({"k": 0.9}, "keeps all ranks after m, got k=0.9"),
        ({"aggregate": Harmonic}, "another aggregate, got <class"),
        ({"aggregate": "harmonic"}, "'worst-group', 'group-cvar', RankWeights.* or another aggregate, got 'harmonic'"),
        ({"aggregate": Stratified(np.zeros(200, dtype=int))}, "pass groups to fit, and one of 'worst-group'"),
    ],
)
def test_what_an_aggregate_does_not_support_is_an_error(options, message):
    X, _, classes = rows()
    with pytest.raises(ValueError, match=message):
        AoRRClassifier(**{"aggregate": Harmonic(), **options}).fit(X, classes)


@pytest.mark.parametrize("setting", [{"aggregate": Harmonic()}, {"l1_ratio": 0.5}, {"aggregate": "per-class"}])
def test_find_label_issues_does_not_ignore_the_settings_of_a_linear_model(setting, tmp_path):
    X, _, classes = rows()
    np.save(tmp_path / "t.npy", np.column_stack([X, classes]))
    for given in ((X, classes), (scan(tmp_path / "t.npy", target=3),)):
        with pytest.raises(ValueError, match=f"does not use {next(iter(setting))} of an AoRRClassifier"):
            find_label_issues(*given, estimator=AoRRClassifier(**setting), random_state=0)


@pytest.mark.parametrize("name", NAMES)
def test_named_weights_can_be_saved(name):
    saved, values = pickle.loads(pickle.dumps(RankWeights(name))), np.arange(30.0)
    assert repr(saved) == repr(RankWeights(name))
    np.testing.assert_array_equal(saved.on(values), RankWeights(name).on(values))


# ---- members of the label-noise ensemble -----------------------------------------------------------------------------


MEMBERS_TO_TRY = {**MEMBERS, "of the page": of_the_page("naive_bayes", GaussianNB=GaussianNB)}


@pytest.mark.parametrize("member", MEMBERS_TO_TRY.values(), ids=MEMBERS_TO_TRY)
@pytest.mark.parametrize(("n", "n_columns"), [(180, 4), (60, 90)], ids=["tall", "wide"])
def test_a_member_predicts_pure_chance_no_better_than_chance_and_may_lack_a_class_in_a_fold(member, n, n_columns):
    """A member that has seen the label of a row would predict it. The only row of the third class is a test row."""
    rng = np.random.default_rng(0)
    codes = np.append(np.random.default_rng(1).integers(2, size=n), 2)
    folds = draw_folds(n + 1, rng, n_folds=4, n_repeats=1)
    for P in member(MemberTask(rng.normal(size=(n + 1, n_columns)), codes, 3, folds, rng)).values():
        assert P.shape == (n + 1, 3)
        assert (P >= 0).all()
        np.testing.assert_allclose(P.sum(axis=1), 1.0)
        assert (P.argmax(axis=1) == codes).mean() < 1 / 2 + 4 * np.sqrt(1 / 4 / n)


def test_a_member_of_the_table_joins_the_ensemble_and_is_named_in_an_audit(monkeypatch):
    pytest.importorskip("pyarrow")
    from rankrange.audit import audit_table

    classes = np.random.default_rng(0).integers(3, size=300)
    monkeypatch.setitem(MEMBERS, "expert", lambda task: {"an expert": np.eye(3)[classes] * 0.94 + 0.02})
    given = noise.symmetric(classes, 0.1, random_state=0)
    X = np.random.default_rng(1).normal(size=(300, 2))
    issues = find_label_issues(X, given, random_state=0)
    assert {name: weight for name, weight, _ in issues.members}["an expert"] > 0.5
    assert "an expert" not in {name for name, *_ in find_label_issues(X, given, trees=False, random_state=0).members}
    audit = audit_table({"a": X[:, 0], "b": X[:, 1], "y": given.astype(str)}, "y")
    assert any("The best, an expert, agrees with 90" in note for note in audit.result.notes)


# ---- checks of rows --------------------------------------------------------------------------------------------------


def test_values_that_a_new_check_flags_are_counted_on_the_page_and_not_allowed_by_a_schema(monkeypatch):
    pytest.importorskip("pyarrow")
    from rankrange.audit import audit_table, report, row_problems
    from rankrange.audit.problems import RowProblem

    find_whitespace = of_the_page("find_whitespace", RowProblem=RowProblem)
    check = row_problems.Check("whitespace", "A text with spaces around it also occurs without.", 1, find_whitespace)
    monkeypatch.setattr(row_problems, "CHECKS", (check, *row_problems.CHECKS))
    rng = np.random.default_rng(0)
    town = ["A " if row in (3, 8) else "AB"[row % 2] for row in range(200)]
    audit = audit_table({"x": rng.normal(size=200), "town": town, "y": rng.choice(["u", "v"], 200)}, "y")
    assert "2 rows with whitespace" in " ".join(audit.sentences())
    assert {column["name"]: column["unusual"] for column in report._overview(audit)} == {"x": 0, "town": 2}
    pytest.importorskip("pandera")
    assert audit.to_pandera().columns["town"].checks[0].statistics["allowed_values"] == ["A", "B"]


# ---- pages -----------------------------------------------------------------------------------------------------------


def test_every_entry_of_a_table_is_listed_where_users_look_for_it():
    pytest.importorskip("pyarrow")
    from rankrange.audit import audit_file
    from rankrange.audit.problems import KINDS
    from rankrange.cli import run_audit
    from rankrange.tables.formats import FORMATS
    from rankrange.tables.read import open_table

    def page(name):
        return (DOCS / name).read_text(encoding="utf-8")

    listed = []  # an entry, and where it stands
    for kind, known in {AoRRClassifier: losses_for("binary"), AoRRRegressor: losses_for("numbers")}.items():
        quoted = [f'"{name}"' for name in known]
        listed.append((f"    loss : {{{', '.join(quoted)}}}", kind.__doc__))
        (line,) = re.findall(rf"^\| `{kind.__name__}` \|.*", page("explanation/solvers.md"), re.M)
        listed += [(f"`{name}`", line) for name in quoted]
    listed += [(f'"{name}" (', RankWeights.__doc__) for name in NAMES]
    listed += [(f'\n| `"{name}"` | ', page("how-to/groups.md")) for name in NAMES]
    listed += [(f"\n| `{kind}` | ", page("api/command_line.md")) for kind in KINDS]
    parser = argparse.ArgumentParser()
    run_audit.add_arguments(parser)
    formats = [parser.format_help(), run_audit.DESCRIPTION, audit_file.__doc__, open_table.__doc__]
    formats.append(page("api/command_line.md"))
    listed += [(name, text) for name in set(FORMATS) - {"Arrow stream"} for text in formats]  # Arrow without its footer
    assert [entry for entry, text in listed if entry not in text] == []
