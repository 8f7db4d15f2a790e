// The list of episodes.
import { ask } from "./api.js";
import { columnsOf, titleText, titleOf } from "./columns.js";
import { button, div, fill, h, p, say, span } from "./dom.js";
import { FilteredView } from "./filters.js";
import { count, counted, nameOf } from "./format.js";
import { episodeAddress, filtersOf, go, to } from "./route.js";

const AT_A_TIME = 100;

// The view of the list.
export class ListView extends FilteredView {
  constructor(stores) {
    super(stores, [], "Episodes", "rows");
    this.sorting = div("sorting");
    this.bar.append(this.sorting);
    this.pager = h("nav", { class: "pager", "aria-label": "Pages" });
    this.listing.append(this.pager);
  }

  load(signal) {
    const asked = new URLSearchParams(this.query);
    asked.set("limit", AT_A_TIME);
    return ask("episodes", asked, signal);
  }

  refused() {
    this.#head(null);
    fill(this.pager);
  }

  draw(found) {
    this.facets = found.facets ?? this.stores.facets;
    this.#head(found.total);
    const held = this.#links().indexOf(document.activeElement);
    fill(this.place, found.rows.length ? this.#table(found) : this.#nothing());
    fill(this.pager, this.#pages(found));
    // the focus stays in the rows, even if an answer comes late
    if (held >= 0) this.#links()[Math.min(held, found.rows.length - 1)]?.focus({ preventScroll: true });
  }

  #links() {
    return [...this.place.querySelectorAll("a.title")];
  }

  #head(total) {
    const all = this.nEpisodes;
    const of = total !== null && total !== all ? ` of ${count(all)}` : "";
    fill(
      this.heading,
      total === null ? "Episodes" : [`${count(total)}${of} `, total === 1 && !of ? "episode" : "episodes"],
    );
    if (total !== null) say(`${counted(total, "episode")} found`);
    fill(this.sorting, this.#sort());
  }

  #nothing() {
    return div(
      "empty",
      p(null, "No episode matches."),
      [...filtersOf(this.query)].length > 0 && button("Show all of them", () => go(to([]))),
    );
  }

  // Sort by a select element, if there are no headings to click on.
  #sort() {
    const chosen = this.query.get("sort") ?? "";
    const options = ["", ...this.stores.columns].map((name) =>
      h("option", { value: name, selected: name === chosen }, name ? nameOf(name) : "as stored"),
    );
    const select = h(
      "select",
      { onchange: (event) => this.#sortBy(event.target.value, this.query.has("descending")) },
      options,
    );
    const isDown = this.query.has("descending");
    const turn = button(isDown ? "↓" : "↑", () => this.#turn(), {
      "aria-label": isDown ? "descending; sort ascending" : "ascending; sort descending",
      disabled: !chosen,
    });
    return [h("label", { class: "field is-inline" }, span(null, "Sort by"), select), turn];
  }

  #turn() {
    this.#sortBy(this.query.get("sort"), !this.query.has("descending"));
  }

  #sortBy(name, isDown) {
    const next = filtersOf(this.query);
    next.delete("sort");
    next.delete("descending");
    if (name) next.set("sort", name);
    if (name && isDown) next.set("descending", "1");
    go(to([], next));
  }

  #table(found) {
    const columns = columnsOf(this.stores, found.rows);
    const head = h(
      "tr",
      { role: "row" },
      columns.map((column) => this.#heading(column)),
    );
    const body = found.rows.map((row, place) => this.#row(row, found.offset + place, columns));
    return h(
      "table",
      { class: "episodes", role: "table", "aria-label": "Episodes" },
      h("thead", { role: "rowgroup" }, head),
      h("tbody", { role: "rowgroup" }, body),
    );
  }

  #heading({ name, label, kind }) {
    const isSortable = this.stores.columns.includes(name);
    const chosen = this.query.get("sort") === name;
    const isDown = this.query.has("descending");
    const isNumber = kind.startsWith("number");
    // an answer may not have come since the last click
    const sort = () => {
      if (this.query.get("sort") !== name) this.#sortBy(name, isNumber);
      else if (this.query.has("descending") === isNumber) this.#turn();
      else this.#sortBy(null);
    };
    const mark = h("span", { class: "direction", "aria-hidden": "true" }, chosen ? (isDown ? "↓" : "↑") : "");
    return h(
      "th",
      {
        scope: "col",
        role: "columnheader",
        class: classOf(kind, name),
        "aria-sort": chosen ? (isDown ? "descending" : "ascending") : null,
      },
      isSortable ? button([span(null, label), mark], sort, { class: "sort", title: label }) : label,
    );
  }

  #row(row, at, columns) {
    const query = filtersOf(this.query);
    query.set("at", at);
    const href = episodeAddress(row.store, row.id, null, query);
    const cells = columns.map(({ kind, label, cell, name }) =>
      h(
        "td",
        {
          role: "cell",
          class: classOf(kind, name),
          "data-label": label,
          title: kind === "text" ? titleText(row, name) : null,
        },
        kind === "title" ? titleOf(row, href) : cell(row),
      ),
    );
    return h("tr", { role: "row" }, cells);
  }

  #pages({ total, offset, rows }) {
    if (total <= AT_A_TIME) return null;
    const show = (at) => {
      const query = new URLSearchParams(this.query);
      query.set("offset", at);
      go(to([], query));
      scrollTo(0, 0);
    };
    const page = (label, at, text) =>
      button(text, () => show(at), {
        "aria-label": label,
        disabled: at === offset || at < 0 || at >= total,
      });
    const last = Math.floor((total - 1) / AT_A_TIME) * AT_A_TIME;
    return [
      page("first page", 0, "«"),
      page("previous page", offset - AT_A_TIME, "‹ Previous"),
      span("where", `${count(offset + 1)}–${count(offset + rows.length)} of ${count(total)}`),
      page("next page", offset + AT_A_TIME, "Next ›"),
      page("last page", last, "»"),
    ];
  }

  keys() {
    const turn = (label) => () =>
      this.pager.querySelector(`[aria-label="${label}"]:not([disabled])`)?.click();
    return {
      j: () => this.#move(1),
      k: () => this.#move(-1),
      ArrowDown: () => this.#move(1),
      ArrowUp: () => this.#move(-1),
      n: turn("next page"),
      p: turn("previous page"),
      "/": () => this.search(),
      Escape: () => document.activeElement?.blur(),
    };
  }

  #move(by) {
    const links = this.#links();
    const at = links.indexOf(document.activeElement);
    const next = links[at < 0 ? 0 : Math.max(0, Math.min(links.length - 1, at + by))];
    next?.focus({ preventScroll: true });
    next?.closest("tr").scrollIntoView({ block: "nearest" });
  }

  search() {
    super.search();
    this.panel.search.select();
  }
}

function classOf(kind, name) {
  return `${kind} of-${name.replace(/\W+/g, "-")}`;
}
