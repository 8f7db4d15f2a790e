from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from trajkit.cli.main import cli
from trajkit.curation.statistics.model import Group, Stats
from trajkit.curation.statistics.page import page
from trajkit.curation.statistics.stats import stats
from trajkit.errors import NothingMatched, QueryError, StoreError
from trajkit.schema import Episode, Left, LineageEntry, Transition, message
from trajkit.store.writer import write_episodes

Write = Callable[..., Path]

START = datetime(2026, 1, 1, tzinfo=UTC)


def make_step(index: int, **fields: Any) -> Transition:
    default = {
        "messages": (message("user", f"turn {index}"),),
        "completion": message("assistant", "go"),
        "action": "go",
        "n_input_tokens": 100,
        "n_output_tokens": 10,
    }
    return Transition(step_index=index, **{**default, **fields})


def make_episode(number: int, *, n_steps: int = 2, **fields: Any) -> Episode:
    default: dict[str, Any] = {
        "source": "test",
        "env_id": "babyai",
        "task": "goto",
        "seed": number,
        "outcome": "success",
        "steps": tuple(make_step(i) for i in range(n_steps)),
    }
    return Episode(episode_id=f"ep-{number:03}", **{**default, **fields})


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def write(episodes: Iterable[Episode], name: str = "store", **more: Any) -> Path:
        write_episodes(tmp_path / name, episodes, kind="test", **more)
        return tmp_path / name

    return write


@pytest.fixture
def ten(write: Write) -> Path:
    """Seeds 0 to 9; goto when even, open when odd; success from 5 on; return seed/10; seed+1 steps."""
    return write(
        make_episode(
            n,
            task="open" if n % 2 else "goto",
            n_steps=n + 1,
            outcome="success" if n >= 5 else "failure",
            metrics={"episode_return": n / 10},
            purpose="eval" if n == 9 else "train",
        )
        for n in range(10)
    )


def group(found: Stats, by: str, name: str | None = "all") -> Group:
    (one,) = [each for each in found.groups if (each.by, each.name) == (by, name)]
    return one


def test_means_and_shares_are_told_for_all_and_by_group(ten: Path) -> None:
    found = stats(ten)
    everything, goto, ev = (
        group(found, "all"),
        group(found, "task", "babyai/goto"),
        group(found, "purpose", "eval"),
    )
    assert (everything.n_episodes, everything.n_steps) == (10, 55)
    # Wilson for 5 of 10: (0.2366, 0.7634), as in Brown, Cai & DasGupta
    assert everything.success.model_dump() == pytest.approx(
        {"value": 0.5, "low": 0.236593, "high": 0.763407, "n": 10}, abs=1e-6
    )
    half = 2.262157 * math.sqrt(82.5 / 9 / 10)  # t(0.975, 9); the squares of 1 … 10 about 5.5 add up to 82.5
    assert everything.n_steps_each.low == pytest.approx(5.5 - half, abs=1e-5)
    assert everything.n_steps_each.high == pytest.approx(5.5 + half, abs=1e-5)
    assert (goto.n_episodes, goto.score.value) == pytest.approx((5, 0.4))
    assert (ev.score.value, ev.score.low, ev.score.n) == (0.9, None, 1)
    assert found.n_groups == {"all": 1, "task": 2, "variant": 1, "purpose": 2, "split": 1}


def test_groups_that_are_asked_for_are_described(write: Write) -> None:
    customers = ["a", "a", "b", None]
    made = write(
        make_episode(n, tags={} if name is None else {"customer": name}, metrics={"thumb": bool(n % 2)})
        for n, name in enumerate(customers)
    )
    found = stats(made, by=("tags.customer",), score="thumb")
    numbers = {each.name: each.n_episodes for each in found.groups if each.by == "tags.customer"}
    assert numbers == {"a": 2, "b": 1, None: 1}
    assert group(found, "tags.customer", "a").score.value == 0.5
    (spread,) = (each for each in found.spreads if each.of == "episodes of one tags.customer")
    assert (spread.n, spread.least, spread.most) == (2, 1, 2)
    with pytest.raises(QueryError, match=r"no episode of .* has the tag 'shop'"):
        stats(made, by=("tags.shop",))


