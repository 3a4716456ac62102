"""Suspects go to Label Studio and come back as decisions, whatever an export holds."""

import copy
import json
from xml.etree import ElementTree

import numpy as np
import pytest

from rankrange import cli, find_label_issues
from rankrange.audit import audit_file, audit_table, read_reviews
from rankrange.errors import UserError
from rankrange.issues import label_studio
from rankrange.issues.label_studio import Question, media_columns

ABOUT = {"row": "1", "given": "a", "contents": "r1", "table": "t", "target": ["y"], "p_wrong": 0.7, "separator": ""}
YES, NO = "=yes()", '<b>no</b> & "quoted"'


def check_format(tasks):
    """The import format of Label Studio's documentation: data, and predictions with results of named controls."""
    for task in tasks:
        assert set(task) == {"data", "predictions"}
        assert {"title", "cells", "rankrange"} <= set(task["data"])
        for prediction in task["predictions"]:
            assert set(prediction) == {"result", "score", "model_version"}
            assert 0 <= prediction["score"] <= 1
            for result in prediction["result"]:
                assert {"from_name", "to_name", "type", "value"} <= set(result) <= {*result, "id"}
                ((kind, value),) = result["value"].items()
                assert (kind, type(value)) in (("choices", list), ("number", float), ("number", int))
                assert result["type"] == kind


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    path = tmp_path_factory.mktemp("tools") / "table.csv"
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 200))
    true = x + 0.5 * z > 0
    label = np.where(true ^ (rng.random(200) < 0.1), YES, NO)
    quoted = [text.replace('"', '""') for text in label]
    rows = enumerate(zip(x, z, quoted, strict=True))
    lines = [f'{a:.3f},{b:.3f},<script>alert(1)</script> {i},"{c}"' for i, (a, b, c) in rows]
    path.write_text("\n".join(["x,z,note,label", *lines, ""]))
    return path, audit_file(path, "label", models="linear")


def annotated(tasks, choose):
    """An export: `choose` gives for each task a list of (reviewer, label or None for skipped or "drop")."""
    tasks = copy.deepcopy(tasks)
    for i, task in enumerate(tasks):
        task["id"], task["annotations"] = i + 1, []
        for reviewer, label in choose(task):
            name, value = ("row", "drop this row") if label == "drop" else ("label", label)
            result = {"from_name": name, "to_name": "cells", "type": "choices", "value": {"choices": [value]}}
            task["annotations"].append(
                {"completed_by": reviewer, "was_cancelled": label is None, "result": [] if label is None else [result]}
            )
    return tasks


def other(task):
    return YES if task["data"]["rankrange"]["given"] == NO else NO


def write(path, records):
    path.write_text(json.dumps(records))
    return path


def test_scores_are_one_less_p_wrong_and_results_name_controls_of_the_configuration(audited):
    _, audit = audited
    made = audit.to_label_studio(5)
    check_format(made.tasks)
    root = ElementTree.fromstring(made.config)
    objects = {tag.get("name") for tag in root.iter() if tag.tag in ("Text", "Image", "Table")}
    choices = {tag.get("value") for tag in root.find("Choices[@name='label']")}
    assert choices == {YES, NO}
    for task, suspect in zip(made.tasks, audit.suspects(5), strict=True):
        prediction = task["predictions"][0]
        assert prediction["score"] == pytest.approx(1 - suspect.p_wrong, abs=1e-4)
        assert prediction["result"][0]["value"]["choices"] == [suspect.suggested]
        assert prediction["result"][0]["to_name"] in objects
        assert {tag.get("toName") for tag in root.iter("Choices")} <= objects


def test_nothing_of_the_table_is_markup_in_the_files(audited, tmp_path):
    _, audit = audited
    files = audit.to_label_studio().contents(tmp_path / "tasks.json")
    assert b"<script" not in files[tmp_path / "tasks.json"]
    assert b"<b>" not in files[tmp_path / "tasks.xml"]
    assert "<script" in json.loads(files[tmp_path / "tasks.json"])[0]["data"]["cells"]["note"]


