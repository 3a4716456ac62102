"""The paper's experiments, through the public API: `rankrange reproduce` runs them (docs/results has the results)."""

from __future__ import annotations

import importlib
from types import ModuleType

# By the names of the command line, in the order of the paper. Modules are imported when they are first used.
EXPERIMENTS = {
    "illustrations": "illustrations",
    "toy": "toy",
    "binary": "binary",
    "iterates": "iterates",
    "m-sweep": "m_sweep",
    "mnist-symmetric": "mnist_symmetric",
    "multilabel": "multilabel",
    "mnist-asymmetric": "mnist_asymmetric",
    "tkml-aorr": "tkml_aorr",
}


def experiment(name: str) -> ModuleType:
    """The module of an experiment, by its name on the command line; see `harness.cells`."""
    if name not in EXPERIMENTS:
        raise ValueError(f"an experiment is one of {', '.join(EXPERIMENTS)}; got {name!r}, choose one of these")
    return importlib.import_module(f".experiments.{EXPERIMENTS[name]}", __name__)
