"""What the command line shows as one sentence instead of a traceback."""

from __future__ import annotations

import re

# Options that the command line has under the names that they have in Python.
_OPTIONS = "target|ignore|task|labels_by|delimiter|encoding|clean_how"


class UserError(Exception):
    """Something the user can put right: the message states the rule, what was found, and the remedy.

    Options are named as Python has them, `encoding='latin-1'`; the command line says `--encoding latin-1`.
    """

    def for_command_line(self) -> str:
        """The message with options as flags."""
        text = re.sub(rf"\b({_OPTIONS})='([^']*)'", lambda found: f"{_flag(found[1])} {_word(found[2])}", str(self))
        return re.sub(rf"\b({_OPTIONS})=", lambda found: _flag(found[1]), text)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _word(value: str) -> str:
    """As a shell would have to be given it."""
    return value if re.fullmatch(r"[\w.-]+", value) else f"'{value}'"


def missing_package(name: str, purpose: str) -> UserError:
    return UserError(f"{purpose} needs {name}, which is not installed; run: pip install 'rankrange[app]'")
