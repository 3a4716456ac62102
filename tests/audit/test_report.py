"""The report in a real browser: it loads with the network off, does what it says, and nothing in it executes."""

import dataclasses
import html
import json
import re

import numpy as np
import pytest
from markupsafe import Markup
from test_files import HARM, harmful_csv

from rankrange.audit import audit_file, audit_table
from rankrange.errors import with_flags
from rankrange.pages.shell import asset, embed, page
from rankrange.pages.text import csv_safe, percent, visible


@pytest.fixture(scope="module")
def made(audit, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(audit.report(), encoding="utf-8")
    return path


def test_a_clean_table_has_no_certain_row_and_no_curve_of_expected_errors():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    y = np.where(X[:, 0] > 0, "good", "bad")
    X[:, 0] += np.where(y == "good", 3.0, -3.0)
    audit = audit_table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}, "y", models="linear")
    assert audit.n_suspects == 0
    assert audit.n_listed
    assert audit.result.wrong.sum() < 1.0
    page = audit.report()
    assert "There is nothing to review." in page
    assert "expected errors" not in page
    assert not re.search(r">0%</td>", page.split('id="suspects')[-1])


def open_page(browser, path):
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(path.as_uri())


def column(browser, label):
    return [cell.text for cell in browser.find_elements("css selector", f"#suspects td[data-label='{label}']")]


def choose(browser, selector, value):
    from selenium.webdriver.support.ui import Select

    Select(browser.find_element("css selector", selector)).select_by_value(value)


def test_the_page_loads_from_disk_without_network_console_messages_or_requests(browser, made):
    open_page(browser, made)
    assert browser.title == "Audit of made"
    assert browser.get_log("browser") == []
    asked = [entry["message"] for entry in browser.get_log("performance") if "requestWillBeSent" in entry["message"]]
    addresses = {address for text in asked for address in re.findall(r'"url":"([^"]*)"', text)}
    assert {address for address in addresses if not address.startswith(("file:", "data:"))} == set()
    assert len(made.read_bytes()) < 2_000_000


def test_the_sentences_come_first(browser, made, audit):
    open_page(browser, made)
    shown = [p.text for p in browser.find_elements("css selector", ".lead p")]
    assert shown == [with_flags(sentence) for sentence in audit.sentences()]


def test_pressing_a_header_sorts_and_pressing_again_turns_the_order_round(browser, made, audit):
    open_page(browser, made)
    suspects = audit.suspects()
    assert len(suspects) > 25  # more than one page
    assert column(browser, "row") == [f"{s.row:,}" for s in suspects[:25]]
    for key, label in (("loss", "loss"), ("p", "p(wrong)"), ("row", "row")):
        head = browser.find_element("css selector", f"#suspects th[data-key='{key}']")
        button = head.find_element("css selector", "button")
        button.click()
        first = head.get_attribute("aria-sort")
        values = {"loss": lambda s: s.loss, "p": lambda s: s.p_wrong, "row": lambda s: s.row}[key]
        rows = [s.row for s in sorted(suspects, key=lambda s: (float(f"{values(s):.4g}"), -s.rank))]
        if key == "p":
            assert first == "descending"
        elif key == "loss":
            losses = [float(text.replace(",", "")) for text in column(browser, label)]
            assert losses == sorted(losses, reverse=True)
            assert losses[0] == pytest.approx(max(s.loss for s in suspects), rel=1e-3)
        else:
            assert first == "ascending"
            assert column(browser, label) == [f"{row:,}" for row in rows[:25]]
        button.click()
        assert head.get_attribute("aria-sort") != first
    assert column(browser, "row") == [f"{s.row:,}" for s in sorted(suspects, key=lambda s: -s.row)[:25]]