def test_a_table_goes_to_label_studio_and_comes_back_fixed(audited, tmp_path, capsys):
    path, audit = audited
    made = audit.to_label_studio(4)
    kinds = iter(["suggested", "given", "drop", None])

    def choose(task):
        kind, about = next(kinds), task["data"]["rankrange"]
        label = {"suggested": YES if about["given"] == NO else NO, "given": about["given"]}.get(kind, kind)
        return [({"id": 7, "email": "anna@example.org"}, label)]

    export = write(tmp_path / "export.json", annotated(made.tasks, choose))
    reviews = read_reviews([export])
    assert [made.choice for made in reviews["anna@example.org"].made] == ["relabel", "keep", "drop", "unsure"]
    assert cli.main(["apply", str(path), str(export), "--out", str(tmp_path / "fixed.csv")]) == 0
    assert "1 row relabelled, 1 dropped, 1 kept" in capsys.readouterr().out
    before, after = path.read_text().splitlines(), (tmp_path / "fixed.csv").read_text().splitlines()
    first, dropped = (audit.suspects(4)[i].row for i in (0, 2))
    assert len(after) == len(before) - 1
    changed = set(before) - set(after)
    assert changed == {before[first], before[dropped]}


def test_the_majority_of_annotators_counts_and_disagreement_is_listed(audited, tmp_path, capsys):
    path, audit = audited
    tasks = audit.to_label_studio(3).tasks

    def choose(task):
        given = task["data"]["rankrange"]["given"]
        other = YES if given == NO else NO
        return {
            tasks[0]["data"]["title"]: [(1, other), (2, other), (3, given)],
            tasks[1]["data"]["title"]: [(1, other), (2, given)],
            tasks[2]["data"]["title"]: [(1, given), (2, given), (3, None)],
        }[task["data"]["title"]]

    export = write(tmp_path / "export.json", annotated(tasks, choose))
    out, conflicts = tmp_path / "fixed.csv", tmp_path / "conflicts.csv"
    assert cli.main(["apply", str(path), str(export), "--out", str(out), "--conflicts", str(conflicts)]) == 0
    said = capsys.readouterr().out
    assert "differ on 2 rows; ties, which change nothing: 1." in said
    assert "1 row relabelled, 0 dropped, 1 kept, 1 left undecided" in said
    assert [made.row for made in read_reviews([conflicts])["conflicts"].made] == [
        str(suspect.row) for suspect in audit.suspects(2)
    ]


def test_the_newest_annotation_of_one_reviewer_counts(audited, tmp_path):
    _, audit = audited
    (task,) = annotated(audit.to_label_studio(1).tasks, lambda task: [(1, YES), (1, NO)])
    task["annotations"][0]["updated_at"], task["annotations"][1]["updated_at"] = "2026-02-01", "2026-01-01"
    (answer,) = label_studio.read_label_studio(write(tmp_path / "export.json", [task]))
    assert answer.labels == [YES]


def about(tasks, **fields):
    """The fields that identify the rows, changed in all of these tasks."""
    for task in tasks:
        task["data"]["rankrange"].update(fields)


def choose(tasks, *labels):
    tasks[0]["annotations"][0]["result"][0]["value"]["choices"] = list(labels)


