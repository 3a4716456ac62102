"""The built site: no link leads nowhere, and a browser without a network finds, shows and reads what it should.

`make docs` builds it, `make docs-check` runs these tests. They skip where the site has not been built.
"""

import os
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[2]
SITE = Path(os.environ.get("RANKRANGE_SITE", ROOT / "docs" / "_build" / "html"))
pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="the site is not built: make docs"),
]
# Search reads its index from files beside the page.
BROWSER_FLAGS = ("--window-size=1280,900", "--allow-file-access-from-files")
TYPICAL = [
    "index.html",
    "start/sklearn.html",
    "how-to/choose_m.html",
    "explanation/alternatives.html",
    "api/command_line.html",
    "gallery/index.html",
    "gallery/plot_wrong_digits.html",
    "api/generated/rankrange.AoRRClassifier.html",
    "benchmarks/index.html",
]


class Reader(HTMLParser):
    """The links, pictures and anchors of one page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors.update(filter(None, (found.get("id"), found.get("name") if tag == "a" else None)))
        self.links += [found[key] for key in ("href", "src") if found.get(key)]


def pages():
    return {path: Reader(path) for path in sorted(SITE.rglob("*.html")) if "_static" not in path.parts}


def test_internal_links_lead_somewhere_and_external_ones_are_few():
    found = pages()
    broken, external = [], set()
    for path, page in found.items():
        for link in page.links:
            if link.startswith(("http:", "https:")):
                external.add(link)
                continue
            if link.startswith(("mailto:", "data:", "javascript:")):
                continue
            target, anchor = urldefrag(link)
            target = target.partition("?")[0]  # a digest that makes browsers forget old copies
            place = (path.parent / unquote(target)).resolve() if target else path
            if not place.exists():
                broken.append(f"{path.relative_to(SITE)}: {link}")
            elif anchor and place in found and unquote(anchor) not in found[place].anchors:
                broken.append(f"{path.relative_to(SITE)}: {link} (no such place on the page)")
    print(f"{len(found)} pages, {len(external)} external links:", *sorted(external), sep="\n  ")
    assert broken == []
    assert len(found) > 80


def test_no_page_asks_the_network_for_a_script_a_style_or_a_picture():
    for path in SITE.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert 'src="http' not in text, path
        assert 'rel="stylesheet" href="http' not in text, path
        assert "Traceback (most recent call last)" not in text or "gallery" not in path.parts, path


def show(browser, page, query=""):
    browser.get((SITE / page).resolve().as_uri() + query)


def wait_for(browser, condition, what):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 60).until(condition, what)


def test_search_finds_label_noise_without_a_server(browser):
    show(browser, "search.html", "?q=label+noise")
    found = wait_for(browser, lambda b: b.find_elements("css selector", "#search-results li a"), "no results")
    assert len(found) > 3


def test_the_page_of_the_classifier_shows_its_parameters_and_leads_to_an_example_and_to_the_source(browser):
    show(browser, "api/generated/rankrange.AoRRClassifier.html")
    text = browser.find_element("css selector", "article").text
    for word in ("Parameters", "aggregate", "certificate_", "predict_proba", "Examples"):
        assert word in text
    links = [a.get_attribute("href") for a in browser.find_elements("css selector", "article a")]
    assert any(link and "/gallery/plot_" in link for link in links)
    assert any(link and "/_modules/" in link for link in links)


@pytest.mark.parametrize("page", TYPICAL)
def test_a_page_fits_a_phone(browser, page):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        show(browser, page)
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= 392
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", TYPICAL)
def test_axe_finds_no_serious_fault(browser, axe, page, theme):
    show(browser, page)
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    browser.execute_script(axe)
    browser.set_script_timeout(120)
    found = browser.execute_async_script("axe.run(document).then((r) => arguments[0](r.violations))")
    serious = [fault for fault in found if fault["impact"] in ("serious", "critical")]
    assert [(fault["id"], node["html"][:150]) for fault in serious for node in fault["nodes"]] == []
