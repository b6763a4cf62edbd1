// The page of `hornbook serve`: panels for what the loaded models can do. No build step, no other file is loaded.
import { WORDS } from "./words.js";

const store = { // what the browser remembers, where it may
  get(name) { try { return localStorage.getItem(name); } catch { return null; } },
  set(name, value) { try { localStorage.setItem(name, value); } catch { /* private window */ } },
};
const state = {
  language: WORDS[store.get("language")] ? store.get("language") : (navigator.language || "").startsWith("ko") ? "ko" : "en",
  models: [], model: null, values: {}, chosen: {}, key: sessionStorage.getItem("key") || "", running: null,
};
const word = name => WORDS[state.language][name] ?? name;
const example = name => WORDS[state.model?.language ?? "en"].examples[name] ?? ""; // in the language of the model
const percent = share => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;
const $ = id => document.getElementById(id);

function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "style") for (const [key, each] of Object.entries(value)) made.style.setProperty(key, each);
    else if (name.includes("-") || name === "role" || name === "for") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.flat().filter(each => each != null));
  return made;
}

// A word that follows the language of the page. Other texts, such as errors of the server, stay as they are.
const translated = name => el("span", { "data-word": name }, word(name));

// ---- the server

class Refusal extends Error {}

async function request(path, body, signal) {
  const headers = { "Content-Type": "application/json", ...(state.key && { Authorization: `Bearer ${state.key}` }) };
  const options = body === undefined ? { headers, signal } : { method: "POST", headers, body: JSON.stringify(body), signal };
  const answer = await fetch(path.slice(1), options).catch(error => {
    throw error.name === "AbortError" ? error : new Refusal("failed");
  });
  if (answer.status === 401) {
    await askForKey();
    return request(path, body, signal);
  }
  if (!answer.ok) {
    const found = await answer.json().catch(() => ({}));
    throw new Refusal(found.error?.message ?? `${answer.status} ${answer.statusText}`);
  }
  return answer;
}
const ask = async (path, body, signal) => (await request(path, body, signal)).json();

function askForKey() {
  const dialog = $("key");
  dialog.showModal();
  return new Promise(resolve => dialog.addEventListener("close", () => {
    state.key = $("key-value").value.trim();
    sessionStorage.setItem("key", state.key);
    resolve();
  }, { once: true }));
}

// ---- what results look like

function bars(rows, pick) { // rows: {name, value (0 to 1), note}
  const largest = Math.max(...rows.map(row => row.value));
  return el("ul", { className: "bars" }, rows.map(row => {
    const parts = [el("span", { className: "fill", style: { width: percent(Math.max(0, row.value)) } }),
      el("span", { className: "name" }, row.name), el("span", { className: "value" }, row.note ?? percent(row.value))];
    const inside = pick ? el("button", { type: "button", onclick: () => pick(row) }, parts) : parts;
    return el("li", { className: row.value === largest ? "best" : "" }, inside);
  }));
}

function strip(cells) {
  return el("div", { className: "strip" }, cells.map(cell =>
    el("span", { className: `cell ${cell.mark}` }, cell.text, cell.note ? el("small", {}, cell.note) : null)));
}

function table(found) {
  return el("div", { className: "scroll" }, el("table", { className: "values" },
    el("thead", {}, el("tr", {}, found.headings.map(each => el("th", {}, each)))),
    el("tbody", {}, found.rows.map(row => el("tr", {}, row.map(each => el("td", {}, String(each))))))));
}

function pictureParts(found) {
  return [
    ...found.notes.map(note => el("p", { className: "soft small" }, note)),
    ...(found.attention?.num_layers ? [attention(found.attention)] : found.strips.map(each =>
      el("div", {}, el("div", { className: "soft small" }, each.label), strip(each.cells)))),
    el("div", { className: "legend" }, Object.entries(found.legend).map(([mark, meaning]) => el("span", { className: `cell ${mark}` }, meaning))),
    ...found.tables.map(table),
  ];
}

