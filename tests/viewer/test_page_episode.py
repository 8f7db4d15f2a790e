"""An episode and two side by side in a real browser: read step by step, folded, compared."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser import DESKTOP
from tests.viewer.conftest import shown


def _current(page: Any) -> str:
    return page.locator(".is-current").get_attribute("id")


def _place(page: Any) -> str:
    return page.url[page.url.index("#") :]


def test_an_episode_reads_like_a_conversation(visit: Any, address: str) -> None:
    with visit("#/episode/0/conversation") as found:
        page = found.page
        first, second = page.locator("#step-0"), page.locator("#step-1")
        assert "−1.25" in page.inner_text(".facts")
        assert "It went well." not in page.inner_text("main")
        page.get_by_text("feedback: 1").click()
        page.get_by_text("It went well.").wait_for()
        # the system message and the thought are folded, the user is not
        assert "You are a shop." in first.locator(".system summary").inner_text()
        assert first.locator(".user").inner_text().startswith("user\nI want shoes.")
        thought = first.locator("details.thought")
        assert not thought.locator(".text").is_visible()
        page.keyboard.press("t")
        assert thought.locator(".text").inner_text() == "They want shoes. I search."
        # a number keeps all of its digits
        call = first.locator(".call")
        assert call.locator("b").inner_text() == "search"
        assert call.locator(".flat").inner_text() == '{query: "shoes", page: 12345678901234567890}'
        call.get_by_role("button", name="as written").click()
        assert call.locator(".words").inner_text() == '{"query": "shoes", "page": 12345678901234567890}'
        assert "reward +0.25" in first.locator(".numbers").inner_text()
        assert "Σ −1.25" in second.locator(".numbers").inner_text()
        assert second.locator(".flag").all_inner_texts() == ["end"]
        result = second.locator(".result")
        result.get_by_text("[ 130 items ]").click()
        result.locator(".entries .entries > li").nth(100).wait_for()
        assert result.locator(".entries .entries > li").count() == 101
        result.get_by_role("button", name="30 more entries").click()
        result.locator(".entries .entries > li").nth(129).wait_for()
        assert result.locator(".entries .entries > li").count() == 130
        second.get_by_text("a better answer").click()
        second.get_by_text("Row 4 is better.").wait_for()
        assert 'content: "Row 4 is better."' in second.inner_text()
    assert found.said == []
    assert all(url.startswith(address) for url in found.asked)


def test_steps_are_marked_and_the_marks_are_explained(visit: Any) -> None:
    with visit("#/episode/0/before-7") as found:
        page = found.page
        flags = {index: page.locator(f"#step-{index} .flag").all_inner_texts() for index in (2, 3, 4, 5, 19)}
        assert flags == {
            2: [],
            3: ["invalid"],
            4: ["not learned: chosen by nobody"],
            5: ["weight 0.5"],
            19: ["cut off"],
        }
        assert [
            page.locator(f".foot.{kind}").count() for kind in ("is-invalid", "is-masked", "is-weighted")
        ] == [1, 1, 1]
        page.get_by_text("what the marks mean").click()
        page.locator(".legend").wait_for()
        assert page.locator(".legend dt").all_inner_texts() == [
            "invalid",
            "not learned",
            "weighted",
            "end",
            "cut off",
        ]
        assert "303 → 17 tokens" in page.inner_text("#step-3")
        assert "1.0 s" in page.inner_text("#step-3")
        assert page.get_by_role("button", name="Thoughts").count() == 0
    assert found.said == []


def test_keys_walk_through_the_steps_and_write_the_address(visit: Any) -> None:
    with visit("#/episode/0/before-7") as found:
        page = found.page
        for key, step in (
            ("j", 1),
            ("ArrowRight", 2),
            ("j", 3),
            ("k", 2),
            ("ArrowLeft", 1),
            ("G", 19),
            ("j", 19),
            ("g", 0),
        ):
            page.keyboard.press(key)
            page.wait_for_function("step => document.activeElement.id === `step-${step}`", arg=step)
            assert _place(page) == f"#/episode/0/before-7/step/{step}"
            assert _current(page) == f"step-{step}"
            assert page.inner_text(".position") == f"step {step} / 19"
        # what the keys go over is under the bar that stays, not behind it
        page.keyboard.press("j")
        bar, step = (page.locator(name).bounding_box() for name in (".strip", "#step-1"))
        assert bar["y"] + bar["height"] - 1 <= step["y"] < 200
        spark = page.get_by_role("slider").bounding_box()
        page.mouse.click(spark["x"] + spark["width"] * 10.5 / 20, spark["y"] + 10)
        page.wait_for_function("() => document.activeElement.id === 'step-10'")
        assert page.get_by_role("slider").get_attribute("aria-valuenow") == "10"
        # a walk through steps is one place to come back to
        page.go_back()
        assert page.url == "about:blank" or "#/episode" not in page.url


@pytest.mark.full
def test_a_link_to_a_step_is_copied_and_leads_there(visit: Any) -> None:
    with visit("#/episode/0/before-7") as found:
        found.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        found.page.locator("#step-12").hover()
        found.page.locator("#step-12").get_by_role("button", name="copy a link to this step").click()
        found.page.wait_for_selector("#step-12 >> text=copied")
        link = found.page.evaluate("navigator.clipboard.readText()")
    assert link.endswith("#/episode/0/before-7/step/12")
    with visit(link[link.index("#") :]) as found:
        assert _current(found.page) == "step-12"
        assert found.page.locator("#step-12 h2").is_visible()


@pytest.mark.full
def test_prompts_have_three_readings(visit: Any) -> None:
    with visit("#/episode/0/before-7/step/2") as found:
        page = found.page
        step = page.locator("#step-2")
        assert "observation\na wall 18 steps forward" in step.inner_text()
        assert "Answer." not in step.inner_text()
        page.get_by_role("button", name="Full prompt").click()
        step.locator(".user").wait_for()
        assert step.locator(".user").inner_text() == "user\nObservation:\na wall 18 steps forward\nAnswer."
        page.keyboard.press("d")
        step.locator(".difference").wait_for()
        assert step.locator("del").all_inner_texts() == ["−\ngone:\na wall 19 steps forward"]
        assert step.locator("ins").all_inner_texts() == ["+\nnew:\na wall 18 steps forward"]
        assert "1 message as before" in step.inner_text()
        assert _current(page) == "step-2"
        page.keyboard.press("d")
        step.locator(".observation").wait_for()
    assert found.said == []


@pytest.mark.full
def test_an_appended_conversation_differs_by_what_is_new(visit: Any) -> None:
    with visit("#/episode/0/conversation/step/1") as found:
        step = found.page.locator("#step-1")
        found.page.get_by_role("button", name="Difference").click()
        step.get_by_text("3 messages as before, then").wait_for()
        found.page.get_by_role("button", name="Full prompt").click()
        step.locator(".message.user").last.wait_for()
        assert step.locator(".prompt > .message").count() == 4


@pytest.mark.full
def test_a_long_text_comes_in_pieces(visit: Any) -> None:
    with visit("#/episode/0/conversation") as found:
        text = found.page.locator("#step-0 .user .words")
        assert len(text.inner_text()) == 1600
        found.page.get_by_role("button", name=re.compile(r"Show more \(5,214 characters left\)")).click()
        assert text.inner_text() == "I want shoes.\n" + "Very good shoes. " * 400
        assert found.page.get_by_role("button", name=re.compile("Show more")).count() == 0


@pytest.mark.full
def test_a_line_of_a_million_letters_is_read_to_its_end(visit: Any) -> None:
    with visit("#/?task=&q=no") as found:
        found.page.evaluate(
            'location.hash = `#/episode/0/${encodeURIComponent("hostile/?#%2e..&<b>\\"\'")}/step/1`'
        )
        step = found.page.locator("#step-1")
        step.wait_for()
        assert len(step.locator(".user .words").inner_text()) == 1600
        for _ in range(12):
            more = step.locator(".user").get_by_role("button", name=re.compile("Show more"))
            if not more.count():
                break
            before = step.locator(".user .words").evaluate("words => words.textContent.length")
            more.click()
            found.page.wait_for_function(
                "n => document.querySelector('#step-1 .user .words').textContent.length > n", arg=before
            )
        text = step.locator(".user .words").evaluate("words => words.textContent")
        assert len(text) == 1_000_007
        assert text.endswith("xthe end")
        assert not found.is_wider_than_its_window()


@pytest.mark.full
def test_many_steps_come_as_they_are_needed(visit: Any) -> None:
    with visit("#/episode/0/long/step/300") as found:
        page = found.page
        assert _current(page) == "step-300"
        assert page.locator(".step").count() == 200
        assert "Σ 3.01" in page.inner_text("#step-300 .numbers")
        page.get_by_role("button", name="Show steps 400 to 449").click()
        page.wait_for_selector("#step-449", state="attached")
        page.get_by_role("button", name="Show steps 0 to 199").click()
        page.wait_for_selector("#step-0", state="attached")
        ids = page.eval_on_selector_all(".step", "steps => steps.map(step => Number(step.id.slice(5)))")
        assert ids == list(range(450))
    assert found.said == []


@pytest.mark.full
def test_what_is_not_there_is_said(visit: Any) -> None:
    with visit("#/episode/0/no-such") as found:
        assert "no-such" in found.page.get_by_role("alert").inner_text()
        found.page.keyboard.press("Escape")
        shown(found, "#/")
    with visit("#/episode/0/empty") as found:
        assert found.page.inner_text("h1") == "empty"
        assert found.page.locator(".step").count() == 0
    assert found.said == []


@pytest.mark.full
def test_two_of_a_world_stand_side_by_side(visit: Any) -> None:
    with visit("#/episode/0/before-7", size={**DESKTOP, "height": 1200}) as found:
        page = found.page
        page.keyboard.press("c")
        page.wait_for_selector(".verdict")
        assert _place(page) == "#/compare/0/before-7/0/after-7"
        assert page.inner_text(".verdict") == "First difference: step 9 — A go forward, B turn left."
        assert page.inner_text(".alike summary") == "steps 0 to 6: the same actions"
        assert not page.locator("#row-3").is_visible()
        assert page.locator(".pair-row .is-parting").inner_text() == "first difference"
        page.keyboard.press("d")
        page.wait_for_function("() => document.activeElement.id === 'row-9'")
        a, b = page.locator("#row-9 .cell").all()
        assert "go forward" in a.inner_text()
        assert "turn left" in b.inner_text()
        assert a.bounding_box()["y"] == b.bounding_box()["y"]
        assert "both see" in page.inner_text("#row-9")
        page.keyboard.press("g")
        assert page.locator("#row-0").is_visible()
        page.keyboard.press("j")
        assert _current(page) == "row-1"
        page.keyboard.press("G")
        assert "ended before: success" in page.inner_text("#row-19")
        page.keyboard.press("s")
        page.wait_for_function("() => location.hash === '#/compare/0/after-7/0/before-7'")
        page.wait_for_selector(".verdict >> text=A turn left, B go forward")
        page.keyboard.press("Escape")
        page.wait_for_function("() => location.hash === '#/episode/0/after-7'")
    assert found.said == []


@pytest.mark.full
def test_other_attempts_are_chosen_and_other_worlds_named(visit: Any) -> None:
    with visit("#/compare/0/before-7/0/after-8") as found:
        page = found.page
        assert "These are two worlds: babyai · goto · seed 7 and babyai · goto · seed 8." in page.inner_text(
            "main"
        )
        page.get_by_label("episode B", exact=True).locator("select").select_option(index=1)
        page.wait_for_function("() => location.hash === '#/compare/0/before-7/0/before-8'")
        page.wait_for_selector(".verdict >> text=The same actions in all 20 steps.")
    assert found.said == []
