// Charts as small drawings in the colors of the page. Each has its numbers as a table.
import { div, drawn, fill, h, p, table } from "./dom.js";
import { brief, count, percent, short } from "./format.js";

const ROW = 28;
const SLIM = 560;

// A chart under its heading: `draw(width)` makes the drawing for this many pixels, again when they change.
export function figure(title, said, draw, numbers) {
  const place = div("chart");
  let width = 0;
  new ResizeObserver(([{ contentRect }]) => {
    const now = Math.round(contentRect.width);
    if (now === width || now === 0) return;
    width = now;
    fill(place, draw(width));
  }).observe(place);
  return h(
    "figure",
    null,
    h("figcaption", null, h("h3", null, title), said && p(null, said)),
    place,
    h("details", null, h("summary", null, "As a table"), numbers),
  );
}

function canvas(width, height, title, ...inside) {
  return drawn(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
    drawn("title", null, title),
    inside,
  );
}

function word(x, y, text, settings) {
  return drawn("text", { x, y, ...settings }, text);
}

// Vertical bars; `label(bin)` describes one, and `pick(bin)` is called for a chosen one.
export function histogramDrawing(title, bins, width, { label, pick }) {
  const [left, right, top, bottom] = [44, width - 12, 10, 150];
  const highest = Math.max(...bins.map(({ n }) => n), 1);
  // the last of several is as wide as the others, whatever its range
  const each = bins.length > 1 ? bins[0].high - bins[0].low : 1;
  const [low, high] = [bins[0].low, bins[0].low + each * bins.length];
  const across = (x) => left + ((x - low) / (high - low || 1)) * (right - left);
  const up = (n) => bottom - (n / highest) * (bottom - top);
  const grid = [0, highest].map((n) => [
    drawn("line", { class: "grid", x1: left, x2: right, y1: up(n), y2: up(n) }),
    word(left - 6, up(n) + 4, count(n), { class: "tick", "text-anchor": "end" }),
  ]);
  const bars = bins.map((bin) => {
    const [x, end] = [across(bin.low) + 0.5, across(bin.low + each) - 0.5];
    const said = `${label(bin)}: ${count(bin.n)}`;
    const y = bin.n ? Math.min(up(bin.n), bottom - 2) : bottom;
    const area = drawn("rect", {
      class: "hit",
      x,
      y: top,
      width: Math.max(end - x, 1),
      height: bottom - top,
    });
    const group = drawn(
      "g",
      { class: "bin" },
      drawn("title", null, said),
      area,
      drawn("rect", { class: "bar", x, y, width: Math.max(end - x, 1), height: bottom - y, rx: 1.5 }),
    );
    if (bin.n) choosable(group, said, () => pick(bin));
    return group;
  });
  const ticks = niceTicks(low, high, width < SLIM ? 3 : 6).map((x) =>
    word(across(x), bottom + 18, brief(x), { class: "tick", "text-anchor": "middle" }),
  );
  return canvas(width, 176, title, grid, bars, ticks);
}

function choosable(group, said, action) {
  group.setAttribute("tabindex", "0");
  group.setAttribute("role", "button");
  group.setAttribute("aria-label", `show the episodes with ${said}`);
  group.addEventListener("click", action);
  group.addEventListener(
    "keydown",
    (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), action()),
  );
}

// Rows of `{label, said, kind, tip}`: a label, the bars of `bars(row, y, left, right)`, and a number.
function rowsDrawing(title, rows, width, { widest, share, rest, most }, bars) {
  const isSlim = width < SLIM;
  const left = isSlim ? 0 : Math.min(widest, width * share);
  const right = width - (isSlim ? 0 : rest);
  const height = isSlim ? ROW + 16 : ROW;
  return canvas(
    width,
    rows.length * height + 4,
    title,
    rows.map((row, at) => {
      const { label, said, kind, tip } = row;
      const y = at * height + (isSlim ? 18 : 4);
      const labelY = isSlim ? y - 5 : y + 13;
      return drawn(
        "g",
        null,
        tip && drawn("title", null, tip),
        word(isSlim ? 0 : left - 10, labelY, short(label, isSlim ? most + 4 : most), {
          class: kind ? `label is-${kind}` : "label",
          "text-anchor": isSlim ? "start" : "end",
        }),
        bars(row, y, left, right),
        word(width, labelY, said, { class: "number", "text-anchor": "end" }),
      );
    }),
  );
}

// Stacked bars: rows of `{label, parts: [{kind, name, n}], said}`, each part as long as its share.
export function partsDrawing(title, rows, width) {
  const shape = { widest: 220, share: 0.3, rest: 150, most: 30 };
  return rowsDrawing(title, rows, width, shape, ({ label, parts }, y, left, right) => {
    const scale = (right - left) / (sum(parts) || 1);
    let x = left;
    return parts
      .filter(({ n }) => n > 0)
      .map(({ kind, n, name }) => {
        const piece = drawn(
          "rect",
          { class: `part ${kind}`, x, y, width: Math.max(n * scale - 1, 1), height: ROW - 10, rx: 2 },
          drawn("title", null, `${label}, ${name}: ${count(n)}`),
        );
        x += n * scale;
        return piece;
      });
  });
}

function sum(parts) {
  return parts.reduce((all, { n }) => all + n, 0);
}

// The funnel: a bar per stage, and one for each reason why some were left out.
export function funnelDrawing(title, stages, width) {
  const longest = Math.max(...stages.map(({ from, n }) => from + n), 1);
  const rows = stages.map((stage) => {
    const said = stage.kind === "left" ? `−${count(stage.n)}` : count(stage.n);
    return { ...stage, said, tip: `${stage.label}: ${said}` };
  });
  const shape = { widest: 260, share: 0.36, rest: 110, most: 36 };
  return rowsDrawing(title, rows, width, shape, ({ n, from, kind }, y, left, right) => {
    const at = (value) => left + (value / longest) * (right - left);
    const end = Math.max(at(from + n) - at(from), n ? 2 : 0);
    return drawn("rect", { class: `stage is-${kind}`, x: at(from), y, width: end, height: ROW - 10, rx: 2 });
  });
}

// Round numbers from low to high, about this many.
export function niceTicks(low, high, most) {
  if (high <= low) return [low];
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => power * factor >= rough * 0.999) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, place) =>
    Number(((first + place) * step).toPrecision(12)),
  );
}

// The numbers of a histogram.
export function binTable(bins, nNull, label) {
  const n = sum(bins);
  const rows = bins.filter((bin) => bin.n).map((bin) => [label(bin), count(bin.n), percent(bin.n, n)]);
  return table(
    ["value", "episodes", "share"],
    nNull ? [...rows, ["not measured", count(nNull), ""]] : rows,
    1,
    { "aria-label": "numbers of the chart" },
  );
}
