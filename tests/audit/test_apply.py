"""Decisions from files: the list of suspects filled in, hostile ones, encodings, names that look like formulas."""

import codecs
import csv
import io
import json
import re
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankrange import cli
from rankrange.audit import Decision, Decisions, apply_decisions, audit_file, audit_table, read_decisions
from rankrange.audit.applying import _with_cells, changes_of, fixed_contents
from rankrange.audit.decisions import COLUMNS, contents_of_row, join_labels, split_labels
from rankrange.errors import UserError
from rankrange.pages.text import csv_safe, csv_unsafe
from rankrange.tables.read import open_table
from rankrange.tables.write import write_whole


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
    with pytest.raises(UserError, match="at least one, got none"):
        read_decisions(suspects[0])


def test_the_list_of_suspects_survives_a_spreadsheet_or_pandas(table, suspects, tmp_path):
    import pandas

    frame = pandas.read_csv(suspects[0])  # 01 becomes 1
    frame["decision"] = ["drop", "relabel"] * (len(frame) // 2) + ["keep"] * (len(frame) % 2)
    frame.to_csv(tmp_path / "s.csv", index=False, sep=";", encoding="utf-8-sig")
    assert cli.main(["apply", str(table[0]), str(tmp_path / "s.csv"), "--out", str(tmp_path / "f.csv")]) == 0
    assert {row["kind"] for row in rows_of(tmp_path / "f.csv")} == {"01", "02"}


def test_relabel_without_a_review_corrects_and_spells_as_in_the_file(table, suspects):
    listed = {int(row["row"]) - 1: row["action"] for row in rows_of(suspects[0])}
    other = {"01": "02", "02": "01"}
    cleaned = [row["kind"] for row in rows_of(suspects[1])]
    kept = [i for i in range(400) if listed.get(i) != "drop"]
    assert cleaned == [other[table[2][i]] if listed.get(i) == "relabel" else table[2][i] for i in kept]
    assert "relabel" in listed.values()


def test_decisions_about_several_files_apply_to_the_same_files(table, tmp_path, capsys):
    header, *lines = table[0].read_text().splitlines()
    files = [str(tmp_path / name) for name in ("one.csv", "two.csv")]
    for path, part in zip(files, (lines[:150], lines[150:]), strict=True):
        (tmp_path / path).write_text("\n".join([header, *part, ""]))
    out, fixed, page = (str(tmp_path / name) for name in ("s.csv", "fixed.csv", "page.html"))
    assert cli.main(["audit", *files, "-t", "kind", "-q", "--models", "linear", "--out", out, "--report", page]) == 0
    filled(out, tmp_path / "d.csv", lambda row: {"decision": "relabel"})
    listed = {int(row["row"]) - 1 for row in rows_of(out)}
    command = f"apply {files[0]} {files[1]} --decisions {tmp_path / 'd.csv'} --out {fixed}"
    assert cli.main(command.split()) == 0
    new = [row["kind"] for row in rows_of(fixed)]
    assert len(listed & set(range(150))) > 0 < len(listed - set(range(150)))
    assert [int(a != b) for a, b in zip(new, table[2], strict=True)] == [int(i in listed) for i in range(400)]
    assert "rankrange apply one.csv two.csv --decisions decisions.csv --out fixed.csv" in (tmp_path / page).read_text()
    # One of the files alone is another table, and the remedy is named.
    capsys.readouterr()
    assert cli.main(["apply", files[0], str(tmp_path / "d.csv"), "--out", fixed]) == 2
    assert "name all files that were audited together, then --decisions" in capsys.readouterr().err
    assert cli.main(["apply", *files, str(tmp_path / "d.csv"), "--out", fixed]) == 2
    assert "if there are several tables, name the decisions after --decisions" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("true", "false"), ("TRUE", "FALSE"), ("True", "False")])
