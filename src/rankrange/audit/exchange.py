"""Export the suspects of an audit to Label Studio, and read reviews as decisions.

Every reader returns decisions by reviewer. Only `reviewers.merge_decisions` combines several votes on a row.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..issues.label_studio import NONE_OF_THEM, Answer, Question, read_label_studio
from ..pages.text import visible
from .decisions import Decision, Decisions, collected, join_labels, read_decisions, same_label, split_labels
from .target import plain_name

if TYPE_CHECKING:
    from .findings import Audit


def questions_of(audit: Audit, limit: int | None) -> list[Question]:
    """The first `limit` suspects of an audit (None: all) as questions, worst first."""
    suspects, target = audit.suspects(limit), audit.target
    identified = audit.identified
    about = {"table": identified.table, "target": target.columns, "task": target.task, "separator": target.separator}
    apart = set(target.columns)
    questions = []
    for i, suspect in enumerate(suspects):
        cells = zip(audit.source.names, identified.cells[i], strict=True)
        score = round(suspect.probability if audit.observed else 1.0 - suspect.p_wrong, 4)
        p = {"probability": score} if audit.observed else {"p_wrong": round(suspect.p_wrong, 4)}
        row: dict[str, Any] = {
            "row": str(plain_name(suspect.row)),
            "given": identified.given[i],
            "contents": identified.contents[i],
        }
        shown = {name: cell for name, cell in cells if name not in apart}
        suggested = [suspect.suggested]
        if target.task == "labels":
            suggested = split_labels(suspect.suggested, target.separator)
            row["rare"] = target.rare_of(int(audit.result.order[i]))
            suggested = [label for label in suggested if label not in row["rare"]]
        suggested = [] if audit.observed else suggested
        questions.append(Question({**row, **about, **p}, shown, suggested, score, suspect.why))
    return questions


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_reviews(paths: Sequence[str | os.PathLike[str]]) -> dict[str, Decisions]:
    """Read the decisions of reviewers from CSV files and from exports of Label Studio (JSON).

    Parameters
    ----------
    paths : sequence of path-like
        The files. A CSV file has the decisions of one reviewer, who is named after the file. An export has the
        decisions of all its annotators. A name that occurs again is followed by that of the file, in parentheses.

    Returns
    -------
    dict of str to Decisions
        The decisions of each reviewer, for `merge_decisions`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from rankrange.audit import Decision, Decisions, read_reviews
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "anna.csv")
    ...     _ = path.write_bytes(Decisions(["kind"], "classes", "0123", [Decision("3", "b", "drop")]).as_csv())
    ...     list(read_reviews([path]))
    ['anna']
    """
    once = {Path(path).resolve() for path in paths}
    if len(once) < len(paths):
        raise UserError("each file of decisions counts once, got one of them twice; name it once")
    found: dict[str, Decisions] = {}
    for path in map(Path, paths):
        if path.suffix.lower() in (".json", ".jsonl", ".ndjson"):
            answers = read_label_studio(path)
            new = collected(((one.reviewer, _about(one), _decision(one)) for one in answers), path)
        else:
            new = {path.stem: read_decisions(path)}
        for name, decisions in new.items():
            unique = name if name not in found else f"{name} ({path.name})"
            if unique in found:
                raise UserError(f"every reviewer has one file, got two files named {path.name}; rename one of them")
            found[unique] = decisions
    return found


def _about(answer: Answer) -> tuple[str, tuple[str, ...], str]:
    return answer.about["table"], tuple(answer.about["target"]), answer.about["task"]


def _decision(answer: Answer) -> Decision:
    about = answer.about
    row = Decision(about["row"], about["given"], "unsure", "", about["p_wrong"], about["contents"])
    if answer.drop:
        return row._replace(choice="drop")
    if answer.labels is None:
        return row
    given, several = about["given"], about["task"] == "labels"
    labels = [*answer.labels, *about["rare"]]
    if several:
        same = set(labels) == set(split_labels(given, about["separator"])) - {NONE_OF_THEM}
    else:  # as the review tool shows it
        same = same_label(given, labels[0]) or visible(given) == labels[0]
    new = join_labels(labels, about["separator"]) if several else labels[0]
    return row._replace(choice="keep") if same else row._replace(choice="relabel", new_label=new)
