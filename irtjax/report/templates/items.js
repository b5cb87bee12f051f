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

