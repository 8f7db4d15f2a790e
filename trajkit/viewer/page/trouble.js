// What went wrong, for the reader.
import { h } from "./dom.js";

// An error as a box: what, and what to do about it.
export function trouble(error) {
  return h(
    "div",
    { class: "trouble", role: "alert" },
    h("p", null, error.message),
    error.hint && h("p", { class: "hint" }, error.hint),
  );
}
