"""Warnings of the fits of an audit, collected and put into its notes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from ..core.shared_context import SharedContext


@contextmanager
def _recording() -> Iterator[list[Any]]:
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        yield raised


recorded_warnings = SharedContext(_recording)


def warning_texts(raised: Sequence[Any]) -> list[str]:
    """Up to five distinct UserWarnings of the fits, and one sentence for all convergence warnings.

    Other categories are left out, and so are warnings about classes that lost most of their rows, because the audit has
    a note on these.
    """
    unproved = any(issubclass(w.category, ConvergenceWarning) for w in raised)
    others = [
        w for w in raised if issubclass(w.category, UserWarning) and not issubclass(w.category, ConvergenceWarning)
    ]
    kept = list(dict.fromkeys(str(w.message) for w in others if "stratify=" not in str(w.message)))[:5]
    return [*kept, *(["Some fits ended without a certificate of optimality."] if unproved else [])]
