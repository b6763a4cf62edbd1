// The panels: the fields of each, and what a run of it shows.
import { $, Refusal, ask, el, example, percent, request, state, translated, word } from "./base.js";
import { bars, hue, picture, table } from "./pictures.js";
import { watchRuns } from "./runs.js";

// ---- fields

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
const parts = whole => { const characters = [...whole]; return (from, to) => characters.slice(from, to).join(""); }; // by characters, as the server counts
const lines = name => value(name).split("\n").map(line => line.trim()).filter(Boolean);

function maskingKnobs(units) {
  return el("div", { className: "knobs" }, units ? choice("unit", units) : null,
    knob("share", { min: 0.05, max: 0.6, step: 0.05, value: 0.15 }), knob("num", { min: 1, max: 10, step: 1, value: units ? 5 : 2 }),
    number("seed", { min: 0, step: 1, placeholder: "0" }));
}
const masking = () => ({ probability: +value("share"), num: +value("num"), seed: +value("seed") || 0 });

const textAndPair = () => [text("tokens", { label: word("text") }), text("also", { label: `${word("second")} (${word("optional")})`, fallback: "", rows: 1 })];
const pairValues = () => ({ text: value("tokens"), pair: value("also") || null });

// ---- the panels

const isKind = (...kinds) => model => kinds.includes(model.abilities.predict);
const can = ability => model => ability in model.abilities;

