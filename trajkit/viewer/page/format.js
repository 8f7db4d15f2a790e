// Format values, columns and outcomes for people. Unknown is a dash, never 0.
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const EXACT = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const SMALL = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

// The text for an unknown value.
export const UNKNOWN = "–";

// controls other than line feed and tab, marks that change the direction of writing, and zero-width characters
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]/g;

// The same text, with invisible characters and those that reverse text made visible.
export function visible(text) {
  return text.replace(/\r\n/g, "\n").replace(HIDDEN, (character) => {
    const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    return `\u27e8U+${code}\u27e9`;
  });
}

// 1,234
export function count(number) {
  return number === null || number === undefined ? UNKNOWN : WHOLE.format(number);
}

// "1 step", "2 steps"
export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// A number with four digits at most; yes and no for booleans.
export function number(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size >= 1000) return size < 1e7 ? WHOLE.format(value) : brief(value);
  return (size !== 0 && size < 1e-4 ? value.toExponential(1) : EXACT.format(value)).replace("-", "\u2212");
}

// 0.25, 1,200, 3.4M
export function brief(value) {
  if (value === null || value === undefined) return UNKNOWN;
  const size = Math.abs(value);
  if (size >= 1e9) return `${SMALL.format(value / 1e9)}G`;
  if (size >= 1e6) return `${SMALL.format(value / 1e6)}M`;
  if (size >= 1e4) return `${SMALL.format(value / 1e3)}k`;
  if (size >= 1000 || Number.isInteger(value)) return WHOLE.format(value);
  return SMALL.format(value);
}

// +0.5, −1; nothing stays 0
export function signed(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}

// 320 ms, 1.4 s, 2 min 5 s
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return null;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

// 2026-11-21 18:12 UTC
export function moment(iso) {
  const date = new Date(iso ?? NaN);
  return Number.isNaN(date.getTime()) ? UNKNOWN : `${date.toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

// A text in one line, cut if it is too long.
export function short(text, most = 140) {
  const line = String(text).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}\u2026` : line;
}

// A share as percent.
export function percent(part, whole) {
  if (!whole) return UNKNOWN;
  const share = (100 * part) / whole;
  return `${share > 0 && share < 10 ? share.toFixed(1) : Math.round(share)}%`;
}

// Any JSON value as one line of text.
export function said(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return typeof value === "string" ? value : JSON.stringify(value);
}

// The facets of episodes, in the order of the filters.
export const TITLES = {
  store: "Store",
  outcome: "Outcome",
  task: "Task",
  variant: "Variant",
  model: "Model",
  env: "Environment",
  function: "Function",
  purpose: "Purpose",
  split: "Split",
};
const NAMES = {
  n_steps: "steps",
  reward: "return",
  n_invalid: "invalid steps",
  n_masked: "steps not learned",
  n_input_tokens: "input tokens",
  n_output_tokens: "output tokens",
  cost_usd: "cost in USD",
  latency_s: "seconds waited",
  started_at: "start",
};

// Labels of the columns that sort and bound episodes.
export function nameOf(column) {
  return NAMES[column] ?? column.replace(/^metric\./, "");
}

// The label of a facet's value.
export function facetName(stores, name, value) {
  if (name === "store") return stores.stores[value]?.name ?? said(value);
  return value === null || value === "" ? "unknown" : String(value);
}

// The class that colors an outcome; an unknown word has none of its own.
export function outcomeClass(outcome) {
  return ["success", "failure", "truncated", "error"].includes(outcome) ? `is-${outcome}` : "is-unknown";
}
