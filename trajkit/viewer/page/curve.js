// A small curve of the return over the steps, which shows the current step and opens others by a click.
import { drawn, h } from "./dom.js";
import { number } from "./format.js";

const HEIGHT = 40;
const FOOT = 5;
const MOST_MARKS = 600;

// The return after each step; null if no reward was measured.
export function returnsOf(rewards) {
  let sum = 0;
  let isKnown = false;
  return rewards.map((reward) => {
    if (reward !== null && reward !== undefined) [sum, isKnown] = [sum + reward, true];
    return isKnown ? sum : null;
  });
}

// The data of the curve: the outline of all steps, or the loaded steps if there is none.
export function outlineOf({ outline, n_steps: n }, steps) {
  const found = outline ?? {
    rewards: steps.map(({ reward }) => reward),
    valid: steps.map(({ valid }) => valid),
    weights: steps.map((step) => step.loss_weight),
  };
  const unknown = Array(Math.max(0, n - found.rewards.length)).fill(null);
  return { ...found, rewards: [...found.rewards, ...unknown] };
}

// The curve of `outline`; `pick(step)` is called with the chosen step.
export function curve(outline, pick, { label = "Return over the steps" } = {}) {
  const n = outline.rewards.length;
  const returns = returnsOf(outline.rewards);
  const now = drawn("rect", { class: "now", y: 0, width: 1, height: HEIGHT });
  const picture = drawn(
    "svg",
    { viewBox: `0 0 ${Math.max(n, 1)} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    now,
    marks(outline),
    drawn("path", { class: "curve", d: pathOf(returns), "vector-effect": "non-scaling-stroke" }),
  );
  const at = (event) => {
    const box = element.getBoundingClientRect();
    return Math.max(0, Math.min(n - 1, Math.floor(((event.clientX - box.left) / box.width) * n)));
  };
  const element = h(
    "div",
    {
      class: "spark",
      role: "slider",
      tabindex: "0",
      "aria-label": label,
      "aria-valuemin": 0,
      "aria-valuemax": Math.max(n - 1, 0),
      "aria-valuenow": 0,
      onclick: (event) => pick(at(event)),
      onmousemove: (event) => (element.title = `step ${at(event)}: return ${number(returns[at(event)])}`),
    },
    picture,
  );
  return { element, returns, show: (step) => show(element, now, returns, step) };
}

function show(element, now, returns, step) {
  now.setAttribute("x", step);
  element.setAttribute("aria-valuenow", step);
  element.setAttribute("aria-valuetext", `step ${step}, return ${number(returns[step])}`);
}

function pathOf(returns) {
  const known = returns.filter((value) => value !== null);
  const [low, high] = [Math.min(0, ...known), Math.max(0, ...known)];
  const up = (value) => HEIGHT - FOOT - 3 - ((value - low) / (high - low || 1)) * (HEIGHT - FOOT - 7);
  const points = returns.map((value, step) =>
    value === null ? null : `${step + 0.5} ${up(value).toFixed(2)}`,
  );
  return points
    .filter(Boolean)
    .map((point, place) => `${place ? "L" : "M"}${point}`)
    .join("");
}

// A mark below each step that is invalid, masked or weighted.
function marks({ valid = [], weights = [], rewards }) {
  const found = [];
  for (let step = 0; step < rewards.length && found.length < MOST_MARKS; step += 1) {
    const kind =
      valid[step] === false
        ? "is-invalid"
        : weights[step] === 0
          ? "is-masked"
          : weights[step] !== undefined && weights[step] !== null && weights[step] !== 1
            ? "is-weighted"
            : null;
    if (kind)
      found.push(
        drawn("rect", { class: `foot ${kind}`, x: step + 0.1, y: HEIGHT - FOOT, width: 0.8, height: FOOT }),
      );
  }
  return found;
}
