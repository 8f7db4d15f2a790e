// An episode, shown as a conversation.
import { ask } from "./api.js";
import { curve, outlineOf } from "./curve.js";
import { button, div, fill, h, p, put, say, span, trouble } from "./dom.js";
import { episodeHead } from "./episode_head.js";
import { count, short } from "./format.js";
import { READINGS } from "./prompt.js";
import { episodeAddress, filtersOf, go, to } from "./route.js";
import { stepArticle } from "./step.js";

const AT_A_TIME_STEPS = 200;
const ROWS_OF_A_PAGE = 100;
const kept = { mode: "new", isOpen: false };

// The view of one episode: `update(route)` goes to the step in the address.
export class EpisodeView {
  constructor(stores) {
    this.stores = stores;
    this.title = "Episode";
    this.element = div("episode");
  }

  async update({ words: [, store, id, , step], query }) {
    this.query = query;
    const wanted = step === undefined ? null : Number(step);
    if (this.store === store && this.id === id) return this.#to(wanted ?? 0, wanted === null);
    [this.store, this.id, this.from, this.steps, this.current] = [store, id, 0, [], 0];
    try {
      this.found = await this.#ask(0, wanted === null || wanted < AT_A_TIME_STEPS ? AT_A_TIME_STEPS : 1);
      this.steps = this.found.steps;
      this.#draw();
      this.#crumbs(await neighboursOf(this.store, this.id, this.query));
      await this.#to(wanted ?? 0, wanted === null);
    } catch (error) {
      fill(this.element, p(null, h("a", { href: to([], filtersOf(query)) }, "‹ Episodes")), trouble(error));
    }
  }