def test_traffic_without_worlds_is_told_by_its_tools(write: Write) -> None:
    calls = [[{"name": "find", "arguments": {"order": n}}] for n in range(3)]
    steps = tuple(
        Transition(step_index=n, messages=(message("user", f"{n}"),), action=call)
        for n, call in enumerate([*calls, [*calls[0], {"name": "pay", "arguments": {}}]])
    )
    one = Episode(episode_id="chat", source="test", steps=steps)
    found = stats(write([one]))
    assert [(each.action, each.n) for each in found.coverage.actions] == [("find", 3), ("find and pay", 1)]
    text = str(found)
    assert not any(word in text for word in ("worlds (", "initial states", "repeated episodes"))


def test_outcomes_that_nobody_knows_say_nothing_of_success(write: Write) -> None:
    outcomes = ["success", "failure", "truncated", "unknown", "error"]
    found = group(stats(write(make_episode(i, outcome=o) for i, o in enumerate(outcomes))), "all")
    assert (found.success.value, found.success.n, found.n_unjudged) == pytest.approx((1 / 3, 3, 2))


def test_an_episode_with_two_variants_counts_for_each(write: Write) -> None:
    steps = (make_step(0, variant_name="a"), make_step(1, variant_name="b"))
    found = stats(write([make_episode(0, steps=steps), make_episode(1, steps=steps[:1])]))
    assert {g.name: g.n_episodes for g in found.groups if g.by == "variant"} == {"a": 2, "b": 1}


@pytest.mark.full
def test_the_score_is_the_return_else_the_total_reward_else_what_is_asked(write: Write) -> None:
    with_return = write(
        [make_episode(0, metrics={"episode_return": 0.25, "grade": 3.0}, total_reward=0.5)], "a"
    )
    without = write([make_episode(0, total_reward=0.5)], "b")
    bare = write([make_episode(0)], "c")
    found = stats(with_return)
    assert (found.score_name, group(found, "all").score.value) == ("episode_return", 0.25)
    found = stats(without)
    assert (found.score_name, group(found, "all").score.value) == ("total_reward", 0.5)
    assert (stats(bare).score_name, group(stats(bare), "all").score) == (None, None)
    assert group(stats(with_return, score="grade"), "all").score.value == 3.0
    with pytest.raises(QueryError, match="no metric 'grades' of episodes") as caught:
        stats(with_return, score="grades")
    assert caught.value.hint == "there are: episode_return, grade, total_reward"


@pytest.mark.full
def test_the_bootstrap_says_how_it_was_drawn_and_follows_its_seed(ten: Path) -> None:
    one, again, other = (stats(ten, resamples=500, seed=seed) for seed in (3, 3, 4))
    assert one.interval == "bootstrap, 500 resamples, seed 3"
    assert one == again
    assert group(one, "all").score != group(other, "all").score
    assert group(one, "all").success == group(other, "all").success == group(stats(ten), "all").success


def test_tokens_that_were_not_counted_are_not_zero(write: Write) -> None:
    steps = (make_step(0, n_output_tokens=None), make_step(1))
    found = stats(write([make_episode(0), make_episode(1, steps=steps)]))
    assert group(found, "all").n_output_tokens.n == 1
    spread = next(s for s in found.spreads if s.of == "output tokens of a step")
    assert (spread.n, spread.n_unknown) == (3, 1)
    assert (found.weights.n_tokens, found.weights.n_uncounted) == (30, 1)


def test_a_sum_of_tokens_may_be_above_64_bits(write: Write) -> None:
    episodes = [make_episode(number, steps=[make_step(0, n_output_tokens=2**62)]) for number in range(2)]
    assert stats(write(episodes)).weights.n_tokens == 2**63