def test_true_and_false_are_relabelled_as_the_file_spells_them_and_learnt_from(words, tmp_path):
    x = np.random.default_rng(0).normal(size=80)
    rows = [f"{v:.3f},{words[int((v > 0) ^ (i == 3))]}" for i, v in enumerate(x)]
    table, decisions, fixed = (tmp_path / name for name in ("t.csv", "d.csv", "f.csv"))
    table.write_text("\n".join(["x,y", *rows, ""]))
    audit = audit_file(table, "y", models="linear")
    audit.decide(audit.suspects(1)[0].row, "relabel")
    audit.save_decisions(decisions)
    assert cli.main(["apply", str(table), str(decisions), "--out", str(fixed)]) == 0
    rows[3] = f"{x[3]:.3f},{words[int(x[3] > 0)]}"
    assert fixed.read_text() == "\n".join(["x,y", *rows, ""])
    for path in (table, fixed):
        assert audit_file(path, "y", decisions=decisions, models="linear").target.relabelled.sum() == 1


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
    import pandas

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


# ---- hostile files ---------------------------------------------------------------------------------------------------


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


SMALL = "x,label\n1,a\n2,b\n3,a\n4,b\n"


def applied(folder, *made, options=(), target="label", task="classes", contents=None, table=""):
    """Apply decisions about SMALL, each (row, given, choice, new label)."""
    (folder / "t.csv").write_text(SMALL)
    rows = [["x", "label"], *csv.reader(io.StringIO(SMALL))][1:]
    lines = [COLUMNS]
    for row, said, choice, new in made:
        cells = rows[int(row)] if str(row) in "1234" else ["", ""]
        lines.append([row, said, choice, new, "0.9", contents or contents_of_row(cells, [1]), table, target, task])
    with (folder / "d.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    words = ["apply", str(folder / "t.csv"), str(folder / "d.csv"), "--out", str(folder / "fixed.csv")]
    return cli.main([*words, *options])


def test_relabel_and_drop_are_carried_out_and_the_rest_stays(tmp_path, capsys):
    made = [(1, "a", "relabel", "b"), (2, "b", "drop", ""), (3, "a", "keep", ""), (4, "b", "unsure", "")]
    assert applied(tmp_path, *made) == 0
    assert (tmp_path / "fixed.csv").read_text() == "x,label\n1,b\n3,a\n4,b\n"
    said = "1 row relabelled, 1 dropped, 1 kept, 1 left undecided"
    assert said in capsys.readouterr().out


RELABEL, NEW = (1, "a", "relabel", "b"), {"options": ["--new-labels"]}


@pytest.mark.parametrize(
    ("made", "about", "message"),
    [
        ((9, "a", "keep", ""), {}, "rows of the table, got row 9 of a table of 4 rows"),
        (
            ("x", "a", "keep", ""),
            {},
            "rows of the table, got row x .* named by their number, counted from 1 below the header",
        ),
        ((1, "a", "drop", ""), {"contents": "r123"}, "row 1 of .* has other cells now"),
        (
            (1, "b", "drop", ""),
            {},
            "reviewed, 'b', but row 1 of .* has 'a' now; check whether the decisions were already applied",
        ),
        ((1, "a", "relabel", "c"), {}, r"one that the table has \('a', 'b'\), got 'c' for row 1.*--new-labels"),
        ((1, "a", "relabel", "<script>alert(1)</script>"), {}, "got '<script>alert"),
        ((1, "a", "explode", ""), {}, "one of relabel, keep, drop, unsure, got 'explode' in line 2"),
        ((1, "a", "relabel", ""), {}, "needs a new_label, got none for row 1 in line 2"),
        ((1, "a", "keep", ""), {"target": "other"}, "must name a column, got 'other'"),
        ((1, "a", "relabel", "=1+1"), NEW, "must not look like a formula"),
        ((1, "a", "relabel", "a\u200bb"), NEW, "without hidden characters"),
        ((1, "a", "relabel", "\u202eb"), {"task": "labels"}, "without hidden characters, got '⟨202E⟩b'"),
        ((1, "a", "relabel", "1_0"), {"task": "numbers"}, "needs a number, got '1_0'"),
        (RELABEL, {"task": "anything"}, "task must be one of classes, numbers, labels, got 'anything'"),
        (RELABEL, {"target": "[" * 50_000}, "target must name columns"),
        (RELABEL, {"target": '[["label"]]'}, "target must name columns"),
        (RELABEL, {"target": "[1]"}, "target must name columns"),
        (RELABEL, {"table": "r123"}, "apply to the table that was audited, but .* has other rows or columns now"),
    ],
)
def test_a_decision_that_does_not_fit_the_table_changes_nothing(tmp_path, capsys, made, about, message):
    (tmp_path / "fixed.csv").write_text("old")
    assert applied(tmp_path, made, **about) == 2
    said = capsys.readouterr().err
    assert re.search(message, said), said
    assert len(said.splitlines()) == 1
    assert (tmp_path / "fixed.csv").read_text() == "old"


def test_a_new_label_needs_leave(tmp_path):
    assert applied(tmp_path, (1, "a", "relabel", "c"), **NEW) == 0
    assert "1,c\n" in (tmp_path / "fixed.csv").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "need the columns row, given, .* got none named 'row'"),
        ("rank,row,given,expected,probability\n1,1,a,b,0.1\n", "observed outcomes are not decided"),
        ("row,given,expected,probability,decision\n1,a,b,0.1,drop\n", "observed outcomes are not decided"),
        (
            ",".join((*COLUMNS, "suggested")) + "\n7,1e5,relabel,,.9,r,t,price,numbers,9e4\n",
            "needs a new_label, got none for row 7 in line 2",
        ),
        (",".join(COLUMNS) + "\n", "at least one, got none"),
        (",".join(COLUMNS) + "\n1,a,keep\n", "has 9 cells, got another number in line 2"),
        (",".join(COLUMNS) + "\n1,a,keep,,x,r,r,label,classes\n", "p_wrong must be a number, got 'x'"),
        (
            ",".join(COLUMNS) + "\n1,a,keep,,,r,r,l,classes\n1,a,drop,,,r,r,l,classes\n",
            "one decision, got two for row 1",
        ),
        (",".join(COLUMNS) + "\n1,a,keep,,,r,r,l,classes\n2,a,drop,,,r,r,m,classes\n", "one table and one target"),
        ("\xff\xfe", "UTF-8 text"),
    ],
)
def test_a_file_that_holds_no_decisions_is_refused_with_its_line(tmp_path, text, message):
    path = tmp_path / "d.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=message):
        read_decisions(path)


