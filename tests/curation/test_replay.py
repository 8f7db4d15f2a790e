"""Replay of episodes that experts and noisy experts played, without a gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import portions
from trajkit.cli.main import cli
from trajkit.curation.derive import deriving
from trajkit.curation.replays.episode import StoredEpisode, replayed, stored
from trajkit.curation.replays.replay import replay
from trajkit.engines.engine import engine_named
from trajkit.environments import environment_info
from trajkit.errors import DataError, NothingMatched, RequestError, StoreError
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.policies import Expert
from trajkit.rollouts.records.record import Played, to_episode
from trajkit.rollouts.running.runner import play
from trajkit.schema import Episode, LineageEntry
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes

Write = Callable[..., Path]

UNKNOWN_TO_TENSORZERO = {"reward": None, "terminated": None, "truncated": None}


def played(**plan: Any) -> list[Episode]:
    done: list[Played] = []
    asked = Plan.model_validate(
        {"env_id": "babyai", "tasks": ("open", "putnext"), "variants": ("expert",), "seeds": "0:3"} | plan
    )
    asyncio.run(play(asked, {"expert": Expert()}, on_played=done.append))
    return sorted((to_episode(one) for one in done), key=lambda episode: episode.episode_id)


@pytest.fixture(scope="module")
def six() -> list[Episode]:
    """Two tasks of BabyAI on three seeds, played by the expert."""
    return played()


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(episodes: Iterable[Episode], name: str = "store", **more: Any) -> Path:
        write_episodes(tmp_path / name, episodes, kind="test", **more)
        return tmp_path / name

    return write


def with_step(episode: Episode, index: int, **values: Any) -> Episode:
    steps = list(episode.steps)
    steps[index] = steps[index].model_copy(update=values)
    return episode.model_copy(update={"steps": tuple(steps)})


def rollout_entry(**arguments: Any) -> LineageEntry:
    """What a rollout's lineage says, as far as replay reads it."""
    counts = {f"n_{what}_{way}": 4 for what in ("episodes", "steps") for way in ("in", "out")}
    done = {"done_at": datetime(2026, 1, 1, tzinfo=UTC), "trajkit_version": "0.1.0"}
    return LineageEntry.model_validate({"verb": "rollout", "arguments": arguments, **counts, **done})


def exported(episode: Episode) -> Episode:
    """What TensorZero's tables can hold of an episode."""
    steps = tuple(step.model_copy(update=UNKNOWN_TO_TENSORZERO) for step in episode.steps)
    return episode.model_copy(
        update={"steps": steps, "total_reward": None, "initial_state_hash": None, "outcome": "unknown"}
    )


@pytest.mark.full
def test_the_sample_is_verified_whole() -> None:
    found = replay("sample:babyai").replay
    assert (found.n_verified, found.n_steps_verified) == (55, 1892)


def test_each_value_is_compared(six: list[Episode], write: Write) -> None:
    steps: list[dict[str, Any]] = [
        {"observation": "a wall"},
        {"action_valid": False},
        {"reward": -0.0},
        {"truncated": True},
    ]
    odd = [with_step(one, 0, **values) for one, values in zip(six, steps, strict=False)]
    odd[2] = with_step(odd[2], 1, reward=5e-324)
    odd.append(six[4].model_copy(update={"initial_state_hash": "zero", "total_reward": 0.25}))
    odd.append(six[5].model_copy(update={"metrics": {"episode_return": 0.25}}))
    found = replay(write(odd)).replay
    ids = [one.episode_id for one in six]
    assert {
        (ids.index(one.episode_id), one.step_index, one.name, one.stored) for one in found.differences
    } == {
        (0, 0, "observation", '"a wall"'),
        (1, 0, "action_valid", "False"),
        (2, 0, "reward", "-0.0"),
        (2, 1, "reward", "5e-324"),
        (3, 0, "truncated", "True"),
        (4, None, "initial_state_hash", '"zero"'),
        (4, None, "total_reward", "0.25"),
        (5, None, "episode_return", "0.25"),
    }
    assert (found.n_verified, found.n_different, found.n_differences) == (0, 6, 8)
    assert found.n_steps_verified == sum(len(one.steps) for one in six) - 5


