// ---- Tables ----------------------------------------------------------------
// Turns a table of the page into one that is sorted, filtered and shown in parts.
function interactive(id, size, columns, options) {
  const table = $(id), body = table.tBodies[0], step = options.step;
  const search = $(`${id}-q`), status = $(`${id}-n`), more = $(`${id}-more`);
  const state = { key: null, down: false, shown: step };
  const heads = [...table.tHead.rows[0].cells];
  const keys = heads.map((head) => head.dataset.key);
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  heads.forEach((head) => {
    const column = columns[head.dataset.key];
    if (!column || !column.value) return;
    const button = html("button", { type: "button", click: () => sort(head.dataset.key) }, head.textContent);
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
  });

  const found = { render, reset: () => { state.shown = step; render(); }, body, rows: [] };
  function sort(key) {
    const column = columns[key];
    state.down = state.key === key ? !state.down : Boolean(column.down);
    state.key = key;
    heads.forEach((head) => {
      if (head.hasAttribute("aria-sort"))
        head.setAttribute("aria-sort", head.dataset.key !== key ? "none" : state.down ? "descending" : "ascending");
    });
    render();
  }

  function order() {
    const query = search.value.trim().toLocaleLowerCase();
    let rows = [];
    for (let k = 0; k < size; k++) if (options.match(k, query)) rows.push(k);
    if (state.key) {
      const values = new Map(rows.map((k) => [k, columns[state.key].value(k)]));
      const sign = state.down ? -1 : 1;
      rows.sort((a, b) => {
        const x = values.get(a), y = values.get(b);
        if (typeof x === "string") return sign * collator.compare(x, y) || a - b;
        const missing = Number.isNaN(x) - Number.isNaN(y);
        return missing || sign * (x - y) || a - b;
      });
    }
    return rows;
  }

  function render() {
    const rows = order();
    const shown = rows.slice(0, state.shown);
    body.replaceChildren(...shown.map((k) => {
      const row = html("tr", { "data-k": k });
      for (const [place, key] of keys.entries()) {
        const cell = html("td", { class: heads[place].className });
        cell.append(...[columns[key].cell(k)].flat().filter((x) => x != null));
        row.append(cell);
      }
      return row;
    }));
    status.textContent = `${whole(rows.length)} of ${whole(size)} ${options.noun}` +
      (shown.length < rows.length ? `, the first ${whole(shown.length)} shown` : "");
    more.hidden = shown.length >= rows.length;
    more.textContent = `Show ${whole(Math.min(5 * step, rows.length - shown.length))} more`;
    found.rows = rows;
    if (options.rendered) options.rendered(rows);
  }

  // What is printed is longer: nobody can press a button there.
  let before = step;
  window.addEventListener("beforeprint", () => { before = state.shown; state.shown = Math.max(before, options.printed); render(); });
  window.addEventListener("afterprint", () => { state.shown = before; render(); });
  search.addEventListener("input", () => { state.shown = step; render(); });
  more.addEventListener("click", () => { state.shown += 5 * step; render(); });
  return found;
}

const column = (values, cell, down) => ({ value: (k) => (values ? values[k] : NaN), cell, down });
const plusMinus = (values, errors, digits = 2) => (k) => [
  fixed(values[k], digits), errors && Number.isFinite(errors[k]) ? small(` ± ${fixed(errors[k], digits)}`) : null,
];

