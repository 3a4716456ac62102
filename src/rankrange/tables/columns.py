"""Names of columns: the one that was meant, several by a pattern, and how a message shows them."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from ..pages.text import visible

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar", " ": "space", ":": "colon"}


def find_columns(names: Sequence[str], wanted: Sequence[str], path: Path, option: str = "target") -> list[str]:
    """The columns of these names; a name with * or ? that is no column itself stands for all that match it.

    Parameters
    ----------
    names : sequence of str
        The columns that there are.
    wanted : sequence of str
        Names, or patterns such as "label:*".
    path : Path
        The file, for the message.
    option : str
        What the message calls the option.

    Returns
    -------
    list of str
        Each column once, in the order in which they were asked for.
    """
    found: dict[str, None] = {}
    for name in wanted:
        if name in names or not set(name) & set("*?["):
            found[find_column(names, name, path, option)] = None
            continue
        matching = [other for other in names if fnmatch.fnmatchcase(other, name)]
        if not matching:
            raise UserError(
                f"{option} must match some column, got {shown(name)}, which none of {path} matches; it has "
                f"{', '.join(shown(n) for n in names[:6])}{' ...' if len(names) > 6 else ''}"
            )
        found.update(dict.fromkeys(matching))
    return list(found)


def find_column(names: Sequence[str], wanted: str, path: Path, option: str = "target") -> str:
    """The column of that name, or an error that suggests the one that was meant.

    Parameters
    ----------
    names : sequence of str
        The columns that there are.
    wanted : str
        The name that was given.
    path : Path
        The file, for the message.
    option : str
        What the message calls the option.

    Returns
    -------
    str
        `wanted` itself.
    """
    if wanted in names:
        return wanted
    near = nearest(wanted, names)
    if near:
        hint = f"did you mean {shown(near)}?"
    elif any(wanted in names[0].split(other) for other in DELIMITERS):
        hint = "the header seems to have another delimiter; name it with delimiter="
    elif all(re.fullmatch(r"\s*[-+]?[\d.]+(e[-+]?\d+)?\s*", name) for name in names):
        hint = "the first line must hold the names of the columns, and here it holds numbers; add a header"
    else:
        hint = f"it has {', '.join(shown(n) for n in names[:6])}{' ...' if len(names) > 6 else ''}"
    raise UserError(f"{option} must name a column, got {shown(wanted)}, which {path} does not have; {hint}")


def nearest(wanted: str, names: Sequence[str]) -> str | None:
    """The name that was probably meant, or None."""
    folded = {name.strip().casefold(): name for name in names}
    near = difflib.get_close_matches(wanted.strip().casefold(), list(folded)[:20_000], n=1, cutoff=0.7)
    return folded[near[0]] if near else None


def shown(name: str) -> str:
    """A name from the data as a message shows it: in quotes, short, nothing hidden."""
    return "'" + visible(name, 60) + "'"
