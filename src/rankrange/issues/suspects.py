"""`LabelIssues`, the result of `find_label_issues`: the table of suspects and the posterior of all rows."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..errors import UserError, import_pandas
from ..label_noise import LIKELY
from ..pages.text import visible
from . import label_studio as studio
from .label_studio import Answer, LabelStudioTasks, Question
from .named_rows import NamedRows, lines_of, shown_cell
from .sentences import assumption, headline

CHOICES = ("relabel", "keep", "drop", "unsure")


@dataclass(frozen=True)
class LabelIssues:
    """The result of `find_label_issues`: the suspects, worst first, and the posterior of all rows.

    Indexing by a column name returns that column of the table; `len` is the number of suspects.

    Parameters
    ----------
    table : structured ndarray
        One entry per suspect: "row" (its index label in X, or its position from 0), "given" and "suggested" label,
        "p_wrong", "loss" (out of fold), "distance" (the loss minus the cut lam_hat), "cut" (the share of predictions
        with a loss above the cut), "fdr" (the estimated share of right labels up to this one) and "action": "relabel"
        (likely wrong, and one other label fits), "drop" (likely wrong) or "look" (possibly wrong). The table of a scan
        has no "distance" and no "cut".
    score : ndarray of shape (n,)
        The score by which rows are ranked; a higher score means that the label is more likely wrong.
    p_wrong : ndarray of shape (n,)
        The probability that each label is wrong.
    given, suggested : ndarray of shape (n,)
        The label of each row, and the label that fits best, which may be the same. In the table the suggested label is
        the best other one.
    noise_estimate, noise_interval : float and tuple of float
        The estimated share of wrong labels, and its 95% interval.
    members : tuple
        The ensemble that p_wrong is computed from, as (name, weight, out-of-fold probabilities (n, classes)); empty for
        a scan.
    high_leverage : ndarray of shape (n,), optional
        Whether each row has high leverage. No model is trained on such rows, and they are never relabelled.
    ranked : structured ndarray, optional
        The table of all rows, ranked by score; `top` returns the first of them. For a scan it has the suspects and up
        to 100 further rows.
    classes : ndarray, optional
        The classes of the columns of all predictions, sorted; y may lack some of them. None for a scan.
    index : ndarray of shape (n,), optional
        The names of all rows in the order of `score`, if they are not 0 to n - 1.
    decisions : dict
        Decisions made with `decide`, by the name of the row.
    no_error : float
        The probability that no label is wrong.
    transition : ndarray of shape (classes, classes), optional
        Entry (i, j) is the expected share of the rows of true class i that have the label j.
    contradicted : float, optional
        The share of labels that the out-of-fold predictions contradict: their most probable class is another one.
    dropped_share : float
        The share of rows that the trimmed linear fit of the ensemble drops; 0 without one.
    C : float, optional
        The penalty of the linear fits, as in scikit-learn.
    labels : {"annotated", "observed"}
        How the labels came about, as given. For observed outcomes no label is called wrong: the tables have "row",
        "given", "expected" (the most probable outcome), "probability" (of the given one) and "loss", with the least
        probable outcomes first; suspects are outcomes below 5%. p_wrong and the estimated share are then 0, and rows
        can be neither relabelled nor dropped.
    expected_surprises : float
        For observed outcomes: the number of outcomes below 5% that is expected if the predictions are calibrated.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import find_label_issues
    >>> x = np.linspace(-1.0, 1.0, 100)
    >>> y = (x > 0).astype(int)
    >>> y[5] = 1  # among the zeros
    >>> issues = find_label_issues(x[:, None], y, random_state=0)
    >>> first = issues.top(1)  # one odd label among 100 rows may be chance: it is ranked first, and not flagged
    >>> int(first["row"][0]), int(first["suggested"][0])
    (5, 0)
    """

    table: Array
    score: Array
    p_wrong: Array
    given: Array
    suggested: Array
    noise_estimate: float
    noise_interval: tuple[float, float]
    members: tuple[tuple[str, float, Array], ...] = ()
    high_leverage: Array | None = None
    ranked: Array | None = None
    classes: Array | None = None
    index: Array | None = None
    decisions: dict[Any, tuple[str, Any]] = field(default_factory=dict)
    no_error: float = float("nan")
    transition: Array | None = None
    contradicted: float | None = None
    dropped_share: float = 0.0
    C: float | None = None
    labels: str = "annotated"
    expected_surprises: float = 0.0

    def top(self, n: int = 20) -> Array:
        """The n rows with the highest scores, flagged or not, with the columns of the table."""
        return (self.table if self.ranked is None else self.ranked)[:n].view(NamedRows)

    def decide(self, row: Any, decision: str, label: Any = None) -> None:
        """Record a decision about a row; `decided` applies all decisions.

        Parameters
        ----------
        row : int or label
            The name of the row as in the table: its index label if X is a data frame, otherwise its position from 0.
        decision : {"relabel", "keep", "drop", "unsure"}
            What to do with the row; "unsure" leaves it undecided.
        label : optional
            The new label, for "relabel"; by default the suggested label of the table. It is required for a row of a
            scan that is not in `ranked`.

        Examples
        --------
        >>> from rankrange import find_label_issues
        >>> issues = find_label_issues(y=[0, 0, 1, 1], pred_probs=[[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])
        >>> issues.decide(1, "relabel", 1)
        >>> labels, kept = issues.decided()
        >>> labels.tolist(), kept.all().item()
        ([0, 1, 1, 1], True)
        """
        if decision not in CHOICES:
            raise ValueError(f"a decision is one of {', '.join(CHOICES)}, got {decision!r}; choose one of them")
        self._position(row)  # raises an error for an unknown row
        if self.labels == "observed" and decision in ("relabel", "drop"):
            raise ValueError(
                f"an observed outcome is neither relabelled nor dropped, got {decision!r}; pass labels='annotated' to "
                "find_label_issues if the labels were assigned"
            )
        if label is not None and decision != "relabel":
            raise ValueError(f"a label goes with the decision 'relabel', got label={label!r} with {decision!r}")
        new = None
        if decision == "relabel":
            new = self._suggestion(row) if label is None else label
            if new not in self._labels:
                raise ValueError(
                    f"a label must be one of those in y, got {plain(new)!r} for row {plain(row)!r}; choose one of them"
                )
        self.decisions[row] = (decision, new)

    def decided(self) -> tuple[Array, Array]:
        """The labels (n,) after the decisions, and a mask (n,) of the rows that are kept."""
        labels, kept = np.array(self.given), np.ones(len(self.given), dtype=bool)
        for row, (decision, label) in self.decisions.items():
            if decision == "relabel":
                labels[self._position(row)] = label
            kept[self._position(row)] = decision != "drop"
        return labels, kept

    @property
    def codes(self) -> Array:
        """The given labels as indices (n,) into `classes`."""
        return np.searchsorted(self._labels if self.classes is None else self.classes, self.given)

    @cached_property
    def _labels_fingerprint(self) -> str:
        """A hash of the number of labels and the first 1,000 of them, by which an export is recognised."""
        return studio.fingerprint([len(self.given), [str(plain(label)) for label in np.asarray(self.given)[:1000]]])

    @cached_property
    def _labels(self) -> Array:
        """The classes in y, sorted. For a scan this takes a pass over the data, so they are cached."""
        return np.unique(np.asarray(self.given))

    @property
    def _names(self) -> Array:
        return np.arange(len(self.given)) if self.index is None else self.index

    def _suggestion(self, row: Any) -> Any:
        """The label that the table of all rows (of suspects, if there is none) suggests for a row."""
        table = self.table if self.ranked is None else self.ranked
        found = np.flatnonzero(table["row"] == row)
        if not len(found):
            raise ValueError(
                f"a row that is not among the suspects has no suggested label, got row {plain(row)!r}; pass label=..."
            )
        return table["suggested"][found[0]]

    def _position(self, row: Any) -> int:
        if np.ndim(row) > 0:
            raise TypeError(
                f"a decision is about one row, got {len(row)} of them; call decide once for each, as "
                "for row in rows: issues.decide(row, ...)"
            )
        fits = np.flatnonzero(self._names == row)
        if len(fits) != 1:
            remedy = "call reset_index() before the search" if len(fits) else "take names from the table's 'row'"
            raise ValueError(
                f"a decision needs the name of one row, got {plain(row)!r}, which {len(fits)} rows have; {remedy}"
            )
        return int(fits[0])

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __repr__(self) -> str:
        first = self.top(10) if len(self) < 10 else self.table[:10]
        heads = headline(self), assumption(self.labels)
        return "\n".join([*heads, *lines_of(first), *(["..."] if len(self) > 10 else [])])

    def _repr_html_(self) -> str | None:
        """HTML for notebooks; None without Jinja2, and notebooks then show the text."""
        values = {
            "head": f"{headline(self)}. {assumption(self.labels)}",
            "names": self.table.dtype.names,
            "rows": [[shown_cell(value, None) for value in suspect.tolist()] for suspect in self.table[:10]],
            "more": max(0, len(self) - 10),
        }
        try:
            from ..pages.shell import fragment

            return str(fragment("issues.html", **values))
        except ImportError:
            return None

    def to_pandas(self) -> Any:
        """The table of suspects as a pandas DataFrame."""
        return import_pandas("to_pandas()").DataFrame(self.table)

    def to_label_studio(
        self, data: Any, *, limit: int | None = None, text: str | None = None, image: str | None = None
    ) -> LabelStudioTasks:
        """The suspects as tasks for Label Studio, worst first; without suspects the 20 rows with the highest scores.

        Tasks about observed outcomes suggest no label and ask whether the record is correct; they are not read back.

        Parameters
        ----------
        data : sequence or mapping of sequences
            The contents to show for each row: texts, image paths or URLs, or columns (a data frame or a dict).
        limit : int, optional
            Maximum number of rows; by default all suspects. If it exceeds the number of suspects, the tasks are the
            rows with the highest scores, flagged or not.
        text, image : str, optional
            The column of texts, and the column of images. By default they are recognised by their values.

        Returns
        -------
        LabelStudioTasks
            The tasks and the labelling configuration; `decide_from` reads the export of the project.
        """
        columns = data if hasattr(data, "keys") else {"data": data}
        cells = {str(name): np.asarray(columns[name]) for name in columns.keys()}  # noqa: SIM118 (data frames)
        short = [name for name, values in cells.items() if len(values) != len(self.given)]
        if short:
            raise ValueError(
                f"data must have one entry per row, {len(self.given)}, got {len(cells[short[0]])} in {short[0]!r}"
            )
        most = (len(self) or 20) if limit is None else limit
        rows = self.table[:most] if most <= len(self) else self.top(most)
        questions = []
        for found in rows:
            shown = {name: str(values[self._position(found["row"])]) for name, values in cells.items()}
            if self.labels == "observed":
                score, suggested = round(float(found["probability"]), 4), []
                about = self._about(found["row"], probability=score)
                why = f"Models gave this outcome {score:.1%} and {plain(found['expected'])} the most."
            else:
                p_wrong = round(float(found["p_wrong"]), 4)
                about, score, why = self._about(found["row"], p_wrong=p_wrong), round(1.0 - p_wrong, 4), ""
                suggested = [str(plain(found["suggested"]))]
            questions.append(Question(about, shown, suggested, score, why))
        task = "outcomes" if self.labels == "observed" else "classes"
        return studio.label_studio_tasks(questions, [str(plain(name)) for name in self._labels], task, text, image)

    def decide_from(self, path: str | os.PathLike[str]) -> list[Any]:
        """Record the answers of reviewers in Label Studio; `decided` applies them.

        If several reviewers answered, the most frequent answer decides. A row with a tie, or without an answer, is
        "unsure".

        Parameters
        ----------
        path : path-like
            The export of the Label Studio project, in the format JSON. It must be about these labels.

        Returns
        -------
        list
            The names of the rows on which reviewers disagree.
        """
        rows = {str(plain(name)): plain(name) for name in self._names}
        labels = {str(plain(label)): plain(label) for label in self._labels}
        votes: dict[Any, list[tuple[str, Any]]] = {}
        for answer in studio.read_label_studio(path):
            row = rows.get(answer.about["row"])
            if row is None or not self._about(row).items() <= answer.about.items():
                raise UserError(
                    f"an export must be about these labels, got another row {answer.about['row']} in {path}"
                )
            votes.setdefault(row, [])
            if answer.drop or answer.labels:
                votes[row].append(self._vote(answer, labels))
        results = {row: studio.majority(found) for row, found in votes.items()}
        for row, (most, _) in results.items():
            self.decide(row, *(most or ("unsure", None)))
        return [row for row, (_, differ) in results.items() if differ]

    def _vote(self, answer: Answer, labels: dict[str, Any]) -> tuple[str, Any]:
        if answer.drop:
            return "drop", None
        label = (answer.labels or [""])[0]
        if label not in labels:
            raise UserError(
                f"a label must be one of those in y, got '{visible(label, 60)}' for row {answer.about['row']}"
            )
        return ("keep", None) if label == answer.about["given"] else ("relabel", labels[label])

    def _about(self, row: Any, **probability: float) -> dict[str, Any]:
        """The fields that identify a row in an export."""
        given = str(plain(np.asarray(self.given)[self._position(row)]))
        about = {"row": str(plain(row)), "given": given, "contents": studio.fingerprint([str(plain(row)), given])}
        task = "outcomes" if self.labels == "observed" else "classes"
        return {**about, "table": self._labels_fingerprint, "target": ["label"], "task": task, **probability}

    def to_cleanlab(self) -> Any:
        """All rows as a pandas DataFrame with the columns of cleanlab's `CleanLearning.get_label_issues`.

        They are is_label_issue (p_wrong of at least 0.5), label_quality (1 - score), given_label and predicted_label.
        """
        if self.labels == "observed":
            raise ValueError("cleanlab's columns are about wrong labels, got labels='observed'; use to_pandas()")
        return import_pandas("to_cleanlab()").DataFrame(
            {
                "is_label_issue": np.asarray(self.p_wrong) >= LIKELY,
                "label_quality": 1.0 - np.asarray(self.score),
                "given_label": np.asarray(self.given),
                "predicted_label": np.asarray(self.suggested),
            },
            index=self.index,
        )


def plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python object, because messages should show 71 and not np.int64(71)."""
    return value.item() if isinstance(value, np.generic) else value
