"""The `rankrange` command: `entry` finds the subcommand, one file for each says what it takes and does.

May import: everything. Only the command that is called is imported.
"""

from .entry import main

__all__ = ["main"]
