"""Errors that the command line shows as one sentence instead of a traceback."""

from __future__ import annotations

import re

# Options that the command line has under the names that they have in Python.
_OPTIONS = (
    "target|ignore|task|labels_by|delimiter|encoding|clean_how|sheet|dates|decimal|group|time|models|estimator|"
    "pred_probs"
)


class UserError(Exception):
    """Something the user can put right: the message states the rule, what was found, and the remedy.

    Options are named as Python has them, `encoding='latin-1'`; on the command line it is `--encoding latin-1`.
    """

    def for_command_line(self) -> str:
        """The message with options as flags: `encoding='latin-1'` becomes `--encoding latin-1`.

        Returns
        -------
        str
            The message in the words of the command line.

        Examples
        --------
        >>> UserError("use clean_how='drop'").for_command_line()
        'use --clean-how drop'
        """
        text = re.sub(rf"\b({_OPTIONS})='([^']*)'", lambda found: f"{_flag(found[1])} {_word(found[2])}", str(self))
        return re.sub(rf"\b({_OPTIONS})=", lambda found: _flag(found[1]), text)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _word(value: str) -> str:
    """The value as a shell would have to be given it."""
    return value if re.fullmatch(r"[\w.-]+", value) else f"'{value}'"


def missing_package(name: str, purpose: str) -> UserError:
    """The error for an optional package that is not installed; `purpose` is what needs it."""
    return UserError(f"{purpose} needs {name}, which is not installed; run: pip install 'rankrange[app]'")
