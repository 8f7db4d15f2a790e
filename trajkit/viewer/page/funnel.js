// How a store came to be: what was seen, what left and why, and what training learns from.
import { h, table } from "./dom.js";
import { figure, funnelDrawing } from "./draw.js";
import { count } from "./format.js";
import { facetName } from "./naming.js";
import { words } from "./words.js";

// The funnels of the stores; null where nothing is known.
export function funnels(stores, funnel) {
  const known = funnel.filter(({ stages }) => stages.length);
  if (!known.length) return null;
  return h(
    "section",
    null,
    h("h2", null, "How the store was made"),
    h(
      "p",
      { class: "note" },
      "From what was seen to what training learns from, and why the rest left. The filters do not change it.",
    ),
    known.map((each) => oneFunnel(stores, each)),
  );
}

function oneFunnel(stores, { store, stages }) {
  const name = stores.stores.length > 1 ? `${facetName(stores, "store", store)}: ` : "";
  const commands = stores.stores[store]?.commands ?? [];
  return [
    h(
      "div",
      { class: "grid" },
      ["episodes", "steps"].map((unit) => {
        const rows = funnelRows(stages, unit);
        const numbers = table(
          ["", unit],
          rows.map(({ label, n, kind }) => [label, kind === "left" ? `−${count(n)}` : count(n)]),
          1,
          { "aria-label": unit },
        );
        return figure(`${name}${unit}`, null, (width) => funnelDrawing(unit, rows, width), numbers);
      }),
    ),
    commands.length > 0 &&
      h(
        "details",
        null,
        h("summary", null, "As commands"),
        h(
          "div",
          { class: "commands" },
          commands.map((command) => words(command, { kind: "words code" })),
        ),
      ),
  ];
}

// The rows of a funnel: what is there after each stage, and before it what left and why.
function funnelRows(stages, unit) {
  const field = `n_${unit}`;
  return stages.flatMap((stage, place) => {
    let end = Math.max(stages[place - 1]?.[field] ?? 0, stage[field]);
    const gone = [
      ...stage.left,
      ...(unit === "steps"
        ? stage.masked.map((each) => ({ ...each, reason: `context only: ${each.reason}` }))
        : []),
    ].filter((each) => each[unit] > 0);
    const rows = gone.map((each) => ({
      label: each.reason,
      n: each[unit],
      from: Math.max(0, (end -= each[unit])),
      kind: "left",
    }));
    return [...rows, { label: stage.name, n: stage[field], from: 0, kind: place === 0 ? "seen" : "kept" }];
  });
}
