// The page of `hornbook serve`: panels for what the loaded models can do. No build step, nothing from elsewhere is loaded.
import { $, Refusal, ask, el, state, store, translated, word } from "./base.js";
import { PANELS } from "./panels.js";

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
  markHiddenTabs();
}

function markHiddenTabs() { // on a phone, the row of tabs fades out where it can be scrolled
  const tabs = $("tabs"), left = tabs.scrollLeft > 1, right = tabs.scrollLeft + tabs.clientWidth < tabs.scrollWidth - 1;
  tabs.dataset.more = left && right ? "both" : left ? "start" : right ? "end" : "none";
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
  const model = state.model = able.find(each => each.name === state.chosen[panel.id]) ?? able.find(each => each.language === state.language) ?? able[0];
  const select = el("select", { id: "model" }, able.map(each => el("option", { value: each.name }, each.name)));
  select.value = model.name;
  select.onchange = () => { state.chosen[panel.id] = select.value; draw(); };
  const button = el("button", { className: "primary", id: "run" });
  const form = el("form", { onsubmit: event => { event.preventDefault(); start(); } },
    panel.fields(model), el("div", { className: "row" }, able.length > 1 ? el("label", { className: "short" }, el("span", {}, word("model")), select) : null, panel.isAutomatic ? null : button));
  form.dataset.model = model.name;
  $("panel").replaceChildren(el("h2", {}, title), el("p", { className: "lead" }, lead), form, result ?? el("div", { id: "result", "aria-live": "polite" }));
  drawRunButton();
  if (panel.isAutomatic && !result) start();
}

async function start() {
  const form = document.querySelector("main form"), panel = current();
  if (!form) return;
  if (state.running) { state.running.abort(); return; }
  state.chosen[panel.id] = form.dataset.model;
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
$("tabs").addEventListener("scroll", markHiddenTabs, { passive: true });
addEventListener("resize", markHiddenTabs);
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