async function picture(path, body, signal, skip = 0) { // its words come from the server, which is asked again for another language
  const box = el("div", { className: "picture" });
  box.redraw = async () => {
    let found, language;
    do found = await ask(path, { ...body, language: language = state.language }, signal); while (language !== state.language);
    box.replaceChildren(...pictureParts(found).slice(skip));
  };
  await box.redraw();
  return box;
}

function attention(found) {
  const weights = Uint8Array.from(atob(found.weights), letter => letter.charCodeAt(0));
  const size = found.tokens.length;
  const select = (name, options) => el("select", { id: name }, options.map(([value, text]) => el("option", { value }, text)));
  const numbers = num => Array.from({ length: num }, (_, i) => [i + 1, i + 1]);
  const layer = select("layer", numbers(found.num_layers)), head = select("head", [[0, word("mean")], ...numbers(found.num_heads)]);
  const grid = el("table", { className: "grid" }), darkest = el("span", { className: "soft small" });
  function draw() {
    const heads = +head.value ? [+head.value - 1] : [...Array(found.num_heads).keys()];
    const weight = (from, to) => heads.reduce((sum, each) =>
      sum + weights[(((+layer.value - 1) * found.num_heads + each) * size + from) * size + to], 0) / heads.length / 255;
    const shares = found.tokens.map((_, from) => found.tokens.map((_, to) => weight(from, to)));
    const largest = Math.max(...shares.flat());
    darkest.textContent = `${word("darkest")} ${percent(largest)}`;
    grid.replaceChildren(
      el("tr", {}, el("th"), found.tokens.map(token => el("th", { className: "column" }, token))),
      ...found.tokens.map((token, from) => el("tr", { onmouseenter: event => {
        for (const row of [...grid.rows].slice(1)) row.classList.toggle("dim", row !== event.currentTarget);
      } }, el("th", {}, token), found.tokens.map((other, to) =>
        el("td", { title: `${token} → ${other}: ${percent(shares[from][to])}`, style: { "--share": shares[from][to] / largest } })))));
  }
  grid.onmouseleave = () => [...grid.rows].forEach(row => row.classList.remove("dim"));
  layer.value = Math.min(state.values.layer ?? found.num_layers, found.num_layers);
  head.value = state.values.head <= found.num_heads ? state.values.head : 0;
  layer.onchange = head.onchange = event => { state.values[event.target.id] = event.target.value; draw(); };
  draw();
  return el("div", {}, el("div", { className: "row" },
    el("label", {}, el("span", {}, word("layer")), layer), el("label", {}, el("span", {}, word("head")), head), darkest),
    el("div", { className: "scroll" }, grid));
}

function hue(name) {
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 360;
  return sum;
}

// ---- the fields of a panel

function text(name, { label = word(name), fallback = example(name), rows = 2 } = {}) {
  const box = el("textarea", { id: name, rows, value: state.values[name] ?? fallback, spellcheck: false });
  box.oninput = () => { state.values[name] = box.value; };
  return el("label", {}, el("span", {}, label), box);
}

function knob(name, settings, label = word(name)) {
  const input = el("input", { id: name, type: "range", ...settings }), shown = el("output", {}, input.value);
  input.value = state.values[name] ?? settings.value;
  shown.textContent = input.value;
  input.oninput = () => { state.values[name] = shown.textContent = input.value; };
  return el("label", {}, el("span", {}, label, shown), input);
}

function number(name, settings, label = word(name)) {
  const input = el("input", { id: name, type: "number", ...settings, value: state.values[name] ?? settings.value ?? "" });
  input.oninput = () => { state.values[name] = input.value; };
  return el("label", {}, el("span", {}, label), input);
}

function choice(name, options) {
  const input = el("select", { id: name }, options.map(each => el("option", { value: each }, word(each))));
  input.value = state.values[name] ?? options[0];
  input.onchange = () => { state.values[name] = input.value; };
  return el("label", {}, el("span", {}, word(name)), input);
}

const value = name => $(name).value;
const lines = name => value(name).split("\n").map(line => line.trim()).filter(Boolean);