@pytest.mark.full
def test_percentiles_are_values_that_occur(write: Write) -> None:
    found = stats(write(make_episode(n, n_steps=n) for n in range(1, 101)))
    spread = next(s for s in found.spreads if s.of == "steps of an episode")
    assert (
        spread.least,
        spread.p5,
        spread.p25,
        spread.p50,
        spread.p75,
        spread.p95,
        spread.p99,
        spread.most,
    ) == (
        1,
        5,
        25,
        50,
        75,
        95,
        99,
        100,
    )
    assert sum(spread.heights) == 100
    assert spread.edges[0] <= 1
    assert spread.edges[-1] >= 100
    assert len(spread.edges) == len(spread.heights) + 1


def test_coverage_counts_worlds_and_actions(write: Write) -> None:
    def acting(*actions: str | None) -> tuple[Transition, ...]:
        return tuple(make_step(i, action=a, action_valid=a != "dance") for i, a in enumerate(actions))

    found = stats(
        write(
            [
                make_episode(0, steps=acting("left", "left"), initial_state_hash="a"),
                make_episode(1, seed=0, steps=acting("right", "right"), initial_state_hash="a"),
                make_episode(2, seed=0, task="open", steps=acting("up", "dance"), initial_state_hash="b"),
                make_episode(3, seed=None, env_id=None, steps=acting(None, "up")),
            ]
        )
    ).coverage
    assert (found.n_tasks, found.n_worlds, found.n_without_seed) == (3, 2, 1)
    assert (found.n_initial_states, found.n_without_state) == (2, 1)
    assert [(a.action, a.n) for a in found.actions] == [("left", 2), ("right", 2), ("up", 2), ("dance", 1)]
    bits = -3 * 2 / 7 * math.log2(2 / 7) - 1 / 7 * math.log2(1 / 7)
    assert found.entropy_bits == pytest.approx(bits)
    assert found.entropy_share == pytest.approx(bits / 2)
    assert (found.n_without_action, found.n_invalid, found.n_unjudged) == (1, 1, 0)


def test_what_repeats_is_counted(write: Write) -> None:
    same = {"seed": 7}
    other = (make_step(0, action="left"), make_step(1))
    found = stats(
        write(
            [
                make_episode(0, **same),
                make_episode(1, **same),
                make_episode(2, **same, steps=other),
                make_episode(3),
            ]
        )
    ).duplicates
    assert (found.n_episodes, found.n_same_episodes) == (4, 1)
    assert (found.n_answers, found.n_same_answers, found.n_prompts) == (8, 6, 2)


def test_prompts_that_are_kept_as_what_is_new_are_compared_whole(write: Write) -> None:
    def chat(first: str) -> tuple[Transition, ...]:
        return (
            make_step(0, messages=(message("user", first),)),
            make_step(1, messages=(message("user", "and now"),), n_prompt_kept=2),
        )

    found = stats(write([make_episode(0, steps=chat("a")), make_episode(1, steps=chat("b"))])).duplicates
    assert (found.n_answers, found.n_same_answers, found.n_prompts) == (4, 0, 4)


def test_weights_are_told_with_their_effective_size(write: Write) -> None:
    weights = [3.0, 1.0, 0.0, -1.0]
    steps = tuple(
        make_step(i, loss_weight=w, mask_reason=None if w else "a loop") for i, w in enumerate(weights)
    )
    unanswered = (make_step(0, completion=None), make_step(1, messages=None), make_step(2, loss_weight=4.0))
    found = stats(write([make_episode(0, steps=steps), make_episode(1, steps=unanswered)])).weights
    assert (found.n_learned, found.n_episodes_learned, found.n_tokens) == (3, 2, 30)
    assert found.not_learned == {"a loop": 1, "negative weight": 1, "no answer": 1, "prompt unknown": 1}
    assert (found.least, found.mean, found.most) == pytest.approx((1, 8 / 3, 4))
    assert found.effective_steps == pytest.approx(8**2 / (9 + 1 + 16))
    assert found.effective_episodes == pytest.approx(2)  # 4 and 4


