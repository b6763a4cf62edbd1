// Shared by all parts of the page: its state, elements, and requests to the server.
import { WORDS } from "./words.js";

export const store = { // what the browser remembers, where it may
  get(name) { try { return localStorage.getItem(name); } catch { return null; } },
  set(name, value) { try { localStorage.setItem(name, value); } catch { /* private window */ } },
};
export const state = {
  language: WORDS[store.get("language")] ? store.get("language") : (navigator.language || "").startsWith("ko") ? "ko" : "en",
  models: [], model: null, values: {}, chosen: {}, key: sessionStorage.getItem("key") || "", running: null,
};
export const word = name => WORDS[state.language][name] ?? name;
export const example = name => WORDS[state.model?.language ?? "en"].examples[name] ?? ""; // in the language of the model
export const percent = fraction => `${(100 * fraction).toFixed(fraction < 0.0995 ? 1 : 0)}%`;
export const $ = id => document.getElementById(id);

export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.flat().filter(each => each != null));
  return element;
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "hue") element.style.setProperty("--hue", value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// A word that follows the language of the page. Other texts, such as errors of the server, stay as they are.
export const translated = name => el("span", { "data-word": name }, word(name));

// ---- the server

export class Refusal extends Error {}

export async function request(path, body, signal) {
  const headers = { "Content-Type": "application/json", ...(state.key && { Authorization: `Bearer ${state.key}` }) };
  const options = body === undefined ? { headers, signal } : { method: "POST", headers, body: JSON.stringify(body), signal };
  const response = await fetch(path.slice(1), options).catch(error => {
    throw error.name === "AbortError" ? error : new Refusal("failed");
  });
  if (response.status === 401) {
    await askForKey();
    return request(path, body, signal);
  }
  if (!response.ok) {
    const details = await response.json().catch(() => ({}));
    throw new Refusal(details.error?.message ?? `${response.status} ${response.statusText}`);
  }
  return response;
}
export const ask = async (path, body, signal) => (await request(path, body, signal)).json();

export function askForKey() {
  const dialog = $("key");
  dialog.showModal();
  return new Promise(resolve => dialog.addEventListener("close", () => {
    state.key = $("key-value").value.trim();
    sessionStorage.setItem("key", state.key);
    resolve();
  }, { once: true }));
}