// ---- the panels

const isKind = (...kinds) => model => kinds.includes(model.abilities.predict);
const can = ability => model => ability in model.abilities;

const PANELS = [
  { id: "fill-mask", group: "use", fits: can("fill-mask"), fields: () => [text("fill-mask", { label: word("text") })],
    async run(model, signal) {
      const sentence = value("fill-mask");
      const { masks } = await ask("/fill-mask", { model, text: sentence, top: 8 }, signal);
      const parts = sentence.split("[MASK]");
      const filled = parts.flatMap((part, i) => i < parts.length - 1 ? [part, el("mark", {}, masks[i]?.[0].word ?? "")] : [part]);
      return [el("div", { className: "sentence" }, filled), el("div", { className: "columns" }, masks.map((guesses, which) =>
        bars(guesses.map(guess => ({ name: guess.word, value: guess.probability })), row => {
          let seen = -1;
          $("fill-mask").value = sentence.replace(/\[MASK\]/g, mask => (seen += 1) === which ? row.name : mask);
          $("fill-mask").dispatchEvent(new Event("input"));
          if (/\[MASK\]/.test(value("fill-mask"))) start(); else $("fill-mask").focus();
        })))];
    } },
  { id: "next-sentence", group: "use", fits: can("next-sentence"), fields: () => [text("first", { label: word("text") }), text("second")],
    async run(model, signal) {
      const { is_next } = await ask("/next-sentence", { model, first: value("first"), second: value("second") }, signal);
      return [bars([{ name: translated("follows"), value: is_next }, { name: translated("unrelated"), value: 1 - is_next }])];
    } },
  { id: "classify", group: "use", fits: isKind("classification", "multi-label", "regression", "similarity"),
    fields: model => [text("classify", { label: word("text") }),
      model.task.has_pairs || model.task.kind === "similarity" ? text("pair", { label: word("second"), fallback: example("second") }) : null],
    async run(model, signal) {
      const input = $("pair") ? [value("classify"), value("pair")] : value("classify");
      const [found] = (await ask("/predict", { model, inputs: [input] }, signal)).predictions;
      if (!found.probabilities) return [el("div", { className: "number" }, (found.value ?? found.similarity ?? found.score ?? 0).toFixed(3))];
      const rows = Object.entries(found.probabilities).map(([name, value]) => ({ name, value }));
      return [bars(rows.sort((a, b) => b.value - a.value).slice(0, 20))];
    } },
  { id: "choice", group: "use", fits: isKind("choice"), fields: () => [text("context"), text("endings", { rows: 3 })],
    async run(model, signal) {
      const endings = lines("endings");
      const [found] = (await ask("/predict", { model, inputs: [{ context: value("context"), endings }] }, signal)).predictions;
      const chances = found.probabilities ?? [];
      return [bars(endings.map((name, i) => ({ name, value: chances[i] ?? Number(found.choice === i) })))];
    } },
  { id: "explain", group: "use", fits: can("explain"), fields: () => [text("explain", { label: word("question") }), text("choices", { rows: 3 })],
    async run(model, signal) {
      const found = await ask("/explain", { model, question: value("explain"), choices: lines("choices") }, signal);
      const order = [...found.choices].sort((a, b) => b.probability - a.probability);
      return [bars(order.map(each => ({ name: each.text, value: each.probability }))),
        el("p", { className: "soft small" }, translated("concepts"), `: ${found.concepts.join(", ") || "–"}`),
        ...order.map((each, i) => el("details", { open: i === 0, className: "explained" },
          el("summary", {}, `${each.text} `, el("span", { className: "soft small" }, `${percent(each.probability)}, `, translated("withoutPaths"), ` ${percent(each.without_paths)}`)),
          ...(each.drawn ? [el("div", { className: "scroll" }, paths(each.drawn)), table({ headings: [translated("path"), translated("weight")],
            rows: each.paths.map(path => [path.text, percent(path.weight)]) })] : [el("p", { className: "soft" }, translated("noPaths"))])))];
    } },
  { id: "answer", group: "use", fits: isKind("spans"), fields: () => [text("question"), text("passage", { rows: 4 })],
    async run(model, signal) {
      const asked = { model, question: value("question"), passage: value("passage") };
      const found = await ask("/answer", asked, signal), letters = asked.passage;
      const shown = found.has_answer
        ? [letters.slice(0, found.start), el("mark", {}, letters.slice(found.start, found.end)), letters.slice(found.end)] : [letters];
      const more = el("details", {}, el("summary", { className: "soft small" }, translated("start")));
      more.ontoggle = async () => {
        if (more.children.length === 1) more.append(await picture("/show/answer", asked, undefined, 1));
      };
      return [found.has_answer ? null : el("p", { className: "error" }, translated("none")), el("div", { className: "sentence" }, shown),
        bars(found.n_best.map(each => ({ name: each.text, value: each.probability }))), more].filter(Boolean);
    } },
  { id: "tag", group: "use", fits: isKind("tagging"), fields: () => [text("tag", { label: word("text") })],
    async run(model, signal) {
      const { words, tags } = await ask("/tag", { model, text: value("tag") }, signal);
      return [el("div", { className: "sentence" }, words.flatMap((each, i) => {
        const kind = tags[i].replace(/^[BIES]-/, "");
        return [kind === "O" ? el("span", { className: "tagged" }, each)
          : el("span", { className: "tagged hue", style: { "--hue": hue(kind) } }, each, el("small", {}, kind)), " "];
      }))];
    } },
  { id: "detect", group: "use", fits: can("detect"), fields: () => [text("detect", { label: word("text") })],
    async run(model, signal) {
      const sentence = value("detect"), { words } = await ask("/detect", { model, text: sentence }, signal);
      const shown = [];
      let end = 0;
      for (const each of words) {
        shown.push(sentence.slice(end, each.start),
          el("span", { className: "word", title: percent(each.probability), style: { "--share": Math.min(1, 1.5 * each.probability) } }, sentence.slice(each.start, each.stop)));
        end = each.stop;
      }
      const suspicious = [...words].sort((a, b) => b.probability - a.probability).slice(0, 5);
      return [el("div", { className: "sentence" }, shown, sentence.slice(end)),
        bars(suspicious.map(each => ({ name: each.word, value: each.probability })))];
    } },
  { id: "similar", group: "use", fits: can("embed"), fields: () => [text("similar", { label: word("texts"), rows: 4 })],
    async run(model, signal) {
      const texts = lines("similar");
      const { data } = await ask("/v1/embeddings", { model, input: texts }, signal);
      const [first, ...others] = data.map(each => each.embedding), length = vector => Math.hypot(...vector);
      const cosine = vector => vector.reduce((sum, each, i) => sum + each * first[i], 0) / (length(vector) * length(first) || 1);
      const rows = others.map((vector, i) => ({ name: texts[i + 1], value: cosine(vector), note: cosine(vector).toFixed(2) }));
      return rows.length ? [bars(rows.sort((a, b) => b.value - a.value))] : [];
    } },
  { id: "generate", group: "use", fits: can("generate"), fields: () => [
    text("prompt", { fallback: example("generate"), rows: 3 }),
    el("div", { className: "knobs" },
      knob("max_tokens", { min: 8, max: 1024, step: 8, value: 96 }), knob("temperature", { min: 0, max: 2, step: 0.05, value: 0.8 }),
      knob("top_p", { min: 0.05, max: 1, step: 0.05, value: 0.95 }), knob("penalty", { min: 1, max: 2, step: 0.05, value: 1.1 }),
      number("top_k", { min: 1, step: 1, placeholder: "–" }), number("seed", { min: 0, step: 1, placeholder: "–" }))],
    run: write },
  { id: "tokens", group: "see", fits: can("tokens"), fields: () => [text("tokens", { label: word("text") }), text("also", { label: `${word("second")} (${word("optional")})`, fallback: "", rows: 1 })],
    run: async (model, signal) => [await picture("/show/tokens", { model, text: value("tokens"), pair: value("also") || null }, signal)] },
  { id: "masking", group: "see", fits: can("masking"), fields: () => [text("tokens", { label: word("text") }), maskingKnobs(["token", "word", "ngram"])],
    run: async (model, signal) => [await picture("/show/masking", { model, text: value("tokens"), unit: value("unit"), ...masking() }, signal)] },
  { id: "replaced", group: "see", fits: can("replaced"), fields: () => [text("tokens", { label: word("text") }), maskingKnobs()],
    run: async (model, signal) => [await picture("/show/replaced", { model, text: value("tokens"), ...masking() }, signal)] },
  { id: "attention", group: "see", fits: can("attention"), fields: () => [text("tokens", { label: word("text") }), text("also", { label: `${word("second")} (${word("optional")})`, fallback: "", rows: 1 })],
    run: async (model, signal) => [await picture("/show/attention", { model, text: value("tokens"), pair: value("also") || null }, signal)] },
  { id: "curves", group: "runs", fits: () => state.hasRuns, watch: watchRuns },
];

