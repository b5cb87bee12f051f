"use strict";
(() => {
document.documentElement.classList.remove("no-js");
const data = JSON.parse(document.getElementById("data").textContent);
const DIGITS = data.digits;
const VALUE = new Map([...DIGITS].map((digit, k) => [digit, k]));
const LEVELS = DIGITS.length ** 2 - 2;
// Benchmarks with a colour, and with a button of their own.
const COLOURS = 7, MANY = 40;
const $ = (id) => document.getElementById(id);

// Nodes are made without any markup: a text can only become a text.
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  for (const child of children) if (child != null && child !== "") element.append(child);
  return element;
}
const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const small = (text) => html("span", { class: "small" }, text);
const bdi = (text) => html("bdi", null, text);

function fixed(value, digits = 2) {
  if (value == null || !Number.isFinite(value)) return "–";
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
const whole = (value) => value.toLocaleString("en-US");
const range = (low, high, digits = 2) => `${fixed(low, digits)} … ${fixed(high, digits)}`;
const numbers = (column, scale = 1000) => column && column.map((x) => (x == null ? NaN : x / scale));

// ---- Data ------------------------------------------------------------------
const items = data.items, subjects = data.subjects;
items.names = (() => {
  if (Array.isArray(items.names)) {
    const [width, text] = items.names, hex = {}, out = [], step = 2 * Math.ceil(width / 3);
    for (const a of DIGITS) for (const b of DIGITS) hex[a + b] = (DIGITS.length * VALUE.get(a) + VALUE.get(b)).toString(16).padStart(3, "0");
    for (let k = 0; k < text.length; k += step)
      out.push(text.slice(k, k + step).replace(/../g, (pair) => hex[pair]).slice(0, width));
    return out;
  }
  let before = "";
  return items.names.split("\n").map((line) => (before = before.slice(0, VALUE.get(line[0])) + line.slice(1)));
})();
const itemCount = items.names.length;
for (const name of ["discrimination", "difficulty", "accuracy"]) {
  items[name] = numbers(items[name], name === "difficulty" ? 100 : 1000);
  items[`${name}_se`] = numbers(items[`${name}_se`], 100);
}
if (typeof items.benchmark === "string") items.benchmark = [...items.benchmark].map((digit) => VALUE.get(digit));
if (typeof items.observed === "number") items.observed = Array(itemCount).fill(items.observed);
items.weight = numbers(items.weight, 100000);
const benchmarkOf = (k) => (items.benchmarks ? items.benchmarks[items.benchmark[k]] : "");
const subjectCount = subjects ? subjects.names.length : 0;
if (subjects) {
  for (const name of ["ability", "ability_se", "probability_best", "accuracy", "accuracy_lower", "accuracy_upper"])
    subjects[name] = numbers(subjects[name]);
  for (const name of ["lower", "upper", "expected_score", "expected_score_lower", "expected_score_upper"])
    subjects[name] = numbers(subjects[name], 1e6);
  subjects.exact = numbers(subjects.exact_ability, subjects.scale_of_exact);
  subjects.error = numbers(subjects.exact_ability_se, subjects.scale_of_exact);
  subjects.shared = subjects.shared && subjects.shared.map((row) => numbers(row, subjects.scale_of_exact));
  subjects.scale = numbers(subjects.scale, subjects.scale_of_exact);
  subjects.by_group = subjects.by_group && subjects.by_group.map((row) => numbers(row));
}
const abilityOf = (subject, item) =>
  subjects.by_group && items.group ? subjects.by_group[subject][items.group[item]] : subjects.exact[subject];

const taskNoun = data.nouns[1][0].toUpperCase() + data.nouns[1].slice(1);
// Share of the highest response, NaN where it is missing or not in the page.
const answered = data.responses ? data.responses.rows.length : 0;
function response(subject, item) {
  if (subject >= answered) return NaN;
  const row = data.responses.rows[subject];
  if (data.responses.packed) {
    const cell = Math.floor(VALUE.get(row[item >> 2]) / 3 ** (item & 3)) % 3;
    return cell === 2 ? NaN : cell;
  }
  return pair(row, item);
}
function pair(row, k) {
  const level = VALUE.get(row[2 * k]) * DIGITS.length + VALUE.get(row[2 * k + 1]);
  return level > LEVELS ? NaN : level / LEVELS;
}

// Standard normal distribution function: a series near 0, a continued fraction beyond.
function normal(x) {
  if (x > 0) return 1 - normal(-x);
  const density = Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI);
  if (x > -3) {
    let term = -x, sum = term;
    for (let k = 3; term > 1e-17; k += 2) sum += term *= x * x / k;
    return 0.5 - density * sum;
  }
  let tail = 0;
  for (let k = 60; k > 0; k--) tail = k / (-x + tail);
  return density / (-x + tail);
}
const LINKS = {
  logit: (x) => 1 / (1 + Math.exp(-x)),
  probit: normal,
  cloglog: (x) => -Math.expm1(-Math.exp(x)),
};

// Expected share of the highest response of an item at an ability.
function expected(item, theta) {
  const curves = data.curves;
  if (!curves || !Number.isFinite(theta)) return NaN;
  if (curves.link) {
    const low = curves.c ? curves.c[item] / 1000 : 0, high = curves.u ? curves.u[item] / 1000 : 1;
    return low + (high - low) * LINKS[curves.link](items.discrimination[item] * theta + curves.d[item] / 1000);
  }
  return between(curves.rows[item], ...curves.ends, theta);
}

// A value of a table of shares between two ends.
function between(row, low, high, theta) {
  const last = row.length / 2 - 1;
  const at = Math.min(Math.max((theta - low) / (high - low), 0), 1) * last;
  const k = Math.min(Math.floor(at), last - 1);
  // Between the points of the table a line on the logit scale.
  const logit = (p) => { const q = Math.min(Math.max(p, 1e-4), 1 - 1e-4); return Math.log(q / (1 - q)); };
  return LINKS.logit(logit(pair(row, k)) * (k + 1 - at) + logit(pair(row, k + 1)) * (at - k));
}

// The same over one factor of a model of several, the others at 0.
function expectedOver(item, factor, theta) {
  const curves = data.factors;
  if (curves.link) return LINKS[curves.link](curves.a[item][factor] / 1000 * theta + curves.d[item] / 1000);
  return between(curves.rows[item][factor], -3, 3, theta);
}

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
  return { names: kept.sort((a, b) => a - b).map((j) => subjects.names[j]), left: high - low - kept.length };
}
const tiesText = (k) => {
  const { names, left } = tiesOf(k);
  return names.join(", ") + (left ? ` and ${whole(left)} more` : "") || "–";
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

// ---- Two subjects ----------------------------------------------------------
let versus = data.pair || [0, 1];

// As irtjax.ranking.compare: the interval counts the error of the scale, z does not.
function difference(i, j) {
  const s = subjects, gap = s.exact[i] - s.exact[j];
  const dot = (a, b) => a.reduce((sum, x, k) => sum + x * b[k], 0);
  let variance = s.error[i] ** 2 + s.error[j] ** 2, tested = variance;
  if (s.shared) {
    const [u, v] = [s.shared[i], s.shared[j]];
    const uu = dot(u, u), vv = dot(v, v), uv = dot(u, v);
    variance -= 2 * uv;
    tested = variance;
    if (s.scale) {
      // The positive part of the shared covariance less that of the scale, 2 x 2.
      const p = uu - s.scale[i] ** 2, r = vv - s.scale[j] ** 2, q = uv - s.scale[i] * s.scale[j];
      const middle = (p + r) / 2, radius = Math.hypot((p - r) / 2, q);
      const angle = Math.atan2(2 * q, p - r) / 2, c = Math.cos(angle), d = Math.sin(angle);
      const contrast = Math.max(middle + radius, 0) * (c - d) ** 2 + Math.max(middle - radius, 0) * (c + d) ** 2;
      tested = Math.max(s.error[i] ** 2 - uu, 0) + Math.max(s.error[j] ** 2 - vv, 0) + contrast;
    }
  }
  const error = Math.sqrt(Math.max(variance, 0));
  const z = Math.min(Math.max(gap / Math.max(Math.sqrt(Math.max(tested, 0)), 1e-300), -1e6), 1e6) || 0;
  return { gap, error, z, p: 2 * normal(-Math.abs(z)), greater: normal(z) };
}
// Of the standard normal, by bisection.
function quantile(level) {
  let low = 0, high = 40;
  for (let k = 0; k < 80; k++) { const m = (low + high) / 2; if (normal(m) < level) low = m; else high = m; }
  return low;
}
const probability = (p) => (p > 0.9995 ? "above 0.999" : fixed(p, 3));

function pick(first, second) {
  if (first === second) return;
  versus = [first, second];
  $("first").value = first;
  $("second").value = second;
  marks();
  compare();
}

function compare() {
  const [i, j] = versus;
  if (subjectCount < 2) return;
  const found = difference(i, j), [a, b] = found.gap >= 0 ? [i, j] : [j, i];
  const name = (k) => bdi(subjects.names[k]);
  const half = quantile(0.5 + data.level / 2) * found.error, gap = Math.abs(found.gap);
  const sure = found.p <= 1 - data.level;
  const chance = Math.max(found.greater, 1 - found.greater);
  const p = found.p < 1e-4 ? ", p < 0.0001" : `, p = ${found.p.toPrecision(2)}`;
  const answer = html("p", { class: "answer" }, ...sure
    ? [name(a), " is significantly ahead of ", name(b), ": it is better with probability ", html("b", null, probability(chance)), "."]
    : [name(a), " and ", name(b), " are ", html("b", null, "tied"),
      found.gap ? `; the first is better with probability ${probability(chance)}.` : "."]);
  const [score, other] = [a, b].map((k) => (subjects.expected_score ? subjects.expected_score[k] : NaN));
  const more = html("p", null, (Number.isFinite(score - other) && data.unit.startsWith("Ab") ? `Scores ${fixed(score, 3)} and ${fixed(other, 3)}. ` : "") + `Difference of ${data.unit.startsWith("Ab") ? "abilities" : "expected scores"} ${fixed(gap)}, ` +
    `${+(100 * data.level).toPrecision(6)} % interval ${range(gap - half, gap + half)}${p}.` +
    (sure && tied(i, j) ? " Corrected for all pairs, the two are in one group of ties." : ""));
  const bar = svg("svg", { viewBox: "0 0 400 30", width: 400, role: "img", "aria-label": `probability ${probability(chance)}` },
    svg("path", { class: "line thick", d: `M2 9H${(2 + 396 * chance).toFixed(1)}` }),
    svg("path", { class: "axis", d: "M2 9H398M2 4v10M200 4v10M398 4v10" }),
    ...[[2, "0", "start"], [200, "0.5", "middle"], [398, "1", "end"]].map(([x, text, anchor]) =>
      svg("text", { x, y: 27, "text-anchor": anchor, class: "quiet" }, text)));
  $("versus").replaceChildren(answer, bar, more);
  $("separate").replaceChildren(...separating(i, j));
}

function separating(a, b) {
  const real = a < answered && b < answered;
  const [first, second] = [subjects.names[a], subjects.names[b]];
  if (!real && !data.curves)
    return [html("p", { class: "note" }, "The responses of the two are not in this page, and a model of several abilities " +
      "has no curve over one: irtjax report DIR --data FILE adds the responses.")];
  const rows = [];
  for (let k = 0; k < itemCount; k++) {
    const x = real ? response(a, k) : expected(k, abilityOf(a, k)), y = real ? response(b, k) : expected(k, abilityOf(b, k));
    if (!Number.isNaN(x) && !Number.isNaN(y)) rows.push({ k, x, y, gap: x - y });
  }
  if (!rows.length) return [html("p", { class: "note" }, "The two have no item in common.")];
  const out = [], ahead = rows.filter((r) => r.gap > 0), behind = rows.filter((r) => r.gap < 0);
  if (real)
    out.push(html("p", null, `On ${whole(rows.length)} items that both answered, `, bdi(first), ` did better on ${whole(ahead.length)}, `,
      bdi(second), ` on ${whole(behind.length)}.`));
  else
    out.push(html("p", { class: "note" }, answered
      ? `Responses are in this page for the first ${whole(answered)} ${data.nouns[0]}s; below are expected responses.`
      : "The responses are not in this page (irtjax report DIR --data FILE adds them); below are expected responses."));
  if (items.benchmarks && items.benchmarks.length > 1) out.push(byBenchmark(rows));
  // Where responses differ alike, the item of more discrimination separates better.
  const weight = (r) => Math.abs(r.gap) * (real ? items.discrimination[r.k] || 0 : 1);
  const list = (chosen, winner) => {
    chosen.sort((r, s) => weight(s) - weight(r) || r.k - s.k);
    const table = html("table", null,
      html("caption", null, "Items with better responses of ", bdi(winner), chosen.length > 8 ? `, 8 of ${whole(chosen.length)}` : ""),
      html("thead", null, html("tr", null, html("th", { scope: "col", class: "name" }, "Item"),
        html("th", { scope: "col", class: "less" }, "Difficulty"), html("th", { scope: "col", class: "less" }, "Discrimination"),
        html("th", { scope: "col" }, "First"), html("th", { scope: "col" }, "Second"))),
      html("tbody", null, ...chosen.slice(0, 8).map((r) => html("tr", null,
        html("td", { class: "name" }, itemButton(r.k)), html("td", { class: "less" }, fixed(items.difficulty[r.k])),
        html("td", { class: "less" }, fixed(items.discrimination[r.k])), html("td", null, shown(r.x, real)), html("td", null, shown(r.y, real))))));
    return html("div", { class: "scroll" }, table);
  };
  const lists = [];
  if (ahead.length) lists.push(list(ahead, first));
  if (behind.length) lists.push(list(behind, second));
  out.push(html("div", { class: "two" }, ...lists));
  return out;
}
// Responses on their own scale: whole numbers where they are categories.
const onScale = (x) => data.low + (data.top - data.low) * x;
const shown = (x, real) => {
  const value = onScale(x);
  return real && data.kind !== "score" && Math.abs(value - Math.round(value)) < 1e-3 ? String(Math.round(value)) : fixed(value);
};

function byBenchmark(rows) {
  const sums = items.benchmarks.map((name) => ({ name, n: 0, x: 0, y: 0 }));
  for (const r of rows) { const s = sums[items.benchmark[r.k]]; s.n++; s.x += onScale(r.x); s.y += onScale(r.y); }
  const found = sums.filter((s) => s.n).sort((s, t) => Math.abs(t.x - t.y) / t.n - Math.abs(s.x - s.y) / s.n);
  return html("div", { class: "scroll" }, html("table", { class: "narrow" },
    html("caption", null, `Means by ${data.nouns[1]}, the largest difference first${found.length > 12 ? `, 12 of ${found.length}` : ""}`),
    html("thead", null, html("tr", null, html("th", { scope: "col", class: "name" }, taskNoun), html("th", { scope: "col" }, "Items"),
      html("th", { scope: "col" }, "First"), html("th", { scope: "col" }, "Second"), html("th", { scope: "col" }, "Difference"))),
    html("tbody", null, ...found.slice(0, 12).map((s) => html("tr", null, html("td", { class: "name" }, bdi(s.name)),
      html("td", null, whole(s.n)), html("td", null, fixed(s.x / s.n, 3)), html("td", null, fixed(s.y / s.n, 3)),
      html("td", null, fixed((s.x - s.y) / s.n, 3)))))));
}

function pickers() {
  for (const [place, id] of ["first", "second"].entries()) {
    const options = subjects.names.map((name, k) => html("option", { value: k, dir: "auto" }, `${subjects.rank[k]}. ${name}`));
    $(id).replaceChildren(...options);
    $(id).value = versus[place];
    $(id).addEventListener("change", () => {
      const chosen = [+$("first").value, +$("second").value];
      // Two different ones: the other picker takes the subject that was here.
      if (chosen[0] === chosen[1]) chosen[1 - place] = versus[place];
      pick(...chosen);
    });
  }
  $("swap").addEventListener("click", () => pick(versus[1], versus[0]));
  compare();
}

// ---- Items -----------------------------------------------------------------
const chosen = { item: null, benchmark: null };
let list = null;
const itemButton = (k) =>
  html("button", { type: "button", class: "link", click: () => choose(k, true) }, bdi(items.names[k]));

function itemTable() {
  const columns = {
    name: column(items.names, itemButton),
    benchmark: { value: benchmarkOf, cell: (k) => bdi(benchmarkOf(k)) },
    weight: column(items.weight, (k) => fixed(items.weight[k], 4), true),
    difficulty: column(items.difficulty, plusMinus(items.difficulty, items.difficulty_se), true),
    discrimination: column(items.discrimination, plusMinus(items.discrimination, items.discrimination_se), true),
    accuracy: column(items.accuracy, (k) => fixed(items.accuracy[k], 3)),
    observed: column(items.observed, (k) => whole(items.observed[k]), true),
    flags: { value: (k) => items.flags[k] || "", cell: (k) => items.flags[k] || "", down: true },
  };
  list = interactive("list", itemCount, columns, {
    noun: "items", step: 20, printed: 40,
    match: (k, query) => (chosen.benchmark == null || items.benchmark[k] === chosen.benchmark) &&
      (!query || items.names[k].toLocaleLowerCase().includes(query) || benchmarkOf(k).toLocaleLowerCase().includes(query) ||
        (items.flags[k] || "").includes(query) || (data.texts && data.texts[k] || "").toLocaleLowerCase().includes(query)),
    rendered: data.cloud ? scatter : null,
  });
}

function nice(low, high, count) {
  const raw = Math.max(high - low, 1e-9) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((k) => k * power >= raw * 0.999) * power, out = [];
  for (let k = Math.ceil(low / step - 1e-9); k <= high / step + 1e-9; k++) out.push(+(k * step).toPrecision(12));
  return out;
}
const axisText = (x) => String(+x.toPrecision(4));

// The bulk of the items sets the scale; those beyond are drawn at its ends.
function span(values, limit) {
  const known = values.filter(Number.isFinite).sort((a, b) => a - b);
  if (!known.length) return [-1, 1];
  const cutoff = known.length > 200 ? 0.005 : 0;
  let low = known[Math.floor(cutoff * (known.length - 1))], high = known[Math.ceil((1 - cutoff) * (known.length - 1))];
  [low, high] = [Math.max(low, -limit), Math.min(high, limit)];
  const room = high - low > 1e-6 ? 0.05 * (high - low) : 0.5;
  return [low - room, high + room];
}
const plot = { left: 56, right: 804, top: 14, bottom: 352 };
const colourOf = items.benchmarks ? (() => {
  const sizes = items.benchmarks.map(() => 0);
  items.benchmark.forEach((b) => sizes[b]++);
  const order = sizes.map((_, b) => b).sort((a, b) => sizes[b] - sizes[a] || a - b);
  const kept = order.slice(0, order.length > COLOURS ? COLOURS : order.length).sort((a, b) => a - b);
  return items.benchmarks.map((_, b) => (kept.includes(b) ? kept.indexOf(b) : COLOURS));
})() : [0];
const colour = (k) => (items.benchmarks ? colourOf[items.benchmark[k]] : 0);

function places() {
  const x = span(items.difficulty, 8), y = span(items.discrimination, 8);
  [y[0], y[1]] = [Math.min(y[0], 0), Math.max(y[1], 0)];
  const scale = ([low, high], from, to) => (v) => from + (to - from) * (Math.min(Math.max(v, low), high) - low) / (high - low);
  plot.x = scale(x, plot.left, plot.right);
  plot.y = scale(y, plot.bottom, plot.top);
  plot.domain = [x, y];
  plot.points = [];
  let beyond = 0, without = 0;
  for (let k = 0; k < itemCount; k++) {
    const [u, v] = [items.difficulty[k], items.discrimination[k]];
    if (!Number.isFinite(u) || !Number.isFinite(v)) { plot.points.push(null); without++; continue; }
    if (u < x[0] || u > x[1] || v < y[0] || v > y[1]) beyond++;
    plot.points.push([+plot.x(u).toFixed(1), +plot.y(v).toFixed(1)]);
  }
  const left = [];
  const count = (n) => `${whole(n)} item${n > 1 ? "s" : ""}`;
  if (beyond) left.push(`Beyond the scale, drawn at its ends: ${count(beyond)}`);
  if (without) left.push(`Without a difficulty, in the table alone: ${count(without)}`);
  $("beyond").textContent = left.length ? `${left.join(". ")}.` : "";
  plot.order = [...plot.points.keys()].filter((k) => plot.points[k]).sort((a, b) => plot.points[a][0] - plot.points[b][0]);
}

function scatter(rows) {
  const figure = $("scatter"), match = new Set(rows), [x, y] = plot.domain;
  const dots = new Map(), crosses = [], faded = [];
  for (const k of plot.order) {
    const [u, v] = plot.points[k], dot = `M${u} ${v}h.01`;
    if (!match.has(k)) { faded.push(dot); continue; }
    const c = colour(k);
    dots.set(c, (dots.get(c) || "") + dot);
    if (items.flags[k]) crosses.push(`M${u - 4} ${v - 4}l8 8m-8 0l8-8`);
  }
  const parts = [
    svg("title", { id: "scatter-t" }, "Items by difficulty and discrimination"),
    svg("desc", { id: "scatter-d" }, `${whole(rows.length)} items; the table below has the same numbers. The arrow keys move from item to item.`),
    ...nice(...y, 6).map((t) => svg("g", null, svg("path", { class: "grid", d: `M${plot.left} ${plot.y(t)}H${plot.right}` }),
      svg("text", { class: "quiet", x: plot.left - 6, y: plot.y(t) + 4, "text-anchor": "end" }, axisText(t)))),
    ...nice(...x, 8).map((t) => svg("g", null, svg("path", { class: "grid", d: `M${plot.x(t)} ${plot.top}V${plot.bottom}` }),
      svg("text", { class: "quiet", x: plot.x(t), y: plot.bottom + 17, "text-anchor": "middle" }, axisText(t)))),
    svg("path", { class: "axis", d: `M${plot.left} ${plot.y(0)}H${plot.right}` }),
    svg("text", { x: (plot.left + plot.right) / 2, y: 394, "text-anchor": "middle" }, "Difficulty"),
    svg("text", { x: -(plot.top + plot.bottom) / 2, y: 14, transform: "rotate(-90)", "text-anchor": "middle" }, "Discrimination"),
    faded.length ? svg("path", { class: "points faded", d: faded.join("") }) : null,
    // Grey ones, of other benchmarks, lie below the others.
    ...[...dots].sort((p, q) => q[0] - p[0]).map(([c, d]) =>
      svg("path", { class: `points s${c}${itemCount > 1500 ? " many" : ""}`, d })),
    crosses.length ? svg("path", { class: "cross", d: crosses.join("") }) : null,
    svg("path", { id: "ring", class: "ring" }),
  ];
  figure.replaceChildren(...parts.filter(Boolean));
  ring();
}
function ring() {
  const mark = $("ring"), point = chosen.item == null || !plot.points ? null : plot.points[chosen.item];
  if (!mark) return;
  mark.setAttribute("d", point ? `M${point[0] - 8} ${point[1]}a8 8 0 1 0 16 0a8 8 0 1 0 -16 0` : "");
}

function legend() {
  const flagged = Object.keys(items.flags).length, entries = [];
  if (items.benchmarks) {
    items.benchmarks.forEach((name, b) => {
      if (items.benchmarks.length > MANY && colourOf[b] === COLOURS) return;
      entries.push(html("li", null, html("button", {
        type: "button", class: "button", "aria-pressed": "false", title: `Show the items of this ${data.nouns[1]} alone`,
        click: (event) => {
          chosen.benchmark = chosen.benchmark === b ? null : b;
          for (const other of $("benchmarks").querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
          event.currentTarget.setAttribute("aria-pressed", String(chosen.benchmark === b));
          list.reset();
        },
      }, data.cloud ? html("span", { class: `key k${colourOf[b]}` }) : "", bdi(name || "(none)"))));
    });
  }
  const others = items.benchmarks && items.benchmarks.length > MANY ? items.benchmarks.length - COLOURS : 0;
  if (others && data.cloud) entries.push(html("li", null, html("span", { class: "key k7" }), `${whole(others)} other ${data.nouns[1]}s`));
  if (flagged && data.cloud) entries.push(html("li", null, "× flagged"));
  $("benchmarks").replaceChildren(...entries);
}

function nearest(event) {
  const box = $("scatter").getBoundingClientRect(), scale = 820 / box.width;
  const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
  let best = null, least = (14 * Math.max(scale, 1)) ** 2;
  for (const k of plot.order) {
    const distance = (plot.points[k][0] - x) ** 2 + (plot.points[k][1] - y) ** 2;
    if (distance < least) { least = distance; best = k; }
  }
  return best;
}
function hint(k) {
  const tip = $("tip"), point = k == null ? null : plot.points[k];
  tip.hidden = !point;
  $("scatter").classList.toggle("hit", Boolean(point));
  if (!point) return;
  const text = data.texts && data.texts[k];
  tip.replaceChildren(html("b", null, bdi(items.names[k])), benchmarkOf(k) ? html("div", null, bdi(benchmarkOf(k))) : "",
    html("div", null, `difficulty ${fixed(items.difficulty[k])}, discrimination ${fixed(items.discrimination[k])}` +
      (items.accuracy && Number.isFinite(items.accuracy[k]) ? `, accuracy ${fixed(items.accuracy[k])}` : "")),
    items.flags[k] ? html("div", null, items.flags[k]) : "", text ? html("div", { class: "small", dir: "auto" }, text) : "");
  const box = $("scatter").getBoundingClientRect(), scale = box.width / 820;
  const x = point[0] * scale, y = point[1] * scale, width = tip.offsetWidth;
  tip.style.left = `${Math.max(0, Math.min(x + 12, box.width - width))}px`;
  tip.style.top = `${y + 14}px`;
}
function figureEvents() {
  const figure = $("scatter");
  figure.addEventListener("pointermove", (event) => hint(nearest(event)));
  figure.addEventListener("pointerleave", () => hint(null));
  figure.addEventListener("click", (event) => { const k = nearest(event); if (k != null) choose(k, false); });
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 10, ArrowDown: -10 }[event.key];
    if (event.key === "Enter" && chosen.item != null) choose(chosen.item, true);
    if (!step || !plot.order.length) return;
    event.preventDefault();
    const at = plot.order.indexOf(chosen.item), last = plot.order.length - 1;
    choose(plot.order[at < 0 ? 0 : Math.min(Math.max(at + step, 0), last)], false);
    hint(chosen.item);
  });
}