def test_another_action_is_another_episode(six: list[Episode], write: Write) -> None:
    first = six[0].steps[0]
    other = "turn left" if first.action != "turn left" else "turn right"
    found = replay(write([with_step(six[0], 0, action=other, action_executed=other)])).replay
    assert found.n_different == 1
    assert found.differences[0].name == "observation"
    assert found.differences[0].step_index == 1


def test_steps_after_the_end_are_told(six: list[Episode], write: Write) -> None:
    last = six[0].steps[-1]
    more = last.model_copy(update={"step_index": last.step_index + 1, "observation": None})
    longer = six[0].model_copy(update={"steps": (*six[0].steps, more), "total_reward": None, "metrics": {}})
    (difference,) = replay(write([longer])).replay.differences
    assert difference.step_index == more.step_index
    assert difference.replayed == "an error: the episode is over"


def test_an_invalid_answer_is_said_again_as_it_was(write: Write) -> None:
    from trajkit.environments import make

    world = make("babyai", "goto")
    start = world.reset(5)
    result = world.step("dance")
    step = {
        "step_index": 0,
        "observation": start.observation,
        "action": "dance",
        "action_executed": result.action_executed,
        "action_valid": False,
        "reward": result.reward,
        "terminated": result.terminated,
        "truncated": result.truncated,
    }
    call = {"step_index": 1}  # another call of a model, which the environment never saw
    fields = {"source": "test", "env_id": "babyai", "task": "goto", "seed": 5, "steps": [step, call]}
    store = write([Episode.model_validate({"episode_id": "a", **fields})])
    found = replay(store).replay
    assert (found.n_verified, found.n_steps_replayed, found.n_steps_verified) == (1, 1, 1)


def test_what_cannot_be_checked_is_counted_with_its_reason(six: list[Episode], write: Write) -> None:
    odd = [
        six[0],
        six[1].model_copy(update={"seed": None}),
        six[2].model_copy(update={"env_id": None, "seed": None}),
        six[3].model_copy(update={"env_id": "nethack"}),
        six[4].model_copy(update={"task": "dance"}),
        six[5].model_copy(update={"steps": ()}),
    ]
    found = replay(write(odd)).replay
    assert (found.n_verified, found.n_different) == (1, 0)
    assert found.unchecked == {
        "babyai has no task 'dance'": 1,
        "no environment of trajkit's (nethack): name it with --env": 1,
        "no environment and no seed": 1,
        "no seed": 1,
        "no steps": 1,
    }
    assert found.share_verified == pytest.approx(1 / 6)
    with pytest.raises(NothingMatched, match="can be replayed") as caught:
        replay(write(odd[1:2], "seedless"))
    assert caught.value.hint == "1 × no seed"


def test_the_share_verified_is_in_the_lineage_of_a_new_store(
    six: list[Episode], write: Write, tmp_path: Path
) -> None:
    store = write([with_step(six[0], 0, reward=1.0), *six[1:]])
    done = replay(store, tmp_path / "new")
    manifest = open_dataset(tmp_path / "new").store.manifest
    assert manifest == done.manifest
    assert manifest.lineage[-1].verb == "replay"
    result = manifest.lineage[-1].arguments["result"]
    assert isinstance(result, dict)
    assert result["share_verified"] == pytest.approx(5 / 6)
    assert result["n_different"] == 1
    assert manifest.digest == open_dataset(store).store.manifest.digest  # the content is the same


def test_only_verified_leaves_the_others_out_by_reason(
    six: list[Episode], write: Write, tmp_path: Path
) -> None:
    odd = [with_step(six[0], 0, reward=1.0), six[1].model_copy(update={"seed": None}), *six[2:]]
    done = replay(write(odd), tmp_path / "new", only_verified=True)
    assert done.entry is not None
    assert [(left.reason, left.n_episodes, left.n_steps) for left in done.entry.left] == [
        ("replay differs", 1, six[0].n_steps),
        ("not replayed: no seed", 1, six[1].n_steps),
    ]
    kept = [episode.episode_id for episode in open_dataset(tmp_path / "new")]
    assert kept == [episode.episode_id for episode in six[2:]]