// ---- runs

const COLORS = [210, 25, 150, 280, 340, 50, 190, 100]; // hues
const LOOK_EVERY = 3000; // milliseconds

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "hue") made.style.setProperty("--hue", value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function paths(found) { // of a knowledge graph: from the concepts of the question to those of the answer
  const drawn = svg("svg", { viewBox: `0 0 ${found.width} ${found.height}`, width: found.width, class: "paths", role: "img", "aria-label": word("paths"), "data-label": "paths" });
  for (const line of found.lines) {
    drawn.append(svg("line", { x1: line.x1, y1: line.y1, x2: line.x2, y2: line.y2, "stroke-opacity": 0.25 + 0.75 * line.weight, "stroke-width": 1 + 7 * line.weight },
      svg("title", {}, `${line.name}: ${percent(line.weight)}`)));
  }
  for (const line of found.lines) {
    drawn.append(svg("text", { x: line.label[0], y: line.label[1] - 5, class: "relation" }, line.is_backwards ? `◂ ${line.name}` : `${line.name} ▸`));
  }
  for (const box of found.boxes) {
    drawn.append(svg("rect", { x: box.x, y: box.y, width: found.box_width, height: found.box_height, rx: 8, class: box.kind }),
      svg("text", { x: box.x + found.box_width / 2, y: box.y + found.box_height / 2 + 4, class: "concept" }, box.name));
  }
  return drawn;
}

function chart(runs) { // training as lines, validation as dots
  const width = 760, height = 330, left = 46, bottom = 30;
  const points = runs.flatMap(run => Object.values(run.curves).flat()).filter(point => Number.isFinite(point[1]));
  if (!points.length) return el("p", { className: "soft" }, word("noRuns"));
  const losses = points.map(point => point[1]), low = Math.min(...losses), high = Math.max(...losses, low + 1e-9);
  const last = Math.max(...points.map(point => point[0]), 1);
  const x = step => left + (width - left - 8) * step / last, y = loss => 8 + (height - bottom - 8) * (high - loss) / (high - low);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "curve", role: "img", "aria-label": `${word("loss")}, ${word("step")}` });
  for (let i = 0; i <= 4; i++) {
    const loss = low + (high - low) * i / 4, step = last * i / 4;
    drawn.append(svg("line", { x1: left, x2: width - 8, y1: y(loss), y2: y(loss), class: "rule" }),
      svg("text", { x: left - 6, y: y(loss) + 4, "text-anchor": "end" }, loss.toPrecision(3)),
      svg("text", { x: x(step), y: height - 8, "text-anchor": i === 4 ? "end" : i ? "middle" : "start" }, Math.round(step).toLocaleString()));
  }
  for (const run of runs) {
    const line = (run.curves.train ?? []).filter(point => Number.isFinite(point[1]));
    drawn.append(svg("polyline", { points: line.map(point => `${x(point[0])},${y(point[1])}`).join(" "), hue: run.hue, class: "line" }));
    for (const point of run.curves.validation ?? []) drawn.append(svg("circle", { cx: x(point[0]), cy: y(point[1]), r: 3, hue: run.hue, class: "dot" }));
  }
  return drawn;
}