  #ask(offset, limit = AT_A_TIME_STEPS) {
    return ask("episode", { store: this.store, id: this.id, offset, limit });
  }

  // A range of steps; the size of one answer is limited.
  async #stretch(from, end) {
    const steps = [];
    for (let offset = from; offset !== null && offset < end;) {
      const found = await this.#ask(offset, Math.min(AT_A_TIME_STEPS, end - offset));
      // a file has all steps at once
      steps.push(...found.steps.filter(({ index }) => index >= offset && index < end));
      offset = found.next ?? null;
    }
    return steps;
  }

  #draw() {
    const { found } = this;
    this.title = short(found.mission ?? found.id, 60);
    this.curve = curve(outlineOf(found, this.steps), (step) => this.#go(step));
    this.position = h("span", { class: "position", "aria-live": "off" });
    this.list = div("steps");
    this.earlier = div("more");
    this.later = div("more");
    this.crumbs = h("nav", { class: "crumbs", "aria-label": "Episodes" });
    fill(
      this.element,
      this.crumbs,
      episodeHead(this.stores, this.found, this.steps),
      this.#strip(),
      this.earlier,
      this.list,
      this.later,
    );
    this.#steps();
    this.#crumbs({});
  }

  #strip() {
    const modes = READINGS.map(([name, label]) =>
      button(label, () => this.#read(name), {
        "aria-pressed": String(kept.mode === name),
        "data-mode": name,
      }),
    );
    this.thoughts = button("Thoughts", () => this.#fold(), {
      "aria-pressed": String(kept.isOpen),
      title: "unfold all thoughts (t)",
    });
    return div(
      "strip",
      this.curve.element,
      div(
        "controls",
        this.position,
        h("div", { class: "choice", role: "group", "aria-label": "Prompt" }, modes),
        this.thoughts,
      ),
    );
  }

  #steps() {
    fill(
      this.list,
      this.steps.map((step, at) => this.#article(step, at)),
    );
    this.#more();
    this.#unfold();
  }

  #article(step, at) {
    const { returns } = this.curve;
    const context = {
      store: this.store,
      id: this.id,
      mode: kept.mode,
      before: this.steps[at - 1],
      variant: this.found.variant,
      total: step.total_reward ?? returns[step.index],
    };
    return stepArticle(step, context);
  }

  #more() {
    const end = this.from + this.steps.length;
    const { n_steps: n } = this.found;
    fill(
      this.earlier,
      this.from > 0 &&
        button(`Show steps ${Math.max(0, this.from - AT_A_TIME_STEPS)} to ${this.from - 1}`, () =>
          this.#load(-1),
        ),
    );
    fill(
      this.later,
      end < n
        ? button(`Show steps ${end} to ${Math.min(n, end + AT_A_TIME_STEPS) - 1}`, () => this.#load(1))
        : this.steps.length > 3 && p("note", "End of the episode."),
    );
  }

  async #load(by) {
    const offset = by > 0 ? this.from + this.steps.length : Math.max(0, this.from - AT_A_TIME_STEPS);
    const steps = await this.#stretch(offset, by > 0 ? offset + AT_A_TIME_STEPS : this.from);
    const place = this.list.firstElementChild;
    if (by > 0) this.steps.push(...steps);
    else [this.steps, this.from] = [[...steps, ...this.steps], offset];
    const articles = steps.map((step, at) =>
      this.#article(step, at + (by > 0 ? this.steps.length - steps.length : 0)),
    );
    if (by > 0) put(this.list, articles);
    else this.list.prepend(...articles);
    this.#more();
    this.#unfold();
    if (by < 0) place.scrollIntoView({ block: "start" });
  }

  // Change how prompts are shown; the current step keeps its place.
  #read(mode) {
    kept.mode = mode;
    const at = this.#seen();
    for (const each of this.element.querySelectorAll("[data-mode]"))
      each.setAttribute("aria-pressed", String(each.dataset.mode === mode));
    this.#steps();
    if (at > 0) this.#to(at);
    else this.#mark(at);
  }

  #fold() {
    kept.isOpen = !kept.isOpen;
    this.thoughts.setAttribute("aria-pressed", String(kept.isOpen));
    this.#unfold();
    say(kept.isOpen ? "thoughts are open" : "thoughts are folded");
  }

  #unfold() {
    const thoughts = this.element.querySelectorAll("details.thought");
    for (const each of thoughts) each.open = kept.isOpen;
    this.thoughts.hidden = thoughts.length === 0;
  }

  #crumbs(neighbours) {
    this.back = backAddress(this.query, neighbours.at);
    fill(this.crumbs, crumbs(this.query, neighbours, this.back));
  }

  // The current step: the chosen one while it is visible, else the first visible one.
  #seen() {
    const top = this.element.querySelector(".strip").getBoundingClientRect().bottom;
    const box = this.list.querySelector(`#step-${this.current}`)?.getBoundingClientRect();
    if (box && box.bottom > top && box.top < innerHeight) return this.current;
    const first = [...this.list.children].find((each) => each.getBoundingClientRect().bottom > top + 10);
    return first ? Number(first.id.slice(5)) : this.current;
  }

  #go(step) {
    if (step < 0 || step >= this.found.n_steps) return;
    go(episodeAddress(this.store, this.id, step, this.query), true);
  }

  async #to(step, isQuiet = false) {
    if (!this.found || !(step >= 0) || (step >= this.found.n_steps && step > 0))
      return isQuiet ? null : this.#none(step);
    if (step < this.from || step >= this.from + this.steps.length) {
      const offset = Math.floor(step / AT_A_TIME_STEPS) * AT_A_TIME_STEPS;
      [this.steps, this.from] = [
        await this.#stretch(offset, Math.min(offset + AT_A_TIME_STEPS, this.found.n_steps)),
        offset,
      ];
      this.#steps();
    }
    this.#mark(step);
    if (isQuiet) return;
    const article = this.list.querySelector(`#step-${step}`);
    article?.focus({ preventScroll: true });
    article?.scrollIntoView({ block: "start" });
  }

  #none(step) {
    say(`there is no step ${step}`);
    fill(this.position, `no step ${step}`);
  }

  #mark(step) {
    this.current = step;
    this.list.querySelector(".is-current")?.classList.remove("is-current");
    this.list.querySelector(`#step-${step}`)?.classList.add("is-current");
    this.curve.show(step);
    fill(
      this.position,
      span("unit", "step "),
      h("b", null, step),
      ` / ${count(Math.max(0, this.found.n_steps - 1))}`,
    );
  }

  keys() {
    const neighbour = (label) => () => this.crumbs?.querySelector(`a[href][aria-label="${label}"]`)?.click();
    const by = (n) => () => this.#go(this.#seen() + n);
    return {
      j: by(1),
      k: by(-1),
      ArrowRight: by(1),
      ArrowLeft: by(-1),
      g: () => this.#go(0),
      G: () => this.#go(this.found.n_steps - 1),
      n: neighbour("next episode"),
      p: neighbour("previous episode"),
      t: () => this.#fold(),
      d: () =>
        this.#read(READINGS[(READINGS.findIndex(([name]) => name === kept.mode) + 1) % READINGS.length][0]),
      c: () => this.element.querySelector(".twin")?.click(),
      Escape: () => go(this.back ?? to([])),
    };
  }
}

// The previous and next row, the place and the length of the list; nothing without a list.
async function neighboursOf(store, id, query) {
  const at = Number(query.get("at") ?? NaN);
  if (!query.has("at") || !Number.isInteger(at)) return {};
  const asked = filtersOf(query);
  asked.set("offset", Math.max(0, at - 1));
  asked.set("limit", 3);
  const { rows, total } = await ask("episodes", asked);
  const here = rows.findIndex((row) => String(row.store) === store && row.id === id);
  return here < 0 ? {} : { before: rows[here - 1], after: rows[here + 1], at, total };
}

// The list that led here, at the page with this episode.
function backAddress(query, at) {
  const back = filtersOf(query);
  if (at >= ROWS_OF_A_PAGE) back.set("offset", Math.floor(at / ROWS_OF_A_PAGE) * ROWS_OF_A_PAGE);
  return to([], back);
}

// Links back to the list, and to the neighbours if they are known.
function crumbs(query, { before, after, at, total }, back) {
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
    span("spacer"),
    at !== undefined && [
      span("note", `${count(at + 1)} of ${count(total)}`),
      step(before, -1, "‹ Previous", "previous episode"),
      step(after, 1, "Next ›", "next episode"),
    ],
  ];
}
