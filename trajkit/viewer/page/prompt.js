// The prompt of a step in three modes: the new part, all of it, or the difference to the previous step.
import { ask } from "./api.js";
import { message, textOf, valueShown } from "./blocks.js";
import { promptDifference } from "./difference.js";
import { div, fill, folded, p, span, trouble } from "./dom.js";
import { count, counted } from "./format.js";

const MOST_MESSAGES = 2000;
const LAST_SHOWN = 3;

// The modes with their labels.
export const READINGS = [
  ["new", "New"],
  ["full", "Full prompt"],
  ["difference", "Difference"],
];

// Prompts are requested when the user scrolls near them, not all at once.
const near = new IntersectionObserver(
  (seen) => {
    for (const { isIntersecting, target } of seen)
      if (isIntersecting) {
        near.unobserve(target);
        target.dispatchEvent(new Event("near"));
      }
  },
  { rootMargin: "600px" },
);

// The place of a step's prompt, filled in the chosen mode.
export function promptPlace(step, context) {
  if (context.mode === "new") return div("prompt", news(step, context));
  const place = div("prompt is-waiting", p("note", "…"));
  place.addEventListener("near", () => load(place, step, context), { once: true });
  near.observe(place);
  return place;
}

async function load(place, step, context) {
  try {
    fill(place, await (context.mode === "full" ? full(step, context) : differing(step, context)));
  } catch (error) {
    fill(place, trouble(error));
  }
  place.classList.remove("is-waiting");
}

// All messages of a prompt, null if it is unknown; of a very long one the first ones.
async function promptOf({ store, id }, step) {
  const found = [];
  let offset = 0;
  while (offset !== null && offset !== undefined && found.length < MOST_MESSAGES) {
    const { messages, next } = await ask("messages", { store, id, step, offset });
    if (!messages) return null;
    found.push(...messages);
    offset = next;
  }
  return found;
}

function unknown() {
  return p("note", "The prompt is unknown.");
}

async function differing(step, context) {
  if (step.index === 0) return full(step, context);
  // a prompt that continues the last one differs by the new messages
  if (step.n_kept)
    return [p("note", `${counted(step.n_kept, "message")} as before, then`), sent(step, context)];
  const [before, now] = await Promise.all([promptOf(context, step.index - 1), promptOf(context, step.index)]);
  return before && now ? promptDifference(before, now) : unknown();
}

// All messages; all but the last ones are folded if there are many.
async function full(step, context) {
  const prompt = await promptOf(context, step.index);
  if (!prompt) return unknown();
  const place = placeOf(step, context);
  const show = (each, isFolded) => message(each, place, { isFolded: isFolded || each.role === "system" });
  const early = prompt.length > LAST_SHOWN + 2 ? prompt.slice(0, -LAST_SHOWN) : [];
  return [
    early.length > 0 &&
      folded(`${count(early.length)} messages before`, () =>
        div(
          "prompt",
          early.map((each) => show(each, true)),
        ),
      ),
    prompt.slice(early.length).map((each) => show(each, false)),
  ];
}

function placeOf(step, { store, id }) {
  return { store, id, step: step.index };
}

// The new part: the observation if the environment gave one, else the new messages.
function news(step, context) {
  if ((step.observation ?? null) === null) return sent(step, context);
  const place = placeOf(step, context);
  const messages = step.new_messages ?? [];
  const rules = step.index === 0 ? messages.filter(({ role }) => role === "system") : [];
  const kept = step.n_kept ? `, ${count(step.n_kept)} kept` : "";
  const inside = () => div("prompt", sent(step, context));
  return [
    rules.map((each) => message(each, place, { isFolded: true })),
    div("message observation", div("who", span("role", "observation")), valueShown(step.observation, place)),
    messages.length > rules.length &&
      folded(`prompt as sent: ${counted(messages.length, "new message")}${kept}`, inside, { class: "sent" }),
  ];
}

// The new messages as they were sent; those that the previous step also had are folded.
function sent(step, context) {
  const messages = step.new_messages;
  if (!messages) return unknown();
  const place = placeOf(step, context);
  const left = (step.n_new_messages ?? messages.length) - messages.length;
  const { before } = context;
  const shown = messages.map((each, at) => {
    const old = step.n_kept || before?.n_kept ? null : before?.new_messages?.[at];
    const isOld = Boolean(old) && old.role === each.role && textOf(old) === textOf(each);
    return message(each, place, {
      isFolded: each.role === "system" || isOld,
      note: isOld ? "as before" : null,
    });
  });
  return [shown, left > 0 && p("note", `${counted(left, "more message")}: see the full prompt.`)];
}
