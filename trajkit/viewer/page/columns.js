// The columns of the list of episodes.
import { h, span } from "./dom.js";
import { brief, facetName, number, outcomeClass, short } from "./format.js";

const MOST_METRICS = 3;

// The columns for these rows: `{name, label, kind, cell(row)}`.
export function columnsOf(stores, rows) {
  const most = (value) => Math.max(...rows.map((row) => Math.abs(Number(value(row) ?? 0))), 0);
  // an empty column is left out, such as rewards of traffic
  const has = (value) => rows.some((row) => (value(row) ?? null) !== null);
  const isMeasured = (name) => rows.some((row) => (row.metrics?.[name] ?? null) !== null);
  const metrics = stores.metrics
    .filter(({ name }) => isMeasured(name) && !isReturn(rows, name))
    .slice(0, MOST_METRICS);
  const several = stores.stores.length > 1;
  return [
    { name: "task", label: "Episode", kind: "title" },
    several && {
      name: "store",
      label: "Store",
      kind: "text",
      cell: (row) => facetName(stores, "store", row.store),
    },
    has((row) => row.variant ?? row.model) && {
      name: "variant",
      label: "Variant",
      kind: "text",
      cell: (row) => short(row.variant ?? row.model ?? "", 60),
    },
    { name: "outcome", label: "Outcome", kind: "text", cell: (row) => outcomeMark(row.outcome) },
    has((row) => row.reward) && bar("reward", "Return", (row) => row.reward, most),
    bar("n_steps", "Steps", (row) => row.n_steps, most),
    ...metrics.map(({ name }) => ({
      name: `metric.${name}`,
      label: name,
      kind: "number is-metric",
      cell: (row) => number(row.metrics?.[name]),
    })),
    has((row) => row.tokens?.input ?? row.tokens?.output) && {
      name: "n_input_tokens",
      label: "Tokens",
      kind: "number",
      cell: tokensOf,
    },
  ].filter(Boolean);
}

// Whether a metric only repeats the return.
export function isReturn(rows, name) {
  return rows.every((row) => number(row.metrics?.[name] ?? null) === number(row.reward));
}

// The text that a narrow column may have cut.
export function titleText(row, name) {
  return name === "variant" && row.variant && row.variant.length > 18 ? short(row.variant, 200) : null;
}

// The title of an episode, with its world.
export function titleOf(row, href) {
  const seed = (row.seed ?? null) !== null && `seed ${row.seed}`;
  const world = [row.task, seed, row.purpose !== "unknown" && row.purpose].filter(Boolean).join(" · ");
  return [
    h("a", { class: "title", href, dir: "auto" }, short(row.mission ?? row.first ?? row.id)),
    span("world", world || row.id),
  ];
}

function tokensOf(row) {
  const { input, output } = row.tokens ?? {};
  return (input ?? output ?? null) === null ? brief(null) : `${brief(input)} → ${brief(output)}`;
}

function bar(name, label, value, most) {
  const highest = most(value);
  const cell = (row) => {
    const found = value(row);
    const line = h("span", { class: `inline-bar${found < 0 ? " is-below" : ""}`, "aria-hidden": "true" });
    line.style.width = `${highest ? (60 * Math.abs(found ?? 0)) / highest : 0}px`;
    return [span("bar-number", number(found)), span("bar-place", line)];
  };
  return { name, label, kind: "number", cell };
}

// An outcome with its color.
export function outcomeMark(outcome) {
  return span(
    `outcome ${outcomeClass(outcome)}`,
    h("i", { class: `mark ${outcomeClass(outcome)}`, "aria-hidden": "true" }),
    outcome ?? "unknown",
  );
}
