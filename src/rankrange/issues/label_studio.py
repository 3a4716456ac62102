"""Label Studio: write tasks and the labelling configuration, and read the export.

Tasks have the import format (`data` and `predictions`). Exports have the JSON format (the same `data`, with
`annotations`). Scores are 1 - p_wrong, because Label Studio shows low scores first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

from ..errors import UserError
from ..pages.text import visible
from .questions import (
    NONE_OF_THEM,
    Answer,
    Question,
    about_of,
    check_questions,
    drop_or_labels,
    media_columns,
    need,
    read_json,
    safe_json,
    shown_cell_text,
)

# Names of the controls, and the key of the fields that identify the row of a task.
_LABEL, _ROW, _KEY = "label", "row", "rankrange"
_DROP = "drop this row"
_CONTROL = {"classes": "choices", "labels": "choices", "numbers": "number"}
# What is asked about an observed outcome.
_RECORDED = ("recorded correctly", "to be checked at its source")


class LabelStudioTasks(NamedTuple):
    """Tasks for Label Studio and the labelling configuration that shows them.

    Parameters
    ----------
    tasks : list of dict
        The tasks to import: `data`, and `predictions` with the suggested label and the score 1 - p_wrong.
    config : str
        The labelling configuration in XML; paste it under "Labeling Interface", "Code".

    Examples
    --------
    >>> from rankrange import find_label_issues
    >>> issues = find_label_issues(y=[0, 0, 1, 1], pred_probs=[[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])
    >>> made = issues.to_label_studio(["good", "bad", "worse", "worst"], limit=1)
    >>> made.tasks[0]["data"]["cells"]
    {'data': 'bad'}
    >>> made.config.splitlines()[-3].strip()
    '<Choice value="drop this row"/>'
    """

    tasks: list[dict[str, Any]]
    config: str

    def contents(self, path: str | os.PathLike[str]) -> dict[Path, bytes]:
        """The contents of two files, by path: the tasks at `path`, the configuration at `path` with the suffix .xml."""
        path = Path(path)
        return {path: safe_json(self.tasks), path.with_suffix(".xml"): self.config.encode()}


def label_studio_tasks(
    questions: Sequence[Question], names: Sequence[str], task: str, text: str | None = None, image: str | None = None
) -> LabelStudioTasks:
    """Convert questions to tasks with their configuration.

    `names` are the classes, and `task` is "classes", "labels" (multi-label), "numbers" or "outcomes" (observed classes,
    for which no label is suggested or asked). `text` and `image` are the
    names of the columns to show as a text and as an image; by default they are recognised by their cells.
    """
    text, image = media_columns(questions, text, image)
    first = "image" if image is not None else "text" if text is not None else "cells"
    tasks = [_task(question, task, first, text, image) for question in questions]
    return LabelStudioTasks(tasks, _config(names, task, first, text is not None, image is not None))


def _task(question: Question, task: str, first: str, text: str | None, image: str | None) -> dict[str, Any]:
    about = question.about
    data: dict[str, Any] = {
        "title": shown_cell_text(f"Row {about['row']}: given {about['given']}. {question.why}"),
        "cells": {shown_cell_text(name): shown_cell_text(cell) for name, cell in question.shown.items()},
        _KEY: {**about, "suggested": list(question.suggested)},
    }
    if text is not None:
        data["text"] = visible(question.shown[text])
    if image is not None:
        data["image"] = question.shown[image]
    prediction = {
        "model_version": _KEY,
        "score": question.score,
        "result": [] if task == "outcomes" else _result(question.suggested, task, first),
    }
    return {"data": data, "predictions": [prediction]}


def _result(labels: Sequence[str], task: str, first: str) -> list[dict[str, Any]]:
    kind = _CONTROL[task]
    value: Any = [visible(label) for label in labels] or [NONE_OF_THEM]
    if kind == "number":
        try:
            value = float(labels[0])
        except (ValueError, IndexError):
            return []
    return [{"id": "suggested", "from_name": _LABEL, "to_name": first, "type": kind, "value": {kind: value}}]


def _config(names: Sequence[str], task: str, first: str, text: bool, image: bool) -> str:
    lines = ["<View>", '  <Header value="$title"/>']
    lines += ['  <Image name="image" value="$image"/>'] if image else []
    lines += ['  <Text name="text" value="$text"/>'] if text else []
    lines += ['  <Table name="cells" value="$cells"/>']
    if task == "outcomes":
        lines += [f'  <Choices name="{_ROW}" toName="{first}" choice="single">']
        return "\n".join(
            [*lines, *(f'    <Choice value="{text}"/>' for text in _RECORDED), "  </Choices>", "</View>", ""]
        )
    if task == "numbers":
        lines += [f'  <Number name="{_LABEL}" toName="{first}"/>']
    else:
        several = "multiple" if task == "labels" else "single"
        shown = [*map(visible, names), *([NONE_OF_THEM] if task == "labels" else [])]
        lines += [f'  <Choices name="{_LABEL}" toName="{first}" choice="{several}" showInline="true">']
        lines += [f"    <Choice value={quoteattr(name)}/>" for name in shown]
        lines += ["  </Choices>"]
    lines += [f'  <Choices name="{_ROW}" toName="{first}" choice="single">', f'    <Choice value="{_DROP}"/>']
    return "\n".join([*lines, "  </Choices>", "</View>", ""])


# ---- reading ---------------------------------------------------------------------------------------------------------


def is_export(records: list[Any]) -> bool:
    """Whether the records (at least one) are Label Studio tasks, by the first of them.

    Tasks without annotations and JSON-MIN exports count too; `answers_of` rejects them.
    """
    return isinstance(records[0], dict) and ("data" in records[0] or _KEY in records[0])


def read_label_studio(path: str | os.PathLike[str]) -> list[Answer]:
    """Read the answers from an export in Label Studio's JSON format, one for each reviewer and task.

    A skipped task is an answer without labels. The last annotation of a reviewer counts.
    """
    return answers_of(read_json(path), str(path))


def answers_of(records: list[Any], path: str) -> list[Answer]:
    """The answers in exported tasks, one for each reviewer and task; `path` is the name of the export in errors.

    A skipped task is an answer without labels. The last annotation of a reviewer counts.
    """
    answers: list[Answer] = []
    for number, record in enumerate(records, 1):
        where = f"task {number} of {path}"
        need(record, dict, "a task", where)
        if _KEY in record and "data" not in record:
            raise UserError(f"an export must be in the format JSON, got JSON-MIN in {path}; choose JSON when exporting")
        about = about_of(need(record.get("data"), dict, "data", where).get(_KEY), where)
        if "annotations" not in record:
            raise UserError(
                f"a task of an export has annotations, got none in {where}; these are the tasks for the import: "
                "export the project in the format JSON"
            )
        newest: dict[str, tuple[str, Answer]] = {}
        for annotation in need(record["annotations"], list, "annotations", where):
            need(annotation, dict, "an annotation", where)
            time = str(annotation.get("updated_at") or annotation.get("created_at") or "")
            answer = _answer(annotation, about, where)
            if answer.reviewer not in newest or time >= newest[answer.reviewer][0]:
                newest[answer.reviewer] = (time, answer)
        answers += [drop_or_labels(answer) for _, answer in newest.values()]
    check_questions(answers, path)
    return answers


def _answer(annotation: dict[str, Any], about: dict[str, Any], where: str) -> Answer:
    reviewer = _reviewer(annotation.get("completed_by"))
    if annotation.get("was_cancelled"):
        return Answer(about, reviewer)
    labels: list[str] | None = None
    drop, others = False, []
    for item in need(annotation.get("result"), list, "the result of an annotation", where):
        need(item, dict, "a result", where)
        name, kind = item.get("from_name"), item.get("type")
        if name not in (_LABEL, _ROW):
            others.append(str(name))  # a control that the user added to the configuration
            continue
        value = need(item.get("value"), dict, "the value of a result", where).get(str(kind))
        if name == _ROW:
            drop = drop or value == [_DROP]
        else:
            labels = _labels(value, str(kind), about["task"], where)
    return Answer(about, reviewer, labels, drop, tuple(others))


def _labels(value: Any, kind: str, task: str, where: str) -> list[str]:
    if kind != _CONTROL.get(task):
        raise UserError(
            f"the label must come from the control '{_CONTROL.get(task)}', got '{visible(kind, 40)}' in {where}"
        )
    if kind == "number":
        if isinstance(value, bool) or not isinstance(value, int | float) or value - value != 0:
            raise UserError(f"a numeric target needs a finite number, got {visible(value, 40)} in {where}; correct it")
        return [repr(value)]
    texts = [need(text, str, "a choice", where) for text in need(value, list, "choices", where)]
    if not texts or (task == "classes" and len(texts) > 1):
        raise UserError(f"a row must have exactly one label, got {len(texts)} in {where}; choose one")
    return [text for text in texts if text != NONE_OF_THEM or task != "labels"]


def _reviewer(completed_by: Any) -> str:
    """The reviewer as text: an email address, a number, or "reviewer" if the export has neither."""
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("email") or completed_by.get("id")
    return "reviewer" if completed_by is None else visible(completed_by, 60)