BROKEN = {
    "unknown row": (lambda tasks: about(tasks[:1], row="100000"), "must be about rows of the table"),
    "other cells": (lambda tasks: about(tasks[:1], contents="r0"), "has other cells"),
    "unknown label": (lambda tasks: choose(tasks, "<img src=x onerror=alert(1)>"), "must be one that the table has"),
    "formula": (lambda tasks: choose(tasks, "=cmd|' /C calc'!A0"), "must be one that the table has"),
    "two labels": (lambda tasks: choose(tasks, YES, NO), "one label, got 2"),
    "no annotations": (lambda tasks: tasks[0].pop("annotations"), "export the project"),
    "no fingerprint": (lambda tasks: tasks[0]["data"].pop("rankrange"), "fields that rankrange wrote"),
    "two tables": (lambda tasks: about(tasks[1:], table="r1"), "one table"),
    "result": (lambda tasks: tasks[0]["annotations"][0].update(result="drop table"), "JSON list, got a text"),
    "p_wrong": (lambda tasks: about(tasks[:1], p_wrong=float("nan")), "from 0 to 1"),
    "target": (lambda tasks: about(tasks, target=["x"]), "other cells"),
    "twice": (lambda tasks: tasks.append(tasks[0]), "one decision, got two for row"),
    "task": (lambda tasks: about(tasks, task="<b>"), "must be classes, numbers or labels"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_hostile_export_is_a_clear_error_and_nothing_is_written(audited, tmp_path, capsys, kind):
    path, audit = audited
    tasks = annotated(audit.to_label_studio(2).tasks, lambda task: [(1, other(task))])
    breaks, message = BROKEN[kind]
    breaks(tasks)
    export = write(tmp_path / "export.json", tasks)
    assert cli.main(["apply", str(path), str(export), "--out", str(tmp_path / "fixed.csv")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "fixed.csv").exists()


@pytest.mark.parametrize("label", ["=1+1", "", "a\u0000b", "a\nb", "\u202eab", "\ud800"])
def test_new_labels_are_readable_texts_and_no_formulas(audited, tmp_path, capsys, label):
    path, audit = audited
    tasks = annotated(audit.to_label_studio(1).tasks, lambda task: [(1, label)])
    export = write(tmp_path / "export.json", tasks)
    words = ["apply", str(path), str(export), "--out", str(tmp_path / "fixed.csv"), "--new-labels"]
    assert cli.main(words) == 2
    assert "a new label must" in capsys.readouterr().err
    assert not (tmp_path / "fixed.csv").exists()


def test_labels_with_hidden_characters_come_back_as_they_are(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=120)
    odd = "a\u200bb"
    kind = np.where((x > 0) ^ (rng.random(120) < 0.1), odd, "c")
    path = tmp_path / "table.csv"
    path.write_text("x,kind\n" + "".join(f"{v:.3f},{k}\n" for v, k in zip(x, kind, strict=True)), encoding="utf-8")
    audit = audit_file(path, "kind", models="linear")
    tasks = [task for task in audit.to_label_studio().tasks if task["data"]["rankrange"]["given"] == "c"][:1]
    for task in tasks:  # the choice as the configuration has it
        task["annotations"] = [{"completed_by": 1, "result": task["predictions"][0]["result"]}]
    export = write(tmp_path / "export.json", tasks)
    assert cli.main(["apply", str(path), str(export), "--out", str(tmp_path / "fixed.csv"), "--quiet"]) == 0
    row = int(tasks[0]["data"]["rankrange"]["row"])
    assert (tmp_path / "fixed.csv").read_text(encoding="utf-8").splitlines()[row].endswith(f",{odd}")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "[1]", "[[]]", "[" * 100_000, '[{"a": 1}]', '[{"data": 3}]', "\ufffe"]
)
def test_what_is_no_export_is_a_clear_error(tmp_path, text):
    path = tmp_path / "export.json"
    path.write_bytes(text.encode("utf-16" if text == "\ufffe" else "utf-8"))
    with pytest.raises(UserError):
        read_reviews([path])


# ---- other targets and media -----------------------------------------------------------------------------------------


def test_numbers_come_back_as_numbers(tmp_path):
    x = np.arange(60.0)
    table = {"x": x.tolist(), "y": (2 * x + np.random.default_rng(0).normal(size=60)).round(2).tolist()}
    table["y"][30] = 500.0
    audit = audit_table(table, "y", task="numbers", models="linear")
    (task,) = audit.to_label_studio(1).tasks
    assert ElementTree.fromstring(audit.to_label_studio(1).config).find("Number").get("name") == "label"
    task["annotations"] = [{"completed_by": 1, "result": copy.deepcopy(task["predictions"][0]["result"])}]
    task["annotations"][0]["result"][0]["value"]["number"] = 60.5
    made = read_reviews([write(tmp_path / "e.json", [task])])["1"].made[0]
    assert (made.row, made.choice, made.new_label) == ("30", "relabel", "60.5")


def asked(**columns):
    return [
        Question({}, dict(zip(columns, cells, strict=True)), [], 0.5) for cells in zip(*columns.values(), strict=True)
    ]


def test_texts_and_images_are_found_by_their_cells_and_no_script_is_an_image():
    long = ["a text " * 20] * 2
    assert media_columns(asked(n=["1", "2"], t=long, p=["a.png", "https://x.org/b.JPG?s=1"]), None, None) == ("t", "p")
    assert media_columns(asked(p=["javascript:alert(1)//a.png", "b.png"]), None, None) == (None, None)
    with pytest.raises(UserError, match="must be in the table"):
        media_columns(asked(p=["a.png"]), "q", None)


def test_label_issues_go_to_label_studio_and_come_back(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 2))
    y = (x[:, 0] > 0).astype(int)
    y[:8] = 1 - y[:8]
    issues = find_label_issues(x, y, random_state=0)
    texts = [f"text {i}" for i in range(150)]
    tasks = annotated(issues.to_label_studio(texts).tasks, lambda task: [(1, "1"), (2, "1")])
    assert issues.decide_from(write(tmp_path / "e.json", tasks)) == []
    rows = issues["row"].astype(int)
    assert (issues.decided()[0][rows] == 1).all()
    tasks[0]["data"]["rankrange"]["given"] = "7"
    with pytest.raises(UserError, match="about these labels"):
        issues.decide_from(write(tmp_path / "e.json", tasks))
    with pytest.raises(ValueError, match="one entry per row"):
        issues.to_label_studio(texts[1:])


