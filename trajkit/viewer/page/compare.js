// Two episodes of the same world side by side, step beside step, with the first difference marked.
import { ask } from "./api.js";
import { outcomeMark } from "./columns.js";
import { curve, outlineOf } from "./curve.js";
import { button, div, fill, h, p, say, span, trouble } from "./dom.js";
import { twinName } from "./episode_head.js";
import { count, counted, facetName, number, short } from "./format.js";
import { compareAddress, episodeAddress, go, to } from "./route.js";
import { actionOf, answer, deedOf, flag, flagsOf, numbers, sightOf } from "./step.js";
import { words } from "./words.js";

const FOLD_AFTER = 6;
const SIDES = ["A", "B"];
// the maximum number of compared steps
const MOST_STEPS = 2000;

// The view of two episodes.
export class CompareView {
  constructor(stores) {
    this.stores = stores;
    this.title = "Side by side";
    this.element = div("compare");
    this.at = -1;
  }

  async update({ words: [, storeA, idA, storeB, idB] }) {
    this.places = [
      { store: storeA, id: idA },
      { store: storeB, id: idB },
    ];
    this.back = episodeAddress(storeA, idA);
    try {
      this.sides = await Promise.all(this.places.map(whole));
      this.#draw();
    } catch (error) {
      fill(this.element, p(null, h("a", { href: to([]) }, "‹ Episodes")), trouble(error));
    }
  }

