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
if (data.items) {
  itemTable();
  legend();
  list.render();
}
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
