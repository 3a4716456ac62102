"""The `rankrange` command, which dispatches to its subcommands.

Exit codes: 0 success, 2 bad input, a missing package or too little memory, 130 interrupted. Subcommands import the rest
of the package only when they run, so help is fast.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from .. import __version__
from ..errors import UserError, missing_package
from ..pages.text import visible

_COMMANDS = {
    "audit": "rankrange.cli.run_audit",
    "apply": "rankrange.cli.run_apply",
    "demo": "rankrange.cli.run_demo",
}
_PACKAGES = ("jinja2", "markupsafe", "matplotlib", "pandas", "pyarrow", "rich", "skops")
_DESCRIPTION = """\
Learning with the ranked range: find the rows of a table that are wrong, and train models that ignore them.

Start with `rankrange demo`, or with your own table:
  rankrange audit FILE --target COLUMN --report report.html
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with the arguments `argv` (by default those of the process) and return the exit code.

    As usual with argparse, --help, --version and bad options raise SystemExit.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = _parser(words).parse_args(words)
        return int(arguments.run(arguments) or 0)
    except UserError as error:
        return _fail(error.for_command_line())
    except KeyboardInterrupt:
        print("rankrange: interrupted; nothing was left half-written", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        return _fail(str(missing_package(package, "this")))
    except MemoryError:
        return _fail("there is not enough memory for this; audit a sample of the rows, or fewer columns")
    except BrokenPipeError:
        # The reader of our output has closed the pipe: discard the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _fail(message: str) -> int:
    print(f"rankrange: {visible(message)}", file=sys.stderr)
    return 2


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The argument parser; only the subcommand in `words` gets its arguments, or all of them for --print-completion."""
    parser = argparse.ArgumentParser(
        prog="rankrange",
        description=_DESCRIPTION,
        epilog="`rankrange COMMAND --help` lists the options of a command. Exit codes: 0 done, "
        "2 bad input, 130 interrupted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rankrange {__version__}")
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        help='print a completion script for the shell, for example: eval "$(rankrange --print-completion bash)"',
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    every = "--print-completion" in words or any(word.startswith("--print-completion=") for word in words)
    for name, module in _COMMANDS.items():
        wanted = every or name in words
        _add_command(commands, name, module, wanted)
    return parser


def _add_command(commands: Any, name: str, module: str, wanted: bool) -> None:
    facts = vars(importlib.import_module(module))
    parser = commands.add_parser(
        name,
        help=facts["HELP"],
        description=facts["DESCRIPTION"],
        epilog=facts.get("EPILOG"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if wanted:
        facts["add_arguments"](parser)
        parser.set_defaults(run=facts["run"])


class _PrintCompletion(argparse.Action):
    """Print the completion script of a shell and exit; without the package shtab, exit with code 2."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        try:
            import shtab
        except ImportError:
            parser.exit(2, "rankrange: completion needs shtab, which is not installed; run: pip install shtab\n")
        print(shtab.complete(parser, shell=rest[1]))
        parser.exit(0)
