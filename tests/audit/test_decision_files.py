"""Decisions from files: the list of suspects filled in, hostile ones, encodings, names that look like formulas."""

import codecs
import csv
import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankrange import cli
from rankrange.errors import UserError

pa = pytest.importorskip("pyarrow")
for package in ("jinja2", "rich", "skops"):
    pytest.importorskip(package)

from rankrange.audit import (  # noqa: E402
    Decision,
    Decisions,
    apply_decisions,
    audit_file,
    audit_table,
    read_decisions,
)
from rankrange.audit.applying import changes_of, fixed_contents  # noqa: E402
from rankrange.audit.decisions import COLUMNS, contents_of_row  # noqa: E402
from rankrange.pages.text import csv_safe, csv_unsafe  # noqa: E402
from rankrange.tables.read import open_table  # noqa: E402
from rankrange.tables.write import write_whole  # noqa: E402


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table with 30 wrong labels, which are written 01 and 02."""
    folder = tmp_path_factory.mktemp("suspects")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    true = np.where(x[:, 0] > 0, "01", "02")
    label = true.copy()
    wrong = rng.permutation(np.flatnonzero(np.abs(x[:, 0]) > 0.5))[:30]
    label[wrong] = np.where(true[wrong] == "01", "02", "01")
    path = folder / "table.csv"
    rows = [f"{a:.4f},{b:.4f},{t}" for (a, b), t in zip(x, label, strict=True)]
    path.write_text("\n".join(["x,z,kind", *rows, ""]))
    return path, true, label


@pytest.fixture(scope="module")
def suspects(table):
    path = table[0].with_name("suspects.csv")
    clean = table[0].with_name("clean.csv")
    words = ["audit", str(table[0]), "-t", "kind", "-q", "--out", str(path)]
    assert cli.main([*words, "--clean", str(clean), "--clean-how", "relabel", "--clean-if", "0.5"]) == 0
    return path, clean


def rows_of(path, **options):
    with open(path, newline="", **options) as file:
        return list(csv.DictReader(file))


def filled(path, out, decide):
    rows = rows_of(path)
    for row in rows:
        row.update(decide(row))
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return out


def test_the_list_of_suspects_with_decisions_is_applied_as_it_is(table, suspects, tmp_path, capsys):
    def decide(row):
        right = table[1][int(row["row"]) - 1]
        return {"decision": "keep"} if row["given"] == right else {"decision": "Relabel", "new_label": right}

    first = filled(suspects[0], tmp_path / "s.csv", lambda row: decide(row) if int(row["rank"]) <= 10 else {})
    assert cli.main(["apply", str(table[0]), str(first), "--out", str(tmp_path / "fixed.csv")]) == 0
    assert "relabelled, 0 dropped" in capsys.readouterr().out
    fixed = [row["kind"] for row in rows_of(tmp_path / "fixed.csv")]
    listed = {int(row["row"]) - 1 for row in rows_of(suspects[0])[:10]}
    assert fixed == [(table[1] if i in listed else table[2])[i] for i in range(400)]
    suggested = filled(suspects[0], tmp_path / "d.csv", lambda row: {"decision": "relabel"})
    assert {made.new_label for made in read_decisions(suggested).made} <= {"1", "2", "01", "02"}
    with pytest.raises(UserError, match="at least one, got only empty ones"):
        read_decisions(suspects[0])


def test_the_list_of_suspects_survives_a_spreadsheet_or_pandas(table, suspects, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(suspects[0])  # 01 becomes 1
    frame["decision"] = ["drop", "relabel"] * (len(frame) // 2) + ["keep"] * (len(frame) % 2)
    frame.to_csv(tmp_path / "s.csv", index=False, sep=";")
    assert cli.main(["apply", str(table[0]), str(tmp_path / "s.csv"), "--out", str(tmp_path / "f.csv")]) == 0
    assert {row["kind"] for row in rows_of(tmp_path / "f.csv")} == {"01", "02"}


def test_labels_that_are_relabelled_without_a_review_are_spelt_as_in_the_file(table, suspects):
    cleaned = [row["kind"] for row in rows_of(suspects[1])]
    assert set(cleaned) == {"01", "02"}
    assert cleaned != list(table[2])


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-be with mark", "utf-8-sig", "utf-8", "utf-8 with mark", "latin-1"]
)
def test_rows_without_a_decision_keep_their_bytes_in_every_encoding(encoding, tmp_path):
    lines = ["x,name,kind", *(f"{i},Zoë {i},{'ab'[i % 2]}" for i in range(40)), ""]
    name = encoding.split()[0].removesuffix("-be")
    data = "\r\n".join(lines).encode(encoding.split()[0])
    mark = codecs.BOM_UTF16_BE if "be" in encoding else codecs.BOM_UTF8
    data = mark + data if "mark" in encoding else data
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    source = open_table(path, encoding=name)
    assert source.names == ["x", "name", "kind"]
    made = Decision("3", "a", "drop", "", 0.9, contents_of_row(["2", "Zoë 2", "a"], [2]))
    changes = changes_of(Decisions(["kind"], "classes", "", [made]), source)
    write_whole({tmp_path / "f.csv": fixed_contents(source, changes, tmp_path / "f.csv")})
    expected = "\r\n".join([*lines[:3], *lines[4:]]).encode(encoding.split()[0])
    assert (tmp_path / "f.csv").read_bytes() == (mark + expected if "mark" in encoding else expected)


def test_an_index_of_texts_that_look_like_formulas_comes_back(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    names = ["-a", "'-a", "=1+1", "''=1+1", *(f"row {i}" for i in range(56))]
    frame = pandas.DataFrame({"x": x, "kind": np.where(x > 0, "u", "v")}, index=names)
    audit = audit_table(frame, "kind", models="linear")
    for name in names[:4]:
        audit.decide(name, "drop")
    audit.save_decisions(tmp_path / "d.csv")
    read = read_decisions(tmp_path / "d.csv")
    assert [made.row for made in read.made] == names[:4]
    assert apply_decisions(frame, read).index.tolist() == names[4:]


@given(st.text(alphabet="'=+-@a1 \t", max_size=6))
def test_the_apostrophe_of_a_formula_is_removed_exactly(text):
    assert csv_unsafe(csv_safe(text)) == text


def test_a_frame_with_an_index_of_texts_and_an_outlier_gives_a_schema():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pandera")
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    frame = pandas.DataFrame({"x": x, "z": rng.normal(size=200), "kind": np.where(x > 0, "u", "v")})
    frame.loc[7, "z"] = 1e5
    frame.index = [f"row {i}" for i in range(200)]
    audit = audit_table(frame, "kind", models="linear")
    assert any(problem.column == "z" for problem in audit.row_problems)
    schema = audit.to_pandera()
    schema.validate(frame.drop(index="row 7"))
    with pytest.raises(Exception, match="in_range"):
        schema.validate(frame)


# ---- hostile files ---------------------------------------------------------------------------------------------------

SMALL = "x,label\n1,a\n2,b\n3,a\n4,b\n"


def hostile(folder, *, task="classes", target="label", new="b", table=""):
    (folder / "t.csv").write_text(SMALL)
    text = io.StringIO()
    csv.writer(text).writerows(
        [COLUMNS, ["1", "a", "relabel", new, "0.9", contents_of_row(["1", "a"], [1]), table, target, task]]
    )
    (folder / "d.csv").write_text(text.getvalue(), encoding="utf-8")
    words = ["apply", str(folder / "t.csv"), str(folder / "d.csv"), "--out", str(folder / "f.csv")]
    return cli.main([*words, "--new-labels"])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"task": "anything"}, "task must be one of classes, numbers, labels, got 'anything'"),
        ({"task": "", "new": "\u202eb"}, "task must be one of"),
        ({"task": "labels", "new": "\u202eb"}, "without hidden characters, got '⟨202E⟩b'"),
        ({"task": "classes", "new": "a\u200bb"}, "without hidden characters"),
        ({"task": "numbers", "new": "1_0"}, "needs a number, got '1_0'"),
        ({"target": "[" * 50_000}, "target must name columns"),
        ({"target": '[["label"]]'}, "target must name columns"),
        ({"target": "[1]"}, "target must name columns"),
        ({"table": "r123"}, "apply to the table that was audited, but .* has other rows or columns now"),
    ],
)
def test_a_hostile_decision_is_one_sentence_and_writes_nothing(how, message, tmp_path, capsys):
    assert hostile(tmp_path, **how) == 2
    said = capsys.readouterr().err
    assert re.search(message, said), said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "f.csv").exists()


def test_decisions_about_another_version_of_the_table_are_refused(table, tmp_path, capsys):
    audit = audit_file(table[0], "kind", models="linear")
    audit.decide(audit.suspects(1)[0].row, "drop")
    audit.save_decisions(tmp_path / "d.csv")
    changed = tmp_path / "t.csv"
    changed.write_text(table[0].read_text() + "1.0,1.0,01\n")
    assert cli.main(["apply", str(changed), str(tmp_path / "d.csv"), "--out", str(tmp_path / "f.csv")]) == 2
    assert "has other rows or columns now" in capsys.readouterr().err
    assert cli.main(["apply", str(table[0]), str(tmp_path / "d.csv"), "--out", str(tmp_path / "f.csv")]) == 0


def test_outputs_never_replace_embeddings_or_probabilities(table, tmp_path, capsys):
    path = tmp_path / "e.npy"
    np.save(path, np.zeros((400, 2)))
    before = path.read_bytes()
    for option in ("--embeddings", "--pred-probs"):
        assert cli.main(["audit", str(table[0]), "-t", "kind", option, str(path), "--out", str(path)]) == 2
        assert f"--out must not be {option}" in capsys.readouterr().err
    (tmp_path / "tasks.xml").write_text("somebody's own")
    words = ["audit", str(table[0]), "-t", "kind", "--export", f"label-studio={tmp_path / 'tasks.json'}"]
    assert cli.main(words) == 2
    assert "tasks.xml would be written beside" in capsys.readouterr().err
    assert (path.read_bytes(), (tmp_path / "tasks.xml").read_text()) == (before, "somebody's own")


TEXTS = st.sampled_from(["=1+1", "+cmd", "-x", "@a", "plain", "'quoted", "a,b", "\t=1", "-3.5", ""])


@given(st.lists(TEXTS, min_size=5, max_size=5), TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_no_cell_of_decisions_is_a_formula(cells, table, target):
    row, said, choice, new, contents = cells
    made = [Decision(row, said, choice, new, 0.5, contents)]
    written = Decisions(target, cells[0], table, made).as_csv().decode()
    lines = list(csv.reader(io.StringIO(written)))
    assert len(lines[1]) == len(COLUMNS)
    assert all(cell[:1] == "'" or csv_safe(cell) == cell for line in lines for cell in line)


@pytest.mark.parametrize("name", ["=kind", "+kind", "-kind", "@kind", "[kind", "'kind", "kind", "a,b", '"kind"', "-3"])
def test_decisions_about_a_target_of_any_name_are_carried_out(tmp_path, name):
    rows = [["x", name], *([str(i), "ab"[i % 2]] for i in range(6))]
    with open(tmp_path / "t.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    made = [Decision("3", "a", "relabel", "b", 0.9, contents_of_row(rows[3], [1]))]
    (tmp_path / "d.csv").write_bytes(Decisions([name], "classes", "", made).as_csv())
    assert read_decisions(tmp_path / "d.csv").target == [name]
    files = [str(tmp_path / file) for file in ("t.csv", "d.csv", "f.csv")]
    assert cli.main(["apply", *files[:2], "--out", files[2]]) == 0
    with open(files[2], newline="") as file:
        assert list(csv.reader(file)) == [*rows[:3], [rows[3][0], "b"], *rows[4:]]


def test_formulas_of_a_typed_table_are_quoted_when_it_is_written_as_csv(tmp_path):
    import pyarrow.parquet

    table = pa.table({"=x": ["=1+1", "plain", "@cmd", "-2"], "label": ["a", "b", "a", "b"]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    made = [Decision("2", "b", "relabel", "a", 0.9, contents_of_row(["plain", "b"], [1]))]
    (tmp_path / "d.csv").write_bytes(Decisions(["label"], "classes", "", made).as_csv())
    command = ["apply", str(tmp_path / "t.parquet"), str(tmp_path / "d.csv"), "--out", str(tmp_path / "f.csv")]
    assert cli.main(command) == 0
    with open(tmp_path / "f.csv", newline="") as file:
        lines = list(csv.reader(file))
    assert lines == [["'=x", "label"], ["'=1+1", "a"], ["plain", "a"], ["'@cmd", "a"], ["-2", "b"]]
