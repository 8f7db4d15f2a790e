// How columns, values and outcomes are called, and what color they have.
import { said } from "./format.js";

// What episodes are told apart by, in the order in which it is asked for.
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

// How people call what episodes are sorted and bounded by.
export function nameOf(column) {
  return NAMES[column] ?? column.replace(/^metric\./, "");
}

// How a value of a facet is called.
export function facetName(stores, name, value) {
  if (name === "store") return stores.stores[value]?.name ?? said(value);
  return value === null || value === "" ? "unknown" : String(value);
}

// The class that colors an outcome; a word that nobody knows has none of its own.
export function outcomeClass(outcome) {
  return ["success", "failure", "truncated", "error"].includes(outcome) ? `is-${outcome}` : "is-unknown";
}
