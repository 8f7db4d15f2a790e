// Answer requests in a page that is a file, as the server does for a store, for the few episodes in it.
const FACETS = ["store", "split", "env", "task", "variant", "model", "function", "purpose", "outcome"];
const TEXTS = ["id", "env", "task", "variant", "model", "mission", "first"];
const WHOLE = ["n_steps", "n_invalid", "n_masked"];
const N_BINS = 20;
const Z = 1.959964;

class Embedded {
  constructor(data) {
    this.data = data;
    this.rows = data.episodes?.rows ?? data.episodes ?? [];
  }

  // The answer that the server would give; null if there is none.
  answer(name, query) {
    if (name === "stores") return { ...this.data.stores, limited: this.data.limited ?? null };
    if (name === "episodes") return this.#episodes(query);
    if (name === "episode") return this.#episode(query);
    if (name === "messages") return { messages: this.#prompt(query) };
    if (name === "charts") return this.#charts(query);
    throw new Error(`a file cannot answer ${name}`);
  }

  #episode(query) {
    const found = this.data.episode?.[`${query.get("store")}/${query.get("id")}`];
    if (!found) throw new Error("this episode is not in the file");
    return found;
  }

  #episodes(query) {
    const found = this.rows.filter((row) => passes(row, query));
    const facets = {};
    for (const name of FACETS) if (this.data.stores.facets[name]) facets[name] = this.#facet(name, query);
    if (query.get("sort")) found.sort(order(query.get("sort"), query.has("descending")));
    const offset = Number(query.get("offset") ?? 0);
    const rows = found.slice(offset, offset + Number(query.get("limit") ?? 100));
    return { total: found.length, offset, rows, facets };
  }

  #facet(name, query) {
    const counts = new Map(this.data.stores.facets[name].map(({ value }) => [value, 0]));
    for (const row of this.rows)
      if (passes(row, query, name)) counts.set(row[name] ?? null, (counts.get(row[name] ?? null) ?? 0) + 1);
    return [...counts].map(([value, n]) => ({ value, n }));
  }

  // The whole prompt of a step: the kept part of the previous prompt and answer, then the new messages.
  #prompt(query) {
    let before = [];
    for (const step of this.#episode(query).steps) {
      const prompt = step.new_messages ? [...before.slice(0, step.n_kept), ...step.new_messages] : null;
      if (String(step.index) === query.get("step")) return prompt;
      before = prompt ? [...prompt, ...(step.completion ? [step.completion] : [])] : [];
    }
    return null;
  }

  #charts(query) {
    const rows = this.rows.filter((row) => passes(row, query));
    const names = [
      ...WHOLE,
      "reward",
      "n_input_tokens",
      "n_output_tokens",
      "latency_s",
      ...this.data.stores.metrics.map(({ name }) => `metric.${name}`),
    ];
    const histograms = names.map((name) => histogram(name, rows)).filter(({ n }) => n > 0);
    const by = ["task", "variant", "store", "purpose"].flatMap((name) => outcomes(name, rows));
    return { n: rows.length, histograms, outcomes: by, funnel: this.data.charts?.funnel ?? [] };
  }
}

function valueOf(row, name) {
  if (name === "n_input_tokens") return row.tokens?.input ?? null;
  if (name === "n_output_tokens") return row.tokens?.output ?? null;
  return (name.startsWith("metric.") ? row.metrics?.[name.slice(7)] : row[name]) ?? null;
}

function passes(row, query, besides = null) {
  for (const name of FACETS)
    if (name !== besides && query.has(name) && !query.getAll(name).includes(String(row[name] ?? "")))
      return false;
  for (const [key, bound] of query) {
    const [, name, end] = /^(.+)\.(min|max)$/.exec(key) ?? [];
    if (!name || bound === "") continue;
    const value = valueOf(row, name);
    if (value === null || (end === "min" ? Number(value) < Number(bound) : Number(value) > Number(bound)))
      return false;
  }
  const sought = (query.get("q") ?? "").toLowerCase().split(/\s+/);
  const text = TEXTS.map((name) => row[name] ?? "")
    .join("\n")
    .toLowerCase();
  return sought.every((word) => text.includes(word));
}

function order(name, isDescending) {
  return (one, other) => {
    const [a, b] = [valueOf(one, name), valueOf(other, name)];
    if (a === null || b === null) return (a === null) - (b === null);
    const rising = typeof a === "string" ? a.localeCompare(String(b)) : a - b;
    return isDescending ? -rising : rising;
  };
}

function histogram(name, rows) {
  const values = rows
    .map((row) => valueOf(row, name))
    .filter((value) => value !== null)
    .map(Number);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [n, width] = WHOLE.includes(name)
    ? wholeBins(low, high)
    : high > low
      ? [N_BINS, (high - low) / N_BINS]
      : [1, 1];
  const bins = values.length
    ? Array.from({ length: n }, (_, place) => ({
        low: low + place * width,
        high: place === n - 1 ? high : low + (place + 1) * width,
        n: 0,
      }))
    : [];
  for (const value of values) bins[Math.min(n - 1, Math.floor((value - low) / width))].n += 1;
  return { name, bins, n: values.length, n_null: rows.length - values.length };
}

function wholeBins(low, high) {
  const width = Math.ceil((high - low + 1) / N_BINS);
  return [Math.ceil((high - low + 1) / width), width];
}

function outcomes(by, rows) {
  const counts = new Map();
  for (const row of rows) {
    const value = row[by] ?? null;
    if (!counts.has(value)) counts.set(value, {});
    counts.get(value)[row.outcome] = (counts.get(value)[row.outcome] ?? 0) + 1;
  }
  return [...counts].map(([value, found]) => {
    const n = Object.values(found).reduce((sum, each) => sum + each, 0);
    return { by, value, n, counts: found, success: wilson(found) };
  });
}

// The share of success among the episodes that were judged, with Wilson's interval.
function wilson({ success = 0, failure = 0, truncated = 0 }) {
  const n = success + failure + truncated;
  if (!n) return null;
  const value = success / n;
  const middle = (value + (Z * Z) / (2 * n)) / (1 + (Z * Z) / n);
  const half = (Z / (1 + (Z * Z) / n)) * Math.sqrt((value * (1 - value)) / n + (Z * Z) / (4 * n * n));
  return { value, low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
}

function read() {
  const place = document.getElementById("data");
  return place ? new Embedded(JSON.parse(place.textContent)) : null;
}

// The data inside this page; null if a server has it.
export const embedded = read();
