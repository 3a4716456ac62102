"""The audit of a table in memory: columns, target, features, one set of out-of-fold predictions, result."""

from __future__ import annotations

import os
import platform
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array
from threadpoolctl import threadpool_limits

from .. import __version__
from ..core.arrays import Array
from ..core.shared_context import SharedContext
from ..core.threads import one_thread
from ..crossfit.folds import Folds, default_repeats, draw_folds
from ..crossfit.models import classifier_named
from ..errors import UserError
from ..issues.out_of_fold import index_of
from ..pages.text import plural, visible
from ..tables.columns import Column, find_column, find_columns, read_columns, shown
from ..tables.encode import TableEncoder, as_table
from ..tables.formats import with_images
from ..tables.read import in_memory
from .classification import study_classification
from .decisions import Decisions
from .evidence import SHOWN, SHOWN_COLUMNS, cells_of, gather, pixels_of
from .findings import Audit
from .multilabel import study_multilabel
from .plan import LABELS, MODELS, Plan, Progress
from .regression import study_regression
from .review import apply_review, reviewed
from .row_problems import find_row_problems
from .sentences import group_notes, ignored_groups, only_linear
from .target import TASKS, RowNames, Target, check_folds, find_target, group_numbers, plain_name, time_periods
from .task_result import Group, TaskResult, groups_of

_STUDIES: dict[str, Callable[..., TaskResult]] = {
    "classes": study_classification,
    "numbers": study_regression,
    "labels": study_multilabel,
}
_FOLDS = 5


