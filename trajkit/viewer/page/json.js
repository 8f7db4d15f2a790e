// Show JSON: short values in a line, long ones folded, numbers as written.
import { button, div, fill, folded, h, put, span } from "./dom.js";
import { counted, short } from "./format.js";
import { words } from "./words.js";

const LONGEST = 2_000_000;
const IN_A_LINE = 72;
const AT_ONCE = 100;
const OPEN_DEPTH = 2;

// A number that would lose digits if it were parsed.
class Written {
  constructor(text) {
    this.text = text;
  }
}

// The value of a text that is a JSON object or array; undefined when it is not one.
export function jsonOf(text) {
  const first = text.trimStart()[0];
  if ((first !== "{" && first !== "[") || text.length > LONGEST) return undefined;
  try {
    return JSON.parse(text, (_, value, context) =>
      typeof value === "number" && context?.source && String(value) !== context.source
        ? new Written(context.source)
        : value,
    );
  } catch {
    return undefined;
  }
}

// A text that is JSON, as a tree and as written.
export function jsonText(text, value) {
  const place = h("div");
  let isRaw = false;
  const draw = () => {
    fill(place, isRaw ? words(text, { kind: "words code" }) : jsonTree(value));
    change.setAttribute("aria-pressed", String(isRaw));
  };
  const change = button("as written", () => ((isRaw = !isRaw), draw()), { class: "quiet raw" });
  draw();
  return div("json", change, place);
}

// A value as a tree that unfolds.
export function jsonTree(value, depth = 0) {
  if (!isMany(value)) return scalar(value);
  const line = inALine(value);
  if (line) return line;
  const entries = Object.entries(value);
  const isOpen = depth < OPEN_DEPTH && entries.length <= AT_ONCE;
  const summary = Array.isArray(value) ? `[ ${counted(entries.length, "item")} ]` : `{ ${names(entries)} }`;
  const make = () => children(entries, depth + 1, Array.isArray(value));
  if (depth === 0 && entries.length <= AT_ONCE) return make();
  return folded(summary, make, { class: "tree", open: isOpen });
}

function isMany(value) {
  return typeof value === "object" && value !== null && !(value instanceof Written);
}

function names(entries) {
  return short(entries.map(([key]) => key).join(", "), 60);
}

function inALine(value) {
  const entries = Object.entries(value);
  if (entries.length > 6 || entries.some(([, inner]) => isMany(inner))) return null;
  const length = entries.reduce((sum, [key, inner]) => sum + key.length + String(inner).length + 6, 0);
  if (length > IN_A_LINE) return null;
  const isList = Array.isArray(value);
  const inside = entries.map(([key, inner], place) => [
    place > 0 && ", ",
    !isList && [span("key", key), ": "],
    scalar(inner),
  ]);
  return span("flat", isList ? "[" : "{", inside, isList ? "]" : "}");
}

function children(entries, depth, isList) {
  const list = h("ul", { class: "entries" });
  let at = 0;
  const step = () => {
    for (const [key, value] of entries.slice(at, at + AT_ONCE)) put(list, entry(key, value, depth, isList));
    at += AT_ONCE;
    if (at < entries.length) {
      const label = `${counted(entries.length - at, "more entry", "more entries")}`;
      const next = h(
        "li",
        null,
        button(label, () => (next.remove(), step()), { class: "quiet" }),
      );
      put(list, next);
    }
  };
  step();
  return list;
}

function entry(key, value, depth, isList) {
  return h("li", null, h("span", { class: isList ? "place" : "key" }, key), ": ", jsonTree(value, depth));
}

function scalar(value) {
  if (value instanceof Written) return span("a-number", value.text);
  if (typeof value === "string")
    return value.length > 200 || value.includes("\n")
      ? words(value, { kind: "words a-text" })
      : span("a-text", JSON.stringify(value));
  return h("span", { class: typeof value === "number" ? "a-number" : "a-word" }, String(value));
}
