// Day, night, or as the system has it.
import { button } from "./dom.js";

const CHOICES = ["auto", "light", "dark"];
const PLACE = "trajkit-view-theme";

function remembered() {
  try {
    const found = localStorage.getItem(PLACE);
    return CHOICES.includes(found) ? found : "auto";
  } catch {
    return "auto";
  }
}

function remember(choice) {
  try {
    localStorage.setItem(PLACE, choice);
  } catch {
    // a browser that keeps nothing asks again
  }
}

// The switch; it goes round.
export function themeSwitch() {
  let choice = remembered();
  const pressed = button(
    "",
    () => {
      choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
      remember(choice);
      show();
    },
    { class: "theme" },
  );
  const show = () => {
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    pressed.textContent = { auto: "◐", light: "☀", dark: "☾" }[choice];
    const said = { auto: "as the system has it", light: "light", dark: "dark" }[choice];
    pressed.setAttribute("aria-label", `colors: ${said}`);
    pressed.title = `Colors: ${said}`;
  };
  show();
  return pressed;
}