def test_evaluation_episodes_are_never_learned(write: Write) -> None:
    found = stats(write([make_episode(0, purpose="eval"), make_episode(1, purpose="train")])).weights
    assert (found.n_learned, found.n_episodes_learned, found.n_tokens) == (2, 1, 20)
    assert found.not_learned == {"evaluation": 2}


def test_the_funnel_follows_the_lineage_to_the_trained_tokens(write: Write) -> None:
    def entry(verb: str, n_in: int, n_out: int, *left: Left, masked: tuple[Left, ...] = ()) -> LineageEntry:
        return LineageEntry(
            verb=verb,
            arguments={},
            n_episodes_in=n_in,
            n_episodes_out=n_out,
            n_steps_in=2 * n_in,
            n_steps_out=2 * n_out,
            left=left,
            masked=masked,
            done_at=START,
            trajkit_version="0.1.0",
        )

    gone = Left(reason="evaluation", n_episodes=90, n_steps=180)
    bad = Left(reason="invalid output", n_steps=1)
    steps = (make_step(0), make_step(1, loss_weight=0.0, mask_reason="invalid output"))
    store = write(
        [make_episode(0), make_episode(1, steps=steps)],
        lineage=[entry("export", 100, 10, gone), entry("select", 10, 2, masked=(bad,))],
    )
    found = stats(store).funnel
    assert [(s.name, s.n_episodes, s.n_steps, s.n_tokens) for s in found] == [
        ("seen by export", 100, 200, None),
        ("export", 10, 20, None),
        ("select", 2, 4, None),
        ("in this store", 2, 4, 40),
        ("learned", 2, 3, 30),
    ]
    assert (found[1].left, found[2].left) == ((gone,), (bad,))


@pytest.mark.full
def test_the_sides_of_a_split_are_compared(write: Write) -> None:
    write([make_episode(n) for n in range(3)], "split/train")
    write([make_episode(n, outcome="failure") for n in range(3, 5)], "split/val")
    for side in ("train", "val"):
        path = Path("split") / side / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"split": side}))
    found = stats("split")
    assert [path.name for path in found.stores] == ["train", "val"]
    assert group(found, "split", "train").success.value == 1
    assert group(found, "split", "val").success.value == 0
    assert group(found, "all").n_episodes == 5
    assert stats("split/train", "split/val") == found
    assert found.funnel[0].name == "in these 2 stores"


def test_the_same_id_in_two_stores_is_two_episodes(write: Write) -> None:
    write([make_episode(0)], "a")
    write([make_episode(0, steps=(make_step(0, action="left"),))], "b")
    found = stats("a", "b")
    assert (group(found, "all").n_episodes, found.n_steps) == (2, 3)
    assert (found.duplicates.n_episodes, found.duplicates.n_same_episodes) == (2, 0)
    assert (found.weights.n_episodes_learned, found.weights.effective_episodes) == pytest.approx((2, 9 / 5))