def blind(episode: Episode, **values: Any) -> Episode:
    """An exported episode whose steps do not say what was executed."""
    values = {"action_executed": None, "action_valid": None} | values
    steps = tuple(step.model_copy(update=values) for step in exported(episode).steps)
    return exported(episode).model_copy(update={"steps": steps})


def test_fill_leaves_alone_what_differs_or_cannot_be_compared(
    six: list[Episode], write: Write, tmp_path: Path
) -> None:
    nothing = blind(six[2], observation=None).model_copy(update={"metrics": {}})
    bare = [with_step(exported(six[0]), 1, observation="a wall"), exported(six[1]), nothing]
    done = replay(write(bare), tmp_path / "filled", fill=True)
    assert (done.replay.n_verified, done.replay.n_different) == (1, 1)
    assert done.replay.n_steps_filled == six[1].n_steps
    assert done.replay.unchecked == {"nothing is stored to compare with": 1}
    assert list(open_dataset(tmp_path / "filled")) == [bare[0], six[1], nothing]


@pytest.mark.full
def test_the_rollouts_own_limit_of_steps_comes_from_its_lineage(write: Write, tmp_path: Path) -> None:
    short = played(max_steps=2, seeds="0:2")
    assert any(episode.steps[-1].truncated for episode in short)
    assert replay(write(short, "bare")).replay.n_different > 0
    assert replay(tmp_path / "bare", max_steps=2).replay.n_different == 0
    entry = rollout_entry(env_id="babyai", env_name="", env_settings={}, max_steps=2)
    assert replay(write(short, "told", lineage=[entry])).replay.n_different == 0


@pytest.mark.full
def test_fill_tells_a_truncation_from_a_failure(write: Write, tmp_path: Path) -> None:
    short = [episode for episode in played(max_steps=2, seeds="0:2") if episode.outcome == "truncated"]
    assert short
    bare = [exported(episode).model_copy(update={"outcome": "failure"}) for episode in short]
    replay(write(bare), tmp_path / "filled", fill=True, max_steps=2)
    assert list(open_dataset(tmp_path / "filled")) == short


