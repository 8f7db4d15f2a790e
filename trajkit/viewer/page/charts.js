// The charts: how the store was made, the outcomes of its episodes, and the distributions of numbers.
import { ask } from "./api.js";
import { div, fill, h, p, span, table } from "./dom.js";
import { binTable, figure, funnelDrawing, histogramDrawing, partsDrawing } from "./draw.js";
import { FilteredView } from "./filters.js";
import { UNKNOWN, brief, count, counted, facetName, nameOf, outcomeClass } from "./format.js";
import { filtersOf, go, to } from "./route.js";
import { words } from "./words.js";

const OUTCOMES = ["success", "failure", "truncated", "error", "unknown"];
const MOST_ROWS = 20;

// The view of the charts, under the same filters as the list.
export class ChartsView extends FilteredView {
  constructor(stores) {
    super(stores, ["charts"], "Charts", "charts");
  }

  async load(signal) {
    const asked = new URLSearchParams(filtersOf(this.query));
    for (const name of ["sort", "descending"]) asked.delete(name);
    const bare = new URLSearchParams(asked);
    asked.set("limit", 1);
    const [found, list] = await Promise.all([ask("charts", bare, signal), ask("episodes", asked, signal)]);
    return { ...found, facets: list.facets };
  }

  keys() {
    return { Escape: () => go(to([], filtersOf(this.query))), "/": () => this.search() };
  }

  draw({ n, histograms, outcomes, funnel }) {
    const all = this.nEpisodes;
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
          h("h2", null, "Distributions"),
          p("note", "Click a bar to list its episodes."),
          div(
            "grid",
            spread.map((each) => this.#spread(each)),
          ),
        ),
      funnels(this.stores, funnel),
    );
  }

  #ends(outcomes) {
    const kinds = [
      ["task", "Outcomes by task"],
      ["variant", "Outcomes by variant"],
      ["store", "Outcomes by store"],
    ];
    const shown = kinds.filter(
      ([by]) => outcomes.filter((row) => row.by === by).length > (by === "store" ? 1 : 0),
    );
    if (!shown.length) return null;
    return h(
      "section",
      null,
      h("h2", null, "Outcomes"),
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
    return p(
      "key",
      used.map((name) =>
        span(null, h("i", { class: `mark ${outcomeClass(name)}`, "aria-hidden": "true" }), name),
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
      // bins include their lower end, the last one both
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

// The funnels of the stores; null if nothing is known.
function funnels(stores, funnel) {
  const known = funnel.filter(({ stages }) => stages.length);
  if (!known.length) return null;
  return h(
    "section",
    null,
    h("h2", null, "How the store was made"),
    p(
      "note",
      "From the seen steps to the ones to learn, and why others were left out. Filters do not change it.",
    ),
    known.map((each) => oneFunnel(stores, each)),
  );
}

function oneFunnel(stores, { store, stages }) {
  const name = stores.stores.length > 1 ? `${facetName(stores, "store", store)}: ` : "";
  const commands = stores.stores[store]?.commands ?? [];
  return [
    div(
      "grid",
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
        div(
          "commands",
          commands.map((command) => words(command, { kind: "words code" })),
        ),
      ),
  ];
}

// The rows of a funnel: what remains after each stage, preceded by what was left out and why.
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