async function watchRuns() {
  const box = el("div", { id: "result" }), hidden = state.hidden ??= new Set();
  $("panel").append(box);
  while (box.isConnected) {
    try {
      const { runs } = await ask("/runs");
      if (!box.isConnected) return;
      runs.forEach((run, i) => { run.hue = COLORS[i % COLORS.length]; });
      const rows = runs.map(run => {
        const tick = el("input", { type: "checkbox", checked: !hidden.has(run.name), onchange: () => { hidden[tick.checked ? "delete" : "add"](run.name); show(); } });
        const fast = run.curves.train?.at(-1)?.[2];
        const swatch = el("label", { className: "swatch", style: { "--hue": run.hue } }, tick, run.name);
        return el("tr", {}, [swatch, run.what, run.state, run.result, run.step == null ? "" : `${run.step.toLocaleString()} / ${run.num_steps.toLocaleString()}`,
          fast ? Math.round(fast).toLocaleString() : ""].map(each => el("td", {}, each ?? "")));
      });
      const show = () => box.replaceChildren(chart(runs.filter(run => !hidden.has(run.name)).slice(0, 12)), el("div", { className: "scroll" },
        el("table", { className: "values" }, el("thead", {}, el("tr", {}, ["", "", "", word("result"), word("step"), word("speed")].map(each => el("th", {}, each)))), el("tbody", {}, rows))));
      show();
    } catch (error) {
      box.replaceChildren(el("p", { className: "error", role: "alert" }, translated(error.message)));
    }
    await new Promise(resolve => setTimeout(resolve, LOOK_EVERY));
  }
}