def test_filters_and_search_leave_just_the_rows_they_name(browser, made, audit):
    open_page(browser, made)
    suspects = audit.suspects()
    actions = [s.action for s in suspects]
    rarest = min(set(actions), key=actions.count)
    choose(browser, "#action", rarest)
    expected = [s for s in suspects if s.action == rarest]
    assert 0 < len(expected) < len(suspects)
    assert column(browser, "row") == [f"{s.row:,}" for s in expected[:25]]
    choose(browser, "#given", "bad")
    expected = [s for s in expected if s.given == "bad"]
    assert column(browser, "row") == [f"{s.row:,}" for s in expected[:25]]
    choose(browser, "#action", "")
    choose(browser, "#given", "")
    box = browser.find_element("id", "search")
    box.send_keys(audit.cells["a"][3])  # a value of the row, which the table itself does not show
    assert column(browser, "row") == [f"{suspects[3].row:,}"]
    assert browser.find_element("id", "shown").text == f"1 of {len(suspects)} rows"
    box.clear()
    box.send_keys("nothing like this")
    assert column(browser, "row") == []
    assert "No row matches" in browser.find_element("id", "suspects").text


def test_paging_shows_every_suspect_once(browser, made, audit):
    open_page(browser, made)
    seen = column(browser, "row")
    while browser.find_element("id", "next").is_enabled():
        browser.find_element("id", "next").click()
        seen += column(browser, "row")
    assert seen == [f"{s.row:,}" for s in audit.suspects()]


def test_the_slider_shows_how_count_and_precision_change_as_the_cut_moves(browser, made, audit):
    from selenium.webdriver.common.keys import Keys

    open_page(browser, made)
    slider, line = browser.find_element("id", "cut"), browser.find_element("id", "cut-line")
    losses, wrong = audit.result.losses, audit.result.wrong
    says = lambda name: browser.find_element("id", f"cut-{name}").text.replace(",", "").rstrip("%")  # noqa: E731
    seen = []
    for keys in ([], [Keys.ARROW_RIGHT] * 12, [Keys.ARROW_LEFT] * 60, [Keys.HOME], [Keys.END]):
        slider.send_keys(*keys) if keys else None
        cut, count = float(says("value")), int(says("count"))
        # four digits of the cut are shown
        assert (losses >= cut * (1 + 1e-3)).sum() <= count <= (losses >= cut * (1 - 1e-3)).sum()
        top = np.argsort(-losses)[:count]
        assert float(says("precision")) == pytest.approx(100 * wrong[top].mean(), abs=0.6)
        assert float(says("found")) == pytest.approx(100 * wrong[top].sum() / wrong.sum(), abs=0.6)
        assert f"{count}" in slider.get_attribute("aria-valuetext").replace(",", "")
        seen.append((count, float(line.get_attribute("x1"))))
    start, right, left, home, end = seen
    assert start[0] == audit.result.m or audit.result.m == 0
    assert right[0] < start[0] < left[0] <= home[0]
    assert right[1] > start[1] > left[1] >= home[1]
    assert end[0] == 1


def test_only_rows_above_the_cut_are_listed_on_demand(browser, made, audit):
    from selenium.webdriver.common.keys import Keys

    open_page(browser, made)
    browser.find_element("id", "above").click()
    browser.find_element("id", "cut").send_keys(*[Keys.ARROW_RIGHT] * 10)
    cut = float(browser.find_element("id", "cut-value").text)
    expected = [s for s in audit.suspects() if s.loss >= cut * (1 - 2e-3)]
    assert 0 < len(expected) < audit.n_suspects
    assert column(browser, "row") == [f"{s.row:,}" for s in expected[:25]]


def test_the_values_of_a_row_unfold_by_keyboard(browser, made, audit):
    from selenium.webdriver.common.keys import Keys

    open_page(browser, made)
    button = browser.find_element("css selector", "#suspects button[aria-expanded]")
    assert button.get_attribute("aria-expanded") == "false"
    button.send_keys(Keys.ENTER)
    assert button.get_attribute("aria-expanded") == "true"
    shown = browser.find_element("css selector", "tr.values").text.split("\n")
    assert shown == [text for name, cells in audit.cells.items() for text in (name, cells[0])]


def test_everything_that_can_be_pressed_is_reached_by_the_tab_key_and_shows_its_focus(browser, made):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    open_page(browser, made)
    reached = []
    for _ in range(45):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        here = browser.switch_to.active_element
        reached.append(here.get_attribute("id") or here.text)
        outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"
    for name in ("start", "load", "search", "action", "given", "sort", "above"):
        assert name in reached
    assert "Skip to the content" in reached


