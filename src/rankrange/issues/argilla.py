"""Argilla: write records with suggestions, and read the export.

The format is that of `Dataset.records.to_json` and `from_json` of Argilla 2: a list of records with `fields`,
`metadata`, `suggestions` and `responses` by question.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..errors import UserError
from ..pages.text import visible
from .questions import (
    NONE_OF_THEM,
    Answer,
    Question,
    about_of,
    check_questions,
    drop_or_labels,
    need,
    shown_cell_text,
)

_QUESTION, _KEY = "label", "rankrange"
_DROP = "drop this row"


def argilla_records(questions: Sequence[Question], task: str) -> list[dict[str, Any]]:
    """Convert questions to Argilla records; `task` is "classes", "labels" (multi-label) or "numbers"."""
    return [_record(question, task) for question in questions]


def _record(question: Question, task: str) -> dict[str, Any]:
    about = question.about
    shown = "\n".join(f"{shown_cell_text(name)}: {shown_cell_text(cell)}" for name, cell in question.shown.items())
    labels = [visible(label) for label in question.suggested]
    value: Any = (labels or [NONE_OF_THEM]) if task == "labels" else "".join(labels[:1])
    # Argilla shows the score as the confidence in the suggestion, so it is p_wrong and not 1 - p_wrong.
    suggestion = {"value": value, "score": about["p_wrong"], "agent": _KEY}
    return {
        "id": f"{about['contents']}-{shown_cell_text(about['row'])}",
        "fields": {"row": shown, "given": visible(about["given"]), "why": visible(question.why)},
        "metadata": {
            "p_wrong": about["p_wrong"],
            "contents": about["contents"],
            _KEY: json.dumps({**about, "suggested": list(question.suggested)}),
        },
        "suggestions": {_QUESTION: suggestion} if value else {},
        "responses": {},
        "vectors": {},
    }


def is_export(records: list[Any]) -> bool:
    """Whether the records (at least one) have the format of Argilla, by the first of them."""
    return isinstance(records[0], dict) and "fields" in records[0] and "metadata" in records[0]


def answers_of(records: list[Any], path: str) -> list[Answer]:
    """The answers of the reviewers in exported records; `path` is the name of the export in errors.

    Drafts are ignored. A discarded response is an answer without labels, and so are responses to other questions alone,
    whose names are then in `others`. Records that rankrange did not write are a UserError.
    """
    answers = []
    for number, record in enumerate(records, 1):
        where = f"record {number} of {path}"
        metadata = need(need(record, dict, "a record", where).get("metadata"), dict, "metadata", where)
        try:
            about = about_of(json.loads(metadata.get(_KEY) or "null"), where)
        except (TypeError, ValueError, RecursionError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(
                f"the metadata '{_KEY}' must be unchanged since rankrange wrote it, got another text in {where}"
            ) from error
        given = need(record.get("responses") or {}, dict, "responses", where)
        answers += [
            drop_or_labels(_answer(need(response, dict, "a response", where), about, where))
            for response in need(given.get(_QUESTION) or [], list, "the responses to a question", where)
            if response.get("status") != "draft"
        ]
        others = tuple(str(name) for name, made in given.items() if name != _QUESTION and made)
        answers += [Answer(about, "reviewer", others=others)] if others and not given.get(_QUESTION) else []
    check_questions(answers, path)
    return answers


def _answer(response: dict[str, Any], about: dict[str, Any], where: str) -> Answer:
    reviewer = visible(response.get("user_id") or "reviewer", 60)
    value = response.get("value")
    if response.get("status") == "discarded" or value is None:
        return Answer(about, reviewer)
    if value == _DROP or value == [_DROP]:
        return Answer(about, reviewer, drop=True)
    if about["task"] == "labels":
        texts = [need(text, str, "a label", where) for text in need(value, list, "a multi-label response", where)]
        labels = [text for text in texts if text not in (NONE_OF_THEM, _DROP)]
        return Answer(about, reviewer, labels, _DROP in texts)
    return Answer(about, reviewer, [need(value, str, "a response", where)])


def argilla_settings(names: Sequence[str], task: str) -> dict[str, Any]:
    """The settings for `argilla.Settings.from_json`: fields, question and metadata.

    `names` are the classes, and `task` is that of `argilla_records`; for "numbers" the question asks for a text.
    """
    question: dict[str, Any] = {"type": "text", "use_markdown": False}
    if task != "numbers":
        shown = [*map(visible, names), *([NONE_OF_THEM] if task == "labels" else []), _DROP]
        options = [{"text": name, "value": name} for name in shown]
        question = {"type": "multi_label_selection" if task == "labels" else "label_selection", "options": options}
        question["visible_options"] = min(len(options), 20) if len(options) >= 3 else None
    fields = [_setting(name, {"type": "text", "use_markdown": False}) for name in ("row", "given", "why")]
    return {
        "guidelines": "Choose the label that fits the row. Models made the suggestion. Discard if unsure.",
        "fields": [*fields[:2], {**fields[2], "required": False}],
        "questions": [{**_setting(_QUESTION, question), "description": None}],
        "metadata": [
            _setting("p_wrong", {"type": "float", "min": None, "max": None}, visible_for_annotators=True),
            _setting("contents", {"type": "terms", "values": None}, visible_for_annotators=False),
        ],
        "vectors": [],
        # The key that identifies a row is stored as further metadata, which is not indexed.
        "allow_extra_metadata": True,
        "distribution": {"strategy": "overlap", "min_submitted": 1},
        "mapping": None,
    }


def _setting(name: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "title": name, "required": True, "type": settings["type"], "settings": settings, **more}
