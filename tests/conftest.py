"""For every test: the same examples and numbers on every run, nothing written into the checkout, and one browser."""

import gc
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

# Hypothesis caches tables below its home folder even without a database of examples.
set_hypothesis_home_dir(os.path.join(tempfile.gettempdir(), "rankrange-hypothesis"))

# A shared machine may be slow at any moment: no deadline, and slow data generation is no error.
_COMMON = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, max_examples=60, **_COMMON)
settings.register_profile("thorough", derandomize=True, max_examples=300, **_COMMON)
settings.register_profile("explore", derandomize=False, max_examples=1000, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# A folder of tests is left out, and the header says so, where a package is missing that all of its files need.
NEEDED = {
    "audit": ("jinja2", "pandas", "pyarrow", "rich", "skops"),
    "tables": ("pandas", "pyarrow"),
    "pytorch": ("torch",),
}
ABSENT = {
    folder: [name for name in names if importlib.util.find_spec(name) is None] for folder, names in NEEDED.items()
}
collect_ignore = [folder for folder, missing in ABSENT.items() if missing]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1200,900 "
    "--force-prefers-reduced-motion"
)


def pytest_report_header():
    return [f"tests/{folder} left out: no {', '.join(ABSENT[folder])}" for folder in collect_ignore]


@pytest.fixture(scope="session")
def _browser():
    """The browser of all modules without flags of their own: Chromium takes seconds to start and to stop."""
    yield from _chromium(())


@pytest.fixture(scope="module")
def browser(request):
    """Chromium with the network off; a module adds flags of its own as BROWSER_FLAGS, the later of two counts."""
    own = getattr(request.module, "BROWSER_FLAGS", ())
    if own:
        yield from _chromium(own)
    else:
        yield request.getfixturevalue("_browser")


def _chromium(flags):
    webdriver = pytest.importorskip("selenium.webdriver")
    if not (CHROMIUM and DRIVER):
        pytest.skip("no Chromium with its driver on this machine: apt-get install chromium chromium-driver")
    profile = tempfile.mkdtemp()
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), *flags, f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(90)
    driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    yield driver
    driver.quit()
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, which `make docs-check` installs."""
    installed = Path(__file__).parents[1] / ".venv" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
    scripts = [path for path in (installed, Path(os.environ.get("RANKRANGE_AXE", "none"))) if path.is_file()]
    if not scripts:
        pytest.skip("axe-core is not there: npm install --prefix .venv/npm axe-core, or name it by RANKRANGE_AXE")
    return scripts[0].read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _same_numbers_on_every_run():
    """First weights of PyTorch models and whatever else asks its global generator."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_collection_modifyitems(items):
    """A test with a number of examples of its own takes as many times more as the profile does."""
    factor = settings.default.max_examples / settings.get_profile("repeatable").max_examples
    for test in {getattr(item, "function", None) for item in items} if factor != 1 else ():
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None and own.max_examples != settings.default.max_examples:
            examples = max(1, round(factor * own.max_examples))
            test._hypothesis_internal_use_settings = settings(own, max_examples=examples)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is imported and collected stays to the end: the garbage collector need not visit these million objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish():
    """What was imported is freed in order when Python ends; extension modules print a warning if it is not."""
    gc.unfreeze()


def pytest_runtest_setup(item):
    """Tests marked `data` skip, visibly, where the paper's data are not at hand."""
    if item.get_closest_marker("data") and not os.path.isdir(os.environ.get("RANKRANGE_DATA", "")):
        pytest.skip("RANKRANGE_DATA does not name a folder with the paper's data")
