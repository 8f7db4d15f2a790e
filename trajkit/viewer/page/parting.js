// Two episodes as they are compared: all of their steps, and where they first part.
import { ask } from "./api.js";
import { short } from "./format.js";
import { deedOf } from "./step.js";

// The most steps that are compared.
export const MOST_STEPS = 2000;

// An episode with all of its steps, up to the most that are shown.
export async function whole({ store, id }) {
  const first = await ask("episode", { store, id, offset: 0 });
  const steps = [...first.steps];
  for (let next = first.next ?? null; next !== null && steps.length < MOST_STEPS;) {
    const found = await ask("episode", { store, id, offset: next });
    steps.push(...found.steps);
    next = found.next ?? null;
  }
  return { ...first, steps };
}

// The first step at which they did not do the same; null where they never differ.
export function partingOf(a, b) {
  const n = Math.max(a.length, b.length);
  for (let step = 0; step < n; step += 1)
    if (!a[step] || !b[step] || deedOf(a[step]) !== deedOf(b[step])) return step;
  return null;
}

// What was done at a step, in a few words.
export function deedText(step) {
  const { action } = step;
  if (action === null || action === undefined) return short(deedOf(step), 60) || "said nothing";
  return short(typeof action === "string" ? action : JSON.stringify(action), 60);
}
