"""What the command line shows as one sentence instead of a traceback."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can put right: the message states the rule, what was found, and the remedy."""


def missing_package(name: str, purpose: str) -> UserError:
    return UserError(f"{purpose} needs {name}, which is not installed; run: pip install 'rankrange[app]'")