// ---- One item --------------------------------------------------------------
function choose(k, jump) {
  chosen.item = k;
  ring();
  const panel = $("item");
  panel.hidden = false;
  panel.replaceChildren(...itemPanel(k));
  if (jump) { panel.focus({ preventScroll: true }); panel.scrollIntoView({ block: "nearest" }); }
}
function itemPanel(k) {
  const line = (name, value) => [html("dt", null, name), html("dd", null, value)];
  const error = (name) => (items[`${name}_se`] && Number.isFinite(items[`${name}_se`][k]) ? ` ± ${fixed(items[`${name}_se`][k])} (standard error)` : "");
  const facts = html("dl", null, ...(benchmarkOf(k) ? line(taskNoun, bdi(benchmarkOf(k))) : []),
    ...line("Difficulty", fixed(items.difficulty[k]) + error("difficulty")),
    ...line("Discrimination", fixed(items.discrimination[k]) + error("discrimination")),
    ...(subjects ? [...line("Accuracy", fixed(items.accuracy[k], 3)), ...line("Responses", whole(items.observed[k]))] : []),
    ...(items.flags[k] ? line("Flags", items.flags[k]) : []));
  const text = data.texts && data.texts[k];
  return [html("h3", null, bdi(items.names[k])), html("div", { class: "two" }, html("div", null, facts,
    text ? html("pre", { dir: "auto" }, text) : ""), data.curves ? curveFigure(k) : data.factors ? factorFigure(k) : "")];
}
// Axes of a figure of responses from `low` to `high`, and the path of a function.
function responseAxes(low, high, unit) {
  const left = 44, right = 430, top = 26, bottom = 214, points = 81;
  const x = (v) => left + (right - left) * (v - low) / (high - low), y = (v) => bottom - (bottom - top) * v;
  const path = (share) => "M" + Array.from({ length: points }, (_, n) => {
    const theta = low + (high - low) * n / (points - 1);
    return `${x(theta).toFixed(1)} ${y(share(theta)).toFixed(1)}`;
  }).join("L");
  const kind = data.kind === "share right" ? "Share right" : data.kind === "score" ? "Mean score" : "Mean response";
  const axes = [
    ...[0, 0.25, 0.5, 0.75, 1].map((t) => svg("g", null, svg("path", { class: "grid", d: `M${left} ${y(t)}H${right}` }),
      svg("text", { class: "quiet", x: left - 6, y: y(t) + 4, "text-anchor": "end" }, axisText(onScale(t))))),
    ...nice(low, high, 6).map((t) => svg("g", null, svg("path", { class: "axis", d: `M${x(t)} ${bottom}v5` }),
      svg("text", { class: "quiet", x: x(t), y: bottom + 18, "text-anchor": "middle" }, axisText(t)))),
    svg("text", { x: (left + right) / 2, y: 256, "text-anchor": "middle" }, unit),
    svg("text", { x: left, y: 14, class: "quiet" }, kind)];
  return { x, y, path, axes };
}
const curveOf = (k, ...parts) =>
  svg("svg", { viewBox: "0 0 440 262", width: 440, role: "img", "aria-label": `Response curve of ${items.names[k]}` },
    svg("title", null, `Response curve of ${items.names[k]}`), ...parts);
