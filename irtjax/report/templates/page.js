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
// A page of comparisons has no items.
const items = data.items || {}, subjects = data.subjects;
items.names = !data.items ? [] : (() => {
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
if (items.observed && items.observed.codes) items.observed = [...items.observed.codes].map((digit) => items.observed.values[VALUE.get(digit)]);
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

