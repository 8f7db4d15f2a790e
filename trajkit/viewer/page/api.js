// Where the episodes come from: the server that gave this page, or the data inside a page that is a file.
import { embedded } from "./embedded.js";

const held = new Map();
const MOST_HELD = 200;

// What the server did not do, and what to do about it.
export class Refusal extends Error {
  constructor(message, hint) {
    super(message);
    this.hint = hint ?? null;
  }
}

// Whether this page is a file, with nobody to ask.
export const isFile = embedded !== null;

// One answer. What does not change is asked for once.
export async function ask(name, query = {}, signal = null) {
  const asked = new URLSearchParams(query);
  if (embedded) return embedded.answer(name, asked);
  const address = `api/${name}${asked.size ? `?${asked}` : ""}`;
  if (held.has(address)) return held.get(address);
  const answer = await fetched(address, signal);
  if (held.size >= MOST_HELD) held.delete(held.keys().next().value);
  held.set(address, answer);
  return answer;
}

async function fetched(address, signal) {
  let response;
  try {
    response = await fetch(address, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("the server does not answer", "is `trajkit view` still running?");
  }
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  throw new Refusal(body?.error ?? `the server answered ${response.status}`, body?.hint);
}