function factorFigure(k) {
  const { path, axes } = responseAxes(-3, 3, "Factor (standard deviations of the population)"), names = data.factors.names;
  const dashes = ["", "7 3", "2 3", "10 3 2 3", "12 5", "4 4", "1 4"];
  return html("figure", { class: "curve" }, curveOf(k, ...axes, ...names.map((name, j) =>
    svg("path", { class: `line s${j}`, "stroke-dasharray": dashes[j], d: path((theta) => expectedOver(k, j, theta)) },
      svg("title", null, name)))),
  html("ul", { class: "legend" }, ...names.map((name, j) => html("li", null, html("span", { class: `key k${j}` }), bdi(name)))),
  html("figcaption", { class: "small" }, "Curves: the model over each factor, the other factors at 0." +
    (data.factors.left ? ` The first ${names.length} factors are drawn.` : "")));
}
function curveFigure(k) {
  const { x, y, path, axes } = responseAxes(...data.ends, data.unit), marks = observedShares(k);
  return html("figure", { class: "curve" }, curveOf(k, ...axes,
    svg("path", { class: "line", d: path((theta) => expected(k, theta)) }),
    ...marks.map((m) => svg("g", null, svg("path", { class: "line lead-line", d: `M${x(m.theta)} ${y(Math.max(m.mean - m.error, 0))}V${y(Math.min(m.mean + m.error, 1))}` }),
      svg("circle", { class: "dot lead-dot", cx: x(m.theta), cy: y(m.mean), r: 4 })))),
  html("figcaption", { class: "small" }, "Curve: the model. " +
    (marks.length ? `Points: means of groups of ${ofWhom()} of neighbouring ability, ± one standard error.` :
      subjects ? "The responses are not in this page." : "")));
}
const ofWhom = () =>
  data.responses.groups || answered >= subjectCount ? `${data.nouns[0]}s` : `the first ${whole(answered)} ${data.nouns[0]}s`;