function maskingKnobs(units) {
  return el("div", { className: "knobs" }, units ? choice("unit", units) : null,
    knob("share", { min: 0.05, max: 0.6, step: 0.05, value: 0.15 }), knob("num", { min: 1, max: 10, step: 1, value: units ? 5 : 2 }),
    number("seed", { min: 0, step: 1, placeholder: "0" }));
}
const masking = () => ({ probability: +value("share"), num: +value("num"), seed: +value("seed") || 0 });

async function write(model, signal) {
  const prompt = value("prompt"), optional = name => value(name) === "" ? null : +value(name);
  const answer = await request("/v1/completions", {
    model, prompt, stream: true, max_tokens: +value("max_tokens"), temperature: +value("temperature"), top_p: +value("top_p"),
    top_k: optional("top_k"), seed: optional("seed"), repetition_penalty: +value("penalty"), stream_options: { include_usage: true },
  }, signal);
  const written = el("span"), note = el("p", { className: "soft small" });
  $("result").replaceChildren(el("div", { className: "written" }, el("span", { className: "prompt" }, prompt), written), note);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader(), started = performance.now();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const events = (rest + part.value).split("\n\n");
    rest = events.pop();
    for (const event of events.map(each => each.slice(6)).filter(each => each !== "[DONE]")) {
      const found = JSON.parse(event);
      if (found.error) throw new Refusal(found.error.message);
      for (const each of found.choices) written.textContent += each.text;
      if (found.usage) note.replaceChildren(`${(1000 * found.usage.completion_tokens / (performance.now() - started)).toFixed(0)} `, translated("rate"));
    }
  }
  return null; // it is already shown
}

// ---- tabs

const panels = () => PANELS.filter(panel => state.models.some(panel.fits));
const current = () => panels().find(panel => panel.id === location.hash.slice(1)) ?? panels()[0];

