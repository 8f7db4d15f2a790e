"""What comes from a model stays text, the page is readable for everybody, and works as a file too."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.browser import DESKTOP
from tests.matrix import daily
from tests.viewer.page_episodes import HOSTILE_ID

PAGE = Path(__file__).parents[2] / "trajkit" / "viewer" / "page"
SMALL = {"width": 375, "height": 812}
HOSTILE = f"0/{quote(HOSTILE_ID, safe='')}"
PLACES = [
    "#/",
    f"#/episode/{HOSTILE}",
    "#/episode/0/before-7",
    f"#/compare/{HOSTILE}/0/conversation",
    "#/charts",
]

# what is folded is made when the browser says that it was opened, and may have folds of its own
_OPEN_ALL = """async () => {
  for (;;) {
    const closed = [...document.querySelectorAll("details:not([open])")];
    if (!closed.length) break;
    await Promise.all(closed.map(each => new Promise(done => {
      each.addEventListener("toggle", done, {once: true});
      each.open = true;
    })));
  }
  for (const each of document.querySelectorAll("main *"))
    each.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
}"""

# all that is read: texts, and what is said of pictures and buttons
_READ = """() => document.body.textContent + [...document.querySelectorAll("*")].flatMap(each =>
  ["title", "aria-label", "aria-valuetext", "placeholder"].map(name => each.getAttribute(name))).join()"""

# the contrast of every piece of text that can be seen to what it stands on, as WCAG computes it
_CONTRASTS = """() => {
  const parsed = color => {
    const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number);
    return {r, g, b, a};
  };
  const over = (top, under) => {
    const mixed = key => top[key] * top.a + under[key] * (1 - top.a);
    return {r: mixed("r"), g: mixed("g"), b: mixed("b"), a: 1};
  };
  const light = ({r, g, b}) => [r, g, b].map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
  const ground = element => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(getComputedStyle(at).backgroundColor);
    const paper = {r: 255, g: 255, b: 255, a: 1};
    return layers.reverse().map(parsed).reduce((under, top) => over(top, under), paper);
  };
  const skipped = "[disabled], [aria-disabled], script, .unseen, .skip";
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest(skipped)) continue;
    if (!element.checkVisibility({opacityProperty: true})) continue;
    const style = getComputedStyle(element);
    const isDrawn = element instanceof SVGElement;
    const behind = ground(isDrawn ? element.closest("div") : element);
    const ink = over(parsed(isDrawn ? style.fill : style.color), behind);
    const [a, b] = [light(ink), light(behind)].sort((x, y) => y - x);
    const name = element.className?.baseVal ?? element.className;
    found.push([(a + .05) / (b + .05), name, node.data.slice(0, 40)]);
  }
  return found;
}"""

_NAMELESS = """() => {
  const names = "a, button, input, select, [role=slider], [role=button], svg[role=img]";
  return [...document.querySelectorAll(names)].filter(each => each.checkVisibility())
    .filter(each => !(each.getAttribute("aria-label") || each.textContent.trim() || each.labels?.length))
    .map(each => each.outerHTML.slice(0, 120));
}"""

_MOVING = """[...document.querySelectorAll("*")].map(each => getComputedStyle(each)).filter(style =>
  style.transitionProperty !== "all" && parseFloat(style.transitionDuration) > 0).length"""


@pytest.mark.parametrize("place", daily(PLACES, [PLACES[1]]))
def test_hostile_text_runs_nothing_wherever_it_stands(visit: Any, address: str, place: str) -> None:
    with visit(place) as found:
        page = found.page
        for reading in ("Full prompt", "Difference"):
            page.evaluate(_OPEN_ALL)
            if page.get_by_role("button", name=reading).count():
                page.get_by_role("button", name=reading).click()
        page.evaluate(_OPEN_ALL)
        assert page.evaluate("window.ran") is None
        markup = page.locator(
            "main script, main img, main iframe, main svg[onload], [onclick], [onerror], [srcdoc]"
        )
        assert markup.count() == 0
        links = page.eval_on_selector_all("a", "links => links.map(link => link.getAttribute('href') ?? '#')")
        assert [link for link in links if not link.startswith("#")] == []
        text = page.evaluate(_READ)
        assert not re.search("[\u202e\u2066\x1b\x07]", text)
        if "hostile" in place:
            assert "<script>window.ran = 1</script>" in text
            assert "⟨U+202E⟩" in text
            assert "⟨U+001B⟩[31mred" in text
    assert found.said == []
    assert all(url.startswith((address, "data:,")) for url in found.asked)


def test_no_file_of_the_page_takes_text_for_markup_or_leaves_it() -> None:
    files = {path.name: path.read_text(encoding="utf-8") for path in PAGE.iterdir()}
    assert "main.js" in files
    for name, text in files.items():
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|"
            r"srcdoc|eval\(|new Function|setTimeout\(\s*[\"'`]|javascript:|@import|url\(|"
            r"https?://(?!www\.w3\.org/2000/svg)",
            text,
        )
        assert not found, (name, found)


@pytest.mark.parametrize(
    ("scheme", "place"),
    daily(itertools.product(["light", "dark"], PLACES), [("dark", PLACES[1])]),
)
def test_everything_fits_a_phone_and_can_be_read(visit: Any, place: str, scheme: str) -> None:
    with visit(place, size=SMALL, scheme=scheme) as found:
        page = found.page
        page.evaluate(_OPEN_ALL)
        assert not found.is_wider_than_its_window()
        contrasts = page.evaluate(_CONTRASTS)
        assert len(contrasts) > 20
        assert [each for each in contrasts if each[0] < 4.5] == []
        assert page.evaluate(_NAMELESS) == []


@pytest.mark.full
def test_the_wide_page_can_be_read_by_day_and_by_night(visit: Any) -> None:
    for place in ("#/", "#/episode/0/before-7", "#/compare/0/before-7/0/after-7", "#/charts"):
        with visit(place) as found:
            for scheme in ("light", "dark"):
                found.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # no color on its way
                assert [each for each in found.page.evaluate(_CONTRASTS) if each[0] < 4.5] == []
            assert found.page.evaluate(_NAMELESS) == []
            landmarks = [
                found.page.locator(name).count() for name in ("header#top", "main", "h1", "nav[aria-label]")
            ]
            assert landmarks[:3] == [1, 1, 1]
            assert landmarks[3] >= 1


@pytest.mark.full
def test_the_switch_turns_day_into_night_and_is_remembered(visit: Any) -> None:
    with visit("#/", scheme="light") as found:
        page = found.page
        paper = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(paper) == "rgb(255, 255, 255)"
        switch = page.locator("button.theme")
        switch.click()
        assert switch.get_attribute("aria-label") == "colors: light"
        switch.click()
        assert page.evaluate(paper) == "rgb(20, 24, 29)"
        page.reload()
        page.wait_for_selector("a.title")
        assert page.evaluate(paper) == "rgb(20, 24, 29)"
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


@pytest.mark.full
def test_focus_is_seen_and_goes_to_the_content_first(visit: Any) -> None:
    with visit("#/?task=goto&store=0") as found:
        page = found.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        assert page.url.endswith("#/?task=goto&store=0")
        for _ in range(3):
            page.keyboard.press("Tab")
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid"
        assert page.evaluate("document.getElementById('said').textContent") == "4 episodes found"


@pytest.mark.full
def test_nothing_moves_for_those_who_do_not_want_it(visit: Any) -> None:
    with visit("#/?task=goto", size=DESKTOP) as found:
        assert found.page.evaluate(_MOVING) > 0
        found.page.emulate_media(reduced_motion="reduce")
        assert found.page.evaluate(_MOVING) == 0