function observedShares(k) {
  const known = data.responses && data.responses.groups;
  // Of all subjects, where the page has the responses of some.
  if (known) {
    return known.theta.map((theta, g) => ({ theta, mean: pair(known.mean[k], g), error: pair(known.error[k], g) }))
      .filter((m) => !Number.isNaN(m.mean) && m.theta >= data.ends[0] && m.theta <= data.ends[1]);
  }
  const seen = [];
  for (let s = 0; s < answered; s++) {
    const y = response(s, k), theta = abilityOf(s, k);
    if (!Number.isNaN(y) && Number.isFinite(theta)) seen.push([theta, y]);
  }
  seen.sort((a, b) => a[0] - b[0]);
  const groups = Math.min(8, Math.max(2, Math.floor(seen.length / 4))), out = [];
  for (let g = 0; g < groups; g++) {
    const part = seen.slice(Math.round(g * seen.length / groups), Math.round((g + 1) * seen.length / groups));
    if (!part.length) continue;
    const mean = part.reduce((sum, r) => sum + r[1], 0) / part.length, theta = part.reduce((sum, r) => sum + r[0], 0) / part.length;
    const variance = part.reduce((sum, r) => sum + (r[1] - mean) ** 2, 0) / part.length;
    const inside = theta >= data.ends[0] && theta <= data.ends[1];
    if (inside) out.push({ theta, mean, error: Math.sqrt(Math.max(variance, 0.01) / part.length) });
  }
  return out;
}

// What is printed is whole: nobody can open a part there.
let closed = [];
window.addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const part of closed) part.open = true;
});
window.addEventListener("afterprint", () => { for (const part of closed) part.open = false; });

// ---- All -------------------------------------------------------------------
if (data.cloud) places();
itemTable();
legend();
list.render();
if (data.cloud) figureEvents();
for (const name of document.querySelectorAll("#reading [data-item]"))
  if (name.dataset.item !== "") name.replaceChildren(itemButton(+name.dataset.item));
if (subjectCount) {
  leaderboard();
}
if (subjects) {
  if (subjectCount > 1) pickers();
  else $("compare").hidden = true;
}
})();
