// Elements are made only here. Data becomes text, never markup: no string is parsed as HTML on this page, and a
// link leads only to a place of this page.
import { visible } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "open", "hidden", "indeterminate"]);
const TEXTS = new Set(["title", "aria-label", "placeholder", "aria-valuetext"]);

// An element of the page: settings are attributes, `on…` listeners and a few properties; null leaves one out.
export function h(name, settings, ...children) {
  return filled(document.createElement(name), settings, children);
}

// Elements with a class, or without, of which most of the page consists.
export const div = (kind, ...children) => h("div", { class: kind }, children);
export const p = (kind, ...children) => h("p", { class: kind }, children);
export const span = (kind, ...children) => h("span", { class: kind }, children);

// An element of a drawing.
export function drawn(name, settings, ...children) {
  return filled(document.createElementNS(SVG, name), settings, children);
}

function filled(element, settings, children) {
  for (const [key, value] of Object.entries(settings ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (PROPERTIES.has(key)) element[key] = value;
    else element.setAttribute(key, checked(key, value));
  }
  put(element, children);
  return element;
}

function checked(key, value) {
  if (key === "href" && !String(value).startsWith("#")) throw new Error("a link leaves the page");
  if (value === true) return "";
  return TEXTS.has(key) ? visible(String(value)) : String(value);
}

// Append children to an element: nodes unchanged, others as visible text.
export function put(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
}

// Replace the content of an element.
export function fill(element, ...children) {
  element.replaceChildren();
  put(element, ...children);
}

// Replace the content of an element. A child with the same `data-key` stays: a click may have begun on it.
export function keep(element, children) {
  const wanted = new Map(children.map((child) => [child.dataset.key, child]));
  for (const child of [...element.children]) {
    if (wanted.has(child.dataset.key)) wanted.set(child.dataset.key, child);
    else child.remove();
  }
  let next = element.firstChild;
  for (const child of wanted.values()) {
    if (child === next) next = next.nextSibling;
    else element.insertBefore(child, next);
  }
}

// A button that does something on this page.
export function button(label, action, settings) {
  return h("button", { type: "button", onclick: action, ...settings }, label);
}

// Content that is folded, and made when the user opens it.
export function folded(summary, make, settings) {
  const box = h("details", settings, h("summary", null, summary));
  const open = () => {
    if (!box.open || box.dataset.made) return;
    box.dataset.made = "1";
    put(box, make());
  };
  box.addEventListener("toggle", open);
  if (settings?.open) open();
  return box;
}

// A table of texts: the first `nText` columns are words, the rest numbers.
export function table(headings, rows, nText = 1, settings) {
  const cells = (texts, name) =>
    texts.map((text, place) =>
      h(name, { class: place < nText ? "word" : "number", scope: name === "th" ? "col" : null }, text),
    );
  const head = h("thead", null, h("tr", null, cells(headings, "th")));
  const body = h(
    "tbody",
    null,
    rows.map((texts) => h("tr", null, cells(texts, "td"))),
  );
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", ...settings },
    h("table", null, head, body),
  );
}

// Tell screen readers what has just changed.
export function say(text) {
  const place = document.getElementById("said");
  if (place) place.textContent = visible(text);
}

// An error as a box: the message, and what to do about it.
export function trouble(error) {
  return h(
    "div",
    { class: "trouble", role: "alert" },
    p(null, error.message),
    error.hint && p("hint", error.hint),
  );
}
