"""The review: decisions are made on the page, carried out on the file, and learnt from by the next audit."""

import csv
import io
import json
import re
import time
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from test_report import open_page

from rankrange import cli
from rankrange.audit import Decision, Decisions, apply_decisions, audit_file, audit_table, read_decisions
from rankrange.audit.decisions import contents_of_row, join_labels
from rankrange.audit.review import Review, _learnt, match
from rankrange.audit.target import RowNames, find_target
from rankrange.errors import UserError
from rankrange.tables.read import open_table

YES, NO = "=yes()", "<b>no</b>"
QUICK = {"models": "linear"}  # how well rows are judged is tested elsewhere
N = 420


def odd_lines(seed=0):
    """Lines of a CSV as no program of ours writes it: some cells quoted for nothing, spaces, both line ends."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, N))
    colour = rng.choice(["red", "green", "blue"], N)
    true = x + 0.5 * z + (colour == "red") > 0.3
    label = np.where(true ^ (rng.random(N) < 0.12), YES, NO)
    lines = ['"x",z,colour,note,label\r\n']
    for i in range(N):
        note = [f'"a ""note"", {i}"', f" spaced {i}", f'"two\nlines {i}"', str(i)][i % 4]
        given = f'"{label[i]}"' if i % 3 else label[i]
        lines.append(f'"{x[i]:.3f}",{z[i]:.4f},{colour[i]},{note},{given}' + ("\r\n" if i % 2 else "\n"))
    return lines


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A folder with the table and the page of its audit."""
    folder = tmp_path_factory.mktemp("review")
    (folder / "table.csv").write_bytes("".join(odd_lines()).encode())
    audit = audit_file(folder / "table.csv", "label", **QUICK)
    (folder / "report.html").write_text(audit.report(), encoding="utf-8")
    return folder, audit


# ---- the whole loop in a browser -------------------------------------------------------------------------------------


def press(browser, keys):
    for key in keys:
        browser.switch_to.active_element.send_keys(key)