def audit_table(
    table: Any,
    target: str | Sequence[str],
    *,
    labels: str = "annotated",
    task: str = "auto",
    labels_by: str | None = None,
    ignore: Sequence[str] = (),
    group: str | None = None,
    time: str | None = None,
    dates: str | None = None,
    decimal: str | None = None,
    models: str = "all",
    estimator: Any = None,
    pred_probs: Any = None,
    embeddings: Any = None,
    images: str | os.PathLike[str] | None = None,
    pixels: int | None = None,
    seed: int = 0,
    jobs: int | None = None,
    name: str = "table",
    source: Any = None,
    row_names: RowNames | None = None,
    decisions: Decisions | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Audit a table: find the rows that are probably wrong, and measure the gain of a model that ignores them.

    An ordinary and a robust (AoRR) linear model with automatic settings are compared out of fold. All results about
    single rows are out of fold too.

    Parameters
    ----------
    table : pyarrow.Table, data frame or dict of columns
        A table; pandas and polars data frames are supported.
    target : str or sequence of str
        The column to predict, or several columns of 0 and 1; ``"label:*"`` stands for all columns that match.
    labels : {"annotated", "observed"}, default="annotated"
        How the target came about. People or programs may assign wrong labels. An observed outcome, such as a purchase
        or a default, is not wrong: rows with unlikely outcomes are then listed as surprising, without any action.
    task : {"auto", "classes", "numbers", "labels"}, default="auto"
        The kind of target; "auto" decides by its values.
    labels_by : str, optional
        The separator of labels within one cell, if a cell holds several.
    ignore : sequence of str, default=()
        Columns that are left out; patterns like that of `target` are allowed.
    group : str, optional
        A column of groups, such as the patient: rows of one group are never in both the training and the test rows. It
        excludes `time`.
    time : str, optional
        A column of dates or numbers, by which the rows are divided into up to five periods. Each period is predicted by
        fits to the earlier ones, and the first by a fit to the second. Only linear models predict classes.
    dates, decimal : {"day-first", "month-first"} and {"point", "comma"}, optional
        The meaning of 03/04/2025 and of 1,234, if a column is ambiguous.
    models : {"all", "linear", "trees"}, default="all"
        The kinds of models that predict the target: "linear" is the fastest, "trees" adds trees, and "all" adds trees
        and nearest neighbours, as far as the kind of target allows them.
    estimator : classifier with predict_proba or str, optional
        For classes: a classifier that finds suspects from the encoded columns, instead of the linear models. A str is
        the name of a scikit-learn classifier, such as "RandomForestClassifier", with default settings.
    pred_probs : array_like of shape (rows, classes) or path of a .npy file, optional
        For classes: out-of-fold probabilities of your own model, in the order of the sorted classes. Suspects are found
        by these alone; it excludes `estimator`.
    embeddings : array_like of shape (rows, features) or path of a .npy file, optional
        Further features, for example a network's embeddings of texts or images.
    images : path, optional
        The folder of the images that a column names.
    pixels : int, optional
        The side of square images, if the columns are their pixels, so that the page shows them.
    seed, jobs : int, optional
        The same seed gives the same result, whatever the number of fits that run in parallel (by default one per core).
    name : str, default="table"
        The name of the table on the page and in messages.
    source, row_names : Source and RowNames, optional
        The file that the table was read from, and names of its rows, by default from 1 below the header. Without both,
        rows are named by the index of a data frame, or numbered from 0.
    decisions : Decisions or path, optional
        Earlier decisions about this table, or about the table from which `rankrange apply` made it: decided rows are no
        longer suspects, and p(wrong) of the others takes the decisions into account.
    progress : callable, optional
        Called with a short text before each stage of the work.

    Returns
    -------
    Audit
        The result.

    Examples
    --------
    >>> from rankrange.audit import audit_table
    >>> table = {"x": [i % 7 + i // 20 * 9 for i in range(40)], "kind": ["a"] * 20 + ["b"] * 20}
    >>> table["kind"][3] = "b"  # among the a's
    >>> audit = audit_table(table, "kind")
    >>> [(suspect.row, suspect.suggested) for suspect in audit.suspects(1)]
    [(3, 'a')]
    """
    start, progress = perf_counter(), progress or (lambda words: None)
    _check_choice("models", models, MODELS)
    _check_choice("labels", labels, LABELS)
    _check_choice("task", task, ("auto", *TASKS))
    if estimator is not None and pred_probs is not None:
        raise UserError("labels are predicted by estimator= or by pred_probs=, got both; leave one of them out")
    names, table = row_names or RowNames(index_of(table), int(source is not None)), as_table(table)
    held, n_rows = source or in_memory(table), table.num_rows
    table = _with_arrays(table, embeddings, images)
    roles = {"ignore": ignore, "group": group, "time": time}
    columns, group, time, rest = column_roles(table.column_names, target, roles, Path(name))
    found = find_target(table, columns, task, labels_by, (dates, decimal))
    found, review = (found, None) if decisions is None else reviewed(found, decisions, held, names)
    table = table if len(found.rows) == table.num_rows else table.take(found.rows)
    progress(f"encoding {plural(len(rest), 'column')}")
    features = read_columns(table.select(rest), dates=dates, decimal=decimal)
    side = _image_side(features, pixels)
    encoder = TableEncoder(dates, decimal)
    X = encoder.fit_transform(features)
    blocks = [read_columns(table.select([c]), dates=dates)[0] if c else None for c in (group, time)]
    folds, groups, by_time = _folds(found, blocks, seed)
    plan = Plan(
        folds,
        groups,
        by_time,
        seed=seed,
        jobs=jobs or os.cpu_count() or 1,
        texts=_prose(features) if found.task == "classes" and estimator is None and pred_probs is None else None,
        observed=labels == "observed",
        **_prediction_settings(found, models, estimator, pred_probs, n_rows, along_time=time is not None),
    )
    result, warned = _run_task(X, found, plan, progress)
    result = result if review is None else apply_review(result, found, review)
    by_groups = [] if blocks[0] is None else _by_group(table.column(str(group)), blocks[0], result)
    progress("checking rows for other problems")
    named = np.array([plain_name(name) for name in names.name(found.rows)])
    problems = find_row_problems(features, found, row_names=named, model=result.model)
    progress("collecting evidence for the page")
    shown = result.order[:SHOWN]
    on_page = table.select([] if side else rest[:SHOWN_COLUMNS])
    notes = [*found.notes, *result.notes, *only_linear(found.task, plan), *ignored_groups(result)]
    notes += [*group_notes(by_groups, str(group), result), *warned]
    return Audit(
        name=name,
        n_rows=n_rows,
        target=found,
        result=result,
        columns=encoder.report_,
        pipeline=Pipeline([("encode", encoder), ("model", result.model)]),
        settings=_settings(found, plan, X, table, ignore, labels),
        notes=notes,
        labels=labels,
        cells=cells_of(on_page, shown),
        images=pixels_of(features, shown, side),
        image_side=side,
        seconds=perf_counter() - start,
        row_problems=problems,
        by_group=by_groups,
        source=held,
        row_names=names,
        review=review,
        evidence=gather(features, on_page, X, found, result, encoder.owner_, seed, side),
    )


def _by_group(cells: Any, column: Column, result: TaskResult) -> list[Group]:
    """The groups of a column, the one with the largest mean loss first; a row with a missing cell is its own group."""
    _, first, codes = np.unique(group_numbers(column), return_index=True, return_inverse=True)
    names = [str(value) for value in cells.take(first).to_pylist()]
    found = groups_of(names, codes, result.dropped, result.wrong, result.losses)
    return sorted(found, key=lambda group: -group.loss)


def _check_choice(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UserError(f"{option} is one of {', '.join(allowed)}, got {value!r}; leave it out for {allowed[0]}")


# ---- fits and their warnings -----------------------------------------------------------------------------------------


@contextmanager
def _recording() -> Iterator[list[Any]]:
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        yield raised


_recorded_warnings = SharedContext(_recording)
_one_openmp_thread = SharedContext(lambda: threadpool_limits(1, user_api="openmp"))


def _run_task(X: Array, found: Target, plan: Plan, progress: Progress) -> tuple[TaskResult, list[str]]:
    # One thread per matrix product: folds are fitted in parallel, and results must not depend on the number of threads.
    with one_thread(), _one_openmp_thread(), _recorded_warnings() as raised:
        before = len(raised)
        result = _STUDIES[found.task](X, found, plan, progress)
        return result, warning_texts(raised[before:])


def warning_texts(raised: Sequence[Any]) -> list[str]:
    """Up to five distinct UserWarnings of the fits, and one sentence for all convergence warnings.

    Left out are those with advice about arguments of estimators, and about labels that all training rows of a fold
    have.
    """
    unproved = [w for w in raised if issubclass(w.category, ConvergenceWarning)]
    others = [str(w.message) for w in raised if issubclass(w.category, UserWarning) and w not in unproved]
    kept = list(dict.fromkeys(text for text in others if not re.search("aggregate=|lower m|present in all", text)))[:5]
    return [*kept, *(["Some fits ended without a certificate of optimality."] if unproved else [])]


# ---- parts of the plan -----------------------------------------------------------------------------------------------


def _folds(found: Target, blocks: Sequence[Column | None], seed: int) -> tuple[Any, ...]:
    """The first arguments of `Plan`: folds by group, by time, or stratified by class; groups; and whether by time."""
    group, clock = blocks
    if group is not None and clock is not None:
        raise UserError("folds are drawn by group or by time, got both; leave one out")
    n, classes = len(found.y), found.task == "classes"
    groups: Array | None
    if clock is not None:
        groups = time_periods(clock, _FOLDS)
        folds = Folds.forward(groups)
    else:
        groups = None if group is None else group_numbers(group, _FOLDS)
        strata = found.y if classes else np.zeros(n, dtype=np.intp)
        if found.task == "labels" and group is None:
            strata = np.minimum(found.y.sum(axis=1), round(float(found.y.sum(axis=1).mean())) + 1)
        repeats = default_repeats(n, len(found.names)) if classes and group is None else 1
        rng = np.random.default_rng([seed, 4])
        folds = draw_folds(n, rng, strata=strata, groups=groups, n_folds=_FOLDS, n_repeats=repeats)
    check_folds(folds, found)
    return folds, groups, clock is not None


def _prose(features: Sequence[Column]) -> list[str] | None:
    """The prose columns of each row as one text; None without such columns."""
    columns = [column.texts() for column in features if column.is_prose]
    return ["\n".join(cells) for cells in zip(*columns, strict=True)] if columns else None


def column_roles(
    names: Sequence[str], target: str | Sequence[str], options: Mapping[str, Any], path: Path
) -> tuple[list[str], str | None, str | None, list[str]]:
    """The target columns, those of groups and times, and the columns for the models: all but these and `ignore`."""
    columns = find_columns(names, [target] if isinstance(target, str) else target, path)
    if not columns:
        present = ", ".join(map(shown, names[:50])) + (" ..." if len(names) > 50 else "")
        raise UserError(f"target= must name the column to predict, got none; {path} has the columns {present}")
    group, time = (
        None if options.get(option) is None else find_column(names, options[option], path, f"{option}=")
        for option in ("group", "time")
    )
    ignored = find_columns(names, options.get("ignore") or [], path, "ignore=")
    for option, taken in (("ignore", ignored), ("group", [group]), ("time", [time])):
        for column in taken:
            if column in columns:
                raise UserError(f"a column cannot be both target and {option}, got {column!r} for both; leave one out")
    rest = [name for name in names if name not in (*columns, *ignored, group, time)]
    if not rest:
        raise UserError(f"a table needs a column besides the target, got only {', '.join(columns)} in {path}; add one")
    return columns, group, time, rest


def _image_side(features: Sequence[Column], pixels: int | None) -> int:
    """The side of the images whose pixels the columns are; 0 without images."""
    if pixels is None:
        return 0
    if len(features) != pixels**2 or any(column.values is None for column in features):
        raise UserError(
            f"pixels={pixels} needs {pixels}^2 columns of numbers besides the target, got {len(features)} columns; "
            "leave the others out with ignore="
        )
    return pixels


def _with_arrays(table: Any, embeddings: Any, images: Any) -> Any:
    """The table with the grey values of images, and with columns of embeddings at its end."""
    import pyarrow

    if images is not None:
        table = with_images(table, Path(images))
    if embeddings is not None:
        E = _array_of(embeddings, "embeddings", table.num_rows)
        for j in range(E.shape[1]):
            table = table.append_column(f"embedding {j + 1}", pyarrow.array(np.ascontiguousarray(E[:, j])))
    return table


def _array_of(values: Any, option: str, n_rows: int) -> Array:
    """Validate an array of finite numbers (rows, columns), given or read from a .npy file, and return it as float64."""
    try:
        loaded = np.load(values, allow_pickle=False) if isinstance(values, str | os.PathLike) else values
        E = check_array(loaded, dtype=np.float64, input_name=option)
    except (OSError, ValueError, TypeError, EOFError) as error:
        first = visible(str(error).partition("\n")[0], 150)
        raise UserError(f"{option} must be finite numbers of shape (rows, columns): {first}") from error
    if len(E) != n_rows:
        raise UserError(f"{option} must have one row for each of the {n_rows:,} rows of the table, got {len(E):,}")
    return np.asarray(E)


def _prediction_settings(
    found: Target, models: str, estimator: Any, pred_probs: Any, n_rows: int, *, along_time: bool
) -> dict[str, Any]:
    if models == "trees" and found.task == "labels":
        raise UserError("models='trees' needs a target of classes or numbers, got labels; leave it out")
    if along_time and found.task == "classes" and (models == "trees" or estimator is not None):
        got = "models='trees'" if estimator is None else "an estimator"
        raise UserError(
            f"with time=, labels are predicted by linear fits on earlier rows, got {got}; leave one of them out"
        )
    if (estimator is not None or pred_probs is not None) and found.task != "classes":
        raise UserError(f"estimator and pred_probs need a target of classes, got {found.task}; leave them out")
    if pred_probs is None:
        return {"models": models, "estimator": classifier_named(estimator) if isinstance(estimator, str) else estimator}
    return {"models": models, "pred_probs": _array_of(pred_probs, "pred_probs", n_rows)[found.rows]}


def _settings(target: Target, plan: Plan, X: Array, table: Any, ignore: Sequence[str], labels: str) -> dict[str, str]:
    return {
        "task": target.task,
        "target": ", ".join(target.columns),
        "labels": labels,
        "ignored columns": ", ".join(dict.fromkeys(ignore)) or "none",
        "rows and columns": f"{table.num_rows:,} x {table.num_columns:,}, {X.shape[1]:,} features after encoding",
        "cross-validation": f"{len(plan.folds.once())} folds",
        "seed": str(plan.seed),
        "rankrange": __version__,
        "Python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "scikit-learn", "pyarrow")},
    }
