"""What notebooks show of datasets, episodes, reports and what verbs made: whole, safe, and short as text."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

import trajkit
from trajkit.schema import (
    Episode,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
    Transition,
    message,
)

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)></pre></div>\u202e\x1b[31m'
TAGS = {
    "div", "style", "p", "span", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre",
    "section", "img",
}  # fmt: skip


class Page(HTMLParser):
    """The tags of a piece of HTML, and whether each is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attributes}
        if tag != "img":
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self.text += data


def shown(value: object) -> Page:
    """What a notebook shows of a value."""
    page = Page(value._repr_html_())
    assert set(page.tags) <= TAGS
    assert page.attributes <= {"class", "alt", "src"}
    return page


def episode(text: str = "hello", n_steps: int = 1) -> Episode:
    """One with every kind of block."""
    steps = tuple(
        Transition(
            step_index=n,
            messages=(
                message("user", text),
                Message(role=Role.USER, content=(ToolResultBlock(id="c", name=text, result=text),)),
            ),
            completion=Message(
                role=Role.ASSISTANT,
                content=(
                    ThoughtBlock(text=text),
                    TextBlock(text=text),
                    ToolCallBlock(id="c", name=text, arguments='{"to": "north"}'),
                ),
            ),
            observation=text,
            action=text,
            action_executed="noop",
            action_valid=False,
            reward=0.5,
            mask_reason=text,
            loss_weight=0,
        )
        for n in range(n_steps)
    )
    return Episode(
        episode_id="e1" if text == "hello" else text,
        source="test",
        env_id=text,
        task=text,
        seed=3,
        steps=steps,
    )


def test_an_episode_shows_its_conversation_with_thoughts_folded():
    page = shown(episode())
    for part in (
        "hello hello seed 3: unknown, 1 step",
        "thought",
        "calls hello",
        '"to": "north"',
        "reward 0.5",
    ):
        assert part in page.text
    for part in ("which is not valid; executed: noop", "not learned: hello", "step 0: new in the prompt (2)"):
        assert part in page.text
    assert page.tags.count("details") == 2
    assert repr(episode()) == "<Episode e1 of hello hello seed 3: unknown, 1 step>"


def test_a_long_episode_says_what_is_not_shown():
    page = shown(episode("word " * 2000, n_steps=45))
    assert "… and 5 steps more" in page.text
    assert "… 6,000 characters more" in page.text
    assert len(page.text) < 40 * 6 * 4_500  # six texts in each step that is shown


def test_hostile_text_is_nothing_but_text(tmp_path):
    bad = episode(HOSTILE)
    page = shown(bad)
    assert "script" not in page.tags
    assert "onerror" not in page.attributes
    assert '<script>alert("x")</script>' in page.text
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text
    trajkit.write_episodes(tmp_path / "bad", [bad], kind="test")
    made = shown(trajkit.open_dataset(tmp_path / "bad"))
    assert "<img src=x onerror" in made.text


def test_a_dataset_shows_how_much_there_is_and_how_it_was_made():
    page = shown(trajkit.open_dataset("sample:babyai"))
    assert "55 episodes" in page.text
    assert "how it was made" in page.text
    assert page.tags.count("tr") == 6  # the headings and five episodes
    assert "… and 50 episodes more" in page.text


def test_a_view_shows_what_was_chosen_and_an_empty_one_nothing():
    dataset = trajkit.open_dataset("sample:babyai")
    some = shown(dataset.where("outcome = 'success'").limit(2))
    assert ".limit(2)" in some.text
    assert some.tags.count("tr") == 3
    none = shown(dataset.where("n_steps > 100000"))
    assert "0 episodes" in none.text
    assert "table" not in none.tags


def test_what_a_verb_made_shows_its_tally():
    made = trajkit.select("sample:babyai", where="outcome = 'success'", output="good")
    page = shown(made)
    assert "seen" in page.text
    assert "good" in page.text
    assert repr(made) == f"<select: {made.entry.n_episodes_out} of 55 episodes, {Path('good')}>"
    assert (
        "dry run: nothing was written"
        in shown(trajkit.dedupe("sample:babyai", exact=True, dry_run=True)).text
    )


@pytest.fixture(scope="module")
def report():
    return trajkit.report("sample:babyai", resamples=100)


@pytest.mark.full
def test_a_report_shows_tables_and_charts_and_is_short_as_text(report):
    page = shown(report)
    assert page.tags.count("table") >= 1
    assert page.tags.count("img") >= 1
    assert repr(report).startswith("<Report of ")
    assert len(repr(report)) < 300
