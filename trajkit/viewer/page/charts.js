// The charts: how the store came to be, how its episodes ended, and how the numbers are spread.
import { ask } from "./api.js";
import { fill, h, table } from "./dom.js";
import { binTable, figure, histogramDrawing, partsDrawing } from "./draw.js";
import { filterPanel } from "./filters.js";
import { UNKNOWN, brief, count, counted } from "./format.js";
import { funnels } from "./funnel.js";
import { facetName, nameOf, outcomeClass } from "./naming.js";
import { pillBox } from "./pills.js";
import { filtersOf, go, to } from "./route.js";
import { trouble } from "./trouble.js";

const OUTCOMES = ["success", "failure", "truncated", "error", "unknown"];
const MOST_ROWS = 20;

// The view of the charts, under the same filters as the list.
export function chartsView(stores) {
  const view = new ChartsView(stores);
  return {
    element: view.element,
    title: "Charts",
    update: ({ query }) => view.update(query),
    keys: { Escape: () => go(to([], filtersOf(view.query))), "/": () => view.search() },
  };
}

class ChartsView {
  constructor(stores) {
    this.stores = stores;
    this.panel = filterPanel(stores, (next, isSmall) => go(to(["charts"], next), isSmall));
    this.heading = h("h1", { tabindex: "-1" }, "Charts");
    this.pills = pillBox(stores, (next) => go(to(["charts"], next)));
    this.place = h("div", { class: "charts" });
    this.element = h(
      "div",
      { class: "split" },
      this.panel.element,
      h(
        "section",
        { class: "listing", "aria-label": "Charts" },
        h("div", { class: "bar" }, this.heading),
        this.pills.element,
        this.place,
      ),
    );
  }

  search() {
    this.panel.element.querySelector("details").open = true;
    this.panel.search.focus();
  }

  async update(query) {
    this.query = query;
    this.panel.asked(query);
    this.stopped?.abort();
    this.stopped = new AbortController();
    this.place.classList.add("is-waiting");
    this.pills.update(query);
    try {
      const { signal } = this.stopped;
      const asked = new URLSearchParams(filtersOf(query));
      for (const name of ["sort", "descending"]) asked.delete(name);
      const bare = new URLSearchParams(asked);
      asked.set("limit", 1);
      const [found, list] = await Promise.all([ask("charts", bare, signal), ask("episodes", asked, signal)]);
      this.panel.update(query, list.facets ?? this.stores.facets);
      this.#show(found);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.panel.update(query, this.stores.facets, true);
      fill(this.place, trouble(error));
    }
    this.place.classList.remove("is-waiting");
  }

  #show({ n, histograms, outcomes, funnel }) {
    const all = this.stores.stores.reduce((sum, store) => sum + store.n_episodes, 0);
    fill(
      this.heading,
      "Charts ",
      h("small", null, `of ${counted(n, "episode")}${n === all ? "" : ` out of ${count(all)}`}`),
    );
    const spread = histograms.filter(({ bins }) => bins.length > 1);
    fill(
      this.place,
      this.#ends(outcomes),
      spread.length > 0 &&
        h(
          "section",
          null,
          h("h2", null, "How it is spread"),
          h("p", { class: "note" }, "A bar leads to its episodes."),
          h(
            "div",
            { class: "grid" },
            spread.map((each) => this.#spread(each)),
          ),
        ),
      funnels(this.stores, funnel),
    );
  }

  #ends(outcomes) {
    const kinds = [
      ["task", "How tasks ended"],
      ["variant", "How variants did"],
      ["store", "How the stores differ"],
    ];
    const shown = kinds.filter(
      ([by]) => outcomes.filter((row) => row.by === by).length > (by === "store" ? 1 : 0),
    );
    if (!shown.length) return null;
    return h(
      "section",
      null,
      h("h2", null, "How episodes ended"),
      this.#legend(outcomes),
      shown.map(([by, title]) =>
        this.#outcomes(
          by,
          title,
          outcomes.filter((row) => row.by === by),
        ),
      ),
    );
  }

  #legend(outcomes) {
    const used = OUTCOMES.filter((name) => outcomes.some(({ counts }) => counts[name]));
    return h(
      "p",
      { class: "key" },
      used.map((name) =>
        h("span", null, h("i", { class: `mark ${outcomeClass(name)}`, "aria-hidden": "true" }), name),
      ),
    );
  }

  #outcomes(by, title, rows) {
    const sorted = [...rows].sort((a, b) => b.n - a.n);
    const bars = sorted.slice(0, MOST_ROWS).map(({ value, counts, n, success }) => ({
      label: facetName(this.stores, by, value),
      said: successText(success, n),
      parts: OUTCOMES.map((name) => ({ name, kind: outcomeClass(name), n: counts[name] ?? 0 })),
    }));
    const numbers = table(
      [by, "success, 95% interval", "episodes", ...OUTCOMES],
      sorted.map(({ value, counts, n, success }) => [
        facetName(this.stores, by, value),
        successText(success),
        count(n),
        ...OUTCOMES.map((name) => count(counts[name] ?? 0)),
      ]),
      1,
      { "aria-label": title },
    );
    const more = sorted.length > MOST_ROWS ? `The ${MOST_ROWS} largest of ${count(sorted.length)}. ` : "";
    return figure(
      title,
      `${more}The numbers: share of success, its 95% interval, episodes.`,
      (width) => partsDrawing(title, bars, width),
      numbers,
    );
  }

  #spread({ name, bins, n_null: nNull }) {
    const title = nameOf(name);
    const label = (bin) => binText(bin, name);
    const pick = (bin) => {
      const next = filtersOf(this.query);
      next.set(`${name}.min`, bin.low);
      // bins hold their lower end, the last one both
      next.set(`${name}.max`, bin === bins.at(-1) ? bin.high : below(bin.high, name));
      go(to([], next));
    };
    return figure(
      title,
      nNull ? `Not measured in ${counted(nNull, "episode")}.` : null,
      (width) => histogramDrawing(title, bins, width, { pick, label }),
      binTable(bins, nNull, label),
    );
  }
}

function successText(success, n) {
  const of = n === undefined ? "" : ` of ${count(n)}`;
  if (!success) return n === undefined ? UNKNOWN : count(n);
  const share = (value) => Math.round(100 * value);
  return `${share(success.value)}% [${share(success.low)}, ${share(success.high)}]${of}`;
}

function isWhole(name) {
  return ["n_steps", "n_invalid", "n_masked"].includes(name);
}

function binText({ low, high }, name) {
  if (!isWhole(name)) return `${brief(low)} to ${brief(high)}`;
  const last = Math.max(low, Math.ceil(high) - 1);
  return last === low ? count(low) : `${count(low)} to ${count(last)}`;
}

function below(high, name) {
  return isWhole(name) ? Math.ceil(high) - 1 : Number((high - Math.abs(high) * 1e-9 - 1e-12).toPrecision(12));
}
