"""`Audit`: the result of an audit, which produces tables, JSON, CSV and the page."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import UserError
from ..issues.label_studio import LabelStudioTasks, label_studio_tasks
from ..issues.suspects import CHOICES
from ..label_noise import LIKELY, POSSIBLE
from ..tables.encode import ColumnReport
from ..tables.write import write_whole
from . import sentences
from .decisions import Decision, Decisions, IdentifiedRows, decisions_about, identify_rows
from .evidence import Evidence
from .exchange import questions_of
from .pictures import cut_curve, loss_bars
from .problems import RowProblem, count_problems
from .review import Review
from .schema import pandera_schema
from .target import RowNames, Target, plain_name
from .task_result import SURPRISING, Group, TaskResult

# An interval of the share of wrong targets that is wider than this is reported as uncertain.
_WIDE = 0.1
# The fields of a listed row. Nothing is wrong with an observed outcome, and nothing is to be done.
RECORDS = {
    "annotated": ("rank", "row", "given", "suggested", "p_wrong", "loss", "action", "why", "residual"),
    "observed": ("rank", "row", "given", "expected", "probability", "loss", "why", "residual"),
}


class Suspect(NamedTuple):
    """A row in the list of suspects: its target may be wrong.

    Attributes
    ----------
    rank : int
        The rank in the list; 1 is the first row to look at.
    row : int or label
        The name of the row: its index label in a data frame, its number in a file (from 1, below the header), or its
        position from 0 in other tables.
    given, suggested : str
        The target of the row, and the one that fits best instead.
    p_wrong, loss : float
        The probability that the target is wrong, and the out-of-fold loss.
    action, why : str
        "relabel", "drop", "look", or "" if the row is only listed because there are few suspects; the reasons in words.
    residual, probability : float or None, float
        The given minus the expected value of a numeric target; the out-of-fold probability that models gave the target
        (for numbers: a residual as large).
    """

    rank: int
    row: Any
    given: str
    suggested: str
    p_wrong: float
    loss: float
    action: str
    why: str
    residual: float | None = None
    probability: float = 1.0


@dataclass(frozen=True)
class Audit:
    """The result of an audit. In a notebook it is displayed as a page.

    Parameters
    ----------
    name, n_rows : str and int
        The name of the table, and its rows, including those without a target.
    target, result : Target and TaskResult
        The values of the target; probabilities, losses, scores of both models and the fitted model.
    columns, pipeline : list of ColumnReport and sklearn.pipeline.Pipeline
        How each column was encoded, and the robust model, which takes a table.
    settings, notes : dict of str and list of str
        The settings of the audit, and further remarks for the reader.
    cells, images, image_side : dict of list of str, list of bytes, int
        The values of the suspects that are shown, by column, or if the columns are pixels their images and the side.
    seconds : float
        Run time.
    row_problems : list of RowProblem
        Problems other than wrong targets, for example outliers, repeated rows, and columns that leak the target.
    labels : {"annotated", "observed"}
        How the target came about, as given.
    by_group : list of Group
        The groups of the column `group`, the largest mean out-of-fold loss first.
    source, row_names : Source and RowNames
        The rows as written in the file or table, and their names.
    review : Review or None
        Earlier decisions, matched to this table.
    evidence : Evidence
        The evidence for each suspect: reasons with values, nearest rows, pictures.
    decided : dict of int to Decision
        Decisions made with `decide`, by the position of the row.

    Examples
    --------
    >>> from rankrange.audit import audit_table
    >>> table = {"x": [i % 7 + i // 20 * 9 for i in range(40)], "kind": ["a"] * 20 + ["b"] * 20}
    >>> table["kind"][3] = "b"  # among the a's
    >>> audit = audit_table(table, "kind")
    >>> print(audit.sentences()[-1])
    Look at row 3 first: its label is 'b', and 'a' may fit better.
    """

    name: str
    n_rows: int
    target: Target
    result: TaskResult
    columns: list[ColumnReport]
    pipeline: Any
    settings: dict[str, str]
    notes: list[str]
    cells: dict[str, list[str]] = field(default_factory=dict)
    images: list[bytes] = field(default_factory=list)
    image_side: int = 0
    seconds: float = 0.0
    row_problems: list[RowProblem] = field(default_factory=list)
    labels: str = "annotated"
    by_group: list[Group] = field(default_factory=list)
    source: Any = None
    row_names: RowNames = field(default_factory=RowNames)
    review: Review | None = None
    evidence: Evidence = field(default_factory=Evidence)
    decided: dict[int, Decision] = field(default_factory=dict)

    # ---- suspects

    @property
    def observed(self) -> bool:
        """Whether the target has observed outcomes, none of which is called wrong."""
        return self.labels == "observed"

    @property
    def words(self) -> sentences.Words:
        """The words of tables and charts, which depend on `labels`; a number is expected, not suggested."""
        words = sentences.WORDS[self.labels]
        return words if self.result.residuals is None else words._replace(suggested="expected")

    @property
    def p_wrong(self) -> Any:
        """The probability that each target is wrong, for the rows `target.rows`; 0 for observed outcomes."""
        return self.result.wrong

    @cached_property
    def identified(self) -> IdentifiedRows:
        """The cells and fingerprints of the listed rows, as written in the file, which is read once for all views."""
        return identify_rows(self.source, self.target.columns, self.n_rows, self.target.rows[self.result.order])

    @property
    def n_suspects(self) -> int:
        """Number of suspects: rows with p_wrong of at least 0.2; for observed outcomes, with a probability below 5%."""
        order = self.result.order
        found = self.result.probability[order] < SURPRISING if self.observed else self.result.wrong[order] >= POSSIBLE
        return int(found.sum())

    @property
    def n_listed(self) -> int:
        """Number of listed rows: the suspects; for classes, at least the first 20 rows of the ranking."""
        return len(self.result.order)

    @property
    def n_likely(self) -> int:
        """Number of rows with p_wrong of at least 0.5."""
        return int((self.result.wrong[self.result.order] >= LIKELY).sum())

    @property
    def share_unclear(self) -> bool:
        """Whether the interval of the share of wrong targets is too wide (over 0.1) for the share to be reliable."""
        return self.result.noise.high - self.result.noise.low > _WIDE

    @property
    def word(self) -> str:
        """The word for targets in sentences: "labels", "values" or "outcomes"."""
        return "outcomes" if self.observed else "values" if self.result.task == "numbers" else "labels"

    def suspects(self, limit: int | None = None) -> list[Suspect]:
        """The listed rows, worst first, at most `limit`: suspects and, if these are few, the next of the ranking."""
        j, found = self.result, []
        reasons = self.evidence.reasons
        for rank, i in enumerate(j.order[:limit].tolist()):
            reason = reasons[rank] if rank < len(reasons) and not self.image_side else ""
            why = f"{j.expected[rank]}. {reason}" if reason else j.expected[rank]
            found.append(
                Suspect(
                    rank + 1,
                    self.row_names.name(int(self.target.rows[i])),
                    self.target.text_of(i),
                    j.suggested[rank],
                    float(j.wrong[i]),
                    float(j.losses[i]),
                    str(j.actions[rank]),
                    why[:1].upper() + why[1:],
                    None if j.residuals is None else float(j.residuals[i]),
                    float(j.probability[i]),
                )
            )
        return found

    def records(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The listed rows as plain values, worst first, with the names that `labels` implies (`RECORDS`)."""
        rows = [{**s._asdict(), "expected": s.suggested, "row": plain_name(s.row)} for s in self.suspects(limit)]
        return [{name: row[name] for name in RECORDS[self.labels]} for row in rows]

    # ---- decisions

    def decide(self, row: Any, decision: str, label: str | None = None) -> None:
        """Record a decision about a row, which replaces an earlier one; `save_decisions` writes all to a file.

        Parameters
        ----------
        row : int or label
            The name of the row, as in `suspects`.
        decision : {"relabel", "keep", "drop", "unsure"}
            What to do with the row; "unsure" leaves it undecided.
        label : str, optional
            The new label, for "relabel"; by default the suggested one. Required for a numeric target, and if the row is
            not in `suspects`. For classes, it must be one of the table.
        """
        target = self.target
        found = [position for position in self.row_names.positions(str(row)) if position < self.n_rows]
        if len(found) != 1:
            many = f"{len(found)} rows have that name: call reset_index() first"
            remedy = many if found else f"rows are named {self.row_names.in_words()}"
            raise UserError(f"a decision needs the name of one row, got {row!r}; {remedy}")
        position = found[0]
        texts = [] if target.task == "numbers" else self.result.suggested  # a prediction is no new value
        suggested = dict(zip(target.rows[self.result.order].tolist(), texts, strict=False))
        new = (suggested.get(position) if label is None else str(label)) if decision == "relabel" else ""
        if decision not in CHOICES:
            raise UserError(f"a decision is one of {', '.join(CHOICES)}, got {decision!r}; choose one of them")
        if new is None:
            raise UserError(f"row {row} has no suggested label, because only suspects have one; pass the new label")
        if target.task == "classes" and new and new not in target.names:
            raise UserError(f"a label is one of {', '.join(target.names[:5])}, got {new!r}; choose one of them")
        p = dict(zip(target.rows.tolist(), self.result.wrong.tolist(), strict=True)).get(position, np.nan)
        self.decided[position] = Decision(str(row), "", decision, new, p)

    @property
    def decisions(self) -> Decisions:
        """The decisions recorded with `decide`, with fingerprints of the rows; `as_csv()` gives the file contents."""
        return decisions_about(self, self.decided)

    def save_decisions(self, path: str | os.PathLike[str]) -> None:
        """Write the decisions to a CSV file for `rankrange apply` and `rankrange audit --decisions`."""
        write_whole({Path(path): self.decisions.as_csv()})

    # ---- effects of the cut

    def cut_curve(self) -> dict[str, list[float]]:
        """Estimated precision and recall if all rows with at least a certain loss, the cut, were flagged.

        For about 200 cuts: the "cut", the "count" of flagged rows, the share of these that is wrong ("precision"), and
        the share of all wrong rows among them ("found").
        """
        return cut_curve(self.result, self.n_likely)

    def distribution(self) -> dict[str, list[float]]:
        """The histogram of the out-of-fold losses on a logarithmic axis: "edges" of bars, "rows" and "wrong" rows.

        The first bar includes all smaller losses, and "wrong" is an expected number.
        """
        return loss_bars(self.result)

    # ---- in words

    def sentences(self) -> list[str]:
        """The result in words: what is assumed and found, other problems, the gain of a robust model, what to do."""
        return sentences.sentences(self)

    def listed_in_words(self) -> str:
        """A description of the list: the suspects, and the next rows of the ranking."""
        return sentences.listed_in_words(self)

    def review_in_words(self) -> list[str]:
        """Sentences about earlier decisions, their effect and the likely wrong rows; empty without decisions."""
        return [] if self.review is None else self.review.in_words(self.n_likely)

    # ---- export

    def to_dict(self, limit: int | None = None) -> dict[str, Any]:
        """The result as plain values, as `--json` prints it, with at most `limit` suspects and other problems."""
        j = self.result
        model = {"m": j.m, "m_of_folds": j.fold_m, "k": j.k, "lambda": _finite(j.lam), "lambda_hat": _finite(j.lam_hat)}
        hidden = ("suspects", "wrong") if self.observed else ()
        if self.observed:
            facts: dict[str, Any] = {
                "n_surprising": self.n_suspects,
                "expected_by_chance": j.expected_surprises,
                "surprising": self.records(limit),
            }
        else:
            facts = {
                "review": self.review_in_words(),
                "noise": {"estimate": j.noise.value, "low": j.noise.low, "high": j.noise.high},
                "contradicted": j.contradicted,
                "n_suspects": self.n_suspects,
                "n_likely_wrong": self.n_likely,
                "suspects": self.records(limit),
            }
        return {
            "file": self.name,
            "rows": self.n_rows,
            "rows_used": len(j.wrong),
            "target": self.target.columns,
            "labels": self.labels,
            "task": j.task,
            "classes": self.target.names,
            "summary": self.sentences(),
            "rows_are_named": self.row_names.in_words(),
            "blind": j.blind,
            "model": {**model, "C": j.C, "loss": j.loss_name, **({"top_k": j.top_k} if j.top_k else {})},
            "scores": [asdict(measure) for measure in j.measures],
            "n_listed": self.n_listed,
            "row_problems": {
                "counts": count_problems(self.row_problems),
                "list": [asdict(problem) for problem in self.row_problems[:limit]],
            },
            **{
                name: [{key: value for key, value in asdict(group).items() if key not in hidden} for group in found]
                for name, found in (("groups", j.groups), ("by_group", self.by_group))
            },
            "columns": [vars(column) for column in self.columns],
            "notes": self.notes,
            "settings": self.settings,
            "seconds": round(self.seconds, 2),
            **facts,
        }

    def to_label_studio(
        self, limit: int | None = None, *, text: str | None = None, image: str | None = None
    ) -> LabelStudioTasks:
        """The suspects as tasks for Label Studio, worst first; `rankrange apply` reads the export of the project.

        Parameters
        ----------
        limit : int or None, default=None
            Maximum number of suspects.
        text, image : str, optional
            The column of texts, and the column of image paths or URLs. By default they are recognised by their values.

        Returns
        -------
        LabelStudioTasks
            The tasks, with the suggested label as a prediction, and the labelling configuration.
        """
        questions = questions_of(self, limit)
        task = "outcomes" if self.observed else self.target.task
        return label_studio_tasks(questions, self.target.names, task, text, image)

    def to_pandera(self) -> Any:
        """A pandera schema that rejects values outside the types, ranges and levels of the cells that are not in doubt.

        A decision about a row counts more than its flags. Needs pandera.
        """
        return pandera_schema(self)

    def report(self, rows: bool = True) -> str:
        """The report as HTML; without `rows` it has no cells of the listed rows and of their nearest rows."""
        from .report import audit_page

        return audit_page(self, rows)

    def _repr_html_(self) -> str:
        from .report import audit_fragment

        return str(audit_fragment(self))

    def __repr__(self) -> str:
        return "\n".join([f"Audit of {self.name}", *self.sentences()])


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
