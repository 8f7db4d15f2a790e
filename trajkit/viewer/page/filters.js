// The filters: chips, ranges, words and conditions. All of them are in the address.
import { isFile } from "./api.js";
import { button, div, fill, h, keep, p, span, trouble } from "./dom.js";
import { TITLES, brief, count, facetName, nameOf, outcomeClass } from "./format.js";
import { filtersOf, go, to } from "./route.js";

const FIRST_RANGES = ["n_steps", "reward"];
const MORE_RANGES = [
  "seed",
  "n_invalid",
  "n_masked",
  "n_input_tokens",
  "n_output_tokens",
  "cost_usd",
  "latency_s",
];
const MOST_METRICS = 4;
const FIRST_CHIPS = 10;
const QUIET_MS = 250;

// A view of the episodes that the filters choose, at the address of `words`. It has `load(signal)`, which requests
// the data, and `draw(found)`, which shows it in `place`.
export class FilteredView {
  constructor(stores, words, title, kind) {
    Object.assign(this, { stores, title, facets: stores.facets });
    const change = (next, isSmall) => go(to(words, next), isSmall);
    this.panel = new FilterPanel(stores, change);
    this.heading = h("h1", { tabindex: "-1" }, title);
    this.bar = div("bar", this.heading);
    this.pills = pillBox(stores, change);
    this.place = div(kind);
    const inside = [this.bar, this.pills.element, this.place];
    this.listing = h("section", { class: "listing", "aria-label": title }, inside);
    this.element = div("split", this.panel.element, this.listing);
  }

  get nEpisodes() {
    return this.stores.stores.reduce((sum, store) => sum + store.n_episodes, 0);
  }

  async update({ query }) {
    this.query = query;
    this.panel.asked(query);
    this.pills.update(query);
    this.stopped?.abort();
    this.stopped = new AbortController();
    this.place.classList.add("is-waiting");
    try {
      const found = await this.load(this.stopped.signal);
      this.panel.update(query, found.facets ?? this.stores.facets);
      this.draw(found);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.panel.update(query, this.facets, true);
      this.refused?.();
      fill(this.place, trouble(error));
    }
    this.place.classList.remove("is-waiting");
  }

  search() {
    this.panel.element.querySelector("details").open = true;
    this.panel.search.focus();
  }
}

// The filters beside a list. `change(query)` is called with the new filters.
class FilterPanel {
  constructor(stores, change) {
    this.stores = stores;
    this.change = change;
    this.query = new URLSearchParams();
    this.open = new Set();
    this.search = this.#input("q", "search", "Mission, task or id", "Search");
    this.where = this.#input("where", "text", "n_steps < 20 and seed > 3", "Where");
    this.ranges = this.#ranges();
    this.facets = div("facets");
    this.element = this.#layout();
  }

