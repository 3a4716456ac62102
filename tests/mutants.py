"""Plant small faults in the source, one at a time, and report those that the tests do not notice.

    make mutants ARGS="--seed 1 --count 10 [--packages core solvers] [--list]"

A fault is drawn at random by the syntax tree: a comparison, an operator, a constant, a condition, a dropped statement,
or two arguments in the other order. It is planted in a copy of src, and the tests of its package run until the first
failure: the folder of tests that mirrors the package and the other files that import from it, then those that fit
estimators. A test that takes minutes counts as failed, one that also fails without the fault does not. A survivor wants
a test of the property that it breaks, changes nothing, or its line can go.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGES = ("core", "solvers", "crossfit", "label_noise", "inference", "estimators", "shards", "torch")
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}
# Tests of a package in folders or files of another name.
ELSEWHERE = {
    "torch": ["pytorch"],
    "label_noise": ["label_noise", "issues"],
    "tables": ["tables", "audit/test_files.py", "audit/test_table_inputs.py"],
}
# What all estimators run through: every file that fits one may notice a fault in it.
BELOW = ("core", "solvers", "crossfit", "label_noise", "inference", "estimators")
ESTIMATORS = re.compile(r"from rankrange import [^#]*(AoRR|TKML|PartialAUC|RankedRange|find_label_issues|regression)")
# Code of pages, and what is outside of the package.
NEVER = ("tests/docs", "tests/reproduction")
UNCOPIED = (".git", ".venv*", ".*_cache", "__pycache__", "_build", "gallery", "dist", "rankrange-results*")
SECONDS = 300  # the longest that one test may take; on a busy machine the slowest takes a tenth of it


class Mutant(NamedTuple):
    """Where in a file which text becomes which."""

    path: Path
    source: str
    node: ast.AST
    kind: str
    text: str

    def __str__(self) -> str:
        before = " ".join((ast.get_source_segment(self.source, self.node) or "").split())
        place = f"{'/'.join(self.path.parts[self.path.parts.index('src') :])}:{self.node.lineno}"
        return f"{place} {self.kind}: {before[:100]} -> {' '.join(self.text.split())[:100]}"

    def applied(self) -> str:
        """The source with the fault; ast counts columns in bytes."""
        lines = self.source.encode().splitlines(keepends=True)
        first, last = self.node.lineno - 1, self.node.end_lineno - 1
        head, tail = lines[first][: self.node.col_offset], lines[last][self.node.end_col_offset :]
        return b"".join([*lines[:first], head + self.text.encode() + tail, *lines[last + 1 :]]).decode()


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All faults that can be planted in a file; annotations, messages of errors, docstrings and strict= have none."""
    source = path.read_text(encoding="utf-8")

    def visit(node: ast.AST) -> Iterator[Mutant]:
        for kind, changed in changes(node):
            yield Mutant(path, source, node, kind, changed if isinstance(changed, str) else f"({ast.unparse(changed)})")
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Raise | ast.JoinedStr):
                continue
            if isinstance(node, ast.keyword) and node.arg == "strict":
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from visit(child)

    yield from visit(ast.parse(source))


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST | str]]:
    """The faults of one node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for kind, table in (("boundary", COMPARISONS), ("comparison", TURNED)):
            if type(node.ops[0]) in table:
                yield kind, replaced(node, ops=[table[type(node.ops[0])]()])
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield "arithmetic", replaced(node, op=OPERATORS[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield "condition", replaced(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "sign" if isinstance(node.op, ast.USub) else "condition", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value = not node.value if isinstance(node.value, bool) else node.value * 2 if node.value > 1 else node.value + 1
        yield "constant", ast.Constant(value)
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield "dropped statement", "pass"
    elif isinstance(node, ast.Call) and len(node.args) > 1 and getattr(node.func, "id", "") != "isinstance":
        yield "swapped arguments", replaced(node, args=[node.args[1], node.args[0], *node.args[2:]])


def replaced(node: ast.AST, **fields: object) -> ast.AST:
    """A copy of the node with other fields."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