@pytest.mark.filterwarnings("ignore")  # those of the kit and of what it imports
def test_label_studio_itself_accepts_configurations_and_predictions(audited):
    interface = pytest.importorskip("label_studio_sdk.label_interface").LabelInterface
    _, audit = audited
    several = [Question({**ABOUT, "task": "labels"}, {"x": "1"}, ["b", "c"], 0.3)]
    value = [Question({**ABOUT, "task": "numbers"}, {"x": "1"}, ["2.5"], 0.3)]
    media = {"t": "a text to read " * 10, "p": "https://example.org/a.png"}
    read = [Question({**ABOUT, "task": "classes"}, {"x": "1", "t": media["t"]}, ["b"], 0.3)]
    seen = [Question({**ABOUT, "task": "classes"}, {"x": "1", **media}, ["b"], 0.3)]
    for made in (
        audit.to_label_studio(3),
        label_studio.label_studio_tasks(several, ["a", "b", "c"], "labels"),
        label_studio.label_studio_tasks(value, [], "numbers"),
        label_studio.label_studio_tasks(read, ["a", "b"], "classes"),
        label_studio.label_studio_tasks(seen, ["a", "b"], "classes"),
    ):
        checked = interface(made.config)
        checked.validate()
        for task in made.tasks:
            assert checked.validate_prediction(task["predictions"][0], return_errors=True) == []
            annotation = {"result": task["predictions"][0]["result"], "was_cancelled": False, "completed_by": 1}
            assert checked.validate_annotation(annotation)
            assert {tag.value_name for tag in checked.objects} <= set(task["data"])


def both(task, label):
    """An annotation with a label and "drop"."""
    results = [("label", label), ("row", "drop this row")]
    return [
        {"from_name": name, "to_name": "cells", "type": "choices", "value": {"choices": [value]}}
        for name, value in results
    ]


def test_a_label_and_drop_together_are_a_drop_only_if_the_label_was_filled_in(audited, tmp_path):
    _, audit = audited
    (task,) = annotated(audit.to_label_studio(1).tasks, lambda task: [(1, "drop")])
    suggested = task["predictions"][0]["result"][0]["value"]["choices"][0]
    task["annotations"][0]["result"] = both(task, suggested)
    (answer,) = label_studio.read_label_studio(write(tmp_path / "a.json", [task]))
    assert answer.drop
    assert answer.labels is None
    task["annotations"][0]["result"] = both(task, YES if suggested == NO else NO)
    with pytest.raises(UserError, match="got both from 1 for row"):
        label_studio.read_label_studio(write(tmp_path / "b.json", [task]))


def test_answers_to_other_questions_alone_are_named(audited, tmp_path):
    _, audit = audited
    tasks = annotated(audit.to_label_studio(2).tasks, lambda task: [(1, other(task))])
    for task in tasks:
        task["annotations"][0]["result"][0]["from_name"] = "sentiment"
    with pytest.raises(UserError, match="question 'label', got answers to sentiment alone"):
        label_studio.read_label_studio(write(tmp_path / "a.json", tasks))
    tasks[0]["annotations"][0]["result"][0]["from_name"] = "label"
    assert len(label_studio.read_label_studio(write(tmp_path / "b.json", tasks))) == 2


def test_an_audit_learns_from_an_export(audited, tmp_path, capsys):
    path, audit = audited
    tasks = annotated(audit.to_label_studio(3).tasks, lambda task: [(1, other(task))])
    export = write(tmp_path / "export.json", tasks)
    words = ["audit", str(path), "--target", "label", "--models", "linear", "--quiet", "--json", "--decisions"]
    assert cli.main([*words, str(export)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "3 wrong, 0 right" in found["review"][0]
    assert not {suspect.row for suspect in audit.suspects(3)} & {suspect["row"] for suspect in found["suspects"]}


@pytest.mark.parametrize("sure", [False, True])
def test_the_limit_is_the_number_of_tasks_with_and_without_suspects(sure):
    given = np.arange(60) % 2
    P = np.where(given[:, None] == np.arange(2), 0.95, 0.05)
    P[:3] = P[:3, ::-1] if sure else 0.5
    issues = find_label_issues(y=given, pred_probs=P)
    assert len(issues) == (3 if sure else 0)
    tasks = {limit: issues.to_label_studio([f"text {i}" for i in range(60)], limit=limit).tasks for limit in (0, 2, 5)}
    assert {limit: len(found) for limit, found in tasks.items()} == {0: 0, 2: 2, 5: 5}
    assert len(issues.to_label_studio(np.arange(60)).tasks) == (3 if sure else 20)