  #layout() {
    const text = div(
      "fields",
      this.#labelled("Search", this.search),
      !isFile && this.#labelled("Where", this.where),
    );
    const inside = div("filters-inside", text, this.facets, this.ranges.element);
    const isWide = matchMedia("(min-width: 1100px)");
    const box = h(
      "details",
      { class: "filters", open: isWide.matches },
      h("summary", null, "Filters"),
      inside,
    );
    isWide.addEventListener("change", () => (box.open = isWide.matches));
    return h("aside", { "aria-label": "Filters" }, box);
  }

  #labelled(name, input) {
    return h("label", { class: "field" }, span(null, name), input);
  }

  #input(name, type, placeholder, label) {
    let waiting = null;
    const tell = () => {
      clearTimeout(waiting);
      this.#set(name, input.value.trim());
    };
    const later = () => {
      clearTimeout(waiting);
      waiting = setTimeout(tell, QUIET_MS);
    };
    // a condition is read when it is complete, words while they are typed
    const typed = name === "where" ? null : later;
    const input = h("input", {
      type,
      placeholder,
      name,
      "aria-label": label,
      spellcheck: "false",
      autocomplete: "off",
      oninput: typed,
      onchange: tell,
    });
    return input;
  }

  #set(name, value) {
    if ((this.query.get(name) ?? "") === value) return;
    const next = filtersOf(this.query);
    if (value === "") next.delete(name);
    else next.set(name, value);
    this.change(next, name === "q");
  }

  #ranges() {
    const metrics = this.stores.metrics.map((metric) => this.#range(`metric.${metric.name}`, metric));
    const more = MORE_RANGES.map((name) => this.#range(name));
    const element = h(
      "fieldset",
      { class: "ranges" },
      h("legend", null, "Ranges"),
      FIRST_RANGES.map((name) => this.#range(name)),
      metrics.slice(0, MOST_METRICS),
      h(
        "details",
        { class: "more-ranges" },
        h("summary", null, "More ranges"),
        metrics.slice(MOST_METRICS),
        more,
      ),
    );
    return { element, inputs: [...element.querySelectorAll("input")] };
  }

  #range(name, { low = null, high = null } = {}) {
    const label = nameOf(name);
    const bound = (end, known, text) =>
      h("input", {
        type: "number",
        step: "any",
        name: `${name}.${end}`,
        "aria-label": `${label}: ${text}`,
        placeholder: known === null ? end : brief(Number(known)),
        onchange: (event) => this.#set(`${name}.${end}`, event.target.value),
      });
    return div(
      "range",
      h("span", { class: "range-name", title: label }, label),
      bound("min", low, "at least"),
      h("span", { "aria-hidden": "true" }, "to"),
      bound("max", high, "at most"),
    );
  }

  // Show the new filters before the counts are known: filters that are chosen
  // meanwhile are kept.
  asked(query) {
    this.query = query;
    if (this.last) this.#count(this.last);
  }

  // Show the filters and the counts.
  update(query, facets, isRefused = false) {
    this.query = query;
    if (isRefused && query.has("where")) this.where.setAttribute("aria-invalid", "true");
    else this.where.removeAttribute("aria-invalid");
    this.last = facets;
    for (const input of [this.search, this.where, ...this.ranges.inputs])
      if (document.activeElement !== input) input.value = query.get(input.name) ?? "";
    this.#count(facets);
  }

  // Chips are changed in place: one that is replaced while it is pressed gets no click.
  #count(facets) {
    const next = div(
      "facets",
      Object.keys(TITLES).map((name) => this.#facet(name, this.#values(name, facets[name] ?? []))),
    );
    const [made, shown] = [next, this.facets].map((each) => [...each.querySelectorAll("button")]);
    if (made.length && JSON.stringify(made.map(keyOf)) === JSON.stringify(shown.map(keyOf))) {
      made.forEach((button, at) => copyChip(button, shown[at]));
      return;
    }
    const held = document.activeElement?.dataset?.chip;
    fill(this.facets, ...next.childNodes);
    if (held) made.find((button) => button.dataset.chip === held)?.focus();
  }

  // Always in the same order, so that no chip moves under the pointer; values without episodes count 0.
  #values(name, counted) {
    const n = new Map(counted.map((each) => [each.value, each.n]));
    const known = (this.stores.facets[name] ?? []).map(({ value }) => value);
    return [...new Set([...known, ...n.keys()])].map((value) => ({ value, n: n.get(value) ?? 0 }));
  }

  #facet(name, values) {
    // a facet with only one value is left out
    const isOne = (this.stores.facets[name] ?? values).length < 2;
    if (isOne && !this.query.has(name)) return null;
    const chosen = new Set(this.query.getAll(name));
    const isOpen = this.open.has(name);
    const shown = values.filter(
      ({ value }, place) => isOpen || place < FIRST_CHIPS || chosen.has(String(value ?? "")),
    );
    const chips = shown.map(({ value, n }) => this.#chip(name, value, n, chosen));
    const n = values.length - shown.length;
    const more =
      n > 0 &&
      button(`${count(n)} more`, () => (this.open.add(name), this.update(this.query, this.last)), {
        class: "quiet",
      });
    const unlisted = (this.stores.n_values?.[name] ?? 0) - (this.stores.facets[name]?.length ?? 0);
    return h(
      "fieldset",
      { class: "facet" },
      h("legend", null, TITLES[name]),
      div("chips", chips, more),
      isOpen && unlisted > 0 && p("note", `${count(unlisted)} rarer values: search for them`),
    );
  }

  #chip(name, value, n, chosen) {
    const key = String(value ?? "");
    const isOn = chosen.has(key);
    const toggle = () => {
      const next = filtersOf(this.query);
      if (next.has(name, key)) next.delete(name, key);
      else next.append(name, key);
      this.change(next);
    };
    const mark =
      name === "outcome" && h("i", { class: `mark ${outcomeClass(value)}`, "aria-hidden": "true" });
    return button(
      [mark, span("chip-name", facetName(this.stores, name, value)), span("n", count(n))],
      toggle,
      {
        class: n || isOn ? "chip" : "chip is-none",
        "aria-pressed": String(isOn),
        "data-chip": `${name}=${key}`,
      },
    );
  }
}

function keyOf(button) {
  return button.dataset.chip ?? button.textContent;
}

function copyChip(from, to) {
  if (!from.dataset.chip) return;
  to.className = from.className;
  to.ariaPressed = from.ariaPressed;
  to.querySelector(".n").textContent = from.querySelector(".n").textContent;
}

// A box of pills. `update(query)` shows the filters; `change(query)` is called with the remaining ones.
function pillBox(stores, change) {
  const element = div("pills");
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
