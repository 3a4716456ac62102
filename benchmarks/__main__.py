"""Run one benchmark: `python -m benchmarks NAME [--tiny] [--seed S] [options]`; without a name they are listed.

The options of each are shown by `python -m benchmarks NAME --help`. `--record` adds the rows to
benchmarks/results/NAME.csv, or to another file; `--against FILE` compares with the rows of an earlier run; `--table`
measures nothing and shows what is recorded. Times are core seconds, so set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
import warnings
from typing import Any

from . import harness

# Where each benchmark is: a module is imported only when one of its benchmarks is asked for.
MODULES = {
    "linear": ["linear_random", "selection"],
    "automatic_m": ["linear_auto", "linear_auto_time"],
    "defaults": ["defaults"],
    "models": ["any_model", "any_regressor", "boosting_objective"],
    "label_errors": ["label_errors", "label_errors_real", "label_errors_numbers", "label_errors_aqua"],
    "label_noise": ["label_noise", "label_noise_text", "label_noise_seeds", "label_intervals"],
    "label_noise_scan": ["label_noise_scan", "label_noise_million"],
    "audits": ["audit_size", "row_problems"],
    "regression": ["regression_objectives", "regression_coverage", "regression_breakdown", "regression_speed"],
    "classification_intervals": ["classification_intervals"],
    "sparse_models": ["sparse_designs", "sparse_path", "sparse_starts", "sparse_time"],
    "partial_auc": ["partial_auc", "partial_auc_time", "partial_auc_mislabelled"],
    "groups": ["groups"],
    "multilabel": ["tkml_descent", "tkml_losses", "tkml_speed"],
    "scale": ["scale"],
    "linear_gpu": ["linear_gpu", "linear_gpu_random"],
    "torch_gpu": ["torch_gpu"],
    "torch_noise": ["torch_noise"],
    "torch_text": ["torch_text"],
}


def load(name: str) -> harness.Benchmark:
    """The benchmark of this name."""
    module = next((module for module, names in MODULES.items() if name in names), None)
    if module is None:
        raise SystemExit(f"there is no benchmark {name!r}; python -m benchmarks lists them")
    importlib.import_module(f"benchmarks.{module}")
    return harness.BENCHMARKS[name]


def option(parser: argparse.ArgumentParser, parameter: inspect.Parameter) -> None:
    """The option of one parameter: a flag, several values or one, by its default."""
    flag, default = f"--{parameter.name.replace('_', '-')}", parameter.default
    if isinstance(default, bool):
        parser.add_argument(flag, action="store_true")
    elif isinstance(default, tuple):
        parser.add_argument(flag, nargs="+", type=type(default[0]), default=default)
    else:
        annotated = {"int": int, "float": float}.get(str(parameter.annotation).split(" ")[0], str)
        parser.add_argument(flag, type=annotated if default is None else type(default), default=default)


def parsed(name: str, chosen: harness.Benchmark, arguments: list[str]) -> dict[str, Any]:
    """All options; those of a trial first, then those that are given."""
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {name}",
        description=inspect.getdoc(chosen.measure),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tiny", action="store_true", help="a trial that takes seconds")
    parser.add_argument("--record", nargs="?", const=name, help="add the rows to this record (default: of this name)")
    parser.add_argument("--against", help="a record of an earlier run")
    parser.add_argument("--table", action="store_true", help="measure nothing: show what is recorded")
    for parameter in inspect.signature(chosen.measure).parameters.values():
        option(parser, parameter)
    if "--tiny" in arguments:
        parser.set_defaults(**chosen.tiny)
    return vars(parser.parse_args(arguments))


def main(arguments: list[str]) -> None:
    """Measure, print each row, record it if asked to, and print the table."""
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        for module, names in MODULES.items():
            print(f"{module:26} {', '.join(names)}")
        return
    name, *rest = arguments
    chosen = load(name)
    options = parsed(name, chosen, rest)
    own = {key: options.pop(key) for key in ("tiny", "record", "against", "table")}
    warnings.simplefilter("ignore")
    rows = harness.recorded(own["record"] or name).to_dict("records") if own["table"] else []
    for row in () if own["table"] else chosen.measure(**options):
        rows.append(row)
        print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
        if own["record"]:
            harness.append(own["record"], [row])
    if harness.pd is None:
        return
    frame = harness.pd.DataFrame(rows)
    if own["against"]:
        before = harness.recorded(own["against"]).drop_duplicates(list(chosen.keys), keep="last")
        frame = frame.merge(before, on=list(chosen.keys), suffixes=("", "_before"))
    if len(frame):
        print(chosen.table(frame).round(4).to_string())


if __name__ == "__main__":
    main(sys.argv[1:])