cell = st.text(alphabet="ab \"',;\n\r=é", max_size=6)


@given(st.lists(cell, min_size=2, max_size=5), st.data())
def test_replacing_a_cell_leaves_the_bytes_of_the_others(cells, data):
    """Whatever the quoting: read back, just that cell is another, and what stood before and after it is untouched."""
    fields = []
    for text in cells:
        special = re.search('["\r\n,]', text)
        quote = special or data.draw(st.booleans())
        fields.append('"' + text.replace('"', '""') + '"' if quote else text)
    record = ",".join(fields) + "\n"
    place, new = data.draw(st.integers(0, len(cells) - 1)), data.draw(cell.filter(bool))
    changed = _with_cells(record, ",", {place: new})
    expected = [*cells[:place], new, *cells[place + 1 :]]
    assert next(csv.reader(io.StringIO(changed, newline=""))) == expected
    assert changed.startswith(",".join(fields[:place]))
    assert changed.endswith(",".join(fields[place + 1 :]) + "\n")


@given(
    st.lists(
        st.text(alphabet='ab,[]" ', max_size=4) | st.sampled_from(["(none)", "[1]", "[]"]), unique=True, max_size=4
    )
)
def test_several_labels_come_back_from_one_text(labels):
    assert split_labels(join_labels(labels)) == labels


