// Compare two texts line by line, and two prompts message by message.
import { div, h, p, span } from "./dom.js";
import { counted } from "./format.js";
import { textOf } from "./blocks.js";
import { words } from "./words.js";

const MOST_CELLS = 4_000_000;
const AROUND = 2;

// The lines of two texts as `{kind: "same" | "gone" | "new", text}`, in reading order.
export function lineDifference(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const same = (texts) => texts.map((text) => ({ kind: "same", text }));
  const middle = between(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return [...same(a.slice(0, start)), ...middle, ...same(end ? a.slice(-end) : [])];
}

// The longest common lines of the differing part; texts too long for that are replaced whole.
function between(a, b) {
  const gone = (text) => ({ kind: "gone", text });
  const fresh = (text) => ({ kind: "new", text });
  if (a.length * b.length > MOST_CELLS || !a.length || !b.length) return [...a.map(gone), ...b.map(fresh)];
  const width = b.length + 1;
  const best = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      best[i * width + j] =
        a[i] === b[j]
          ? best[(i + 1) * width + j + 1] + 1
          : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
  const found = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) (found.push({ kind: "same", text: a[i++] }), (j += 1));
    else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) found.push(gone(a[i++]));
    else found.push(fresh(b[j++]));
  }
  return [...found, ...a.slice(i).map(gone), ...b.slice(j).map(fresh)];
}

// The difference of two prompts, as shown.
export function promptDifference(before, after) {
  let n = 0;
  while (n < before.length && n < after.length && isSame(before[n], after[n])) n += 1;
  if (n === before.length && n === after.length) return p("note", "The prompt is the same as before.");
  const pairs = Math.max(before.length, after.length) - n;
  const rows = Array.from({ length: pairs }, (_, place) => changed(before[n + place], after[n + place]));
  const same = n > 0 && p("note", `${counted(n, "message")} as before`);
  const isCut = [...before, ...after].some(({ blocks }) => blocks.some(({ cut }) => cut));
  return div(
    "difference",
    same,
    rows,
    isCut && p("note", "Only the beginnings of very long texts are compared."),
  );
}

function isSame(one, other) {
  return one.role === other.role && textOf(one) === textOf(other);
}

function changed(before, after) {
  const role = (after ?? before).role;
  if (before && after && isSame(before, after)) return p("note", `${role}: as before`);
  const lines =
    before?.role === after?.role
      ? lineDifference(textOf(before), textOf(after))
      : [...one(before, "gone"), ...one(after, "new")];
  const verb = !before ? "new message" : !after ? "no longer there" : "changed";
  return div("message", div("who", span("role", role), span("note", verb)), diffLines(lines));
}

function one(message, kind) {
  return message
    ? textOf(message)
        .split("\n")
        .map((text) => ({ kind, text }))
    : [];
}

// Lines with their marks; long unchanged runs are folded.
function diffLines(lines) {
  const isNear = lines.map((_, at) =>
    lines.slice(Math.max(0, at - AROUND), at + AROUND + 1).some(({ kind }) => kind !== "same"),
  );
  const rows = [];
  for (let at = 0; at < lines.length;) {
    if (isNear[at]) {
      rows.push(line(lines[at++]));
      continue;
    }
    let end = at;
    while (end < lines.length && !isNear[end]) end += 1;
    rows.push(unchanged(lines.slice(at, end)));
    at = end;
  }
  return div("lines", rows);
}

function unchanged(lines) {
  const box = h(
    "details",
    { class: "unchanged" },
    h("summary", null, `${counted(lines.length, "line")} as before`),
  );
  box.addEventListener("toggle", () => box.append(...lines.map(line)), { once: true });
  return box;
}

function line({ kind, text }) {
  const [name, mark, said] = {
    same: ["div", " ", null],
    gone: ["del", "−", "gone: "],
    new: ["ins", "+", "new: "],
  }[kind];
  return h(
    name,
    { class: `line is-${kind}` },
    h("span", { class: "sign", "aria-hidden": "true" }, mark),
    said && span("unseen", said),
    words(text, { first: 600, kind: "words" }),
  );
}
