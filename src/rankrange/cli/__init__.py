"""The `rankrange` command: `entry` finds the subcommand and has what all share, one file for each says what it does.

May import: everything. Only the command that is called is imported.
"""

from .entry import main

__all__ = ["main"]