@pytest.mark.parametrize("form", ["columns", "cells", "lists"])
def test_labels_that_are_too_rare_to_be_audited_stay_in_a_relabelled_row(form, moods, tmp_path, capsys):
    """On all ways to a corrected table; the other labels are those suggested."""
    import pyarrow.parquet

    table, target, Y, names = moods(form)
    rare = [0, 6]  # two of the rows that are to be relabelled
    if form == "columns":
        table, target = table | {"rare": np.isin(np.arange(200), rare).astype(int)}, [*target, "rare"]
    for row in rare if form != "columns" else ():
        own = [name for name, true in zip(names, Y[row], strict=True) if true] + ["rare"]
        table["mood"][row] = "|".join(own) if form == "cells" else own
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pa.table(table), path)
    options = [f"--target={name}" for name in ([target] if isinstance(target, str) else target)]
    options += ["--labels-by", "|"] if form == "cells" else []
    places = [f"--out={tmp_path / 's.csv'}", f"--clean={tmp_path / 'clean.parquet'}", "--clean-how", "relabel"]
    assert cli.main(["audit", str(path), *options, "-q", "--models", "linear", "--clean-if", "0.5", *places]) == 0
    audit = audit_file(path, target, labels_by="|" if form == "cells" else None, models="linear")
    for suspect in audit.suspects():
        audit.decide(suspect.row, "relabel" if suspect.row - 1 in rare else "keep")
    audit.save_decisions(tmp_path / "decided.csv")
    listed = {"decision": "relabel"}
    filled(tmp_path / "s.csv", tmp_path / "list.csv", lambda row: listed if int(row["row"]) - 1 in rare else {})
    tasks = audit.to_label_studio().tasks
    for task in tasks:  # the suggested labels, or those that the row has
        about, (result,) = task["data"]["rankrange"], task["predictions"][0]["result"]
        given = [name for name in split_labels(about["given"], about["separator"]) if name in names]
        result = result if int(about["row"]) - 1 in rare else {**result, "value": {"choices": given or ["(none)"]}}
        task["annotations"] = [{"completed_by": 1, "result": [result]}]
    (tmp_path / "tool.json").write_text(json.dumps(tasks))
    capsys.readouterr()
    for made in ("decided.csv", "list.csv", "tool.json"):
        fixed = tmp_path / made.replace(made[-4:], ".parquet")
        assert cli.main(["apply", str(path), str(tmp_path / made), "--out", str(fixed)]) == 0
        kept = 0 if made == "list.csv" else audit.n_listed - 2
        assert f"2 rows relabelled, 0 dropped, {kept} kept:" in capsys.readouterr().out
    fixed = [file for file in tmp_path.glob("*.parquet") if file != path]
    assert len(fixed) == 4
    for row, after in product(rare, (pyarrow.parquet.read_table(file).to_pydict() for file in fixed)):
        place = after["x0"].index(table["x0"][row])
        if form == "columns":
            labels = [name for name in target if after[name][place]]
        else:
            labels = after["mood"][place].split("|") if form == "cells" else after["mood"][place]
        suggested = next(suspect.suggested for suspect in audit.suspects() if suspect.row == row + 1)
        assert "rare" in labels
        assert sorted(labels) == sorted(split_labels(suggested, audit.target.separator))


def test_parquet_keeps_its_types(tmp_path):
    import pyarrow.parquet

    table = pa.table({"x": [1.5, 2.5, None, 4.5], "when": pa.array([1, 2, 3, 4], pa.date32()), "label": [0, 1, 0, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    texts = [["" if v is None else str(v) for v in row.values()] for row in table.to_pylist()]
    made = [
        Decision("1", "0", "relabel", "1", 0.9, contents_of_row(texts[0], [2])),
        Decision("3", "0", "drop", "", 0.9, contents_of_row(texts[2], [2])),
    ]
    (tmp_path / "d.csv").write_bytes(Decisions(["label"], "classes", "", made).as_csv())
    command = ["apply", str(tmp_path / "t.parquet"), str(tmp_path / "d.csv"), "--out", str(tmp_path / "f.parquet")]
    assert cli.main(command) == 0
    fixed = pyarrow.parquet.read_table(tmp_path / "f.parquet")
    assert fixed.schema == table.schema
    assert fixed.column("label").to_pylist() == [1, 1, 1]
    assert fixed.column("x").to_pylist() == [1.5, 2.5, 4.5]


def test_columns_of_yes_and_no_are_set_in_their_own_words(tmp_path):
    (tmp_path / "t.csv").write_text("x,happy,sad\n1,yes,no\n2,no,yes\n")
    made = [Decision("1", "happy", "relabel", "sad", 0.9, contents_of_row(["1", "yes", "no"], [1, 2]))]
    (tmp_path / "d.csv").write_bytes(Decisions(["happy", "sad"], "labels", "", made).as_csv())
    assert cli.main(["apply", *(str(tmp_path / n) for n in ("t.csv", "d.csv")), "-o", str(tmp_path / "f.csv")]) == 0
    assert (tmp_path / "f.csv").read_text() == "x,happy,sad\n1,no,yes\n2,no,yes\n"
