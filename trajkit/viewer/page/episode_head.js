// The head of an episode above its steps: outcome, world, and links to other attempts.
import { tools, valueShown } from "./blocks.js";
import { isReturn, outcomeMark } from "./columns.js";
import { div, folded, h, p, span } from "./dom.js";
import { count, facetName, moment, number, outcomeClass, short } from "./format.js";
import { compareAddress } from "./route.js";
import { MARKS, sightOf } from "./step.js";

// The head of an episode.
export function episodeHead(stores, found, steps) {
  const heading = h(
    "h1",
    { tabindex: "-1", dir: "auto" },
    short(found.mission ?? worldOf(found) ?? sightOf(steps[0] ?? {}) ?? found.id, 300),
  );
  return h(
    "header",
    { class: "episode-head" },
    heading,
    factsOf(stores, found),
    twinsOf(stores, found),
    foldsOf(found, steps),
  );
}

// A title for an episode without a mission: its task and seed; null for traffic.
function worldOf({ task, seed }) {
  return task ? `${task}, seed ${seed ?? "unknown"}` : null;
}

function factsOf(stores, found) {
  const tokens =
    found.tokens &&
    (found.tokens.input ?? found.tokens.output ?? null) !== null &&
    `${count(found.tokens.input)} → ${count(found.tokens.output)}`;
  const facts = [
    ["outcome", outcomeMark(found.outcome)],
    ["return", (found.reward ?? null) === null && !found.task ? null : number(found.reward)],
    ["steps", count(found.n_steps)],
    ["task", found.task],
    ["seed", found.seed],
    ["variant", found.variant],
    ["model", found.model],
    ["split", found.split],
    ["tokens", tokens],
    ["purpose", found.purpose === "unknown" ? null : found.purpose],
    stores.stores.length > 1 && ["store", facetName(stores, "store", found.store)],
    ...Object.entries(found.metrics ?? {})
      .filter(([name]) => !isReturn([found], name))
      .map(([name, value]) => [name, number(value)]),
    ["started", found.started_at ? moment(found.started_at) : null],
    ["id", h("code", null, found.id)],
  ];
  const known = facts.filter(
    (fact) => fact && fact[1] !== null && fact[1] !== undefined && fact[1] !== false,
  );
  return h(
    "dl",
    { class: "facts" },
    known.map(([name, value]) =>
      div(null, h("dt", null, name), h("dd", null, typeof value === "string" ? short(value, 120) : value)),
    ),
  );
}

function twinsOf(stores, found) {
  const twins = found.twins ?? [];
  if (!twins.length) return null;
  const links = twins
    .slice(0, 12)
    .map((twin) =>
      h(
        "a",
        { class: "twin", href: compareAddress({ store: found.store, id: found.id }, twin) },
        h("i", { class: `mark ${outcomeClass(twin.outcome)}`, "aria-hidden": "true" }),
        twinName(stores, twin, found.store),
      ),
    );
  return p("twins", span("label", "Same world, side by side: "), links);
}

function foldsOf(found, steps) {
  const feedback = found.feedback ?? [];
  const place = { store: found.store, id: found.id };
  const given = found.tools ?? steps.find((step) => step.tools)?.tools ?? [];
  const more = Object.fromEntries(
    ["tags", "origin"]
      .filter((name) => Object.keys(found[name] ?? {}).length)
      .map((name) => [name, found[name]]),
  );
  return div(
    "folds",
    Object.keys(more).length > 0 &&
      folded("tags and origin", () =>
        Object.values(more).map((value) => div("fold", valueShown(value, place))),
      ),
    given && Object.keys(given).length > 0 && tools(given, { ...place, step: null }),
    feedback.length > 0 &&
      folded(`feedback: ${count(feedback.length)}`, () => feedback.map((item) => feedbackShown(item, place))),
    folded("what the marks mean", legend),
  );
}

// What distinguishes another episode in the same world from this one.
export function twinName(stores, twin, store) {
  const other =
    stores.stores.length > 1 &&
    String(twin.store) !== String(store) &&
    facetName(stores, "store", twin.store);
  return [
    other,
    twin.variant ?? short(twin.id, 12),
    twin.outcome,
    (twin.reward ?? null) !== null && number(twin.reward),
  ]
    .filter(Boolean)
    .join(" · ");
}

// The meaning of the marks.
export function legend() {
  return h(
    "dl",
    { class: "legend" },
    MARKS.map(([kind, name, meaning]) =>
      div(null, h("dt", null, span(`flag ${kind}`, name)), h("dd", null, meaning)),
    ),
  );
}

function feedbackShown(item, place) {
  const on = item.inference_id ? "step" : "episode";
  return div(
    "feedback",
    p("what", h("b", null, item.metric_name), ` of the ${on}, ${moment(item.created_at)}`),
    typeof item.value === "object" || typeof item.value === "string"
      ? valueShown(item.value, place)
      : p(null, number(item.value)),
  );
}
