// The place is written behind the # of the address, so that a link leads to the same view.

// The place that the address names: its words, and its filters.
export function here() {
  const [path, query = ""] = split(location.hash.replace(/^#/, ""), "?");
  const words = path.split("/").filter(Boolean).map(decoded);
  return { words, query: new URLSearchParams(query) };
}

function split(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

// The address of a place: every word is escaped, so that it is unambiguous.
export function to(words, query) {
  const path = words.map((word) => encodeURIComponent(String(word))).join("/");
  const rest = String(query ?? "");
  return `#/${path}${rest ? `?${rest}` : ""}`;
}

// Go to a place. A small step (`isSmall`) gets no entry in the history. The place is shown at once, because a
// change of `location.hash` is reported later, and a second click in between would start from the old place.
export function go(address, isSmall = false) {
  if (address === location.hash) return;
  if (isSmall) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

// The address of an episode, or of a step of it.
export function episodeAddress(store, id, step, query) {
  const words = ["episode", store, id];
  return to(step === null || step === undefined ? words : [...words, "step", step], query);
}

// The address of two episodes side by side.
export function compareAddress(left, right) {
  return to(["compare", left.store, left.id, right.store, right.id]);
}

// A whole link to share with others.
export function link(address) {
  return location.href.replace(/#.*$/, "") + address;
}

// The filters of a list, without the place in it.
export function filtersOf(query) {
  const found = new URLSearchParams(query);
  for (const name of ["at", "offset", "step"]) found.delete(name);
  return found;
}
