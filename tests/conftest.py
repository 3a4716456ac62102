"""For every test: the same examples and numbers on every run, and nothing written into the checkout."""

import os
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

# Hypothesis caches tables below its home folder even without a database of examples.
set_hypothesis_home_dir(os.path.join(tempfile.gettempdir(), "rankrange-hypothesis"))

# A shared machine may be slow at any moment: no deadline, and slow data generation is no error.
_COMMON = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, max_examples=100, **_COMMON)
settings.register_profile("explore", derandomize=False, max_examples=1000, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def _same_numbers_on_every_run():
    """First weights of PyTorch models and whatever else asks its global generator."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_runtest_setup(item):
    """Tests marked `data` skip, visibly, where the paper's data are not at hand."""
    if item.get_closest_marker("data") and not os.path.isdir(os.environ.get("RANKRANGE_DATA", "")):
        pytest.skip("RANKRANGE_DATA does not name a folder with the paper's data")
