"""The `rankrange` command, which dispatches to its subcommands.

Exit codes: 0 success, 2 bad input, a missing package or too little memory, 130 interrupted. Subcommands import the rest
of the package only when they run, so help is fast.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from .. import __version__
from ..errors import UserError, missing_package
from ..pages.text import visible
from . import run_apply, run_audit, run_demo

_COMMANDS: dict[str, Any] = {"audit": run_audit, "apply": run_apply, "demo": run_demo}
_PACKAGES = ("jinja2", "markupsafe", "matplotlib", "pandas", "pyarrow", "rich", "shtab", "skops")
_TEXTS = ("help", "usage", "description", "epilog")
_DESCRIPTION = """\
Learning with the ranked range: find the rows of a table that are wrong, and train models that ignore them.

Start with `rankrange demo`, or with your own table:
  rankrange audit FILE --target COLUMN --report report.html
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with the arguments `argv` (by default those of the process) and return the exit code.

    As usual with argparse, --help, --version and bad options raise SystemExit.
    """
    try:
        arguments = _parser().parse_args(argv)
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


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="rankrange",
        description=_DESCRIPTION,
        epilog="`rankrange COMMAND --help` lists the options of a command. Exit codes: 0 done, "
        "2 bad input, 130 interrupted.",
        formatter_class=raw,
    )
    parser.add_argument("--version", action="version", version=f"rankrange {__version__}")
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        help='print a completion script for the shell, for example: eval "$(rankrange --print-completion bash)"',
    )
    commands = parser.add_subparsers(title="commands", required=True)
    for name, module in _COMMANDS.items():
        texts: dict[str, Any] = {text: getattr(module, text.upper(), None) for text in _TEXTS}
        command = commands.add_parser(name, formatter_class=raw, **texts)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


class _PrintCompletion(argparse.Action):
    """Print the completion script of a shell and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        import shtab

        print(shtab.complete(parser, shell=rest[1]))
        parser.exit(0)