@pytest.mark.full
def test_several_processes_and_many_parts_find_the_same(
    six: list[Episode], write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write([with_step(six[3], 0, reward=1.0), *six[:3], *six[4:]])
    one = replay(store).replay
    monkeypatch.setattr("trajkit.curation.replays.episode._STEPS_PER_SPAN", 5)
    assert replay(store).replay == one
    assert replay(store, engine=engine_named("local", 2)).replay == one


@pytest.mark.full
def test_an_environment_of_ones_own_is_replayed_by_its_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    (tmp_path / "guessing_h.py").write_text(
        "class Guess:\n"
        "    env_id = 'guess'\n"
        "    def __init__(self, size: int = 3): self.size = size\n"
        "    def reset(self, seed):\n"
        "        self.secret = seed % self.size\n"
        "        return 'guess the number', f'0 to {self.size - 1}'\n"
        "    def step(self, text):\n"
        "        right = text == str(self.secret)\n"
        "        return ('yes' if right else 'no'), float(right), right, False\n"
    )
    monkeypatch.chdir(tmp_path)
    step = {"step_index": 0, "observation": "0 to 6", "action": "5", "reward": 1.0, "terminated": True}
    fields = {"source": "t", "env_id": "guess", "task": "default", "seed": 12, "steps": [step]}
    store = write([Episode.model_validate({"episode_id": "a", **fields})])
    with pytest.raises(NothingMatched, match="can be replayed"):
        replay(store)
    entry = rollout_entry(env_id="guessing_h:Guess", env_name="guess", env_settings={"size": "7"})
    told = write(open_dataset(store), "told", lineage=[entry])
    with pytest.raises(NothingMatched, match="can be replayed"):
        replay(told)  # what a lineage names is not imported
    assert replay(told, env="guessing_h:Guess").replay.n_verified == 1
    found = replay(store, env="guessing_h:Guess", settings={"size": "7"}).replay
    assert (found.n_verified, found.n_values) == (1, 3)
    assert replay(store, env="guessing_h:Guess").replay.differences[0].name == "observation"
    with pytest.raises(RequestError, match="there is no module 'gessing_h'"):
        replay(store, env="gessing_h:Guess")


def test_what_cannot_be_done_is_refused_before_anything_is_played(
    six: list[Episode], write: Write, tmp_path: Path
) -> None:
    store = write(six[:1])
    with pytest.raises(RequestError, match="--fill and --only-verified make a new store"):
        replay(store, fill=True)
    with pytest.raises(StoreError, match="exists already"):
        replay(store, store, fill=True)
    assert json.loads((store / "manifest.json").read_text())["kind"] == "test"


def test_the_command_says_what_was_verified_and_ends_with_the_difference(
    six: list[Episode], write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(six)
    done = CliRunner().invoke(cli, ["replay", "store"], catch_exceptions=False)
    n_steps = sum(episode.n_steps for episode in six)
    assert done.stdout.splitlines() == [
        "           episodes   share",
        "---------  --------  ------",
        "verified          6  100.0%",
        "different         0    0.0%",
        # per episode hash, total and return; per step observation, action, validity, reward and two ends
        f"{n_steps} of {n_steps} steps verified, {6 * 3 + 6 * n_steps} values compared",
    ]
    write([with_step(six[0], 2, reward=0.5), *six[1:]], "altered")
    with pytest.raises(
        DataError,
        match=f"1 episode of .* {six[0].episode_id} step 2: reward is 0.5; the environment gives 0.0",
    ) as caught:
        CliRunner().invoke(cli, ["replay", "altered"], catch_exceptions=False)
    assert caught.value.exit_code == 1
    left_out = CliRunner().invoke(
        cli, ["replay", "altered", "--only-verified", "-o", "good"], catch_exceptions=False
    )
    assert left_out.stdout.splitlines()[-1].startswith(
        f"good  5 episodes  {n_steps - six[0].n_steps} steps  digest "
    )
    assert json.loads(Path(".trajkit/last_store.json").read_text()) == {"path": str(tmp_path / "good")}


def test_fill_gives_back_what_tensorzero_cannot_hold_in_the_stores_folder_by_default(
    six: list[Episode], write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write([blind(six[0]), *map(exported, six[1:])])
    asked = ["replay", "store", "--fill"]
    dry = CliRunner().invoke(cli, [*asked, "--dry-run", "--json"], catch_exceptions=False)
    told = json.loads(dry.stdout)["replay"]
    assert (told["n_steps_filled"], told["share_verified"]) == (sum(episode.n_steps for episode in six), 1.0)
    assert not Path("stores").exists()
    CliRunner().invoke(cli, asked, catch_exceptions=False)
    (filled,) = Path("stores").glob("replay-*")
    assert list(open_dataset(filled)) == six


ALTERED: dict[str, Any] = {
    "observation": "something else",
    "action_executed": "dance",
    "action_valid": False,
    "reward": 0.125,
    "terminated": True,
    "truncated": True,
}


@portions(4)
@given(st.data())
@settings(deadline=None, max_examples=10)
def test_any_single_altered_value_of_any_step_is_found_and_named(
    stored_six: list[StoredEpisode], portion: int, data: st.DataObject
) -> None:
    episode = data.draw(st.sampled_from(stored_six))
    index = data.draw(st.integers(0, len(episode.steps) - 1))
    name = data.draw(st.sampled_from(sorted(ALTERED)))
    before = getattr(episode.steps[index], name)
    value: Any = not before if isinstance(before, bool) else ALTERED[name]
    steps = list(episode.steps)
    steps[index] = steps[index]._replace(**{name: value})
    info = environment_info("babyai")
    verdict = replayed(episode._replace(steps=tuple(steps)), info.make(episode.task), info, max_steps=None)
    assert [(found.step_index, found.name) for found in verdict.differences] == [(index, name)]
    assert verdict.n_steps_verified == len(steps) - 1
    assert verdict.filled == ()


@pytest.fixture(scope="module")
def stored_six(six: list[Episode], tmp_path_factory: pytest.TempPathFactory) -> list[StoredEpisode]:
    folder = tmp_path_factory.mktemp("six") / "store"
    write_episodes(folder, six, kind="test")
    with deriving(folder) as derivation:
        return [
            one
            for span in stored(derivation, False)
            for _, one in span.episodes
            if isinstance(one, StoredEpisode)
        ]