@pytest.mark.full
def test_numbers_do_not_depend_on_order_parts_or_threads(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(7)
    episodes = [
        make_episode(
            n,
            task=chance.choice(["goto", "open", None]),
            n_steps=chance.randrange(1, 6),
            metrics={"episode_return": chance.random()},
        )
        for n in range(60)
    ]
    episodes = [
        e.model_copy(
            update={"steps": tuple(s.model_copy(update={"loss_weight": chance.random()}) for s in e.steps)}
        )
        for e in episodes
    ]
    one = stats(write(episodes, "one"), threads=1)
    monkeypatch.setattr("trajkit.store.writing.spool._FLUSH_STEPS", 10)
    monkeypatch.setattr("trajkit.store.writing.spool._SLICE_STEPS", 20)
    shuffled = chance.sample(episodes, len(episodes))
    many = stats(write(shuffled, "many"), threads=4)
    assert len(list(Path("many/steps").iterdir())) > 3
    same = {"stores": one.stores, "digests": many.digests}
    assert many.digests == one.digests
    assert many.model_copy(update=same) == one


def test_equal_values_and_single_episodes_are_no_trouble(write: Write) -> None:
    found = stats(write([make_episode(0, metrics={"episode_return": 0.0})]))
    assert group(found, "all").score.low is None
    assert found.spreads[0].heights == (1,)
    ElementTree.fromstring(_svgs(page(found))[0])


def test_a_store_of_nothing_and_no_store_are_told(write: Write, tmp_path: Path) -> None:
    with pytest.raises(NothingMatched, match="has no episodes"):
        stats(write([]))
    with pytest.raises(StoreError, match="not a folder"):
        stats(tmp_path / "nowhere")


class Page(HTMLParser):
    """Checks that every tag is closed in order, and notes what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _svgs(html: str) -> list[str]:
    return ["<svg" + part.partition("</svg>")[0] + "</svg>" for part in html.split("<svg")[1:]]


def test_the_page_is_whole_and_needs_nothing_else(ten: Path) -> None:
    html = page(stats(ten))
    parsed = Page()
    parsed.feed(html)
    assert (parsed.open, parsed.fetched) == ([], [])
    assert "<script" not in html
    assert "url(" not in html
    assert "@import" not in html
    charts = [ElementTree.fromstring(svg) for svg in _svgs(html)]
    titles = [chart.findtext("{http://www.w3.org/2000/svg}title") for chart in charts]
    assert titles[:3] == ["Success", "episode_return", "Length"]
    assert "How often each action was taken" in titles
    assert titles[-2:] == ["Steps after each stage", "Tokens of answers"]


def test_marks_of_charts_lie_inside_and_where_their_values_are(ten: Path) -> None:
    chart = ElementTree.fromstring(_svgs(page(stats(ten)))[0])
    dots = [float(dot.attrib["cx"]) for dot in chart.iter("{http://www.w3.org/2000/svg}circle")]
    # the axis runs from 210 to 610; all 5 of 10, goto 2 of 5, open 3 of 5, train 4 of 9, eval 1 of 1
    shares = [0.5, 0.4, 0.6, 4 / 9, 1.0]
    assert dots == pytest.approx([210 + 400 * share for share in shares], abs=0.1)


def test_names_from_elsewhere_cannot_become_markup(write: Write) -> None:
    nasty = '<script>alert("1")</script>&amp;\x1b[31m\u202e'
    html = page(
        stats(write([make_episode(n, task=nasty, steps=(make_step(0, action=nasty),)) for n in range(2)]))
    )
    parsed = Page()
    parsed.feed(html)
    assert parsed.open == []
    assert "<script" not in html
    assert any(nasty[:-6] in text for text in parsed.text)
    assert "\x1b" not in html
    assert "\u202e" not in html
    for svg in _svgs(html):
        ElementTree.fromstring(svg)


def test_the_command_prints_a_table_and_writes_the_page(ten: Path) -> None:
    done = CliRunner().invoke(cli, ["stats", "store", "--html", "stats.html"], catch_exceptions=False)
    lines = done.stdout.splitlines()
    assert lines[1] == "95% intervals: Wilson for success, Student's t for means"
    assert lines[3].split() == [
        "episodes",
        "steps",
        "success",
        "episode_return",
        "steps",
        "each",
        "input",
        "tokens",
        "output",
        "tokens",
    ]
    assert lines[5].split()[:5] == ["all", "10", "55", "50.0%", "[23.7%,"]
    assert lines[-2].split() == ["not", "learned:", "evaluation", "-10"]
    assert lines[-1].split() == ["learned", "9", "45", "450"]
    assert done.stderr.startswith("stats.html  ")
    assert Path("stats.html").read_text() == page(stats("store"))
    with pytest.raises(StoreError, match="exists already"):
        CliRunner().invoke(cli, ["stats", "store", "--html", "stats.html"], catch_exceptions=False)


def test_json_is_the_model(ten: Path) -> None:
    done = CliRunner().invoke(cli, ["stats", "store", "--json", "--bootstrap", "200"], catch_exceptions=False)
    assert Stats.model_validate_json(done.stdout) == stats("store", resamples=200)