function drawTabs() {
  const nodes = [];
  let group;
  for (const panel of panels()) {
    if (panel.group !== group) nodes.push(el("h2", { role: "presentation" }, word(group = panel.group)));
    const isCurrent = panel === current();
    nodes.push(el("button", { type: "button", role: "tab", id: `tab-${panel.id}`, "aria-selected": isCurrent, "aria-controls": "panel",
      tabIndex: isCurrent ? 0 : -1, onclick: () => { location.hash = panel.id; } }, word(panel.id)[0]));
  }
  $("tabs").replaceChildren(...nodes);
  $("tabs").querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

const drawRunButton = () => { if ($("run")) $("run").textContent = word(state.running ? "stop" : "run"); };
const drawThemeButton = () => { $("theme").textContent = word(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); };

function draw(result = null) { // a result that is given stays, and so does a request that is running
  for (const each of document.querySelectorAll("[data-word]")) each.textContent = word(each.dataset.word);
  for (const each of document.querySelectorAll("[data-label]")) each.setAttribute("aria-label", word(each.dataset.label));
  document.documentElement.lang = state.language;
  $("language").textContent = word("other");
  drawThemeButton();
  $("about").textContent = state.models.map(model => model.name).join(", ");
  drawTabs();
  const panel = current();
  if (!panel) return;
  if (!result) { state.running?.abort(); state.running = null; }
  const [title, lead] = word(panel.id);
  $("panel").setAttribute("aria-labelledby", `tab-${panel.id}`);
  if (panel.watch) {
    $("panel").replaceChildren(el("h2", {}, title), el("p", { className: "lead" }, lead));
    panel.watch();
    return;
  }
  const able = state.models.filter(panel.fits);
  const model = state.model = able.find(each => each.name === state.chosen[panel.id]) ?? able[0];
  const select = el("select", { id: "model" }, able.map(each => el("option", { value: each.name }, each.name)));
  select.value = model.name;
  select.onchange = () => { state.chosen[panel.id] = select.value; draw(); };
  const button = el("button", { className: "primary", id: "run" });
  const form = el("form", { onsubmit: event => { event.preventDefault(); start(); } },
    panel.fields(model), el("div", { className: "row" }, able.length > 1 ? el("label", {}, el("span", {}, word("model")), select) : null, button));
  form.dataset.model = model.name;
  $("panel").replaceChildren(el("h2", {}, title), el("p", { className: "lead" }, lead), form, result ?? el("div", { id: "result", "aria-live": "polite" }));
  drawRunButton();
}

async function start() {
  const form = document.querySelector("main form"), panel = current();
  if (!form) return;
  if (state.running) { state.running.abort(); return; }
  const running = state.running = new AbortController();
  drawRunButton();
  try {
    const found = await panel.run(form.dataset.model, running.signal);
    if (found && !running.signal.aborted) $("result").replaceChildren(...found);
  } catch (error) {
    if (error.name !== "AbortError") {
      if (!(error instanceof Refusal)) console.error(error);
      $("result").replaceChildren(el("p", { className: "error", role: "alert" }, translated(error.message)));
    }
  } finally {
    if (state.running === running) state.running = null;
    drawRunButton();
  }
}

addEventListener("hashchange", () => { draw(); $(`tab-${current().id}`)?.focus(); });
addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); if (!state.running) start(); }
  else if (event.key === "Escape") state.running?.abort();
  else if (event.target.role === "tab" && ["ArrowDown", "ArrowRight", "ArrowUp", "ArrowLeft", "Home", "End"].includes(event.key)) {
    const all = panels(), at = all.indexOf(current());
    const next = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    event.preventDefault();
    location.hash = all.at(next % all.length).id;
  }
});
$("language").onclick = () => {
  state.language = state.language === "ko" ? "en" : "ko";
  store.set("language", state.language);
  draw($("result"));
  for (const box of document.querySelectorAll(".picture")) box.redraw().catch(() => { /* stays as it is */ });
};
function setTheme(theme) { document.documentElement.dataset.theme = theme; }
$("theme").onclick = () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  store.set("theme", document.documentElement.dataset.theme);
  drawThemeButton();
};
setTheme(store.get("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
try {
  const found = await ask("/models");
  state.models = found.models;
  state.hasRuns = found.has_runs;
  draw();
} catch (error) {
  draw();
  $("panel").replaceChildren(el("p", { className: "error", role: "alert" }, translated(error.message)));
}
