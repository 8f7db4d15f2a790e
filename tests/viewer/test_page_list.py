"""The list of episodes in a real browser: it is loaded, filtered, sorted and walked through."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.matrix import daily
from tests.viewer.conftest import shown

N_ALL = 8 + 230 + 55


def _titles(page: Any) -> list[str]:
    return page.locator("a.title").all_inner_texts()


def _total(page: Any) -> str:
    return page.locator("h1").inner_text()


def _wait_total(page: Any, total: str) -> None:
    page.wait_for_function("total => document.querySelector('h1').textContent === total", arg=total)


def test_the_list_shows_the_stores_and_asks_for_nothing_elsewhere(visit: Any, address: str) -> None:
    with visit() as found:
        page = found.page
        assert _total(page) == f"{N_ALL} episodes"
        assert "made, many, babyai-sample" in page.inner_text("#top")
        assert len(_titles(page)) == 100
        assert _titles(page)[0] == "go to the green key"
        assert "goto · seed 7 · train" in page.locator("tbody tr").first.inner_text()
    assert found.said == []
    assert found.asked
    assert all(url.startswith((address, "data:,")) for url in found.asked)


def test_chips_filter_count_and_stand_in_the_address(visit: Any) -> None:
    with visit() as found:
        page = found.page
        chip = page.locator("[data-chip='task=goto']")
        assert chip.inner_text().split("\n")[-1].endswith("15")
        chip.click()
        _wait_total(page, f"15 of {N_ALL} episodes")
        assert page.url.endswith("#/?task=goto")
        page.locator("[data-chip='variant=before']").click()
        _wait_total(page, f"2 of {N_ALL} episodes")
        # those of its own group are counted as if it were not chosen
        assert page.locator("[data-chip='variant=after'] .n").inner_text() == "2"
        assert page.locator("[data-chip='task=open'] .n").inner_text() == "0"
        assert page.locator("[data-chip='variant=before']").get_attribute("aria-pressed") == "true"
        assert page.evaluate("document.activeElement.dataset.chip") == "variant=before"
        page.locator("[data-chip='variant=after']").click()
        _wait_total(page, f"4 of {N_ALL} episodes")
        link = page.url
        page.go_back()
        _wait_total(page, f"2 of {N_ALL} episodes")
        page.get_by_role("button", name="take away: task: goto").click()
        page.get_by_role("button", name="take away: variant: before").click()
        _wait_total(page, f"{N_ALL} episodes")
    with visit(link[link.index("#") :]) as again:
        assert _total(again.page) == f"4 of {N_ALL} episodes"
        assert again.page.locator(".chip[aria-pressed='true']").count() == 3
    assert found.said + again.said == []


_IS_AT = "place => location.hash === place"


def test_two_clicks_in_a_row_both_count(visit: Any) -> None:
    with visit("#/?task=goto&variant=before") as found:
        page = found.page
        page.evaluate("""() => {
            for (const label of ["task: goto", "variant: before"])
                document.querySelector(`[aria-label='take away: ${label}']`).click();
        }""")
        _wait_total(page, f"{N_ALL} episodes")
        page.evaluate("""() => {
            for (const _ of [1, 2]) document.querySelector("th.of-reward button").click();
        }""")
        page.wait_for_function(_IS_AT, arg="#/?sort=reward")
    assert found.said == []


def test_a_condition_that_was_typed_and_the_click_that_ends_the_typing_both_count(visit: Any) -> None:
    with visit("#/?task=goto&variant=before") as found:
        page = found.page
        page.get_by_label("Where").type("seed = 7")
        page.get_by_role("button", name="take away: variant: before").click()
        page.wait_for_function(_IS_AT, arg="#/?task=goto&where=seed+%3D+7")
        assert page.locator(".pill").all_inner_texts() == ["task: goto\n×", "seed = 7\n×"]
    assert found.said == []


def test_an_answer_in_the_middle_of_a_click_does_not_lose_it(visit: Any) -> None:
    with visit() as found:
        page = found.page
        place = page.locator("[data-chip='task=goto'] .chip-name")
        place.hover()
        page.mouse.down()
        page.get_by_label("Search").evaluate(
            "box => { box.value = 'green key'; box.dispatchEvent(new Event('change')); }"
        )
        _wait_total(page, f"12 of {N_ALL} episodes")
        page.mouse.up()
        page.wait_for_url(re.compile("task=goto"))
        assert page.locator("[data-chip='task=goto']").get_attribute("aria-pressed") == "true"
    assert found.said == []


@pytest.mark.full
@pytest.mark.parametrize("place", daily(["#/", "#/charts"], 1))
def test_what_is_chosen_before_the_answer_comes_is_chosen_as_well(visit: Any, place: str) -> None:
    with visit(place) as found:
        page = found.page
        page.evaluate("""() => {
            const fetched = window.fetch;
            const late = (...asked) => new Promise((give) => setTimeout(() => give(fetched(...asked)), 300));
            window.fetch = late;
        }""")
        page.locator("[data-chip='task=goto']").click()
        page.locator("[data-chip='variant=before']").click()
        page.wait_for_function(_IS_AT, arg=f"{place}?task=goto&variant=before")
        page.get_by_role("button", name="take away: task: goto").click()
        page.get_by_role("button", name="take away: variant: before").click()
        page.wait_for_function(_IS_AT, arg=place)
    assert found.said == []


@pytest.mark.full
def test_what_is_unknown_can_be_looked_for(visit: Any) -> None:
    with visit("#/?task=") as found:
        assert _total(found.page) == f"1 of {N_ALL} episodes"
        assert found.page.locator("a.title").inner_text() == "empty"


def test_words_ranges_and_conditions_narrow_the_list(visit: Any) -> None:
    with visit() as found:
        page = found.page
        page.get_by_label("Search").type("green key")
        page.wait_for_url(re.compile("q=green"))
        _wait_total(page, f"12 of {N_ALL} episodes")
        assert {title for title in _titles(page) if "green key" not in title} == set()
        page.get_by_label("steps: at least", exact=True).fill("12")
        page.get_by_label("steps: at least", exact=True).press("Enter")
        _wait_total(page, f"5 of {N_ALL} episodes")  # the made ones, and one of the sample
        page.get_by_label("Where").fill("total_reward > 0.5 and seed = 7")
        page.get_by_label("Where").press("Enter")
        _wait_total(page, f"1 of {N_ALL} episodes")
        assert page.locator(".pill").all_inner_texts() == [
            "“green key”\n×",
            "steps ≥ 12\n×",
            "total_reward > 0.5 and seed = 7\n×",
        ]
        page.get_by_role("button", name="clear all").click()
        _wait_total(page, f"{N_ALL} episodes")
        assert page.get_by_label("Where").input_value() == ""
    assert found.said == []


def test_a_condition_that_cannot_be_read_says_why(visit: Any) -> None:
    with visit("#/?where=rewardd%20%3E%201") as found:
        alert = found.page.get_by_role("alert").inner_text()
        assert "no column 'rewardd'" in alert
        assert "nearest: total_reward" in alert
        assert found.page.get_by_label("Where").get_attribute("aria-invalid") == "true"
        found.page.get_by_label("Where").fill("n_steps = 450")
        found.page.get_by_label("Where").press("Enter")
        _wait_total(found.page, f"1 of {N_ALL} episodes")
        assert found.page.get_by_label("Where").get_attribute("aria-invalid") is None
        assert found.page.get_by_role("alert").count() == 0


@pytest.mark.full
def test_nothing_found_offers_the_way_back(visit: Any) -> None:
    with visit("#/?q=nothing-is-called-so") as found:
        found.page.get_by_role("button", name="Show all of them").click()
        _wait_total(found.page, f"{N_ALL} episodes")


@pytest.mark.full
def test_headings_sort(visit: Any) -> None:
    with visit("#/?task=count") as found:
        page = found.page
        heading = page.locator("th.of-reward, th", has_text="Return").first
        heading.get_by_role("button").click()
        page.wait_for_selector("th[aria-sort='descending']")
        assert _titles(page)[:2] == ["many-229", "many-228"]
        heading = page.locator("th[aria-sort]")
        heading.get_by_role("button").click()
        page.wait_for_selector("th[aria-sort='ascending']")
        assert _titles(page)[:2] == ["many-000", "many-001"]
        assert "sort=reward" in page.url
        # a bar is as long as its share of the longest in sight
        widths = page.eval_on_selector_all(
            "td.of-reward .inline-bar", "bars => bars.map(bar => bar.style.width)"
        )
        assert widths[0] == "0px"
        assert widths[99] == "60px"


@pytest.mark.full
def test_pages_follow_each_other_also_from_episode_to_episode(visit: Any) -> None:
    with visit("#/?task=count&sort=reward") as found:
        page = found.page
        page.get_by_role("button", name="next page").click()
        page.wait_for_function("() => document.querySelector('a.title')?.textContent === 'many-100'")
        assert "101–200 of 230" in page.inner_text(".pager")
        page.keyboard.press("n")
        page.wait_for_function("() => document.querySelector('a.title')?.textContent === 'many-200'")
        assert page.get_by_role("button", name="next page").is_disabled()
        page.keyboard.press("p")
        page.wait_for_function("() => document.querySelector('a.title')?.textContent === 'many-100'")
        page.locator("a.title").first.click()
        page.wait_for_selector(".crumbs >> text=101 of 230")
        page.keyboard.press("p")
        page.wait_for_selector(".crumbs >> text=100 of 230")
        assert "many-099" in page.inner_text(".facts")
        page.keyboard.press("n")
        page.wait_for_selector(".crumbs >> text=101 of 230")
        page.keyboard.press("Escape")
        page.wait_for_function("() => document.querySelector('a.title')?.textContent === 'many-100'")
    assert found.said == []


@pytest.mark.full
def test_the_keyboard_is_enough(visit: Any) -> None:
    with visit("#/?task=goto&store=0") as found:
        page = found.page
        total = _total(page)
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.name") == "q"
        page.keyboard.press("j")
        assert page.get_by_label("Search").input_value() == "j"
        page.keyboard.press("Backspace")
        page.keyboard.press("Escape")
        _wait_total(page, total)  # a slow machine has searched for it meanwhile
        for key, at in (("j", 0), ("j", 1), ("ArrowDown", 2), ("k", 1), ("ArrowUp", 0), ("k", 0)):
            page.keyboard.press(key)
            row = page.evaluate("[...document.querySelectorAll('a.title')].indexOf(document.activeElement)")
            assert row == at
        page.keyboard.press("?")
        assert page.get_by_role("dialog").is_visible()
        assert "next and previous step" in page.get_by_role("dialog").inner_text()
        page.keyboard.press("Escape")
        assert not page.get_by_role("dialog").is_visible()
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_selector(".episode h1")
        page.keyboard.press("Escape")
        shown(found, "#/?task=goto&store=0")
    assert found.said == []


@pytest.mark.full
def test_a_row_keeps_the_focus_when_the_list_is_shown_anew(visit: Any) -> None:
    with visit("#/?task=goto&store=0") as found:
        page = found.page
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.evaluate("document.querySelector('a.title').id = 'before'")
        page.evaluate("location.hash = '#/?store=0'")
        page.wait_for_function("() => document.getElementById('before') === null")
        row = page.evaluate("[...document.querySelectorAll('a.title')].indexOf(document.activeElement)")
        assert row == 1
    assert found.said == []


@pytest.mark.full
@pytest.mark.parametrize("place", ["#/", "#/charts"])
def test_the_charts_stand_under_the_same_filters(visit: Any, place: str) -> None:
    with visit(f"{place}?task=goto") as found:
        other = "Charts" if place == "#/" else "Episodes"
        found.page.locator("#top nav").get_by_role("link", name=other).click()
        found.page.wait_for_selector(".pill >> text=task: goto")
        assert found.page.url.endswith("?task=goto")


@pytest.mark.full
def test_every_chart_has_its_numbers_and_a_bar_leads_to_its_episodes(visit: Any) -> None:
    with visit("#/?store=0") as found:
        page = found.page
        page.locator("#top nav").get_by_role("link", name="Charts").click()
        page.wait_for_selector("figure svg")
        assert page.url.endswith("#/charts?store=0")  # under the same filters
        assert page.locator("figure").count() >= 6
        for figure in page.locator("figure").all():
            figure.locator("summary").click()
            assert figure.locator("td").first.is_visible()
            assert figure.locator("svg").get_attribute("aria-label")
        tasks = page.locator("figure", has_text="Outcomes by task")
        assert ["goto", "50% [15, 85]", "4", "2", "0", "2", "0", "0"] in [
            row.locator("td").all_inner_texts() for row in tasks.locator("tbody tr").all()
        ]
        steps = page.locator("figure", has=page.get_by_role("heading", name="steps", exact=True)).first
        steps.locator(".bin[role=button]").last.click()
        _wait_total(page, f"1 of {N_ALL} episodes")
        assert page.locator(".world").inner_text() == "marathon · seed 3"
    assert found.said == []


@pytest.mark.full
def test_the_funnel_tells_how_many_are_learned(visit: Any) -> None:
    with visit("#/charts") as found:
        funnel = found.page.locator("figure", has_text="babyai-sample: steps")
        funnel.locator("summary").click()
        rows = [row.locator("td").all_inner_texts() for row in funnel.locator("tbody tr").all()]
        assert rows[0][1] == "1,892"
        assert rows[-1][0] == "to be learned"
        assert funnel.locator("svg text", has_text="to be learned").count() == 1
