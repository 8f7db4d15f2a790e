// What is looked for now, as pills that take it away again.
import { button, h, keep } from "./dom.js";
import { brief } from "./format.js";
import { TITLES, facetName, nameOf } from "./naming.js";
import { filtersOf } from "./route.js";

// A box of pills. `update(query)` shows what is looked for; `change(query)` is called with what is left of it.
export function pillBox(stores, change) {
  const element = h("div", { class: "pills" });
  let filters = new URLSearchParams();
  const isSort = ([name]) => ["sort", "descending"].includes(name);
  const left = (isKept) => change(new URLSearchParams([...filters].filter(isKept)));
  const pill = ([name, value]) => {
    const label = pillText(stores, name, value);
    const without = () => left(([key, other]) => key !== name || other !== value);
    return button([label, h("span", { "aria-hidden": "true", class: "cross" }, "×")], without, {
      class: "pill",
      "aria-label": `take away: ${label}`,
      "data-key": `${name}=${value}`,
    });
  };
  const all = button("clear all", () => left(isSort), { class: "quiet", "data-key": "" });
  const update = (query) => {
    filters = filtersOf(query);
    const found = [...filters].filter((each) => !isSort(each)).map(pill);
    keep(element, found.length > 1 ? [...found, all] : found);
  };
  return { element, update };
}

function pillText(stores, name, value) {
  if (name === "q") return `“${value}”`;
  if (name === "where") return value;
  const [, of, end] = /^(.+)\.(min|max)$/.exec(name) ?? [];
  if (of) return `${nameOf(of)} ${end === "min" ? "≥" : "≤"} ${brief(Number(value))}`;
  return `${TITLES[name]?.toLowerCase() ?? name}: ${facetName(stores, name, value)}`;
}
