// One suspect after the other. Decisions live in local storage under the fingerprint of the table; a file brings them
// to `rankrange apply`. As above, whatever comes from the data or from a file is shown through textContent.
(() => {
  const { byId, data, make, probability, whole, drawImage, decisions } = page;
  const section = byId("review-section");
  if (!section) return;
  const CHOICES = ["relabel", "keep", "drop", "unsure"];
  const COLUMNS = ["row", "given", "decision", "new_label", "p_wrong", "contents", "table", "target", "task"];
  const KEY = `rankrange:${data.table}`;
  const byRow = new Map(data.suspects.map((s, i) => [String(s.row), i]));
  const card = byId("card"), label = byId("new-label");
  let here = 0, history = [];
  section.hidden = false;

  // ---- keeping
  const keep = () => {
    try { localStorage.setItem(KEY, JSON.stringify([...decisions.values()])); } catch { /* storage is off: the file remains */ }
    document.dispatchEvent(new CustomEvent("rankrange-decided"));
    const counted = CHOICES.map((c) => [c, [...decisions.values()].filter((d) => d.decision === c).length]);
    byId("decided-says").textContent = `${whole(decisions.size)} of ${whole(data.suspects.length)} decided` + (decisions.size
      ? ": " + counted.filter(([, n]) => n).map(([c, n]) => `${whole(n)} ${c}`).join(", ") : "");
    byId("start").textContent = decisions.size ? "Go on" : "Start";
    for (const id of ["download", "forget"]) byId(id).disabled = !decisions.size;
  };
  const recall = () => {
    try {
      for (const d of JSON.parse(localStorage.getItem(KEY) || "[]")) {
        if (CHOICES.includes(d.decision) && COLUMNS.slice(0, 6).every((name) => typeof d[name] === "string")) decisions.set(d.row, d);
      }
    } catch { /* nothing was kept */ }
  };

  // ---- showing
  const pair = (parent, tag, text) => parent.appendChild(make(tag)).appendChild(make("bdi", text)).parentElement;
  const show = (place) => {
    here = Math.min(Math.max(place, 0), data.suspects.length - 1);
    const s = data.suspects[here], made = decisions.get(String(s.row));
    byId("card-row").textContent = `Row ${typeof s.row === "number" ? whole(s.row) : s.row}`;
    byId("card-rank").textContent = `${whole(here + 1)} of ${whole(data.suspects.length)} listed rows`;
    byId("card-decided").hidden = !made;
    byId("card-decided").textContent = made ? choiceText(made) : "";
    byId("card-given").textContent = s.given;
    byId("card-suggested").textContent = s.suggested;
    byId("card-p").textContent = probability(s.p);
    byId("card-why").textContent = s.why + ".";
    for (const button of card.querySelectorAll("[data-choice]")) button.classList.toggle("primary", button.dataset.choice === s.action);
    showLabel(s, made);
    showImages(s);
    showCells(s);
    card.hidden = false;
  };
  const choiceText = (made) => made.decision + (made.decision === "relabel" ? ` to ${made.new_label}` : "");
  const showLabel = (s, made) => {
    const wanted = made && made.decision === "relabel" ? made.new_label : s.to;
    if (label.tagName === "SELECT") {
      label.replaceChildren();
      for (const name of [s.to, ...data.labels.filter((other) => other !== s.to && other !== s.cell)]) {
        const option = label.appendChild(make("option", name));
        option.value = name;
      }
    }
    label.value = wanted;
  };
  const showImages = (s) => {
    const box = byId("card-images");
    box.hidden = !s.image;
    box.replaceChildren();
    if (!s.image) return;
    for (const one of [{ row: s.row, target: s.given, image: s.image, own: true }, ...(s.near || [])]) {
      const figure = box.appendChild(make("figure"));
      figure.append(drawImage({ row: one.row, given: one.target, image: one.image }));
      figure.append(make("figcaption", one.own ? `this row: ${one.target}` : `nearest: ${one.target} (row ${one.row})`));
    }
  };
  const showCells = (s) => {
    const table = byId("card-cells");
    byId("card-scroll").hidden = !s.cells;
    table.replaceChildren();
    if (!s.cells) return;
    const near = s.near || [], head = table.createTHead().insertRow();
    const headings = ["column", "this row", ...near.map((n) => `${n.target} (row ${n.row})`)];
    for (const text of headings) pair(head, "th", text).scope = "col";
    const caption = make("caption", near.length
      ? "Unusual values come first and are marked ▲. The other columns show the nearest rows that are not suspects."
      : "Unusual values come first and are marked ▲.");
    table.prepend(caption);
    const marked = (i) => Object.hasOwn(s.marks || {}, String(i));
    const order = s.cells.map((_, i) => i).sort((a, b) => marked(b) - marked(a) || a - b);
    const body = table.appendChild(make("tbody"));
    for (const i of order) {
      const row = body.insertRow();
      pair(row, "th", data.columns[i]).scope = "row";
      const cell = pair(row, "td", (marked(i) ? "▲ " : "") + (s.cells[i] === "" ? "(missing)" : s.cells[i]));
      if (marked(i)) {
        cell.className = "odd";
        cell.append(make("span", s.marks[i], "note"));
      }
      for (const n of near) pair(row, "td", n.cells[i] === "" ? "(missing)" : n.cells[i]);
    }
  };

  // ---- deciding
  const decide = (choice) => {
    const s = data.suspects[here], row = String(s.row);
    if (choice === "relabel" && (label.value.trim() === "" || label.value === s.cell)) {
      byId("load-says").textContent = `To relabel a row, enter another ${data.task === "numbers" ? "value" : "label"} than the one it has.`;
      label.focus();
      return;
    }
    history.push([row, decisions.get(row), here]);
    decisions.set(row, {
      row, given: s.cell, decision: choice, new_label: choice === "relabel" ? label.value : "",
      p_wrong: s.p.toFixed(4), contents: s.contents,
    });
    byId("load-says").textContent = "";
    keep();
    const open = data.suspects.findIndex((other, i) => i > here && !decisions.has(String(other.row)));
    show(open < 0 ? here : open);
    card.focus();
  };
  const undo = () => {
    const last = history.pop();
    if (!last) return;
    if (last[1]) decisions.set(last[0], last[1]);
    else decisions.delete(last[0]);
    keep();
    show(last[2]);
    card.focus();
  };
  const keys = { r: "relabel", k: "keep", d: "drop", u: "unsure" };
  card.addEventListener("keydown", (event) => {
    const typing = event.target === label;
    if (event.ctrlKey || event.metaKey || event.altKey || typing && event.key !== "Enter") return;
    const key = event.key.toLowerCase();
    if (typing) decide("relabel");
    else if (Object.hasOwn(keys, key)) decide(keys[key]);
    else if (key === "arrowright" || key === "n") show(here + 1);
    else if (key === "arrowleft" || key === "p") show(here - 1);
    else if (key === "z") undo();
    else return;
    event.preventDefault();
  });
  for (const button of card.querySelectorAll("[data-choice]")) button.addEventListener("click", () => decide(button.dataset.choice));
  for (const button of card.querySelectorAll("[data-step]")) button.addEventListener("click", () => show(here + Number(button.dataset.step)));
  byId("undo").addEventListener("click", undo);
  byId("start").addEventListener("click", () => {
    const open = data.suspects.findIndex((s) => !decisions.has(String(s.row)));
    show(open < 0 ? 0 : open);
    card.focus();
    card.scrollIntoView({ block: "nearest" });
  });
  document.addEventListener("rankrange-review", (event) => {
    show(byRow.get(String(event.detail)));
    card.focus();
    card.scrollIntoView({ block: "start" });
  });

  // ---- files
  // As in pages/text.py: what a spreadsheet program would take for a formula gets a leading quote.
  const FORMULA = /^[\t\r\n]|^[\s\x00-\x20\ufeff]*[=+@|%\-\uff1d\uff0b\uff0d\uff20]/;
  const NUMBER = /^([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-])$/;
  const safe = (text) => {
    const formula = text.replace(/^'+/, "");
    return FORMULA.test(formula) && !NUMBER.test(formula) ? "'" + text : text;
  };
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const asCsv = () => {
    const rows = [...decisions.values()].map((d) => [...COLUMNS.slice(0, 6).map((name) => d[name]), data.table, data.target, data.task]);
    return [COLUMNS, ...rows].map((row) => row.map((cell) => quoted(safe(cell))).join(",") + "\n").join("");
  };
  byId("download").addEventListener("click", () => {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([asCsv()], { type: "text/csv" }));
    link.download = "decisions.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
  const parsed = (text) => {
    const rows = [[""]], last = () => rows[rows.length - 1];
    let inside = false;
    for (let i = 0; i < text.length; i += 1) {
      const c = text[i], cells = last();
      if (inside) {
        if (c !== '"') cells[cells.length - 1] += c;
        else if (text[i + 1] === '"') { cells[cells.length - 1] += c; i += 1; }
        else inside = false;
      } else if (c === '"' && cells[cells.length - 1] === "") inside = true;
      else if (c === ",") cells.push("");
      else if (c === "\n") rows.push([""]);
      else if (c !== "\r") cells[cells.length - 1] += c;
    }
    return rows.filter((cells) => cells.length > 1);
  };
  const unsafe = (text) => (text[0] === "'" && safe(text.slice(1)) === text ? text.slice(1) : text);
  const load = (text) => {
    const [names, ...rows] = parsed(text.replace(/^\ufeff/, ""));
    if (!names || COLUMNS.some((name) => !names.includes(name))) return "This is not a file of decisions: it lacks some of the columns " + COLUMNS.join(", ") + ".";
    let taken = 0, strange = 0;
    for (const cells of rows) {
      const d = Object.fromEntries(names.map((name, i) => [name, unsafe(cells[i] ?? "")]));
      const place = byRow.get(d.row), known = place !== undefined && data.suspects[place].contents === d.contents;
      if (!CHOICES.includes(d.decision) || !(known || d.table === data.table)) { strange += 1; continue; }
      decisions.set(d.row, Object.fromEntries(COLUMNS.slice(0, 6).map((name) => [name, d[name]])));
      taken += 1;
    }
    keep();
    if (!card.hidden) show(here);
    return `${whole(taken)} decisions loaded` + (strange ? `; ${whole(strange)} are about another table or cannot be read, and are left out.` : ".");
  };
  byId("load").addEventListener("change", async (event) => {
    const file = event.target.files[0];
    if (file) byId("load-says").textContent = load(await file.text());
    event.target.value = "";
  });
  byId("forget").addEventListener("click", () => {
    if (!window.confirm("Forget all decisions about this table in this browser?")) return;
    decisions.clear();
    history = [];
    keep();
    if (!card.hidden) show(here);
  });
  recall();
  keep();
})();
