"""Errors that the command line shows as one sentence instead of a traceback."""

from __future__ import annotations

import re

# Parameters of Python functions that are also options of the command line.
_OPTIONS = (
    "target|ignore|task|labels_by|delimiter|encoding|clean_how|sheet|dates|decimal|group|time|models|estimator|"
    "pred_probs"
)


class UserError(Exception):
    """An error that the user can fix: the message states the rule, the value that was found, and the remedy.

    Messages name options as Python arguments, `encoding='latin-1'`. The command line shows them as flags, `--encoding
    latin-1`.
    """

    def for_command_line(self) -> str:
        """The message with options as flags: `encoding='latin-1'` becomes `--encoding latin-1`.

        Returns
        -------
        str
            The message with command line flags.

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
    """The value, quoted for a shell if it needs quotes."""
    return value if re.fullmatch(r"[\w.-]+", value) else f"'{value}'"


def missing_package(name: str, purpose: str) -> UserError:
    """The error for an optional package that is not installed. `purpose` is the feature that needs the package."""
    return UserError(f"{purpose} needs {name}, which is not installed; run: pip install 'rankrange[app]'")
