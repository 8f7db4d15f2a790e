// One step of an episode: the prompt, the answer, and the result.
import { message, textOf, valueShown } from "./blocks.js";
import { button, div, folded, h, p, say, span } from "./dom.js";
import { brief, duration, number, said, short, signed } from "./format.js";
import { promptPlace } from "./prompt.js";
import { episodeAddress, link } from "./route.js";
import { cutValue } from "./words.js";

// The marks that a step may carry, and what they mean.
export const MARKS = [
  ["is-invalid", "invalid", "the answer named no action of the environment"],
  ["is-masked", "not learned", "context only: its weight is 0"],
  ["is-weighted", "weighted", "counts more or less than the others"],
  ["is-end", "end", "the environment reached its end"],
  ["is-cut", "cut off", "the episode was stopped after this step"],
];

// The step as an article. `context`: store, id, mode, before (the step before), total (the return after it).
export function stepArticle(step, context) {
  const address = episodeAddress(context.store, context.id, step.index);
  const flags = flagsOf(step);
  return h(
    "article",
    {
      class: `step ${flags.map(({ kind }) => kind).join(" ")}`,
      id: `step-${step.index}`,
      tabindex: "-1",
      "aria-label": `step ${step.index}`,
    },
    h(
      "header",
      { class: "step-head" },
      h("h2", null, h("a", { href: address, title: "this step's address" }, `step ${step.index}`)),
      actionOf(step),
      flags.map(flag),
      span("spacer"),
      numbers(step, context.total),
      copyButton(address),
    ),
    div("step-body", promptPlace(step, context), answer(step, context), extras(step, context)),
  );
}

// The flags of a step.
export function flagsOf(step) {
  const found = [];
  const add = (kind, text) => found.push({ kind, text });
  if (step.valid === false) add("is-invalid", "invalid");
  if (step.loss_weight === 0)
    add("is-masked", step.mask_reason ? `not learned: ${short(step.mask_reason, 60)}` : "not learned");
  else if ((step.loss_weight ?? 1) !== 1) add("is-weighted", `weight ${number(step.loss_weight)}`);
  if (step.terminated) add("is-end", "end");
  if (step.truncated) add("is-cut", "cut off");
  return found;
}

// A mark as a small label.
export function flag({ kind, text }) {
  const meaning = MARKS.find(([name]) => name === kind)?.[2];
  return h("span", { class: `flag ${kind}`, title: meaning }, text);
}

// The action in the answer, and the executed one if it differs.
export function actionOf(step) {
  if (step.action === null || step.action === undefined) return null;
  const named = cutValue(step.action)?.text ?? toolsOf(step.action) ?? said(step.action);
  const done = step.executed_action ?? null;
  const isOther = done !== null && done !== step.action;
  return h(
    "span",
    { class: "action", title: short(named, 300) },
    h("b", { dir: "auto" }, short(named, 80)),
    isOther && span("executed", ` executed: ${short(said(done), 60)}`),
  );
}

// The names of the tools that an action calls; null if it calls none.
function toolsOf(action) {
  const isCalls =
    Array.isArray(action) && action.length && action.every((call) => typeof call?.name === "string");
  return isCalls ? action.map(({ name }) => name).join(" and ") : null;
}

// Reward, return, tokens and time.
export function numbers(step, total) {
  const tokens =
    (step.input_tokens ?? step.output_tokens ?? null) !== null &&
    `${brief(step.input_tokens)} → ${brief(step.output_tokens)}`;
  const reward = step.reward ?? null;
  const hasReturn = reward !== null || (total ?? null) !== null;
  return span(
    "numbers",
    hasReturn &&
      h(
        "span",
        {
          class: `reward${reward > 0 ? " is-up" : reward < 0 ? " is-down" : ""}`,
          title: "reward of this step",
        },
        reward === null ? "no reward" : [span("unit", "reward "), signed(reward)],
      ),
    hasReturn && h("span", { title: "return so far" }, "Σ ", number(total)),
    tokens && h("span", { title: "tokens of the prompt → of the answer" }, tokens, span("unit", " tokens")),
    duration(step.latency_s) &&
      h("span", { title: "from the request to the last token" }, duration(step.latency_s)),
  );
}

function copyButton(address) {
  return button(
    "link",
    async (event) => {
      const pressed = event.currentTarget;
      pressed.textContent = (await copied(link(address))) ? "copied" : "no clipboard";
      say(pressed.textContent);
      setTimeout(() => (pressed.textContent = "link"), 1500);
    },
    { class: "quiet copy", "aria-label": "copy a link to this step" },
  );
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

// The answer of the model.
export function answer(step, context) {
  if (!step.completion) return p("note", "No model answered.");
  const place = { store: context.store, id: context.id, step: step.index };
  const notes = [
    !["stop", "", null, undefined].includes(step.finish_reason) && `stopped: ${step.finish_reason}`,
    step.variant_name !== context.variant && step.variant_name,
    step.agent_name,
  ]
    .filter(Boolean)
    .join(", ");
  return message(step.completion, place, { note: notes || null });
}

// Other data of a step.
function extras(step, { store, id }) {
  const place = { store, id, step: step.index };
  const metrics = Object.entries(step.metrics ?? {}).filter(([, value]) => value !== null);
  const has = (value) =>
    value !== null && value !== undefined && !(typeof value === "object" && Object.keys(value).length === 0);
  return [
    metrics.length > 0 &&
      p(
        "note",
        metrics.map(([name, value]) => span("metric", `${name} `, h("b", null, number(value)))),
      ),
    has(step.demonstration) &&
      folded("demonstration: a better answer", () => valueShown(step.demonstration, place)),
    has(step.info) && folded("other data of the environment", () => valueShown(step.info, place)),
  ];
}

// The part of a step that is compared with another episode: its action, else the text of its answer.
export function deedOf(step) {
  if (step.action !== null && step.action !== undefined) return JSON.stringify(step.action);
  const blocks = (step.completion?.blocks ?? []).filter(({ type }) => type !== "thought");
  return textOf({ blocks: blocks.map(({ id, ...other }) => other) });
}

// The input of a step: the observation, else the last new message.
export function sightOf(step) {
  const seen = step.observation ?? null;
  if (seen !== null) return cutValue(seen)?.text ?? seen;
  const last = (step.new_messages ?? []).at(-1);
  return last ? textOf(last) : null;
}