@pytest.mark.parametrize("width", [390, 768, 1200])
def test_no_width_makes_the_page_scroll_sideways(browser, audit, tmp_path, width):
    target = dataclasses.replace(audit.target, names=["a label of many words " * 4, "another one " * 6])
    (tmp_path / "r.html").write_text(dataclasses.replace(audit, target=target).report(), encoding="utf-8")
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        open_page(browser, tmp_path / "r.html")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert float(browser.find_element("id", "loss-chart").size["width"]) > 0.75 * min(width, 900)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_confused_labels_are_not_cut_and_every_column_is_named(browser, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    names = np.array(["compact family car", "sports utility vehicle", "delivery van", "pickup truck"])
    y = np.where(rng.random(200) < 0.15, names[rng.integers(0, 4, 200)], names[X.argmax(axis=1)])
    table = {f"x{j}": X[:, j] for j in range(4)} | {"serial": [f"n{i:x}" for i in range(200)], "y": y}
    (tmp_path / "r.html").write_text(audit_table(table, "y", models="linear").report(), encoding="utf-8")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 1200, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        open_page(browser, tmp_path / "r.html")
        box = "document.querySelector('table.heat').parentElement"
        assert browser.execute_script(f"return {box}.scrollWidth <= {box}.clientWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert "hardly repeat: serial." in browser.find_element("css selector", "#h-pictures ~ .note").text


def test_on_paper_the_controls_are_gone_the_tables_stay_and_what_is_left_out_is_said(browser, made, audit):
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        open_page(browser, made)
        for name in ("controls", "cut"):
            assert not browser.find_element("id", name).is_displayed()
        assert browser.find_element("id", "suspects").is_displayed()
        said = browser.find_element("css selector", ".print-only").text
        assert said.startswith(f"Printed: 25 of {audit.n_listed} rows")
        assert "review, search, filters, slider, values of rows and nearest rows are not printed" in said
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_script_the_findings_and_the_first_suspects_are_there(browser, made, audit):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(browser, made)
        rows = browser.find_elements("css selector", "#suspects tbody tr")
        assert len(rows) == 25
        assert f"{audit.suspects(1)[0].row}" in rows[0].text
        assert not browser.find_element("id", "controls").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_pixels_are_shown_as_images(browser, tmp_path):
    rng = np.random.default_rng(0)
    digits = rng.integers(0, 17, size=(240, 64)).astype(float)
    digits[:, :32] *= (np.arange(240) % 2)[:, None]
    digits[0, :] = 0
    label = np.arange(240) % 2
    flipped = rng.choice(240, 24, replace=False)
    label[flipped] = 1 - label[flipped]
    audit = audit_table({**{f"pixel{j}": digits[:, j] for j in range(64)}, "digit": label}, "digit", pixels=8)
    assert audit.image_side == 8
    (tmp_path / "r.html").write_text(audit.report(), encoding="utf-8")
    open_page(browser, tmp_path / "r.html")
    drawn = browser.execute_script(
        "const c = document.querySelector('canvas.thumb');"
        "return [...c.getContext('2d').getImageData(0, 0, 8, 8).data].filter((_, i) => i % 4 === 0);"
    )
    row = digits[audit.suspects(1)[0].row]
    top = digits[audit.result.order].max()
    np.testing.assert_allclose(drawn, np.floor(row * 255 / top), atol=1)


# ---- security --------------------------------------------------------------------------------------------------------


def test_nothing_of_a_harmful_file_executes(browser, tmp_path):
    path, target = harmful_csv(tmp_path / "t.csv")
    found = audit_file(path, target, models="linear")
    (tmp_path / "r.html").write_text(found.report(), encoding="utf-8")
    open_page(browser, tmp_path / "r.html")
    for button in browser.find_elements("css selector", "#suspects button.small"):
        button.click()
    browser.find_element("css selector", "details summary").click()
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.hacked") is None
    assert browser.find_elements("css selector", "main img, main iframe, main a[href^='javascript']") == []
    text = browser.find_element("tag name", "main").text
    for harm in (HARM[0], HARM[2], "⟨202E⟩evil"):
        assert harm in text  # shown to the letter
    assert "\u202e" not in text


def test_the_policy_stops_a_script_that_got_into_the_page_nonetheless(browser, tmp_path):
    bad = Markup("<script>window.hacked = 1</script><img src='x' onerror='window.hacked = 1'>")
    (tmp_path / "p.html").write_text(page("title", bad, script="window.own = 1"), encoding="utf-8")
    open_page(browser, tmp_path / "p.html")
    assert browser.execute_script("return [window.hacked, window.own]") == [None, 1]


def test_a_body_that_is_not_escaped_is_refused():
    with pytest.raises(TypeError, match="body must be Markup, escaped already, got str"):
        page("title", "<b>text</b>")
    with pytest.raises(ValueError, match="script must not contain"):
        page("title", Markup(""), script="x = '</script>'")


@pytest.mark.parametrize("text", [*HARM, "</script>", "<!--", "\u2028\u2029", "]]>", "&lt;", "\\u003c"])
def test_embedded_data_comes_back_to_the_letter_and_cannot_end_its_block(text):
    import json

    block = str(embed("d", {"text": text}))
    inside = block.removeprefix('<script type="application/json" id="d">').removesuffix("</script>")
    assert not set("<>&\u2028\u2029") & set(inside)
    assert json.loads(inside) == {"text": text}


@pytest.mark.parametrize("text", HARM)
def test_hidden_characters_become_visible_and_formulas_become_text(text):
    assert visible(text).isprintable()
    assert visible("plain text, ünïcödé, 漢字") == "plain text, ünïcödé, 漢字"
    assert csv_safe(text).endswith(text)


@pytest.mark.parametrize("text", ["-1.5", "+3", "1e-3", "-.5", "abc", "a=b", "", "3-4", "+", "-"])
def test_numbers_and_plain_texts_stay_as_they_are(text):
    assert csv_safe(text) == text


def test_rounding_never_makes_a_probability_certain():
    shown = {percent(p) for p in np.linspace(0, 1, 20_001)}
    assert not shown & {"0%", "100%"}
    assert {"<1%", "1%", "99%", ">99%"} <= shown


# ---- the page as such ------------------------------------------------------------------------------------------------


def test_a_page_stays_below_two_megabytes_whatever_the_cells_hold(audit):
    n = len(next(iter(audit.cells.values())))
    big = {f"column {i} " + "n" * 50: ["<&>" * 26] * n for i in range(200)}
    text = dataclasses.replace(audit, cells=big).report()
    assert 500_000 < len(text.encode()) < 2_000_000


def test_a_report_without_rows_has_no_cell_of_a_row(audit):
    """The page of the same audit with rows has them, and says so."""
    whole, short = audit.report(), audit.report(rows=False)
    assert "contains values of the listed rows" in whole
    assert "contains values of the listed rows" not in short
    data = [json.loads(re.search(r'id="audit-data">(.*?)</script>', page, re.S)[1]) for page in (whole, short)]
    assert all("cells" in suspect or "image" in suspect for suspect in data[0]["suspects"])
    for suspect in data[1]["suspects"]:
        assert not {"cells", "near", "marks", "image"} & set(suspect)
        assert suspect["contents"]  # a review still works
    for reason, near in zip(audit.evidence.reasons[:20], audit.evidence.near[:20], strict=False):
        assert not reason or (reason in html.unescape(whole) and reason not in html.unescape(short))
        assert near


def test_losses_of_zero_do_not_stretch_the_axis(audit):
    losses = audit.result.losses.copy()
    low = losses.min()
    losses[:200] = 0.0
    losses[200:300] = 1e-14
    result = dataclasses.replace(audit.result, losses=losses)
    bars = dataclasses.replace(audit, result=result).distribution()
    assert bars["edges"][0] >= 0.9 * low
    assert sum(bars["rows"]) == 500
    assert bars["rows"][0] >= 300


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_marks_have_the_contrast_that_wcag_asks_for(scheme):
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in asset("style.css").split("@media", 2)[:2]
    )
    colours = light if scheme == "light" else dark
    for back in ("paper", "card", "faint"):
        for front in ("ink", "soft", "keep", "cut", "good"):
            assert contrast(colours[front], colours[back]) >= 4.5, (front, back)
        assert contrast(colours["focus"], colours[back]) >= 3.0


def test_a_notebook_shows_findings_and_first_suspects_without_script(audit):
    html = audit._repr_html_()
    assert all(str(Markup.escape(sentence)) in html for sentence in audit.sentences())
    assert html.count("<tr>") == 1 + len(audit.result.measures) + 1 + 10
    assert "<script" not in html
    assert "style=" not in html
