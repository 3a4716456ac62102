"""Errors that the command line shows as one sentence instead of a traceback."""

from __future__ import annotations

import re
from typing import Any

# Parameters of Python functions that are also options of the command line.
_OPTIONS = (
    "target|ignore|task|labels|labels_by|delimiter|encoding|clean_how|sheet|dates|decimal|group|time|models|estimator|"
    "pred_probs"
)
# A path such as data/time=2024/x.csv names no option.
_WITH_VALUE = re.compile(rf"(?<![\w/\\.-])({_OPTIONS})='([^']*)'")
_ALONE = re.compile(rf"(?<![\w/\\.-])({_OPTIONS})=(?=[\s;,.)]|$)")


class UserError(Exception):
    """An error that the user can fix: the message states the rule, the value that was found, and the remedy.

    Messages name options as Python arguments, `encoding='latin-1'`. The command line shows them as flags, `--encoding
    latin-1`.
    """

    def for_command_line(self) -> str:
        """The message with options as flags: `encoding='latin-1'` becomes `--encoding latin-1`."""
        return with_flags(str(self))


def with_flags(text: str) -> str:
    """A text with options as flags of the command line: use --clean-how drop for use clean_how='drop'."""
    text = _WITH_VALUE.sub(lambda found: f"{flag(found[1])} {_word(found[2])}", text)
    return _ALONE.sub(lambda found: flag(found[1]), text)


def flag(name: str) -> str:
    """The flag of the command line for a parameter: --labels-by for labels_by."""
    return "--" + name.replace("_", "-")


def _word(value: str) -> str:
    """The value, quoted for a shell if it needs quotes."""
    return value if re.fullmatch(r"[\w.-]+", value) else f"'{value}'"


def import_pandas(purpose: str) -> Any:
    """Import pandas; an ImportError names `purpose`, the feature that needs it."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(str(missing_package("pandas", purpose))) from error
    return pandas


def missing_package(name: str, purpose: str) -> UserError:
    """The error for an optional package that is not installed. `purpose` is the feature that needs the package."""
    return UserError(f"{purpose} needs {name}, which is not installed; run: pip install {name}")
