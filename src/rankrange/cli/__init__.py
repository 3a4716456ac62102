"""The `rankrange` command: `entry` dispatches to the subcommands, each of which is a module.

May import: everything. Most imports happen when a subcommand runs, so help is fast.
"""

from .entry import main

__all__ = ["main"]
