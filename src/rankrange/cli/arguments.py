"""Types of arguments that several commands take."""

from __future__ import annotations

import argparse
from typing import Any


def seed(text: str) -> int:
    """A seed from the command line: a whole number from 0 to 2^31 - 1."""
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"a seed is a whole number from 0 to 2^31 - 1, got {text!r}; try --seed 1")
    return int(text)


def count(text: str) -> int:
    """A whole number from 0 on, from the command line."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, got {text!r}; try 10")
    return int(text)


def jobs(text: str) -> int:
    """A number of jobs from the command line, at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"jobs are a whole number from 1 on, got {text!r}; try --jobs 2")
    return int(text)


def share(text: str) -> float:
    """A probability from the command line, above 0 and up to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value <= 1.0:
        raise argparse.ArgumentTypeError(f"a probability is above 0 and up to 1, got {text!r}; try 0.9")
    return value


def add_file(group: Any, *flags: str, metavar: str, help: str, **more: Any) -> None:
    """An argument that is a path; shells complete it by file names."""
    from pathlib import Path

    action = group.add_argument(*flags, type=Path, metavar=metavar, help=help, **more)
    action.complete = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