  #draw() {
    const [a, b] = this.sides.map(({ steps }) => steps);
    this.n = Math.max(a.length, b.length);
    this.parting = partingOf(a, b);
    this.curves = this.sides.map((side, place) =>
      curve(outlineOf(side, side.steps), (step) => this.#go(step), {
        label: `Return of ${SIDES[place]} over the steps`,
      }),
    );
    this.rows = div("pair-rows");
    fill(
      this.element,
      h(
        "nav",
        { class: "crumbs", "aria-label": "Episodes" },
        h("a", { href: to([]) }, "‹ Episodes"),
        span("spacer"),
        button("Swap", () => this.#swap()),
        this.parting !== null && button("First difference", () => this.#parting()),
      ),
      h("h1", { tabindex: "-1" }, short(this.sides[0].mission ?? "Side by side", 200)),
      this.#world(),
      this.#summary(),
      div(
        "pair heads",
        this.sides.map((_, place) => this.#head(place)),
      ),
      this.rows,
    );
    this.#fill();
  }

  #world() {
    const [a, b] = this.sides;
    const world = (side) =>
      [side.env, side.task, (side.seed ?? null) !== null && `seed ${side.seed}`].filter(Boolean).join(" · ");
    if (world(a) === world(b)) return p("note", world(a));
    return p("wrong", `These are two worlds: ${world(a) || "unknown"} and ${world(b) || "unknown"}.`);
  }

  #summary() {
    const [a, b] = this.sides;
    if (this.parting === null) return p("verdict", `The same actions in all ${counted(this.n, "step")}.`);
    const deed = (side) =>
      side.steps[this.parting] ? h("b", null, deedText(side.steps[this.parting])) : "ended";
    return p(
      "verdict",
      "First difference: ",
      button(`step ${this.parting}`, () => this.#parting(), { class: "as-link" }),
      " — A ",
      deed(a),
      ", B ",
      deed(b),
      ". ",
    );
  }

  #head(place) {
    const side = this.sides[place];
    const other = this.places[1 - place];
    const choices = [
      this.places[place],
      ...(side.twins ?? []).filter((twin) => !(String(twin.store) === other.store && twin.id === other.id)),
    ];
    const label = (choice, at) =>
      at === 0 ? twinName(this.stores, { ...side, ...choice }, null) : twinName(this.stores, choice, null);
    const select = h(
      "select",
      {
        "aria-label": `episode ${SIDES[place]}`,
        onchange: (event) => this.#choose(place, choices[event.target.selectedIndex]),
      },
      choices.map((choice, at) => h("option", { selected: at === 0 }, label(choice, at))),
    );
    return h(
      "section",
      { class: "head", "aria-label": `episode ${SIDES[place]}` },
      div(
        "head-line",
        span(`side is-${SIDES[place]}`, SIDES[place]),
        select,
        h("a", { href: episodeAddress(side.store, side.id) }, "open"),
      ),
      p(
        "head-facts",
        this.stores.stores.length > 1 && span(null, facetName(this.stores, "store", side.store)),
        span(null, side.variant ?? side.model ?? "unknown"),
        outcomeMark(side.outcome),
        span(null, "return ", h("b", null, number(side.reward))),
        span(null, counted(side.n_steps, "step")),
      ),
      this.curves[place].element,
    );
  }

  #choose(place, choice) {
    const chosen = this.places.map((each, at) => (at === place ? choice : each));
    go(compareAddress(chosen[0], chosen[1]));
  }

  #swap() {
    go(compareAddress(this.places[1], this.places[0]));
  }

  // Equal steps up to the first difference are folded; those just before it stay visible.
  #fill() {
    const alike = this.parting === null ? this.n : this.parting;
    const nFolded = alike > FOLD_AFTER ? alike - 2 : 0;
    const rows = (from, end) => Array.from({ length: end - from }, (_, at) => this.#row(from + at));
    const summary = `steps 0 to ${nFolded - 1}: the same actions`;
    this.fold =
      nFolded > 0 ? h("details", { class: "alike" }, h("summary", null, summary), rows(0, nFolded)) : null;
    fill(
      this.rows,
      this.fold,
      rows(nFolded, this.n),
      this.sides.some((side) => side.steps.length < side.n_steps) &&
        p("note", `Only the first ${count(MOST_STEPS)} steps are shown.`),
    );
  }

  #row(index) {
    const steps = this.sides.map((side) => side.steps[index]);
    const sights = steps.map((step) => (step ? sightOf(step) : null));
    const isShared = sights[0] !== null && sights[0] === sights[1];
    const isParting = index === this.parting;
    const head = h(
      "h2",
      { class: "pair-step" },
      h("a", { href: episodeAddress(this.places[0].store, this.places[0].id, index) }, `step ${index}`),
      isParting && span("flag is-parting", "first difference"),
    );
    const seen = isShared && div("sight", span("role", "both see"), words(sights[0], { first: 400 }));
    const cells = steps.map((step, place) => this.#cell(step, place, isShared ? null : sights[place]));
    return h(
      "article",
      {
        class: `pair-row${isParting ? " is-parting" : ""}`,
        id: `row-${index}`,
        tabindex: "-1",
        "aria-label": `step ${index}`,
      },
      head,
      seen,
      div("pair", cells),
    );
  }

  #cell(step, place, sight) {
    const side = this.sides[place];
    const name = h(
      "span",
      { class: `side is-${SIDES[place]}`, "aria-label": `episode ${SIDES[place]}` },
      SIDES[place],
    );
    if (!step) return div("cell is-over", name, p("note", `ended before: ${side.outcome ?? "unknown"}`));
    const flags = flagsOf(step);
    const context = { store: side.store, id: side.id, variant: side.variant };
    const total = step.total_reward ?? this.curves[place].returns[step.index];
    return div(
      `cell ${flags.map(({ kind }) => kind).join(" ")}`,
      div(
        "cell-head",
        name,
        actionOf(step),
        flags.map(flag),
        span("spacer"),
        numbers({ reward: step.reward }, total),
      ),
      sight !== null && div("sight", span("role", "sees"), words(sight, { first: 400 })),
      answer(step, context),
    );
  }

  #go(row) {
    this.at = Math.max(0, Math.min(this.n - 1, row));
    const place = this.rows.querySelector(`#row-${this.at}`);
    if (this.fold?.contains(place)) this.fold.open = true;
    this.rows.querySelector(".is-current")?.classList.remove("is-current");
    place.classList.add("is-current");
    place.focus({ preventScroll: true });
    place.scrollIntoView({ block: "start" });
    for (const each of this.curves) each.show(Math.min(this.at, each.returns.length - 1));
  }

  #parting() {
    if (this.parting === null) return say("there is no difference");
    this.#go(this.parting);
  }

  keys() {
    const by = (n) => () => this.#go(this.at + n);
    return {
      j: by(1),
      k: by(-1),
      ArrowRight: by(1),
      ArrowLeft: by(-1),
      d: () => this.#parting(),
      s: () => this.#swap(),
      g: () => this.#go(0),
      G: () => this.#go(this.n - 1),
      Escape: () => go(this.back ?? to([])),
    };
  }
}

// An episode with all of its steps, up to the maximum.
async function whole({ store, id }) {
  const first = await ask("episode", { store, id, offset: 0 });
  const steps = [...first.steps];
  for (let next = first.next ?? null; next !== null && steps.length < MOST_STEPS;) {
    const found = await ask("episode", { store, id, offset: next });
    steps.push(...found.steps);
    next = found.next ?? null;
  }
  return { ...first, steps };
}

// The first step at which the actions differ; null if they never do.
function partingOf(a, b) {
  const n = Math.max(a.length, b.length);
  for (let step = 0; step < n; step += 1)
    if (!a[step] || !b[step] || deedOf(a[step]) !== deedOf(b[step])) return step;
  return null;
}

// The action of a step, in a few words.
function deedText(step) {
  const { action } = step;
  if (action === null || action === undefined) return short(deedOf(step), 60) || "said nothing";
  return short(typeof action === "string" ? action : JSON.stringify(action), 60);
}
