"""The interface of audits that still read columns one by one; `columns.Column.is_prose` is the same."""

from .columns import Column


def is_prose(levels: list[str]) -> bool:
    """Whether distinct texts are prose."""
    return Column("", "text", levels=levels).is_prose
