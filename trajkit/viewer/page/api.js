// The source of the episodes: the server of this page, or the data inside a page that is a file.
import { embedded } from "./embedded.js";

const held = new Map();
const MOST_HELD = 200;

// An error of the server, and what to do about it.
export class Refusal extends Error {
  constructor(message, hint) {
    super(message);
    this.hint = hint ?? null;
  }
}

// Whether this page is a file, without a server.
export const isFile = embedded !== null;

// One answer. Data that does not change is requested once.
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
    throw new Refusal("the server does not answer", "check that `trajkit view` is running");
  }
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  throw new Refusal(body?.error ?? `the server answered ${response.status}`, body?.hint);
}