def test_thirty_suspects_are_decided_reloaded_downloaded_applied_and_learnt_from(browser, audited, capsys):
    folder, audit = audited
    suspects = audit.suspects(30)
    assert len(suspects) == 30
    choices = "rkdu" * 8
    open_page(browser, folder / "report.html")
    browser.execute_script("localStorage.clear()")
    browser.find_element("id", "start").click()
    press(browser, choices[:16])
    open_page(browser, folder / "report.html")
    assert browser.find_element("id", "decided-says").text.startswith("16 of ")
    browser.find_element("id", "start").click()  # goes on at the first that is not decided
    assert browser.find_element("id", "card-row").text == f"Row {suspects[16].row}"
    press(browser, choices[16:30])
    press(browser, "zu")  # the last one is taken back and decided anew
    assert browser.execute_script("return [window.hacked, document.querySelectorAll('main b').length]") == [None, 0]
    downloads = {"behavior": "allow", "downloadPath": str(folder)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
    browser.find_element("id", "download").click()
    for _ in range(100):
        if (folder / "decisions.csv").exists():
            break
        time.sleep(0.05)
    assert browser.get_log("browser") == []
    made = read_decisions(folder / "decisions.csv").made
    names = {"r": "relabel", "k": "keep", "d": "drop", "u": "unsure"}
    assert [(int(d.row), d.choice) for d in made] == [
        (s.row, names[c]) for s, c in zip(suspects, [*choices[:29], "u"], strict=True)
    ]
    # The file comes back into a browser that has forgotten.
    browser.execute_script("localStorage.clear()")
    open_page(browser, folder / "report.html")
    browser.find_element("id", "load").send_keys(str(folder / "decisions.csv"))
    for _ in range(100):
        if says := browser.find_element("id", "load-says").text:
            break
        time.sleep(0.05)
    assert says == "30 decisions loaded."
    assert browser.find_element("id", "decided-says").text.startswith("30 of ")
    check_applied(folder, {int(d.row): d for d in made}, capsys)


def test_the_button_of_the_action_that_is_proposed_is_marked(browser, audited):
    folder, audit = audited
    open_page(browser, folder / "report.html")
    browser.execute_script("localStorage.clear()")
    open_page(browser, folder / "report.html")
    browser.find_element("id", "start").click()
    actions, of_all = {}, {suspect.action for suspect in audit.suspects()}
    for suspect in audit.suspects():
        if set(actions) == of_all:
            break
        assert browser.find_element("id", "card-row").text == f"Row {suspect.row}"
        marked = browser.find_elements("css selector", "[data-choice].primary")
        actions.setdefault(suspect.action, [button.get_attribute("data-choice") for button in marked])
        press(browser, "u")
    assert len(actions) > 1
    assert actions == {action: [] if action == "look" else [action] for action in actions}


def check_applied(folder, made, capsys):
    table, decisions, fixed = (str(folder / name) for name in ("table.csv", "decisions.csv", "fixed.csv"))
    assert cli.main(["apply", table, decisions, "--out", fixed]) == 0
    lines = odd_lines()
    kept = [row for row in range(1, N + 1) if row not in made or made[row].choice != "drop"]
    expected = [lines[0]]
    for row in kept:
        line = lines[row]
        if row in made and made[row].choice == "relabel":
            body = line.rstrip("\r\n")
            old = YES if YES in body else NO
            ending = f'"{old}"' if body.endswith('"') else old
            line = body.removesuffix(ending) + (NO if old == YES else YES) + line[len(body) :]
        expected.append(line)
    assert (folder / "fixed.csv").read_bytes().decode() == "".join(expected)
    capsys.readouterr()
    assert (
        cli.main(["audit", fixed, "-t", "label", "--decisions", decisions, "--json", "-q", "--models", "linear"]) == 0
    )
    again = json.loads(capsys.readouterr().out)
    settled = {kept.index(row) + 1 for row, d in made.items() if d.choice in ("keep", "relabel")}
    assert not settled & {suspect["row"] for suspect in again["suspects"]}
    right = sum(d.choice == "keep" for d in made.values())
    wrong = sum(d.choice in ("relabel", "drop") for d in made.values())
    said = f"Decided so far: {wrong} wrong, {right} right."
    assert again["review"][0] == said
    assert f"likely wrong: {again['n_likely_wrong']}." in " ".join(again["review"])


def test_the_keys_do_nothing_outside_the_frame_and_not_while_typing(browser, audited):
    folder, _ = audited
    open_page(browser, folder / "report.html")
    browser.execute_script("localStorage.clear()")
    open_page(browser, folder / "report.html")
    browser.find_element("id", "start").click()
    browser.find_element("id", "search").send_keys("rkdu")
    browser.find_element("tag name", "body").send_keys("rkdu")
    assert browser.find_element("id", "decided-says").text.startswith("0 of ")


def test_a_number_is_not_relabelled_by_a_prediction(browser, outlying, tmp_path):
    _, _, audit = outlying
    (tmp_path / "r.html").write_text(audit.report(), encoding="utf-8")
    open_page(browser, tmp_path / "r.html")
    browser.find_element("id", "start").click()
    card, value = browser.find_element("id", "card"), browser.find_element("id", "new-label")
    card.send_keys("r")
    assert browser.find_element("id", "load-says").text.startswith("To relabel a row, enter another value")
    assert browser.find_element("id", "decided-says").text.startswith("0 of ")
    value.send_keys("101.5\n")
    assert browser.find_element("id", "decided-says").text.endswith("1 relabel")
    with pytest.raises(UserError, match="has no suggested label"):
        audit.decide(audit.suspects(1)[0].row, "relabel")


def test_unusual_cells_are_marked_and_the_nearest_rows_stand_beside(browser, audited):
    folder, audit = audited
    open_page(browser, folder / "report.html")
    place = next(i for i, marks in enumerate(audit.evidence.marks[:25]) if marks)
    buttons = browser.find_elements("css selector", "#suspects button[aria-label^='Decide']")
    buttons[place].click()
    heads = [head.text for head in browser.find_elements("css selector", "#card-cells thead th")]
    near = audit.evidence.near[place]
    assert heads == ["column", "this row", *(f"{n.target} (row {n.row + 1})" for n in near)]
    assert {n.target for n in near} == {YES, NO}
    first = browser.find_element("css selector", "#card-cells tbody tr")
    name = first.find_element("tag name", "th").text
    assert audit.evidence.marks[place][name] in first.text
    assert "▲" in first.text


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(browser, axe, audited, scheme):
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    open_page(browser, audited[0] / "report.html")
    browser.find_element("id", "start").click()
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    browser.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})
    found = browser.execute_async_script("axe.run(document).then((r) => arguments[0](r.violations))")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert [fault["id"] for fault in found if fault["impact"] in ("serious", "critical")] == []


# ---- what the page says ----------------------------------------------------------------------------------------------


