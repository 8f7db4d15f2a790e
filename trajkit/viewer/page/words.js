// Text that may be very long: one piece at a time, and the rest on demand.
import { ask, isFile } from "./api.js";
import { button, div, fill, h, put, span } from "./dom.js";
import { count } from "./format.js";

const FIRST = 1600;
const FIRST_LINES = 24;
const NEXT = 20000;

// A text as it was written. `rest` locates the part that the server has: `{n_characters, next, path, step, …}`.
export function words(text, { rest = null, first = FIRST, kind = "words" } = {}) {
  const body = h("div", { class: kind, dir: "auto" });
  const reading = {
    text,
    shown: 0,
    n: 0,
    rest,
    next: rest?.next ?? null,
    whole: rest?.n_characters ?? points(text),
    step: NEXT,
  };
  put(body, taken(reading, beginning(text, first)));
  return div("text", body, reading.n < reading.whole && more(reading, body));
}

// The text of a value that the server cut, and the place of its rest; null for any other value.
export function cutValue(value) {
  return typeof value?.text === "string" && typeof value.cut?.n_characters === "number" ? value : null;
}

function points(text) {
  return text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0);
}

function beginning(text, most) {
  if (text.length <= most * 1.3 && lineEnd(text, FIRST_LINES * 1.3) === text.length) return text.length;
  return Math.min(lineEnd(text, FIRST_LINES), most);
}

// The end of this many lines of a text.
function lineEnd(text, most) {
  let at = -1;
  for (let n = 0; n < most; n += 1) {
    at = text.indexOf("\n", at + 1);
    if (at < 0) return text.length;
  }
  return at;
}

function taken(reading, n) {
  let end = reading.shown + n;
  if (/[\ud800-\udbff]/.test(reading.text[end - 1] ?? "")) end += 1;
  const piece = reading.text.slice(reading.shown, end);
  reading.shown += piece.length;
  reading.n += points(piece);
  return piece;
}

function more(reading, body) {
  const place = div("more");
  const draw = () => {
    const left = reading.whole - reading.n;
    if (left <= 0) return place.remove();
    const isElsewhere = reading.shown >= reading.text.length && (isFile || !reading.rest?.path);
    if (isElsewhere)
      return fill(place, span("note", `${count(left)} more characters are in the store, not in this file.`));
    return fill(place, button(`Show more (${count(left)} characters left)`, step, { class: "quiet" }));
  };
  const step = async () => {
    try {
      if (reading.shown >= reading.text.length) await fetchPiece(reading);
    } catch (error) {
      return fill(place, span("wrong", error.message));
    }
    put(body, taken(reading, reading.step));
    reading.step *= 2;
    return draw();
  };
  draw();
  return place;
}

async function fetchPiece(reading) {
  const { store, id, step, path } = reading.rest;
  const got = await ask("text", {
    store,
    id,
    step: step ?? "",
    path,
    offset: reading.next ?? points(reading.text),
  });
  reading.text += got.text;
  reading.next = got.next;
  reading.whole = got.n_characters;
}
