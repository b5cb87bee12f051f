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
  if (!itemCount) return [];
  const real = a < answered && b < answered;
  const [first, second] = [subjects.names[a], subjects.names[b]];
  if (!real && !data.curves)
    return [html("p", { class: "note" }, "The responses of the two are not in this page, and a model of several abilities " +
      "has no curve over one: irtjax report DIR FILE adds the responses.")];
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
      : "The responses are not in this page (irtjax report DIR FILE adds them); below are expected responses."));
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

