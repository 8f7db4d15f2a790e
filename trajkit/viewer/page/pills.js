// What is looked for now, as pills that take it away again.
import { button, h, put } from "./dom.js";
import { brief } from "./format.js";
import { TITLES, facetName, nameOf } from "./naming.js";
import { filtersOf } from "./route.js";

// The pills; null where nothing is looked for. `change(query)` is called with what is left.
export function pills(stores, query, change) {
  const filters = filtersOf(query);
  const found = [];
  for (const [name, value] of filters) {
    if (["sort", "descending"].includes(name)) continue;
    const without = () => {
      const next = new URLSearchParams(
        [...filters].filter(([key, other]) => key !== name || other !== value),
      );
      change(next);
    };
    const label = pillText(stores, name, value);
    found.push(
      button([label, h("span", { "aria-hidden": "true", class: "cross" }, "×")], without, {
        class: "pill",
        "aria-label": `take away: ${label}`,
      }),
    );
  }
  const place = h("div", { class: "pills" }, found);
  if (found.length > 1)
    put(
      place,
      button("clear all", () => change(sortOf(filters)), { class: "quiet" }),
    );
  return found.length ? place : null;
}

function pillText(stores, name, value) {
  if (name === "q") return `“${value}”`;
  if (name === "where") return value;
  const [, of, end] = /^(.+)\.(min|max)$/.exec(name) ?? [];
  if (of) return `${nameOf(of)} ${end === "min" ? "≥" : "≤"} ${brief(Number(value))}`;
  return `${TITLES[name]?.toLowerCase() ?? name}: ${facetName(stores, name, value)}`;
}

function sortOf(query) {
  return new URLSearchParams([...query].filter(([name]) => ["sort", "descending"].includes(name)));
}