@cache
def tests_of(package: str) -> tuple[list[str], list[str]]:
    """The mirrored folders and the other files that import from the package; then those that fit estimators."""
    own = [f"tests/{name}" for name in ELSEWHERE.get(package, [package]) if (ROOT / "tests" / name).exists()]
    files = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    files = {name: text for name, text in files.items() if not name.startswith((*own, *NEVER))}
    imports = re.compile(rf"rankrange\.{package}\b|from rankrange import [^#]*\b{package}\b")
    near = sorted(name for name, text in files.items() if imports.search(text))
    far = sorted(name for name, text in files.items() if package in BELOW and ESTIMATORS.search(text))
    return own + near, [name for name in far if name not in near]


@dataclass
class Bench:
    """Runs tests of a copy of the checkout; what fails without a fault is known once it has failed with one."""

    root: Path
    jobs: str
    broken: set[str] = field(default_factory=set)

    def failures(self, tests: Sequence[str], jobs: str) -> list[str]:
        """The tests that fail before the run stops, at the first failure; if none is named, the first folder."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "-m", "not slow and not site"]
        command += ["-p", "no:cacheprovider", "-n", jobs, "--dist", "worksteal", *tests]
        command += ["-o", f"faulthandler_timeout={SECONDS}", "-o", "faulthandler_exit_on_timeout=true"]
        command += [part for name in sorted(self.broken) for part in ("--deselect", name)]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment = {**os.environ, **threads, "PYTHONPATH": str(self.root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        with tempfile.TemporaryFile("w+") as out:  # no pipe, which a process that a test leaves would keep open
            streams = {"stdout": out, "stderr": subprocess.DEVNULL}
            done = subprocess.run(command, cwd=self.root, env=environment, check=False, **streams)
            out.seek(0)
            named = re.findall(r"^(?:FAILED|ERROR) ([^\s[]+)", out.read(), re.M)  # parameters may hold spaces
        return [] if done.returncode == 0 else named or list(tests[:1])

    def notices(self, mutant: Mutant, tests: Sequence[str]) -> bool:
        """Whether a test fails that passes without the fault."""
        while True:
            mutant.path.write_text(mutant.applied(), encoding="utf-8")
            failed = self.failures(tests, self.jobs)
            mutant.path.write_text(mutant.source, encoding="utf-8")
            if not failed:
                return False
            broken = set(self.failures(failed, "0"))
            if not broken:
                return True
            if broken <= self.broken:
                raise SystemExit(f"these tests cannot be run: {' '.join(sorted(broken))}")
            self.broken |= broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--packages", nargs="+", default=list(PACKAGES))
    parser.add_argument("--near", action="store_true", help="only tests of the package itself")
    parser.add_argument("--jobs", default="auto", help="processes of pytest")
    parser.add_argument("--list", action="store_true", help="only show what is drawn")
    given = parser.parse_args()
    survivors = []
    with tempfile.TemporaryDirectory() as folder:  # what is drawn stays as it is, whatever is edited meanwhile
        root = Path(folder, "checkout")
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*UNCOPIED))
        folders = {name: root / "src" / "rankrange" / name for name in given.packages}
        package_of = {path: name for name, inside in folders.items() for path in inside.rglob("*.py")}
        possible = [mutant for path in sorted(package_of) for mutant in mutants_of(path)]
        drawn = random.Random(given.seed).sample(possible, given.count)
        if given.list:
            print(*drawn, sep="\n")
            return
        bench = Bench(root, given.jobs)
        for mutant in drawn:
            start, noticed = time.monotonic(), False
            for tests in tests_of(package_of[mutant.path])[: 1 if given.near else 2]:
                noticed = noticed or (bool(tests) and bench.notices(mutant, tests))
            survivors += [] if noticed else [mutant]
            seconds = time.monotonic() - start
            print(f"{'noticed ' if noticed else 'SURVIVED'} {seconds:4.0f} s  {mutant}", flush=True)
    print(
        f"\n{len(drawn) - len(survivors)} of {len(drawn)} noticed (seed {given.seed})", *survivors, sep="\n  survived: "
    )


if __name__ == "__main__":
    main()
