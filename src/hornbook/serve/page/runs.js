// The runs in the folder that the server watches: a chart of the losses for each objective, a table, samples.
import { $, ask, el, percent, state, svg, translated, word } from "./base.js";
import { table } from "./pictures.js";

const COLORS = [210, 25, 150, 280, 340, 50, 190, 100]; // hues
const LOOK_EVERY = 3000; // milliseconds
const MAX_LINES = 12; // runs per chart

const points = run => Object.values(run.curves).flat().filter(point => Number.isFinite(point[1]));

function chart(runs, width) { // training as lines, validation as dots
  const height = Math.round(Math.max(200, 0.43 * width)), left = 46, bottom = 30;
  const all = runs.flatMap(points), losses = all.map(point => point[1]);
  const low = Math.min(...losses), high = Math.max(...losses, low + 1e-9), last = Math.max(...all.map(point => point[0]), 1);
  const x = step => left + (width - left - 8) * step / last, y = loss => 8 + (height - bottom - 8) * (high - loss) / (high - low);
  const digits = Math.min(4, Math.max(0, 1 - Math.floor(Math.log10(high - low)))); // that tell the labels apart
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "curve", role: "img", "aria-label": `${word("loss")}, ${word("step")}` });
  for (let i = 0; i <= 4; i++) {
    const loss = low + (high - low) * i / 4;
    drawn.append(svg("line", { x1: left, x2: width - 8, y1: y(loss), y2: y(loss), class: "rule" }),
      svg("text", { x: left - 6, y: y(loss) + 4, "text-anchor": "end" }, loss.toFixed(digits)));
  }
  for (const step of new Set([0, 1, 2, 3, 4].map(i => Math.round(last * i / 4)))) { // a short run has fewer than five
    drawn.append(svg("text", { x: x(step), y: height - 8, "text-anchor": step === last ? "end" : step ? "middle" : "start" }, step.toLocaleString()));
  }
  for (const run of runs) {
    const line = (run.curves.train ?? []).filter(point => Number.isFinite(point[1]));
    drawn.append(svg("polyline", { points: line.map(point => `${x(point[0])},${y(point[1])}`).join(" "), hue: run.hue, class: "line" }));
    for (const point of (run.curves.validation ?? []).filter(point => Number.isFinite(point[1]))) {
      drawn.append(svg("circle", { cx: x(point[0]), cy: y(point[1]), r: 3, hue: run.hue, class: "dot" }));
    }
  }
  return drawn;
}

function charts(runs, ticked, width) { // losses of different objectives are not comparable: one chart for each
  if (!runs.some(run => points(run).length)) return [el("p", { className: "soft" }, word("noCurves"))];
  const objectives = [...new Set(ticked.filter(run => points(run).length).map(run => run.objective))];
  if (!objectives.length) return [el("p", { className: "soft" }, word("noneTicked"))];
  const each = objectives.length > 1 && width > 640 ? width / 2 - 16 : width; // two beside each other where they fit
  return [el("div", { className: each < width ? "charts beside" : "charts" }, objectives.map(name => el("section", {}, el("h3", {}, `${word("loss")}: ${name}`),
    chart(ticked.filter(run => run.objective === name && points(run).length).slice(0, MAX_LINES), each)))),
  el("p", { className: "soft small" }, word("linesAndDots"))];
}

function runTable(runs, hidden, redraw) { // without the columns that no run fills
  const tick = run => {
    if (!points(run).length && !run.samples.length) return el("span", { className: "swatch" }, run.name);
    const box = el("input", { type: "checkbox", id: `tick-${run.name}`, checked: !hidden.has(run.name),
      onchange: () => { hidden[box.checked ? "delete" : "add"](run.name); redraw(); } });
    return el("label", { className: "swatch", style: { "--hue": run.hue } }, box, run.name);
  };
  const steps = run => run.step == null ? "" : `${run.step.toLocaleString()}\u00a0/\u00a0${run.num_steps.toLocaleString()}`;
  const speed = run => Math.round(run.curves.train?.at(-1)?.[2] ?? 0).toLocaleString();
  const columns = { runName: tick, what: run => run.what ?? "", state: run => word(run.state ?? ""), result: run => run.result ?? "", step: steps, speed: run => speed(run) === "0" ? "" : speed(run) };
  const filled = Object.entries(columns).filter(([, show]) => runs.some(run => show(run) !== ""));
  return table({ headings: filled.map(([name]) => word(name)), rows: runs.map(run => filled.map(([, show]) => show(run))), kind: "runs" });
}

function samples(run, open) { // held-out sentences with a masked word
  const isFirst = sample => sample.guesses[0]?.token === sample.answer;
  const rows = run.samples.map(sample => [
    el("span", {}, sample.parts.flatMap((part, i) => i ? [el("mark", {}, sample.answer), part] : [part])),
    el("span", { className: "guesses" }, sample.guesses.map(guess =>
      el("span", { className: `cell ${guess.token === sample.answer ? "found" : ""}` }, guess.token, el("small", {}, percent(guess.probability)))))]);
  const box = el("details", { className: "explained", open: open.has(run.name) },
    el("summary", { id: `samples-${run.name}` }, `${run.name} `, el("span", { className: "soft small" }, `${word("firstRight")} ${run.samples.filter(isFirst).length} / ${run.samples.length}`)),
    table({ headings: [word("sentence"), word("predictions")], rows, kind: "samples" }));
  box.ontoggle = () => { open[box.open ? "add" : "delete"](run.name); };
  return box;
}

const innerPanelWidth = () => $("panel").clientWidth - 2 * parseFloat(getComputedStyle($("panel")).paddingLeft);

export async function watchRuns() {
  const box = el("div", { id: "result" }), hidden = state.hidden ??= new Set(), open = state.open ??= new Set();
  $("panel").append(box);
  let runs = [], seen;
  const show = () => {
    const focused = document.activeElement?.id, ticked = runs.filter(run => !hidden.has(run.name)), withSamples = ticked.filter(run => run.samples.length);
    box.replaceChildren(...(!runs.length ? [el("p", { className: "soft" }, word("noRuns"))] : [...charts(runs, ticked, innerPanelWidth()), runTable(runs, hidden, show),
      ...(withSamples.length ? [el("h3", {}, word("samples")), ...withSamples.map(run => samples(run, open))] : [])]));
    if (focused) $(focused)?.focus();
  };
  while (box.isConnected) {
    try {
      ({ runs } = await ask("/runs"));
      if (!box.isConnected) return;
      const count = {};
      for (const run of runs) run.hue = COLORS[(count[run.objective] = (count[run.objective] ?? -1) + 1) % COLORS.length];
      if (seen !== (seen = JSON.stringify([runs, innerWidth]))) show(); // otherwise what a person is reading stays
    } catch (error) {
      seen = null;
      box.replaceChildren(el("p", { className: "error", role: "alert" }, translated(error.message)));
    }
    await new Promise(resolve => setTimeout(resolve, LOOK_EVERY));
  }
}
