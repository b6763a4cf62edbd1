// What results look like.
import { ask, el, percent, state, word } from "./base.js";

export function bars(rows, pick) { // rows: {name, value (0 to 1), note}
  const largest = Math.max(...rows.map(row => row.value));
  return el("ul", { className: "bars" }, rows.map(row => {
    const parts = [el("span", { className: "fill", style: { width: percent(Math.max(0, row.value)) } }),
      el("span", { className: "name" }, row.name), el("span", { className: "value" }, row.note ?? percent(row.value))];
    const inside = pick ? el("button", { type: "button", onclick: () => pick(row) }, parts) : parts;
    return el("li", { className: row.value === largest ? "best" : "" }, inside);
  }));
}

export function tokenRow(cells) {
  return el("div", { className: "strip" }, cells.map(cell =>
    el("span", { className: `cell ${cell.mark}` }, cell.text, cell.note ? el("small", {}, cell.note) : null)));
}

export function table({ title, headings, rows, kind = "" }) { // a last column of numbers is set to the right
  const isNumber = rows.length && rows.every(row => /^[\d.,]+%?$/.test(row.at(-1)));
  const line = (tag, cells) => el("tr", {}, cells.map((each, i) =>
    el(tag, { className: isNumber && i === cells.length - 1 ? "right" : "" }, each instanceof Node ? each : String(each))));
  return el("div", { className: "scroll" }, title ? el("h3", {}, title) : null, el("table", { className: `values ${kind}` },
    headings.some(Boolean) ? el("thead", {}, line("th", headings)) : null, el("tbody", {}, rows.map(row => line("td", row)))));
}

function pictureParts(found) {
  return [
    ...found.notes.map(note => el("p", { className: "soft small" }, note)),
    ...(found.attention?.num_layers ? [attention(found.attention)] : found.token_rows.map(each =>
      el("div", {}, el("div", { className: "soft small" }, each.label), tokenRow(each.cells)))),
    Object.keys(found.legend).length ? el("div", { className: "legend" }, Object.entries(found.legend).map(([mark, meaning]) => el("span", { className: `cell ${mark}` }, meaning))) : null,
    ...found.tables.map(table),
  ].filter(Boolean);
}

export async function picture(path, body, signal, skip = 0) { // its words come from the server, which is asked again for another language
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

export function hue(name) {
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 360;
  return sum;
}
