"""Suspects as questions for a review tool, and answers from its export.

A question has the fields that identify its row (number, given target, fingerprint), and review tools export them
unchanged. The format is that of `label_studio`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError
from ..pages.text import visible

# The fields that identify the row of a question; a review tool exports them unchanged.
ABOUT = ("row", "given", "contents", "table", "target", "task", "p_wrong")
NONE_OF_THEM = "(none)"
_MAX_BYTES = 500_000_000
# Longer cells are truncated; long texts have a separate field.
_LONGEST_CELL = 500
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
# Columns whose cells are longer than this on average are texts.
_TEXT = 60


class Question(NamedTuple):
    """One suspect, as a question for a review tool.

    Attributes
    ----------
    about : dict
        The fields that identify the row; the keys are `ABOUT` and, from an audit, "separator" (between labels).
    shown : dict of str
        The cells to show, by column.
    suggested : list of str
        The suggested labels: one, or any number, also none, for a multi-label target.
    score : float
        1 - p_wrong, because Label Studio shows low scores first.
    why : str
        The reason for the suspicion, in words.
    """

    about: dict[str, Any]
    shown: dict[str, str]
    suggested: list[str]
    score: float
    why: str = ""


class Answer(NamedTuple):
    """The answer of one reviewer: the labels of the row, or to drop it; neither if the question was skipped.

    `about` has the fields that identify the row. An empty list of `labels` means that no label applies (multi-label
    targets only). `others` are the names of answered questions that rankrange did not ask.
    """

    about: dict[str, Any]
    reviewer: str
    labels: list[str] | None = None
    drop: bool = False
    others: tuple[str, ...] = ()


def drop_or_labels(answer: Answer) -> Answer:
    """Return an answer that has labels or "drop", but not both.

    If it has both, labels that equal the suggestion are removed, because review tools fill them in; other labels raise
    an error.
    """
    if not answer.drop or answer.labels is None:
        return answer
    if sorted(answer.labels) == sorted(visible(label) for label in answer.about["suggested"]):
        return answer._replace(labels=None)
    chosen = ", ".join(visible(label, 40) for label in answer.labels) or NONE_OF_THEM
    raise UserError(
        f"a row is dropped or gets a label, got both from {answer.reviewer} for row {visible(answer.about['row'], 40)} "
        f"('{chosen}' and drop); choose one of them in the review tool and export again"
    )


def check_questions(answers: Sequence[Answer], path: str) -> None:
    """Raise an error if there are answers, but none to the question that rankrange asked."""
    others = sorted({name for answer in answers for name in answer.others})
    if others and not any(answer.drop or answer.labels is not None for answer in answers):
        named = ", ".join(visible(name, 40) for name in others[:3])
        raise UserError(
            f"an answer must be to the question 'label', got answers to {named} alone in {path}; use the "
            "configuration that rankrange wrote, or name the question 'label'"
        )


def fingerprint(data: Any) -> str:
    """A short hash of JSON-serialisable data."""
    return "r" + hashlib.blake2b(json.dumps(data).encode(), digest_size=7).hexdigest()


def majority(votes: Iterable[Hashable]) -> tuple[Any, bool]:
    """The most frequent vote (None if there are no votes or the first two tie), and whether the votes differ."""
    ranked = Counter(votes).most_common(2)
    tie = len(ranked) == 2 and ranked[0][1] == ranked[1][1]
    return (None if tie or not ranked else ranked[0][0]), len(ranked) == 2


def shown_cell_text(value: Any) -> str:
    """A cell as text for a review tool, truncated, with hidden characters made visible."""
    return visible(value, _LONGEST_CELL)


def media_columns(questions: Sequence[Question], text: str | None, image: str | None) -> tuple[str | None, str | None]:
    """The names of the text column and the image column, given by the user or recognised by their cells.

    The image column is the first one with only paths or URLs of images. The text column has the longest cells, of more
    than 60 characters on average. Empty cells do not count. None means that there is no such column. A given name that
    is not a column is a UserError.
    """
    names = list(questions[0].shown) if questions else []
    for given in (text, image):
        if given is not None and given not in names:
            raise UserError(
                f"a column to show must be in the table, got '{visible(given, 60)}'; choose one of "
                f"{', '.join(visible(name, 30) for name in names[:5])}"
            )
    cells = {name: [question.shown[name] for question in questions if question.shown[name]] for name in names}
    if image is None:
        image = next((name for name in names if cells[name] and all(map(_is_image, cells[name]))), None)
    if text is None:
        means = {name: sum(map(len, cells[name])) / len(cells[name]) for name in names if cells[name] and name != image}
        text = max((name for name in means if means[name] > _TEXT), key=lambda name: means[name], default=None)
    return text, image


def _is_image(cell: str) -> bool:
    """Whether a cell is a path or URL (http, https, s3, gs) of an image, by its ending."""
    scheme, sign, _ = cell.partition(":")
    plain = not sign or scheme.lower() in ("http", "https", "s3", "gs") or len(scheme) == 1
    return plain and cell.partition("?")[0].lower().endswith(_IMAGES)


def safe_json(data: Any) -> bytes:
    """JSON in ASCII that is safe inside an HTML page: it cannot close a script or open a tag.

    NaN and infinite numbers are a ValueError.
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, indent=1)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode()


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_json(path: str | os.PathLike[str]) -> list[Any]:
    """Read the records of an export: a JSON list or, in a file .jsonl or .ndjson, one JSON object per line.

    A file that cannot be read, has more than 500 MB or has no record is a UserError.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UserError(
                f"an export must have at most {_MAX_BYTES:,} bytes, got {path.stat().st_size:,} in {path}; check it"
            )
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); check its name") from error
    except UnicodeDecodeError as error:
        raise UserError(f"an export must be JSON in UTF-8, got other bytes in {path}; export it again") from error
    try:
        lines = path.suffix.lower() in (".jsonl", ".ndjson")
        records = [json.loads(line) for line in text.splitlines() if line.strip()] if lines else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path} as JSON ({visible(str(error), 80)}); export it again") from error
    if not isinstance(records, list) or not records:
        raise UserError(f"an export is a list of at least one record, got {_kind(records)} in {path}; export it again")
    return records


def about_of(found: Any, where: str) -> dict[str, Any]:
    """The validated fields of a record that identify its row (`ABOUT`), and its "separator" and "suggested" labels.

    `where` is the name of the record in errors.
    """
    absent = [name for name in ABOUT if name not in found] if isinstance(found, dict) else list(ABOUT)
    if absent:
        raise UserError(
            f"a record must have the fields that rankrange wrote, got none named '{absent[0]}' in {where}; export the "
            "project that was made from an export of rankrange, with all its data"
        )
    texts = {name: found[name] for name in ("row", "given", "contents", "table", "task")}
    target = found["target"]
    if not all(isinstance(value, str) for value in [*texts.values(), *(target if isinstance(target, list) else [0])]):
        raise UserError(f"row, given, contents, table, task and target must be texts, got another kind in {where}")
    if found["task"] not in ("classes", "numbers", "labels"):
        raise UserError(
            f"task must be classes, numbers or labels, got '{visible(found['task'], 40)}' in {where}; export the "
            "project again"
        )
    p = found["p_wrong"]
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0.0 <= p <= 1.0 or math.isnan(p):
        raise UserError(f"p_wrong must be from 0 to 1, got {visible(p, 40)} in {where}; export the project again")
    separator = found.get("separator", "")
    suggested = found.get("suggested", [])
    if not isinstance(suggested, list) or not all(isinstance(label, str) for label in suggested):
        raise UserError(f"suggested must be a list of texts, got another kind in {where}; export the project again")
    more = {"separator": str(separator), "suggested": list(suggested)}
    return {**texts, "target": list(target), "p_wrong": float(p), **more}


def need(value: Any, kind: type, what: str, where: str) -> Any:
    """Return the value if it has the type `kind`; otherwise raise an error that `what` in `where` has another type."""
    if not isinstance(value, kind):
        raise UserError(
            f"{what} must be a JSON {_NAMES[kind]}, got {_kind(value)} in {where}; export the project again"
        )
    return value


_NAMES: dict[type, str] = {dict: "object", list: "list", str: "text"}


def _kind(value: Any) -> str:
    names = {"dict": "an object", "list": "a list" if value else "an empty list", "str": "a text", "NoneType": "null"}
    return names.get(type(value).__name__, "a number")
