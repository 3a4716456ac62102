"use strict";
// Everything that comes from the data goes through textContent: it is shown, never parsed.
const page = (() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("audit-data").textContent);
  const number = (value) => (value && Math.abs(value) < 1e-4 ? value.toExponential(2) : value.toLocaleString("en-US", { maximumSignificantDigits: 4 }));
  const whole = (value) => value.toLocaleString("en-US");
  const rowsOf = (n) => `${whole(n)} row${n === 1 ? "" : "s"}`;
  const percent = (value) => (100 * value).toFixed(value > 0 && value < 0.0995 ? 1 : 0) + "%";
  const probability = (p) => (p > 0.995 ? ">99%" : p < 0.005 ? "<1%" : (100 * p).toFixed(0) + "%"); // never certain
  const make = (tag, text, className) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  };

  const decisions = new Map(); // by row, filled by the review

  // ---- the cut: the slider runs along the axis of the chart, so its left end cuts most rows
  const { curve, axis } = data;
  const onAxis = (cut) => {
    const share = (Math.log10(Math.max(cut, 1e-300)) - axis.log_low) / Math.max(axis.log_high - axis.log_low, 1e-12);
    return Math.min(Math.max(share, 0), 1);
  };
  const places = curve.cut.map((cut) => 1000 * onAxis(cut));
  const nearest = (place) => {
    let best = 0;
    places.forEach((other, i) => { if (Math.abs(other - place) < Math.abs(places[best] - place)) best = i; });
    return best;
  };
  let step = data.start;
  const slider = byId("cut");
  const showCut = () => {
    const cut = curve.cut[step], count = curve.count[step];
    const x = axis.left + (axis.right - axis.left) * onAxis(cut);
    byId("cut-line").setAttribute("x1", x);
    byId("cut-line").setAttribute("x2", x);
    const says = byId("cut-says");
    says.replaceChildren(
      fact("cut-value", number(cut), "the cut"),
      fact("cut-count", whole(count), "rows at or above it (" + percent(count / data.rows) + ")"),
      ...data.facts.map(([key, text]) => fact(`cut-${key}`, percent(curve[key][step]), text)),
    );
    slider.setAttribute("aria-valuetext",
      `cut at ${number(cut)}: ${rowsOf(count)}` + data.facts.map(([key, text]) => `, ${percent(curve[key][step])} ${text}`).join(""));
  };
  const fact = (id, value, text) => {
    const box = make("span", undefined, "fact");
    const strong = make("strong", value);
    strong.id = id;
    box.append(strong, " " + text);
    return box;
  };
  slider.value = String(places[step]);
  byId("slider-box").hidden = byId("cut-legend").hidden = false;
  slider.addEventListener("input", () => {
    step = nearest(Number(slider.value));
    showCut();
    if (table && byId("above").checked) draw(0);
  });

  // ---- the suspects
  const table = byId("suspects");
  const perPage = 25;
  const state = { key: "rank", down: false, page: 0, open: new Set() };
  const texts = data.suspects.map((s) =>
    [s.row, s.given, s.suggested, s.action, s.why, ...(s.cells || [])].join("\n").toLowerCase());
  const heads = table ? [...table.tHead.rows[0].cells] : [];
  const names = Object.fromEntries(heads.map((head) => [head.dataset.key, head.textContent]));
  const numeric = new Set(["rank", "row", "p", "loss"]);

  const chosen = () => {
    const wanted = byId("search").value.trim().toLowerCase();
    const action = byId("action").value, given = byId("given").value;
    const least = byId("above").checked ? curve.cut[step] : -Infinity;
    const kept = data.suspects.filter((s, i) => (!action || s.action === action) && (!given || s.given === given)
      && (!wanted || texts[i].includes(wanted)) && s.loss >= least * (1 - 1e-3));
    const sign = state.down ? -1 : 1, key = state.key;
    const order = (a, b) => numeric.has(key) && typeof a[key] === "number" ? a[key] - b[key]
      : String(a[key]).localeCompare(String(b[key]), "en", { numeric: true });
    return kept.sort((a, b) => sign * order(a, b) || a.rank - b.rank);
  };

  const draw = (page) => {
    const rows = chosen();
    const pages = Math.max(1, Math.ceil(rows.length / perPage));
    state.page = Math.min(Math.max(page, 0), pages - 1);
    const from = state.page * perPage;
    const body = table.tBodies[0];
    body.replaceChildren();
    for (const suspect of rows.slice(from, from + perPage)) body.append(...drawRow(suspect));
    if (!rows.length) {
      const row = make("tr"), cell = make("td", "No row matches these filters.");
      cell.colSpan = heads.length;
      row.append(cell);
      body.append(row);
    }
    const all = data.total > data.suspects.length
      ? `the first ${whole(data.suspects.length)} of ${rowsOf(data.total)}` : rowsOf(data.suspects.length);
    byId("shown").textContent = rows.length === data.suspects.length ? all : `${whole(rows.length)} of ${all}`;
    byId("page-says").textContent = rows.length
      ? `${whole(from + 1)} to ${whole(Math.min(from + perPage, rows.length))} of ${whole(rows.length)}` : "";
    byId("back").disabled = state.page === 0;
    byId("next").disabled = state.page >= pages - 1;
    byId("pager").hidden = pages < 2;
    for (const head of heads) {
      const sorted = head.dataset.key === state.key;
      if (sorted) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
      head.querySelector(".arrow").textContent = sorted ? (state.down ? " ▼" : " ▲") : "";
    }
  };

  const drawAction = (action, suspect) => {
    action.replaceChildren(...(suspect.action ? [make("span", suspect.action, "tag " + (suspect.action === "look" ? "soft" : "cut"))] : []));
    const made = decisions.get(String(suspect.row));
    if (made) action.append(" ", make("span", made.decision, "tag good"));
  };

  const drawRow = (suspect) => {
    const row = make("tr");
    const cell = (key, text, isNumber) => {
      const node = make("td", undefined, isNumber ? "number" : "");
      node.dataset.label = names[key];
      if (isNumber) node.textContent = text;
      else node.append(make("bdi", text));
      row.append(node);
      return node;
    };
    cell("rank", String(suspect.rank), true);
    cell("row", typeof suspect.row === "number" ? whole(suspect.row) : suspect.row, true);
    cell("given", suspect.given);
    cell("suggested", suspect.suggested);
    cell("p", probability(suspect.p), true);
    cell("loss", number(suspect.loss), true);
    if (names.action) drawAction(cell("action", ""), suspect);
    const why = cell("why", suspect.why);
    if (suspect.image) why.prepend(drawImage(suspect));
    const decide = make("button", "Decide", "small no-print");
    decide.type = "button";
    decide.setAttribute("aria-label", `Decide row ${suspect.row}`);
    decide.addEventListener("click", () => document.dispatchEvent(new CustomEvent("rankrange-review", { detail: suspect.row })));
    if (byId("review-section")) why.append(" ", decide);
    if (!suspect.cells) return [row];
    const more = make("tr", undefined, "values");
    more.hidden = !state.open.has(suspect.rank);
    const button = make("button", more.hidden ? "Show values" : "Hide values", "small");
    button.type = "button";
    button.setAttribute("aria-expanded", String(!more.hidden));
    const name = () => button.setAttribute("aria-label", `${button.textContent} of row ${suspect.row}`);
    name();
    button.addEventListener("click", () => {
      more.hidden = !more.hidden;
      button.textContent = more.hidden ? "Show values" : "Hide values";
      name();
      button.setAttribute("aria-expanded", String(!more.hidden));
      if (more.hidden) state.open.delete(suspect.rank);
      else state.open.add(suspect.rank);
    });
    why.append(" ", button);
    const wide = make("td"), list = make("dl", undefined, "cells");
    wide.colSpan = heads.length;
    suspect.cells.forEach((text, i) => {
      const pair = make("div"), term = make("dt"), value = make("dd", undefined, Object.hasOwn(suspect.marks || {}, String(i)) ? "odd" : "");
      term.append(make("bdi", data.columns[i]));
      value.append(make("bdi", text === "" ? "(missing)" : text));
      pair.append(term, value);
      list.append(pair);
    });
    wide.append(list);
    more.append(wide);
    return [row, more];
  };

  const drawImage = (suspect) => {
    const canvas = make("canvas", undefined, "thumb"), side = data.side;
    canvas.width = canvas.height = side;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `image of row ${suspect.row}, labelled ${suspect.given}`);
    const context = canvas.getContext("2d"), pixels = context.createImageData(side, side);
    const bytes = atob(suspect.image);
    for (let i = 0; i < side * side; i += 1) {
      const grey = bytes.charCodeAt(i);
      pixels.data.set([grey, grey, grey, 255], 4 * i);
    }
    context.putImageData(pixels, 0, 0);
    return canvas;
  };

  const fill = (select, values) => {
    for (const value of values) {
      const option = make("option", value);
      option.value = value;
      select.append(option);
    }
  };

  if (table) {
    const actions = [...new Set(data.suspects.map((s) => s.action))].filter(Boolean).sort();
    fill(byId("action"), actions);
    byId("action").parentElement.hidden = actions.length < 1;
    const counted = new Map();
    for (const s of data.suspects) counted.set(s.given, (counted.get(s.given) || 0) + 1);
    const given = [...counted.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    fill(byId("given"), given.slice(0, 200));
    byId("given").parentElement.hidden = given.length > 200 || given.length < 2;
    for (const head of heads) {
      const button = make("button", head.textContent);
      button.type = "button";
      const arrow = make("span", "", "arrow");
      arrow.setAttribute("aria-hidden", "true");
      button.append(arrow);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const key = head.dataset.key;
        // Numbers of interest start with the largest; a second press turns the order round.
        state.down = state.key === key ? !state.down : key === "p" || key === "loss";
        state.key = key;
        if ([...byId("sort").options].some((option) => option.value === key)) byId("sort").value = key;
        draw(0);
      });
    }
    byId("sort").addEventListener("change", (event) => {
      state.key = event.target.value;
      state.down = state.key === "p" || state.key === "loss";
      draw(0);
    });
    byId("search").addEventListener("input", () => draw(0));
    for (const id of ["action", "given", "above"]) byId(id).addEventListener("change", () => draw(0));
    byId("back").addEventListener("click", () => draw(state.page - 1));
    byId("next").addEventListener("click", () => draw(state.page + 1));
    byId("controls").hidden = false;
    draw(0);
  }
  showCut();
  document.addEventListener("rankrange-decided", () => { if (table) draw(state.page); });
  return { byId, data, make, probability, whole, drawImage, decisions };
})();