// ---- Scores ----------------------------------------------------------------
// As the short table prints them: no zero before the point, a true minus.
const { name: measured, digits: scoreDigits, bare } = data.measure || {};
const points = (x, digits = scoreDigits, short = bare) => {
  const text = fixed(x, digits).replace("-", "−");
  return short ? text.replace(/^(−?)0\./, "$1.") : text;
};
const endsOf = (name) => ["lower", "upper"].map((end) => subjects[name === "ability" ? end : `${name}_${end}`]);
const spanOf = (name, k, digits, short) => {
  const [low, high] = endsOf(name);
  return low && Number.isFinite(low[k]) ? `${points(low[k], digits, short)}–${points(high[k], digits, short)}` : "";
};
const span2 = (low, high) => (low === high ? whole(low) : `${whole(low)}–${whole(high)}`);
// Rows are in the order of ranks, so that those tied with one are a run of rows.
const tiedRun = (k) => {
  let low = k, high = k;
  while (low > 0 && tied(low - 1, k)) low--;
  while (high < subjectCount - 1 && tied(high + 1, k)) high++;
  return [low, high];
};
const ranksOf = (k) => { const [low, high] = tiedRun(k); return span2(low + 1, high + 1); };
// The nearest of those that a subject is tied with; a list that is one name longer is not cut.
function tiesOf(k) {
  const [low, high] = tiedRun(k), found = [];
  for (let step = 1; found.length < 3 && step <= high - low; step++)
    for (const j of [k - step, k + step]) if (j >= low && j <= high && found.length < 3) found.push(j);
  const kept = high - low <= 3 ? found : found.slice(0, 2);
  return { names: kept.sort((a, b) => a - b).map((j) => shortNames[j]), left: high - low - kept.length };
}
// Names without the organisation before "/", where they stay different.
const shortNames = (() => {
  const ends = subjects ? subjects.names.map((name) => name.replace(/\/+$/, "").split("/").pop()) : [], met = new Map();
  for (const end of ends) met.set(end, (met.get(end) || 0) + 1);
  return ends.map((end, k) => (end && met.get(end) === 1 ? end : subjects.names[k]));
})();
const tiesText = (k) => {
  const [low, high] = tiedRun(k);
  return shortNames.slice(low, high + 1).filter((_, n) => low + n !== k).join(", ") || "–";
};
let board = null;
function leaderboard() {
  const s = subjects;
  const withInterval = (name) => (k) => [
    fixed(s[name][k], 3),
    s[`${name}_lower`] && Number.isFinite(s[`${name}_lower`][k])
      ? small(` ${range(s[`${name}_lower`][k], s[`${name}_upper`][k])}`) : null,
  ];
  const columns = {
    rank: column(s.rank, ranksOf),
    name: column(s.names, (k) => [bdi(s.names[k]), s.flags[k] ? html("span", { class: "badge" }, s.flags[k]) : null]),
    score: column(s[measured], (k) => points(s[measured][k]), true),
    interval: { cell: (k) => spanOf(measured, k) },
    ranks: column(s.rank, (k) => `${s.rank_lower[k]}–${s.rank_upper[k]}`),
    ties: {
      cell: (k) => {
        const { names, left } = tiesOf(k);
        return names.length ? [...names.flatMap((name, n) => [n ? ", " : "", bdi(name)]), left ? ` and ${whole(left)} more` : ""] : "–";
      },
    },
    ability: column(s.exact, (k) => [fixed(s.exact[k]), small(` ± ${fixed((s.upper[k] - s.lower[k]) / 2)}`)], true),
    accuracy: column(s.accuracy, withInterval("accuracy"), true),
    probability_best: column(s.probability_best, (k) => fixed(s.probability_best[k]), true),
    pick: {
      cell: (k) => html("button", {
        type: "button", class: "button", "aria-pressed": String(versus.includes(k)), "data-pick": k,
        "aria-label": `Compare ${s.names[k]}`, click: () => pick(versus[1], k),
      }, "pick"),
    },
  };
  board = interactive("board", subjectCount, columns, {
    noun: `${data.nouns[0]}s`, step: 30, printed: 100,
    match: (k, query) => !query || s.names[k].toLocaleLowerCase().includes(query),
    rendered: marks,
  });
  const tie = (event) => {
    const row = event.target.closest("tr");
    for (const other of board.body.rows) other.classList.toggle("tied", row != null && tied(+row.dataset.k, +other.dataset.k));
  };
  board.body.addEventListener("pointerover", tie);
  board.body.addEventListener("focusin", tie);
  board.body.addEventListener("pointerleave", () => {
    for (const other of board.body.rows) other.classList.remove("tied");
  });
  const all = $("board-all");
  all.addEventListener("click", () => all.setAttribute("aria-pressed", String($("board").classList.toggle("all"))));
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button));
  board.render();
}