def test_the_reasons_are_true_of_the_table(audited):
    """Each share that a reason names is counted again in the file."""
    _, audit = audited
    cells = list(csv.DictReader(io.StringIO("".join(odd_lines()), newline="")))
    counted = 0
    for suspect in audit.suspects(40):
        pattern = r"(x|z) (\S+): <?(\d+)% of the ([\d,]+) rows labelled '([^']+)' are as (low|high), "
        pattern += r"half are (above|below) (\S+?)(?:;|$)"
        for name, value, percent, rows, label, size, side, middle in re.findall(pattern, suspect.why):
            group = np.array([float(row[name]) for row in cells if row["label"] == label])
            assert (len(group), label) == (int(rows), suspect.given)
            own = float(cells[suspect.row - 1][name])
            assert float(value) == pytest.approx(own, rel=1e-4)
            tail = (group <= own).mean() if size == "low" else (group >= own).mean()
            assert 100 * tail == pytest.approx(int(percent), abs=1.0)
            assert float(middle) == pytest.approx(np.sort(group)[len(group) // 2], rel=1e-3)
            assert (own < float(middle)) == (size == "low") == (side == "above")
            counted += 1
    assert counted > 20


def test_the_curve_says_how_many_of_the_expected_errors_have_been_seen(audited):
    folder, audit = audited
    page = (folder / "report.html").read_text(encoding="utf-8")
    rows, percent, total = re.search(
        r"After (\d+) rows you have seen (\d+)% of the (\S+) expected errors", page
    ).groups()
    wrong = audit.result.wrong
    assert float(total) == pytest.approx(wrong.sum(), abs=0.51)
    first = [wrong[np.flatnonzero(audit.target.rows == s.row - 1)[0]] for s in audit.suspects(int(rows))]
    assert int(percent) == pytest.approx(100 * sum(first) / wrong.sum(), abs=0.51)


# ---- learning --------------------------------------------------------------------------------------------------------


def test_what_is_kept_lowers_what_is_said_of_the_others(audited):
    folder, audit = audited
    for suspect in audit.suspects(12):
        audit.decide(suspect.row, "keep")
    audit.save_decisions(folder / "kept.csv")
    audit.decided.clear()
    again = audit_file(folder / "table.csv", "label", decisions=folder / "kept.csv", **QUICK)
    assert again.review.shift < -0.5
    kept = {suspect.row for suspect in audit.suspects(12)}
    assert not kept & {suspect.row for suspect in again.suspects()}
    assert again.result.wrong.sum() < audit.result.wrong.sum() - 12


@pytest.mark.parametrize("task", ["classes", "numbers", "labels"])
def test_after_half_of_the_errors_are_corrected_the_others_are_still_found(task):
    """The rows that nobody has looked at are as often wrong as before, whether or not the decisions were applied."""
    import pandas

    rng = np.random.default_rng(0)
    n, X = 240, rng.normal(size=(240, 4))
    columns = {f"x{j}": X[:, j] for j in range(4)}
    wrong = rng.permutation(n)[:20]
    flipped = np.isin(np.arange(n), wrong)
    if task == "classes":
        true = np.where(X[:, 0] + X[:, 1] > 0, "high", "low")
        columns["y"] = np.where(flipped, np.where(true == "low", "high", "low"), true)
        truth, targets = true, "y"
    elif task == "numbers":
        true = X[:, 0] + 0.1 * rng.normal(size=n)
        columns["y"] = true + 3.0 * flipped
        truth, targets = [repr(float(v)) for v in true], "y"
    else:
        true = np.column_stack([X[:, 0] > 0, X[:, 1] > 0, X[:, 2] > 0]).astype(int)
        for j, name in enumerate(("p", "q", "r")):
            columns[name] = true[:, j] ^ (flipped & (j == 0))
        truth = [join_labels([name for name, yes in zip("pqr", row, strict=True) if yes]) for row in true]
        targets = ["p", "q", "r"]
    frame = pandas.DataFrame(columns)
    first = audit_table(frame, targets, **QUICK)
    looked = [suspect.row for suspect in first.suspects() if flipped[suspect.row]][:10]
    for row in looked:
        first.decide(row, "relabel", truth[row])
    found = set(wrong) & {suspect.row for suspect in first.suspects() if suspect.p_wrong >= 0.5}
    applied = apply_decisions(frame, first.decisions)
    for table in (frame, applied) if task == "classes" else (applied,):
        again = audit_table(table, targets, decisions=first.decisions, **QUICK)
        likely = {suspect.row for suspect in again.suspects() if suspect.p_wrong >= 0.5}
        assert len(found) > 12
        assert found - set(looked) <= likely
        assert not set(looked) & likely
        assert again.result.noise.value < first.result.noise.value


# ---- names of rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [None, "texts", "numbers"])
@pytest.mark.parametrize("equal", [False, True])
def test_a_decision_about_a_row_in_memory_is_found_at_that_row(index, equal):
    """Rows in memory are counted from 0, or named by an index; a row that is equal to it may stand beside it."""
    import pandas

    x = np.random.default_rng(0).normal(size=60)
    x[30:33] = x[31] if equal else x[30:33]
    y = np.where(x > 0, "up", "down")
    y[31] = "down" if x[31] > 0 else "up"
    names = {None: np.arange(60), "texts": [f"r{i}" for i in range(60)], "numbers": np.arange(60)[::-1]}[index]
    frame = pandas.DataFrame({"x": x, "y": y}, index=names)
    audit = audit_table(frame, "y", **QUICK)
    audit.decide(names[31], "drop")
    audit.decide(names[40], "keep")
    again = audit_table(frame, "y", decisions=audit.decisions, **QUICK)
    assert {row: made.choice for row, made in again.review.decided.items()} == {31: "drop", 40: "keep"}
    assert 31 not in again.target.rows
    applied = audit_table(apply_decisions(frame, audit.decisions), "y", decisions=audit.decisions, **QUICK)
    assert applied.review.decided[39].choice == "keep"


def test_a_decision_needs_the_name_of_a_row_and_a_choice():
    import pandas

    x = np.random.default_rng(0).normal(size=60)
    frame = pandas.DataFrame({"x": x, "y": np.where(x > 0, "up", "down")}, index=[f"id{i}" for i in range(60)])
    audit = audit_table(frame, "y", **QUICK)
    assert audit.suspects(1)[0].row in frame.index
    with pytest.raises(UserError, match="the name of one row, got 7; rows are named by the index of the data frame"):
        audit.decide(7, "keep")
    with pytest.raises(UserError, match="one of relabel, keep, drop, unsure, got 'erase'"):
        audit.decide("id7", "erase")
    audit.decide("id7", "relabel", "up")
    fixed = apply_decisions(frame, audit.decisions)
    assert fixed.loc["id7", "y"] == "up"
    assert fixed.drop("id7").equals(frame.drop("id7"))


def matched(path, lines, made):
    path.write_text("\n".join(["x,y", *lines]) + "\n")
    source = open_table(path)
    return match(Decisions(["y"], "classes", "r0", made), source, find_target(source.read(), ["y"]), RowNames(first=1))


OTHERS = [*(f"{i},b" for i in range(20)), *(f"{i},a" for i in range(20, 40))]


@pytest.mark.parametrize("times", [2, 3])
def test_no_decision_about_equal_rows_takes_the_place_of_another(times, tmp_path):
    """Of equal rows the first was dropped since; in whatever order decisions come, each is found or counted as lost."""
    contents = contents_of_row(["700", "a"], [1])
    made = [Decision("1", "a", "drop", "", 0.9, contents)]
    made += [Decision(str(row), "a", "keep", "", 0.9, contents) for row in range(2, times + 2)]
    for order in permutations(made):
        review = matched(tmp_path / "t.csv", [*["700,a"] * times, *OTHERS], list(order))
        found = list(review.decided.values())
        assert set(review.decided) <= set(range(times))
        assert len({one.row for one in found}) == len(found)
        assert sum(one.choice == "keep" for one in found) + review.lost == times


def test_of_equal_rows_that_moved_each_has_one_decision(tmp_path):
    """One of three equal rows stands where it was; the others are found by their contents, beside it."""
    contents = contents_of_row(["700", "a"], [1])
    made = [Decision(row, "a", "keep", "", 0.9, contents) for row in ("1", "900", "901")]
    review = matched(tmp_path / "t.csv", ["700,a", *OTHERS[:20], "700,a", *OTHERS[20:], "700,a"], made)
    assert {row: decision.row for row, decision in review.decided.items()} == {0: "1", 21: "900", 42: "901"}
    assert review.lost == 0


@given(st.lists(st.tuples(st.floats(0.01, 0.99), st.booleans()), min_size=1, max_size=30))
@settings(max_examples=50)
def test_decisions_move_the_odds_to_the_mode_of_the_posterior(judged):
    """A normal prior of standard deviation 1 on the shift: at the mode it equals what the decisions say too much."""
    made = [Decision(str(i), "a", "drop" if wrong else "keep", "", p, "") for i, (p, wrong) in enumerate(judged)]
    shift = _learnt(Decisions(["y"], "classes", "r0", made), Review({})).shift
    p, wrong = np.array(judged).T
    excess = (wrong - expit(logit(p) + shift)).sum()
    assert shift == pytest.approx(np.clip(excess, -6.0, 6.0), abs=1e-3)