export const PANELS = [
  { id: "fill-mask", group: "use", fits: can("fill-mask"), fields: () => [text("fill-mask", { label: word("text") })],
    async run(model, signal) {
      const sentence = value("fill-mask");
      const { masks } = await ask("/fill-mask", { model, text: sentence, top_k: 8 }, signal);
      const parts = sentence.split("[MASK]");
      const filled = parts.flatMap((part, i) => i < parts.length - 1 ? [part, el("mark", {}, masks[i]?.[0].word ?? "")] : [part]);
      return [el("div", { className: "sentence" }, filled), el("div", { className: "columns" }, masks.map((guesses, index) =>
        bars(guesses.map(guess => ({ name: guess.word, value: guess.probability })), row => {
          let seen = -1;
          $("fill-mask").value = sentence.replace(/\[MASK\]/g, mask => (seen += 1) === index ? row.name : mask);
          $("fill-mask").dispatchEvent(new Event("input"));
          if (/\[MASK\]/.test(value("fill-mask"))) $("fill-mask").form.requestSubmit(); else $("fill-mask").focus();
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
  { id: "choice", group: "use", fits: isKind("choice"), fields: () => [text("context"), text("options", { label: word("choices"), rows: 3 })],
    async run(model, signal) {
      const choices = lines("options");
      const [found] = (await ask("/predict", { model, inputs: [{ context: value("context"), choices }] }, signal)).predictions;
      const probabilities = found.probabilities ?? [];
      return [bars(choices.map((name, i) => ({ name, value: probabilities[i] ?? Number(found.choice === i) })))];
    } },
  { id: "explain", group: "use", fits: can("explain"), fields: () => [text("explain", { label: word("question") }), text("choices", { rows: 3 })],
    async run(model, signal) {
      const found = await ask("/explain", { model, question: value("explain"), choices: lines("choices") }, signal);
      const order = [...found.choices].sort((a, b) => b.probability - a.probability);
      return [bars(order.map(each => ({ name: each.text, value: each.probability }))),
        el("p", { className: "soft small" }, translated("concepts"), `: ${found.concepts.join(", ") || "–"}`),
        ...order.map((each, i) => el("details", { open: i === 0, className: "explained" },
          el("summary", {}, `${each.text} `, el("span", { className: "soft small" }, `${percent(each.probability)}, `, translated("withoutPaths"), ` ${percent(each.without_paths)}`)),
          ...(each.drawn ? [el("div", { className: "scroll", innerHTML: each.drawn }), table({ headings: [translated("path"), translated("weight")],
            rows: each.paths.map(path => [path.text, percent(path.weight)]) })] : [el("p", { className: "soft" }, translated("noPaths"))])))];
    } },
  { id: "answer", group: "use", fits: isKind("spans"), fields: () => [text("question"), text("passage", { rows: 4 })],
    async run(model, signal) {
      const question = { model, question: value("question"), passage: value("passage") };
      const found = await ask("/answer", question, signal), part = parts(question.passage);
      const shown = found.has_answer
        ? [part(0, found.start), el("mark", {}, part(found.start, found.end)), part(found.end)] : [question.passage];
      const more = el("details", {}, el("summary", { className: "soft small" }, translated("start")));
      more.ontoggle = async () => {
        if (more.children.length === 1) more.append(await picture("/show/answer", question, undefined, 1));
      };
      return [found.has_answer ? null : el("p", { className: "error" }, translated("none")), el("div", { className: "sentence" }, shown),
        bars(found.n_best.map(each => ({ name: each.text, value: each.probability }))), more].filter(Boolean);
    } },
  { id: "tag", group: "use", fits: isKind("tagging"), fields: () => [text("tag", { label: word("text") })],
    async run(model, signal) {
      const { words, tags } = await ask("/tag", { model, text: value("tag") }, signal);
      return [el("div", { className: "sentence" }, words.flatMap((each, i) => {
        const kind = tags[i].replace(/^[BIESLU]-/, "");
        return [kind === "O" ? el("span", { className: "tagged" }, each)
          : el("span", { className: "tagged hue", style: { "--hue": hue(kind) } }, each, el("small", {}, kind)), " "];
      }))];
    } },
  { id: "detect", group: "use", fits: can("detect"), fields: () => [text("detect", { label: word("text") })],
    async run(model, signal) {
      const sentence = value("detect"), { words } = await ask("/detect", { model, text: sentence }, signal);
      const shown = [], part = parts(sentence);
      let end = 0;
      for (const each of words) {
        shown.push(part(end, each.start),
          el("span", { className: "word", title: percent(each.probability), style: { "--share": Math.min(1, 1.5 * each.probability) } }, part(each.start, each.end)));
        end = each.end;
      }
      const suspicious = [...words].sort((a, b) => b.probability - a.probability).slice(0, 5);
      return [el("div", { className: "sentence" }, shown, part(end)),
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
    ...promptFields(),
    el("div", { className: "knobs" },
      knob("max_tokens", { min: 8, max: 1024, step: 8, value: 96 }), knob("temperature", { min: 0, max: 2, step: 0.05, value: 0.8 }),
      knob("top_p", { min: 0.05, max: 1, step: 0.05, value: 0.95 }), knob("penalty", { min: 1, max: 2, step: 0.05, value: 1.1 }),
      number("top_k", { min: 1, step: 1, placeholder: "–" }), number("seed", { min: 0, step: 1, placeholder: "–" }))],
    run: write },
  { id: "tokens", group: "see", fits: can("tokens"), fields: textAndPair,
    run: async (model, signal) => [await picture("/show/tokens", { model, ...pairValues() }, signal)] },
  { id: "masking", group: "see", fits: can("masking"), fields: () => [text("tokens", { label: word("text") }), maskingKnobs(["token", "word", "ngram"])],
    run: async (model, signal) => [await picture("/show/masking", { model, text: value("tokens"), unit: value("unit"), ...masking() }, signal)] },
  { id: "replaced", group: "see", fits: can("replaced"), fields: () => [text("tokens", { label: word("text") }), maskingKnobs()],
    run: async (model, signal) => [await picture("/show/replaced", { model, text: value("tokens"), ...masking() }, signal)] },
  { id: "attention", group: "see", fits: can("attention"), fields: textAndPair,
    run: async (model, signal) => [await picture("/show/attention", { model, ...pairValues() }, signal)] },
  { id: "forms", group: "see", fits: can("forms"), fields: () => [text("premise", { label: word("text") }), text("hypothesis", { label: word("second") })],
    run: async (model, signal) => [await picture("/show/forms", { model, text: value("premise"), pair: value("hypothesis") }, signal)] },
  { id: "parameters", group: "see", fits: can("parameters"), fields: () => [], isAutomatic: true,
    run: async (model, signal) => [await picture("/show/parameters", { model }, signal)] },
  { id: "curves", group: "runs", fits: () => state.hasRuns, watch: watchRuns },
];

// ---- writing on

const shots = () => state.values.shots ??= []; // examples before the prompt: {input, output}

function wholePrompt() { // with the examples, in the form of GPT-3's paper: one per line, and the prompt as the last one
  const given = shots().map(each => [each.input.trim(), each.output.trim()]).filter(each => each.some(Boolean));
  if (!given.length) return { prompt: value("prompt"), stop: null };
  const sign = value("sign").trim(), between = given.flat().some(each => each.includes("\n")) ? "\n\n" : "\n";
  const solved = given.map(([input, output]) => [input, sign, output].filter(Boolean).join(" "));
  return { prompt: [...solved, [value("prompt").trim(), sign].filter(Boolean).join(" ")].join(between), stop: between };
}

function promptFields() {
  const rows = el("div", { id: "shots" }), whole = el("pre", { id: "whole" });
  const sign = el("input", { id: "sign", value: state.values.sign ?? "=>", autocomplete: "off" });
  const prompt = text("prompt", { fallback: example("generate"), rows: 3 });
  const more = el("div", { className: "row" }, el("label", { className: "short" }, el("span", {}, word("sign")), sign));
  const shown = el("div", {}, el("div", { className: "soft small" }, word("whole")), whole);
  const update = () => { if (whole.isConnected) whole.textContent = wholePrompt().prompt; };
  const box = (each, name, number) => {
    const field = el("textarea", { rows: 1, value: each[name], placeholder: example(name), spellcheck: false, "aria-label": `${word(name)} ${number}` });
    field.oninput = () => { each[name] = field.value; update(); };
    return field;
  };
  const drawRows = () => {
    rows.replaceChildren(...shots().map((each, i) => el("div", { className: "shot" }, box(each, "input", i + 1), el("span", { "aria-hidden": "true" }, "→"), box(each, "output", i + 1),
      el("button", { type: "button", className: "quiet", title: word("remove"), "aria-label": `${word("remove")} ${i + 1}`, onclick: () => { shots().splice(i, 1); drawRows(); add.focus(); } }, "×"))));
    more.hidden = shown.hidden = !shots().length;
    update();
  };
  const add = el("button", { type: "button", className: "quiet add", id: "add", onclick: () => {
    shots().push({ input: "", output: "" });
    drawRows();
    rows.lastChild.querySelector("textarea").focus();
  } }, `+ ${word("add")}`);
  sign.oninput = () => { state.values.sign = sign.value; update(); };
  prompt.addEventListener("input", update);
  drawRows();
  queueMicrotask(update); // once the fields are on the page
  return [el("fieldset", {}, el("legend", {}, `${word("shots")} (${word("optional")})`), rows, el("div", { className: "row" }, add, more)), prompt, shown];
}

async function write(model, signal) {
  const { prompt, stop } = wholePrompt(), optional = name => value(name) === "" ? null : +value(name);
  const answer = await request("/v1/completions", {
    model, prompt, stop, stream: true, max_tokens: +value("max_tokens"), temperature: +value("temperature"), top_p: +value("top_p"),
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
  if (!written.textContent) written.replaceWith(el("em", { className: "soft" }, " ", translated("empty")));
  return null; // it is already shown
}
