// The page: what the address names is shown, and kept while only a part of the address changes.
import { ask } from "./api.js";
import { chartsView } from "./charts.js";
import { compareView } from "./compare.js";
import { button, fill, h } from "./dom.js";
import { episodeView } from "./episode.js";
import { count, counted } from "./format.js";
import { listen } from "./keys.js";
import { listView } from "./list.js";
import { filtersOf, here, to } from "./route.js";
import { themeSwitch } from "./theme.js";
import { trouble } from "./trouble.js";

const VIEWS = { "": listView, episode: episodeView, compare: compareView, charts: chartsView };
const shownNow = { name: null, view: null };

function drawTop(stores) {
  const names = stores.stores.map(({ name }) => name).join(", ");
  const steps = stores.stores.reduce((sum, store) => sum + store.n_steps, 0);
  const place = h(
    "p",
    { class: "stores" },
    h("b", null, names),
    h("span", null, counted(steps, "step")),
    stores.limited &&
      h(
        "span",
        { class: "limited" },
        stores.limited.note ??
          `${count(stores.limited.n)} of ${counted(stores.limited.total, "episode")} are in this file`,
      ),
  );
  const links = h(
    "nav",
    { "aria-label": "Views" },
    h("a", { href: to([]), "data-view": "" }, "Episodes"),
    h("a", { href: to(["charts"]), "data-view": "charts" }, "Charts"),
  );
  fill(
    document.getElementById("top"),
    h("div", { class: "brand" }, h("span", { class: "logo", "aria-hidden": "true" }), "trajkit view"),
    place,
    links,
    h(
      "div",
      { class: "tools-of-page" },
      themeSwitch(),
      button("?", () => shownNow.help(), { "aria-label": "keys" }),
    ),
  );
}

async function showPlace(stores) {
  const route = here();
  const name = Object.hasOwn(VIEWS, route.words[0] ?? "") ? (route.words[0] ?? "") : "";
  const main = document.getElementById("main");
  const isNew = shownNow.name !== name;
  if (isNew) {
    Object.assign(shownNow, { name, view: VIEWS[name](stores) });
    fill(main, shownNow.view.element);
  }
  for (const each of document.querySelectorAll("#top [data-view]")) {
    if (each.dataset.view === name) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
    each.setAttribute("href", to(each.dataset.view ? [each.dataset.view] : [], filtersOf(route.query)));
  }
  await shownNow.view.update(route);
  document.title = `${shownNow.view.title}: trajkit view`;
  main.dataset.shown = location.hash || "#/";
}

// the address behind the # names a place, so this link must not change it
function skip() {
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
}

async function start() {
  skip();
  try {
    const stores = await ask("stores");
    drawTop(stores);
    shownNow.help = listen(() => shownNow.view?.keys ?? {});
    addEventListener("hashchange", () => showPlace(stores));
    await showPlace(stores);
  } catch (error) {
    fill(document.getElementById("main"), trouble(error));
  }
}

start();
