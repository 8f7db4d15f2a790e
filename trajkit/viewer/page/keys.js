// The keyboard: the effect of a key depends on the view, and the help lists it.
import { button, div, h } from "./dom.js";

const HELP = {
  Everywhere: { "?": "this help", "/": "search", Esc: "back" },
  "In the list": { "j k ↓ ↑": "next and previous row", Enter: "open it", "n p": "next and previous page" },
  "In an episode": {
    "j k → ←": "next and previous step",
    "g G": "first and last step",
    "n p": "next and previous episode",
    t: "fold and unfold thoughts",
    d: "what is new, full prompt, difference",
    c: "side by side with the same world",
  },
  "Side by side": { "j k → ←": "next and previous step", d: "first difference", s: "swap" },
};

// Listen; `current()` gives the keys of the view that is shown.
export function listen(current) {
  const dialog = helpDialog();
  document.body.append(dialog);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (isTyping(event.target)) return event.key === "Escape" ? event.target.blur() : undefined;
    if (event.key === "?") return used(event, () => dialog.showModal());
    const action = current()[event.key];
    if (action) used(event, action);
  });
  return () => dialog.showModal();
}

function used(event, action) {
  event.preventDefault();
  action();
}

function isTyping(target) {
  return target instanceof Element && target.matches("input, select, textarea");
}

function helpDialog() {
  const dialog = h("dialog", { class: "help", "aria-labelledby": "help-title" });
  const parts = Object.entries(HELP).map(([title, keys]) =>
    h(
      "section",
      null,
      h("h3", null, title),
      h(
        "dl",
        null,
        Object.entries(keys).map(([names, does]) =>
          div(
            null,
            h(
              "dt",
              null,
              names.split(" ").map((name) => [h("kbd", null, name), " "]),
            ),
            h("dd", null, does),
          ),
        ),
      ),
    ),
  );
  dialog.append(
    div(
      "help-head",
      h("h2", { id: "help-title" }, "Keys"),
      button("Close", () => dialog.close()),
    ),
    div("help-parts", parts),
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}
