"""Label Studio: write tasks and the labelling configuration, and read the answers of reviewers from an export.

Tasks have the import format (`data` and `predictions`), exports the JSON format (the same `data`, with `annotations`).
A task has the fields that identify its row (number, given target, fingerprint), which exports contain unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

from ..errors import UserError
from ..pages.text import visible

# The fields that identify the row of a task, and those that may follow: "rare" labels of the row are no choices.
_ABOUT = ("row", "given", "contents", "table", "task", "target", "p_wrong")
_MORE: dict[str, Any] = {"separator": "", "suggested": [], "rare": []}
NONE_OF_THEM = "(none)"
# Names of the controls, and the key of the fields that identify the row of a task.
_LABEL, _ROW, _KEY = "label", "row", "rankrange"
_DROP = "drop this row"
_CONTROL = {"classes": "choices", "labels": "choices", "numbers": "number"}
# What is asked about an observed outcome.
_RECORDED = ("recorded correctly", "to be checked at its source")
_MAX_BYTES = 500_000_000
# Longer cells are truncated; columns whose cells are longer than the second number on average are texts.
_LONGEST_CELL, _TEXT = 500, 60
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
_JSON_TYPES = {dict: "object", list: "list", str: "text", type(None): "null", bool: "truth value"}


class Question(NamedTuple):
    """One suspect: the fields that identify its row, the cells to show, the suggested labels, and the reason.

    `score` is 1 - p_wrong, because Label Studio shows low scores first. A multi-label target may have any number of
    suggested labels, also none.
    """

    about: dict[str, Any]
    shown: dict[str, str]
    suggested: list[str]
    score: float
    why: str = ""


class Answer(NamedTuple):
    """The answer of one reviewer: the labels of the row, or to drop it; neither if the task was skipped.

    `about` has the fields that identify the row. An empty list of `labels` means that no label applies (multi-label
    targets only).
    """

    about: dict[str, Any]
    reviewer: str
    labels: list[str] | None = None
    drop: bool = False


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
        # escaped, so that cells inside an HTML page cannot close a script or open a tag
        text = json.dumps(self.tasks, allow_nan=False, indent=1)
        text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        return {path: text.encode(), path.with_suffix(".xml"): self.config.encode()}


def fingerprint(data: Any) -> str:
    """A short hash of JSON-serialisable data."""
    return "r" + hashlib.blake2b(json.dumps(data).encode(), digest_size=7).hexdigest()


def majority(votes: Iterable[Hashable]) -> tuple[Any, bool]:
    """The most frequent vote (None if there are no votes or the first two tie), and whether the votes differ."""
    ranked = Counter(votes).most_common(2)
    tie = len(ranked) == 2 and ranked[0][1] == ranked[1][1]
    return (None if tie or not ranked else ranked[0][0]), len(ranked) == 2


# ---- writing ---------------------------------------------------------------------------------------------------------


def label_studio_tasks(
    questions: Sequence[Question], names: Sequence[str], task: str, text: str | None = None, image: str | None = None
) -> LabelStudioTasks:
    """Convert questions to tasks with their configuration.

    `names` are the classes, and `task` is "classes", "labels" (multi-label), "numbers" or "outcomes" (observed classes,
    for which no label is suggested or asked). `text` and `image` are the names of the columns to show as a text and as
    an image; by default they are recognised by their cells.
    """
    text, image = media_columns(questions, text, image)
    first = "image" if image is not None else "text" if text is not None else "cells"
    tasks = []
    for question in questions:
        about, result = question.about, [] if task == "outcomes" else _result(question.suggested, task, first)
        data: dict[str, Any] = {
            "title": visible(f"Row {about['row']}: given {about['given']}. {question.why}", _LONGEST_CELL),
            "cells": {visible(k, _LONGEST_CELL): visible(cell, _LONGEST_CELL) for k, cell in question.shown.items()},
            _KEY: {**about, "suggested": list(question.suggested)},
        }
        data |= {"text": visible(question.shown[text])} if text is not None else {}
        data |= {"image": question.shown[image]} if image is not None else {}
        prediction = {"model_version": _KEY, "score": question.score, "result": result}
        tasks.append({"data": data, "predictions": [prediction]})
    lines = ["<View>", '  <Header value="$title"/>']
    lines += ['  <Image name="image" value="$image"/>'] if image is not None else []
    lines += ['  <Text name="text" value="$text"/>'] if text is not None else []
    lines += ['  <Table name="cells" value="$cells"/>']
    if task == "numbers":
        lines += [f'  <Number name="{_LABEL}" toName="{first}"/>']
    elif task != "outcomes":
        shown, choice = list(map(visible, names)), "multiple" if task == "labels" else "single"
        shown += [NONE_OF_THEM] if task == "labels" else []
        lines += _choices(_LABEL, first, shown, f'choice="{choice}" showInline="true"')
    lines += _choices(_ROW, first, _RECORDED if task == "outcomes" else [_DROP], 'choice="single"')
    return LabelStudioTasks(tasks, "\n".join([*lines, "</View>", ""]))


def _choices(name: str, first: str, values: Sequence[str], settings: str) -> list[str]:
    inside = [f"    <Choice value={quoteattr(value)}/>" for value in values]
    return [f'  <Choices name="{name}" toName="{first}" {settings}>', *inside, "  </Choices>"]


def _result(labels: Sequence[str], task: str, first: str) -> list[dict[str, Any]]:
    kind = _CONTROL[task]
    value: Any = [visible(label) for label in labels] or [NONE_OF_THEM]
    if kind == "number":
        try:
            value = float(labels[0])
        except (ValueError, IndexError):
            return []
    return [{"id": "suggested", "from_name": _LABEL, "to_name": first, "type": kind, "value": {kind: value}}]


def media_columns(questions: Sequence[Question], text: str | None, image: str | None) -> tuple[str | None, str | None]:
    """The names of the text column and the image column, given by the user or recognised by their cells.

    The image column is the first one with only paths or URLs of images. The text column has the longest cells, of more
    than 60 characters on average. Empty cells do not count. None means that there is no such column.
    """
    names = list(questions[0].shown) if questions else []
    for given in (text, image):
        if given is not None and given not in names:
            raise UserError(
                f"a column to show must be in the table, got '{visible(given, 60)}'; choose one of "
                f"{', '.join(visible(name, 30) for name in names[:5])}"
            )
    cells = {name: [question.shown[name] for question in questions if question.shown[name]] for name in names}
    cells = {name: found for name, found in cells.items() if found}
    if image is None:
        image = next((name for name, found in cells.items() if all(map(_is_image, found))), None)
    if text is None:
        means = {name: sum(map(len, found)) / len(found) for name, found in cells.items() if name != image}
        text = max((name for name in means if means[name] > _TEXT), key=lambda name: means[name], default=None)
    return text, image


def _is_image(cell: str) -> bool:
    """Whether a cell is a path or URL (http, https, s3, gs) of an image, by its ending."""
    scheme, sign, _ = cell.partition(":")
    plain = not sign or scheme.lower() in ("http", "https", "s3", "gs") or len(scheme) == 1
    return plain and cell.partition("?")[0].lower().endswith(_IMAGES)


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_label_studio(path: str | os.PathLike[str]) -> list[Answer]:
    """Read the answers from an export in Label Studio's JSON format, one for each reviewer and task.

    A skipped task is an answer without labels. The last annotation of a reviewer counts. An export is a JSON list or,
    in a file .jsonl or .ndjson, one JSON object per line. Anything else is a UserError.
    """
    path = Path(path)
    answers: list[Answer] = []
    others: set[str] = set()
    for number, record in enumerate(_read_json(path), 1):
        where = f"task {number} of {path}"
        _check(record, dict, "a task", where)
        if _KEY in record and "data" not in record:
            raise UserError(f"an export must be in the format JSON, got JSON-MIN in {path}; choose JSON when exporting")
        about = _about(_check(record.get("data"), dict, "data", where).get(_KEY), where)
        if "annotations" not in record:
            raise UserError(
                f"a task of an export has annotations, got none in {where}; these are the tasks for the import: "
                "export the project in the format JSON"
            )
        newest: dict[str, tuple[str, Answer]] = {}
        for annotation in _check(record["annotations"], list, "annotations", where):
            _check(annotation, dict, "an annotation", where)
            time = str(annotation.get("updated_at") or annotation.get("created_at") or "")
            answer = _answer(annotation, about, where, others)
            if answer.reviewer not in newest or time >= newest[answer.reviewer][0]:
                newest[answer.reviewer] = (time, answer)
        answers += [_drop_or_labels(answer) for _, answer in newest.values()]
    if others and not any(answer.drop or answer.labels is not None for answer in answers):
        named = ", ".join(visible(name, 40) for name in sorted(others)[:3])
        raise UserError(
            f"an answer must be to the question 'label', got answers to {named} alone in {path}; use the "
            "configuration that rankrange wrote, or name the question 'label'"
        )
    return answers


def read_small(path: Path, what: str) -> str:
    """The text of a file of at most 500 MB in UTF-8; `what` names its contents in errors."""
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise UserError(f"{what} must have at most {_MAX_BYTES:,} bytes, got {size:,} in {path}; is it the table?")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); check its name") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{what} must be UTF-8 text, got other bytes in {path}; save it again in UTF-8") from error


def _read_json(path: Path) -> list[Any]:
    text = read_small(path, "an export")
    try:
        lines = path.suffix.lower() in (".jsonl", ".ndjson")
        records = [json.loads(line) for line in text.splitlines() if line.strip()] if lines else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path} as JSON ({visible(str(error), 80)}); export it again") from error
    if not _check(records, list, "an export", str(path)):
        raise UserError(f"an export has at least one record, got none in {path}; export it again")
    return list(records)


def _check(value: Any, kind: type, what: str, where: str) -> Any:
    """Return the value if it has the type `kind`; otherwise raise an error that `what` in `where` has another type."""
    if not isinstance(value, kind):
        raise UserError(
            f"{what} must be a JSON {_JSON_TYPES[kind]}, got a {_JSON_TYPES.get(type(value), 'number')} in {where}; "
            "export the project again"
        )
    return value


def _about(found: Any, where: str) -> dict[str, Any]:
    """The validated fields of a task that identify its row, and those of `_MORE`."""
    absent = [name for name in _ABOUT if name not in found] if isinstance(found, dict) else list(_ABOUT)
    if absent:
        raise UserError(
            f"a task must have the fields that rankrange wrote, got none named '{absent[0]}' in {where}; export the "
            "project that was made from an export of rankrange, with all its data"
        )
    about = {name: {**_MORE, **found}[name] for name in (*_ABOUT, *_MORE)}
    lists = ("target", "suggested", "rare")
    texts = [value for name, value in about.items() if name not in (*lists, "p_wrong")]
    for name in lists:
        texts += _check(about[name], list, name, where)
    p_wrong = about["p_wrong"]
    if not all(isinstance(text, str) for text in texts):
        fault = "the fields of a task must be texts, got another type"
    elif about["task"] not in _CONTROL:
        fault = f"task must be classes, numbers or labels, got '{visible(about['task'], 40)}'"
    elif isinstance(p_wrong, bool) or not isinstance(p_wrong, int | float) or not 0.0 <= p_wrong <= 1.0:
        fault = f"p_wrong must be from 0 to 1, got '{visible(p_wrong, 40)}'"
    else:
        return {**about, "p_wrong": float(p_wrong)}
    raise UserError(f"{fault} in {where}; export the project again")


def _answer(annotation: dict[str, Any], about: dict[str, Any], where: str, others: set[str]) -> Answer:
    """The answer of an annotation; names of controls that the user added to the configuration go to `others`."""
    by = annotation.get("completed_by")
    by = by.get("email") or by.get("id") if isinstance(by, dict) else by
    answer = Answer(about, "reviewer" if by is None else visible(by, 60))
    if annotation.get("was_cancelled"):
        return answer
    for item in _check(annotation.get("result"), list, "the result of an annotation", where):
        name, kind = _check(item, dict, "a result", where).get("from_name"), item.get("type")
        if name not in (_LABEL, _ROW):
            others.add(str(name))
            continue
        value = _check(item.get("value"), dict, "the value of a result", where).get(str(kind))
        if name == _ROW:
            answer = answer._replace(drop=answer.drop or value == [_DROP])
        else:
            answer = answer._replace(labels=_labels(value, str(kind), about["task"], where))
    return answer


def _labels(value: Any, kind: str, task: str, where: str) -> list[str]:
    if kind != _CONTROL[task]:
        raise UserError(
            f"the label must come from the control '{_CONTROL[task]}', got '{visible(kind, 40)}' in {where}"
        )
    if kind == "number":
        if isinstance(value, bool) or not isinstance(value, int | float) or value - value != 0:
            raise UserError(f"a numeric target needs a finite number, got {visible(value, 40)} in {where}; correct it")
        return [repr(value)]
    texts = [_check(text, str, "a choice", where) for text in _check(value, list, "choices", where)]
    if not texts or (task == "classes" and len(texts) > 1):
        raise UserError(f"a row must have exactly one label, got {len(texts)} in {where}; choose one")
    return [text for text in texts if text != NONE_OF_THEM or task != "labels"]


def _drop_or_labels(answer: Answer) -> Answer:
    """The answer with labels or "drop", but not both: labels that equal the suggestion were filled in by the tool."""
    if not answer.drop or answer.labels is None:
        return answer
    if sorted(answer.labels) == sorted(visible(label) for label in answer.about["suggested"]):
        return answer._replace(labels=None)
    chosen = ", ".join(visible(label, 40) for label in answer.labels) or NONE_OF_THEM
    raise UserError(
        f"a row is dropped or gets a label, got both from {answer.reviewer} for row {visible(answer.about['row'], 40)} "
        f"('{chosen}' and drop); choose one of them in the review tool and export again"
    )
