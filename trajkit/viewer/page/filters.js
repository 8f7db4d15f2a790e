// What is looked for: chips, ranges, words and conditions. All of it is in the address.
import { isFile } from "./api.js";
import { button, fill, h } from "./dom.js";
import { brief, count } from "./format.js";
import { TITLES, facetName, nameOf, outcomeClass } from "./naming.js";
import { filtersOf } from "./route.js";

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

// The filters beside a list. `change(query)` is called with what is looked for from now on.
export function filterPanel(stores, change) {
  const panel = new Panel(stores, change);
  return {
    element: panel.element,
    asked: (query) => panel.asked(query),
    update: (query, facets, isRefused) => panel.update(query, facets, isRefused),
    search: panel.search,
  };
}

class Panel {
  constructor(stores, change) {
    this.stores = stores;
    this.change = change;
    this.query = new URLSearchParams();
    this.open = new Set();
    this.search = this.#input("q", "search", "Mission, task or id", "Search");
    this.where = this.#input("where", "text", "n_steps < 20 and seed > 3", "Where");
    this.ranges = this.#ranges();
    this.facets = h("div", { class: "facets" });
    this.element = this.#layout();
  }

  #layout() {
    const text = h(
      "div",
      { class: "fields" },
      this.#labelled("Search", this.search),
      !isFile && this.#labelled("Where", this.where),
    );
    const inside = h("div", { class: "filters-inside" }, text, this.facets, this.ranges.element);
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
    return h("label", { class: "field" }, h("span", null, name), input);
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
    // a condition is read when it is whole, words while they are typed
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
    return h(
      "div",
      { class: "range" },
      h("span", { class: "range-name", title: label }, label),
      bound("min", low, "at least"),
      h("span", { "aria-hidden": "true" }, "to"),
      bound("max", high, "at most"),
    );
  }

  // Show what is looked for from now on, before it is known how many there are of each: what is chosen
  // meanwhile is chosen as well.
  asked(query) {
    this.query = query;
    if (this.last) this.#count(this.last);
  }

  // Show what is looked for now, and how many there are of each.
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
    const next = h(
      "div",
      { class: "facets" },
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

  // Always in the same order, so that no chip leaves from under the pointer; those that none has count 0.
  #values(name, counted) {
    const n = new Map(counted.map((each) => [each.value, each.n]));
    const known = (this.stores.facets[name] ?? []).map(({ value }) => value);
    return [...new Set([...known, ...n.keys()])].map((value) => ({ value, n: n.get(value) ?? 0 }));
  }

  #facet(name, values) {
    // what tells no episode from another is not asked for
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
      h("div", { class: "chips" }, chips, more),
      isOpen && unlisted > 0 && h("p", { class: "note" }, `${count(unlisted)} rarer ones: search for them`),
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
      [
        mark,
        h("span", { class: "chip-name" }, facetName(this.stores, name, value)),
        h("span", { class: "n" }, count(n)),
      ],
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
