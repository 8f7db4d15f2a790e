// Messages, and the blocks that they consist of.
import { div, folded, h, p, span } from "./dom.js";
import { count, counted, said, short } from "./format.js";
import { jsonOf, jsonText, jsonTree } from "./json.js";
import { cutValue, words } from "./words.js";

const ROLES = ["system", "user", "assistant", "tool"];

// A message with its role. `place` locates its long texts; a folded one shows its beginning.
export function message(
  { role, blocks, n_blocks_left: left },
  place,
  { isFolded = false, note = null } = {},
) {
  const inside = () => [
    blocks.map((each) => block(each, place)),
    left > 0 && p("note", `${counted(left, "more block")} of this message`),
  ];
  const head = [span("role", role), note && span("note", note)];
  const kind = `message ${ROLES.includes(role) ? role : "other"}`;
  if (blocks.length === 0) return div(kind, div("who", head, span("note", "nothing")));
  if (!isFolded) return div(kind, div("who", head), inside());
  const first = span("first", short(textOf({ blocks }).slice(0, 400), 110));
  return folded([head, " ", first], inside, { class: `${kind} is-folded` });
}

// The text of a message, for comparisons.
export function textOf({ blocks }) {
  return blocks.map(blockText).join("\n");
}

function blockText(block) {
  switch (block.type) {
    case "tool_call":
      return `[call ${plain(block.name)}] ${plain(block.arguments)}`;
    case "tool_result":
      return `[result ${plain(block.name)}] ${plain(block.result)}`;
    case "text":
    case "raw_text":
    case "thought":
      return plain(block.text);
    default:
      return `[${block.type}] ${JSON.stringify(others(block))}`;
  }
}

// The value of a field as text; the beginning if the server cut it.
function plain(value) {
  return (
    cutValue(value)?.text ??
    (typeof value === "string" ? value : value === null || value === undefined ? "" : JSON.stringify(value))
  );
}

// One block.
export function block(each, place) {
  const rest = each.cut ? { ...place, ...each.cut } : null;
  switch (each.type) {
    case "text":
    case "raw_text":
      return written(each.text, rest);
    case "thought":
      return thought(each, rest, place);
    case "tool_call":
      return div("call", named("calls", each), written(each.arguments, rest, true));
    case "tool_result":
      return div("result", named("result of", each), written(each.result, rest, true));
    case "file":
      return file(each, place);
    default:
      return div("result", p("what", each.type), fields(others(each), place));
  }
}

function others({ type, cut, ...other }) {
  return Object.fromEntries(Object.entries(other).filter(([, value]) => value !== null));
}

function fields(values, place) {
  if (!Object.values(values).some(cutValue)) return jsonTree(values);
  return h(
    "dl",
    { class: "fields-of" },
    Object.entries(values).map(([name, value]) => [
      h("dt", null, name),
      h("dd", null, valueShown(value, place)),
    ]),
  );
}

// A text; one that is JSON can be unfolded.
function written(text, rest, isCode = false) {
  const value = rest ? undefined : jsonOf(plain(text));
  return value === undefined
    ? words(plain(text), { rest, kind: isCode ? "words code" : "words" })
    : jsonText(plain(text), value);
}

function thought(each, rest, place) {
  const text = plain(each.text);
  const beginning = text ? short(text.slice(0, 300), 90) : "only a signature or a summary";
  const title = [span("role", "thought"), " ", span("first", beginning)];
  const { text: _, ...more } = others(each);
  const make = () => [
    text && words(text, { rest }),
    Object.keys(more).length > 0 && folded("signature and summary", () => fields(more, place)),
  ];
  return folded(title, make, {
    class: "thought",
    title: counted(rest?.n_characters ?? text.length, "character"),
  });
}

function named(verb, each) {
  return p(
    "what",
    `${verb} `,
    h("b", null, short(plain(each.name) || "?", 200)),
    " ",
    h("small", null, short(plain(each.id), 80)),
  );
}

function file(each, place) {
  const name = plain(each.filename ?? each.source_url ?? each.mime_type) || "without a name";
  return div(
    "result",
    p("what", "file ", h("b", null, short(name, 200))),
    folded("details", () => fields(others(each), place)),
  );
}

// The tools that a model could call.
export function tools(list, place) {
  if (!Array.isArray(list)) return folded("tools", () => valueShown(list, place));
  const about = (tool, key) => plain(tool?.[key] ?? tool?.function?.[key]);
  const one = (tool) =>
    folded(
      [
        h("b", null, short(about(tool, "name") || "?", 100)),
        " ",
        span("first", short(about(tool, "description"))),
      ],
      () => jsonTree(tool),
    );
  return folded(`tools: ${count(list.length)}`, () => div("tools", list.map(one)));
}

// Any value: a text as text, others as a tree; of a cut one the beginning.
export function valueShown(value, place) {
  const cut = cutValue(value);
  if (cut) return words(cut.text, { rest: { ...place, ...cut.cut }, kind: "words code" });
  if (typeof value === "string") return words(value);
  return value === null || value === undefined ? said(value) : jsonTree(value);
}
