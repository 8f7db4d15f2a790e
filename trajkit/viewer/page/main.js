// The page: show the view in the address, and keep it while only a part of the address changes.
import { ask } from "./api.js";
import { ChartsView } from "./charts.js";
import { CompareView } from "./compare.js";
import { button, div, fill, h, p, span, trouble } from "./dom.js";
import { EpisodeView } from "./episode.js";
import { count, counted } from "./format.js";
import { listen } from "./keys.js";
import { ListView } from "./list.js";
import { filtersOf, here, to } from "./route.js";

const VIEWS = { "": ListView, episode: EpisodeView, compare: CompareView, charts: ChartsView };
const shownNow = { name: null, view: null };
const THEMES = ["auto", "light", "dark"];
const THEME_PLACE = "trajkit-view-theme";

function drawTop(stores) {
  const names = stores.stores.map(({ name }) => name).join(", ");
  const steps = stores.stores.reduce((sum, store) => sum + store.n_steps, 0);
  const place = p(
    "stores",
    h("b", null, names),
    span(null, counted(steps, "step")),
    stores.limited &&
      span(
        "limited",
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
    div("brand", h("span", { class: "logo", "aria-hidden": "true" }), "trajkit view"),
    place,
    links,
    div(
      "tools-of-page",
      themeSwitch(),
      button("?", () => shownNow.help(), { "aria-label": "keys" }),
    ),
  );
}

// Light, dark, or as in the system.
function remembered() {
  try {
    const found = localStorage.getItem(THEME_PLACE);
    return THEMES.includes(found) ? found : "auto";
  } catch {
    return "auto";
  }
}

function remember(choice) {
  try {
    localStorage.setItem(THEME_PLACE, choice);
  } catch {
    // a browser without storage forgets the choice
  }
}

// The switch cycles through the themes.
function themeSwitch() {
  let choice = remembered();
  const pressed = button(
    "",
    () => {
      choice = THEMES[(THEMES.indexOf(choice) + 1) % THEMES.length];
      remember(choice);
      show();
    },
    { class: "theme" },
  );
  const show = () => {
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    pressed.textContent = { auto: "◐", light: "☀", dark: "☾" }[choice];
    const said = { auto: "as in the system", light: "light", dark: "dark" }[choice];
    pressed.setAttribute("aria-label", `colors: ${said}`);
    pressed.title = `Colors: ${said}`;
  };
  show();
  return pressed;
}

async function showPlace(stores) {
  const route = here();
  const name = Object.hasOwn(VIEWS, route.words[0] ?? "") ? (route.words[0] ?? "") : "";
  const main = document.getElementById("main");
  const isNew = shownNow.name !== name;
  if (isNew) {
    Object.assign(shownNow, { name, view: new VIEWS[name](stores) });
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
    shownNow.help = listen(() => shownNow.view?.keys() ?? {});
    addEventListener("hashchange", () => showPlace(stores));
    await showPlace(stores);
  } catch (error) {
    fill(document.getElementById("main"), trouble(error));
  }
}

start();
