// The episodes before and after one in the list that the reader came from.
import { ask } from "./api.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { episodeAddress, filtersOf, to } from "./route.js";

const ROWS_OF_A_PAGE = 100;

// The rows before and after, the place and the length of the list; nothing where no list led here.
export async function neighboursOf(store, id, query) {
  const at = Number(query.get("at") ?? NaN);
  if (!query.has("at") || !Number.isInteger(at)) return {};
  const asked = filtersOf(query);
  asked.set("offset", Math.max(0, at - 1));
  asked.set("limit", 3);
  const { rows, total } = await ask("episodes", asked);
  const here = rows.findIndex((row) => String(row.store) === store && row.id === id);
  return here < 0 ? {} : { before: rows[here - 1], after: rows[here + 1], at, total };
}

// The list that led here, at the page with this place.
export function backAddress(query, at) {
  const back = filtersOf(query);
  if (at >= ROWS_OF_A_PAGE) back.set("offset", Math.floor(at / ROWS_OF_A_PAGE) * ROWS_OF_A_PAGE);
  return to([], back);
}

// The way back, and to the neighbours where they are known.
export function crumbs(query, { before, after, at, total }, back) {
  const step = (row, by, text, label) => {
    const next = filtersOf(query);
    next.set("at", at + by);
    const href = row ? episodeAddress(row.store, row.id, null, next) : null;
    const off = row ? null : "true";
    return h(
      "a",
      { class: "button", href, "aria-disabled": off, "aria-label": label, role: row ? null : "link" },
      text,
    );
  };
  return [
    h("a", { href: back }, "‹ Episodes"),
    h("span", { class: "spacer" }),
    at !== undefined && [
      h("span", { class: "note" }, `${count(at + 1)} of ${count(total)}`),
      step(before, -1, "‹ Previous", "previous episode"),
      step(after, 1, "Next ›", "next episode"),
    ],
  ];
}
