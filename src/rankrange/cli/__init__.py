"""The `rankrange` command: `entry` dispatches to the subcommands, and each of these has a file.

May import: everything. Only the command that is called is imported.
"""

from .entry import main

__all__ = ["main"]