// What a copy has: the columns that are shown, of all rows that pass the filter.
function copied(kind) {
  const s = subjects, all = $("board").classList.contains("all"), level = `${+(100 * data.level).toPrecision(6)} %`;
  const columns = [["rank", ranksOf], [data.nouns[0], (k) => s.names[k]],
    [measured.replace("expected_", ""), (k) => points(s[measured][k]), measured],
    [level, (k) => spanOf(measured, k)],
    ["tied with", tiesText],
    all && measured !== "ability" && data.unit.startsWith("Ab") && ["ability", (k) => points(s.exact[k], 2, false), "ability"],
    all && ["P(best)", (k) => points(s.probability_best[k], 2, true), "probability_best"],
    all && s.accuracy && ["accuracy", (k) => points(s.accuracy[k]), "accuracy"]].filter(Boolean);
  if (kind === "csv") return csv(columns);
  const rows = board.rows.map((k) => columns.map(([, cell]) => cell(k))), head = columns.map(([name]) => name);
  const left = (n) => n < 2 || head[n] === "tied with";
  if (kind === "md") {
    const line = (cells) => `| ${cells.map(markdown).join(" | ")} |`;
    return [line(head), `| ${head.map((_, n) => (left(n) ? "---" : "--:")).join(" | ")} |`, ...rows.map(line)].join("\n") + "\n";
  }
  const line = (cells) => `${cells.map(latex).join(" & ")} \\\\`;
  return [`\\begin{tabular}{${head.map((_, n) => (left(n) ? "l" : "r")).join("")}}`, "\\toprule", line(head), "\\midrule",
    ...rows.map(line), "\\bottomrule", "\\end{tabular}"].join("\n") + "\n";
}
// Numbers with all digits of the page, the ends of intervals in columns of their own.
function csv(columns) {
  const s = subjects, exact = (x) => (Number.isFinite(x) ? String(x) : ""), out = [];
  for (const [name, cell, key] of columns) {
    if (name === "rank") out.push([name, (k) => s.rank[k]], ["rank_lower", (k) => s.rank_lower[k]], ["rank_upper", (k) => s.rank_upper[k]]);
    else if (key) {
      out.push([name === "P(best)" ? "probability_best" : name, (k) => exact(s[key][k])]);
      for (const end of ["lower", "upper"]) {
        const values = key === "ability" ? s[end] : s[`${key}_${end}`];
        if (values) out.push([key === "ability" ? end : `${name}_${end}`, (k) => exact(values[k])]);
      }
    } else if (name === "tied with") out.push(["tied_with", (k) => text(cell(k))]);
    else if (name === data.nouns[0]) out.push([name, (k) => text(cell(k))]);
  }
  // No name is a formula of a spreadsheet, as in the files of irtjax.
  const text = (x) => (/^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(x) && !/^'?[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(x) ? `'${x}` : x);
  const quoted = (x) => (/[",\r\n]/.test(x) ? `"${String(x).replaceAll('"', '""')}"` : String(x));
  return [out.map(([name]) => name), ...board.rows.map((k) => out.map(([, cell]) => quoted(cell(k))))].map((row) => row.join(",")).join("\n") + "\n";
}
const markdown = (text) => String(text).replaceAll("&", "&amp;").replace(/([\\`*_[\]{}|~#!$])/g, "\\$1").replaceAll("<", "&lt;").replaceAll(">", "&gt;")
  .replaceAll("://", "&#58;//").replaceAll("@", "&#64;").replace(/\bwww\./gi, "www&#46;");
const LATEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "–": "--", "−": "$-$", "…": "\\ldots{}" };
const latex = (text) => String(text).replace(/[\\~^–−…]|[&%$#_{}]/g, (x) => LATEX[x] || `\\${x}`);
async function copy(button) {
  const text = copied(button.dataset.copy);
  let done = true;
  try { await navigator.clipboard.writeText(text); } catch {
    // An older way, where a page in a file may not write to the clipboard.
    const area = html("textarea", { class: "skip", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    button.focus();
  }
  $("board-n").textContent = done ? `Copied ${whole(board.rows.length)} rows` : "The browser refused to copy";
}
const tied = (i, j) =>
  Math.max(subjects.first_group[i], subjects.first_group[j]) <= Math.min(subjects.last_group[i], subjects.last_group[j]);
function marks() {
  if (!board) return;
  for (const row of board.body.rows) {
    const on = versus.includes(+row.dataset.k);
    row.classList.toggle("picked", on);
    row.querySelector("[data-pick]").setAttribute("aria-pressed", String(on));
  }
}

