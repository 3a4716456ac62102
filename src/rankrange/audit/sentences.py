"""All sentences of an audit: what was found, what it means, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..issues.sentences import SURPRISING, assumption, share_sentence
from ..issues.sentences import percent as share_of
from ..label_noise import LIKELY
from ..pages.text import number, percent, plural, visible
from ..tables.columns import FEW
from .decisions import split_labels
from .plan import Plan
from .problems import problems_in_words
from .target import row_text
from .task_result import Group, TaskResult

if TYPE_CHECKING:
    from .findings import Audit, Suspect


# Of rows that are less likely wrong than this none is recommended for a review.
_RIGHT = 0.01


class Words(NamedTuple):
    """The words for the probability, the listed rows, the flagged ones among them, and the other target."""

    p: str
    suspects: str
    likely: str
    suggested: str


WORDS = {
    "annotated": Words("p(wrong)", "suspects", "likely wrong rows", "suggested"),
    "observed": Words("p(given)", "surprising rows", "surprising rows", "expected"),
}


def sentences(audit: Audit) -> list[str]:
    """The result in words: what is assumed and found, other problems, the gain of a robust model, what to do."""
    parts = [assumption(audit.labels), _found(audit), problems_in_words(audit.row_problems), _better(audit)]
    return [part for part in (*parts, _next(audit)) if part]


def listed_in_words(audit: Audit) -> str:
    """A description of the list: the suspects, and the next rows of the ranking."""
    word, listed = "surprising" if audit.observed else "suspect", audit.n_listed
    if not audit.n_suspects:
        return f"the {plural(listed, 'row')} that rank highest, none of them {word}"
    if audit.n_suspects == listed:
        return plural(listed, f"{word} row")
    return f"{plural(listed, 'row')}, {audit.n_suspects:,} of them {word}"


def suggestion(audit: Audit, suspect: Suspect) -> str:
    """The suggested target; for a multi-label target, the labels to add and to remove."""
    if audit.target.task != "labels":
        return suspect.suggested
    given, new = (split_labels(text, audit.target.separator) for text in (suspect.given, suspect.suggested))
    plus, minus = [label for label in new if label not in given], [label for label in given if label not in new]
    parts = [f"+ {', '.join(plus)}"] * bool(plus) + [f"\N{MINUS SIGN} {', '.join(minus)}"] * bool(minus)
    return "  ".join(parts) or suspect.suggested


def _found(audit: Audit) -> str:
    j, n = audit.result, len(audit.result.wrong)
    blind = f"{_capital(j.blind)}. " if j.blind else ""
    have = "has" if audit.n_suspects == 1 else "have"
    if audit.observed:
        rows = f"{audit.n_suspects:,} of {n:,} rows {have} an outcome to which models gave less than {SURPRISING:.0%}"
        return f"{blind}{rows}; about {j.expected_surprises:,.0f} are expected by chance."
    noun = {"classes": "labels", "numbers": "targets", "labels": "entries of the labels"}[j.task]
    sure = j.noise.value if audit.n_likely else 0.0  # of an estimated share without a likely wrong row nothing is sure
    share = _capital(share_sentence(sure, (j.noise.low, j.noise.high), j.contradicted, noun))
    likely = f"{audit.n_likely:,}" if audit.n_likely else "none"
    rows = f"{audit.n_suspects:,} of {n:,} rows are suspect, {likely} of them likely wrong"
    if audit.n_suspects <= 1:
        rows = f"1 of {n:,} rows is suspect, {'and' if audit.n_likely else 'but not'} likely wrong"
    return f"{blind}{share}. {rows if audit.n_suspects else f'No single row of {n:,} is a suspect'}."


def _better(audit: Audit) -> str:
    """Whether the robust linear model is better or worse than the ordinary one; "" if that does not matter."""
    j, first = audit.result, audit.result.measures[0]
    if j.m == 0:
        return "Ignoring rows would not help, so the robust linear model ignores none and equals the ordinary one."
    if first.gain.low <= 0 and all(m.gain.high >= 0 for m in j.measures):
        return ""
    ignored = f"{plural(j.m, 'row')} ({share_of(j.m / len(j.wrong))}) that it fits worst"
    ignored += "" if audit.observed else ", errors or not"
    verdict = "shows no significant difference to" if first.gain.low <= 0 else "predicts better than"
    verdict = "predicts worse than" if first.gain.high < 0 else verdict
    gain = f"{first.gain_text(first.gain.value)}{first.unit} ({first.gain_range})"
    sentence = f"The robust linear model, which ignores the {ignored}, {verdict} the ordinary one in {first.name}"
    sentence += f": {first.text(first.robust.value)}, a gain of {gain}"
    worse = [m.name for m in j.measures[1:] if m.gain.high < 0]
    return f"{sentence}; {' and '.join(worse)} get{'s' * (len(worse) == 1)} worse." if worse else f"{sentence}."


def _next(audit: Audit) -> str:
    if not audit.n_listed:
        worst = max(audit.row_problems, key=lambda problem: problem.strength, default=None)
        return without_suspects(audit) if worst is None else f"Look at this first: {worst.sentence}."
    first, word = audit.suspects(1)[0], audit.word[:-1]
    row = f"row {row_text(first.row)}"
    if audit.observed:
        return f"The most surprising is {row}: its {word} is {first.given!r}, and {first.suggested!r} was expected."
    if not audit.n_suspects:
        if first.p_wrong < _RIGHT:
            return without_suspects(audit)
        return (
            f"If you review rows, begin with {row}: its {word} is {first.given!r}, which is wrong with a probability "
            f"of {percent(first.p_wrong)}."
        )
    if audit.result.task == "labels":
        return f"Look at {row} first: its labels are {first.given!r}; suggested: {suggestion(audit, first)}."
    if audit.result.task == "numbers":
        return f"Look at {row} first: its value is {first.given}, and models expect {first.suggested}."
    fits = "fits better" if first.p_wrong >= LIKELY else "may fit better"
    return f"Look at {row} first: its label is {first.given!r}, and {first.suggested!r} {fits}."


def without_suspects(audit: Audit) -> str:
    """Advice if there are no suspects: that nothing needs review, or to begin with the rows that fit worst."""
    j = audit.result
    if audit.observed or not audit.share_unclear:
        return "There is nothing to review."
    first = j.order[0] if audit.n_listed else np.argmax(j.losses)
    worst = audit.row_names.name(int(audit.target.rows[int(first)]))
    return (
        f"Up to {share_of(j.noise.high)} of the {audit.word} may be wrong, but the audit cannot identify them. If "
        f"you review rows, begin with those that fit worst; the first is row {row_text(worst)}."
    )


def columns_in_words(audit: Audit, most: int = 5) -> str:
    """How many columns were used, the first that were left out by the reason, and the missing cells of the others."""
    left_out = [column for column in audit.columns if not column.used]
    by_reason: dict[str, list[str]] = {}
    for column in left_out[:most]:
        by_reason.setdefault(column.how.removeprefix("left out: "), []).append(visible(column.name, 40))
    texts = [f"{', '.join(names)} ({visible(reason, 80)})" for reason, names in by_reason.items()]
    more = f" and {len(left_out) - most} more" if len(left_out) > most else ""
    rest = f"; left out: {'; '.join(texts)}{more}" if left_out else ""
    missing = sum(column.missing for column in audit.columns if column.used)
    filled = f" Filled in and marked: {plural(missing, 'missing cell')}." if missing else ""
    return f"{len(audit.columns) - len(left_out)} of {plural(len(audit.columns), 'column')} were used{rest}.{filled}"


def only_linear(task: str, plan: Plan) -> list[str]:
    """A note if linear models alone find the suspects, although the task allows others."""
    linear = plan.models == "linear" and plan.estimator is None and task != "labels"
    return ["Only linear models were used, so rows that trees would predict may be listed."] if linear else []


def ignored_groups(result: TaskResult) -> list[str]:
    """A note for each class of which the model ignores more than half of the rows."""
    return [
        f"The model ignores {100 * g.cut / g.rows:.0f}% of the rows of '{g.name}': they may be rare, not wrong."
        for g in result.groups
        if result.task == "classes" and g.rows and g.cut > 0.5 * g.rows
    ]


def group_notes(groups: list[Group], name: str, result: TaskResult) -> list[str]:
    """A note on the group with the largest loss among those with at least 20 rows; empty if at most one is as large."""
    large = [group for group in groups if group.rows >= FEW]
    if len(large) < 2:
        return []
    worst, total = large[0], sum(group.rows for group in groups)
    mean = sum(group.rows * group.loss for group in groups) / total
    share = f"; about {worst.wrong:.0%} have a wrong target" if result.wrong.any() else ""
    return [
        f"By {visible(name, 60)}, the models fit '{visible(worst.name, 40)}' worst ({worst.rows:,} rows): its "
        f"out-of-fold {result.loss_name} is {number(worst.loss, 3)}, and {number(mean, 3)} over all rows. The robust "
        f"model ignores {worst.ignored:.0%} of its rows{share}."
    ]


def _capital(text: Any) -> str:
    return f"{text[:1].upper()}{text[1:]}"
