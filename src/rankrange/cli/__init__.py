"""The `rankrange` command: `entry` dispatches to the subcommands, each of which is a module.

May import: everything. Only the command that is called is imported.
"""

from .entry import main

__all__ = ["main"]
