"""Runs that are killed and go on: every episode is there once in the end, nothing half-played is learned."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests import warm
from tests.matrix import daily
from trajkit.errors import RolloutError, ServiceError, StoreError
from trajkit.rollouts.faults import Fault, FaultKind, Faulty
from trajkit.rollouts.options import Options
from trajkit.rollouts.policies import Expert
from trajkit.rollouts.records.journal import KILLED, find_journal
from trajkit.rollouts.records.record import Played
from trajkit.rollouts.session import Session, open_run, prepare, run
from trajkit.schema import Episode
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.database import open_database
from trajkit.sources.tensorzero.export.export import export
from trajkit.stack.state import local_stack
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store

ROOT = Path(__file__).parents[2]
EXPERT = {"env_id": "babyai", "tasks": ("goto",), "policy": "expert", "seeds": "0:6"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def session(**changes: object) -> Session:
    return prepare(Options.model_validate(EXPERT | changes))


def play(made: Session) -> list[Played]:
    played: list[Played] = []
    run(made, on_played=played.append)
    return played


@pytest.mark.timeout(300)
def test_a_run_through_the_gateway_that_is_killed_leaves_every_episode_once_in_the_database(
    in_stack_folder: Path, tmp_path: Path
) -> None:
    arguments = ["--task", "goto", "--variant", "history", "--seeds", "300:308", "--max-steps", "4"]
    arguments += ["--concurrency", "4"]
    command = ["rollout", "babyai", *arguments, "-o", str(tmp_path / "store")]
    options = {"policy": "gateway", "variants": ("history",), "seeds": "300:308", "max_steps": 4}
    made = session(**options, store=tmp_path / "store")
    path = find_journal(made.plan, made.arguments).path
    chance = random.Random(5)
    for _ in range(2):
        before = path.stat().st_size if path.exists() else 0
        process = warm.Forked(None, command, in_stack_folder, os.environ, ("/dev/null",) * 3)
        goal = before + chance.randrange(300, 4_000)
        while process.poll() is None and (not path.exists() or path.stat().st_size < goal):
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    done = warm.trajkit(command, in_stack_folder, dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert "could not be marked" not in done.stderr
    journal = find_journal(made.plan, made.arguments)
    assert (journal.n_done, journal.unmarked) == (8, {})
    assert journal.abandoned[KILLED] > 0
    played = {episode.seed: episode for episode in open_dataset(tmp_path / "store")}
    assert sorted(played) == list(range(300, 308))
    assert not {episode.episode_id for episode in played.values()} & set(journal.unmarked)
    (entry,) = open_store(tmp_path / "store").manifest.lineage
    assert [(one.reason, one.n_episodes) for one in entry.left] == [
        ("abandoned: killed", journal.abandoned[KILLED])
    ]
    assert entry.n_episodes_in == 8 + journal.abandoned[KILLED]
    exported, tally = _export(in_stack_folder, journal.run, tmp_path / "exported")
    assert sorted(episode.episode_id for episode in exported) == sorted(
        episode.episode_id for episode in played.values()
    )
    (left,) = [left for left in tally.left if left.reason == "abandoned: killed"]
    assert 0 < left.n_episodes <= journal.abandoned[KILLED]  # some were killed before their first inference
    everything, tally = _export(in_stack_folder, journal.run, tmp_path / "all", include_abandoned=True)
    assert len(everything) == 8 + left.n_episodes
    (entry,) = open_store(tmp_path / "all").manifest.lineage
    assert entry.arguments["include_abandoned"] is True


def _export(folder: Path, run_id: str, goal: Path, **options: bool):
    stack = local_stack(folder)
    assert stack is not None
    database = open_database(stack.clickhouse_url.get_secret_value())
    request = ExportRequest(tags={"trajkit.run": run_id}, **options)
    tally, _ = export(database, request, goal)
    database.close()
    return list(open_dataset(goal)), tally


def test_the_same_command_again_plays_nothing_and_writes_the_store_again(folder: Path) -> None:
    first = play(session(store=folder / "store"))
    digest = open_store(folder / "store").manifest.digest
    assert play(session(store=folder / "store")) == []
    assert play(session(store=folder / "another")) == []
    assert open_store(folder / "another").manifest.digest == digest
    assert len(first) == 6


def test_a_new_run_plays_everything_anew_under_another_name(folder: Path) -> None:
    first, again = play(session()), play(session(new_run=True))
    assert sorted(one.job for one in first) == sorted(one.job for one in again)
    assert {one.run for one in first}.isdisjoint(one.run for one in again)
    assert play(session()) == []


def test_what_decides_nothing_may_differ_and_what_decides_something_is_another_run(folder: Path) -> None:
    play(session())
    for same in (
        {"concurrency": 3},
        {"timeout_s": 9.0},
        {"episode_timeout_s": 9.0},
        {"retries": 0},
        {"max_minutes": 9.0},
        {"seeds": "0,1,2,3:6"},
        {"seeds": None, "episodes": 6},
    ):
        assert play(session(**same)) == []
    for other in (
        {"seeds": "0:7"},
        {"purpose": "eval"},
        {"run_seed": 1},
        {"history": 3},
        {"max_steps": 9},
        {"tasks": ("open",)},
        {"policy": "random"},
        {"shard": "1/1", "seeds": "1:6"},
    ):
        assert play(session(**other))
    assert sorted(one.job for one in play(session(shard="1/2")) + play(session(shard="2/2"))) == sorted(
        session().plan.jobs()
    )


class Failing(Expert):
    """An expert who is cut off in the middle of some episodes, and whose feedback is lost in others."""

    def __init__(self, *, act=(), conclude=()):
        self.act_at, self.conclude_at = set(act), set(conclude)

    async def act(self, situation):
        if situation.job.seed in self.act_at and situation.step_index == 2:
            raise Faulty(Fault(FaultKind.SERVER, "boom"))
        return await super().act(situation)

    async def conclude(self, episode_id, metrics, tags):
        if int(tags["trajkit.seed"]) in self.conclude_at:
            raise Faulty(Fault(FaultKind.NOT_STORED, "gone"))
        return ()


def with_policy(made: Session, policy, monkeypatch) -> list[Played]:
    from trajkit.rollouts.cast import Cast

    async def policies(self):
        return {"expert": policy}

    with monkeypatch.context() as patch:
        patch.setattr(Cast, "policies", policies)
        return play(made)


def test_episodes_that_a_service_spoiled_are_played_again_by_the_same_command(folder, monkeypatch) -> None:
    first = with_policy(session(), Failing(act=(1, 3), conclude=(4,)), monkeypatch)
    assert Counter(one.fault and one.fault.kind for one in first) == {
        None: 3,
        FaultKind.SERVER: 2,
        FaultKind.NOT_STORED: 1,
    }
    again = play(session(store=folder / "store"))
    assert sorted(one.job.seed for one in again) == [1, 3, 4]
    assert {one.episode_id for one in first}.isdisjoint(one.episode_id for one in again)
    (entry,) = open_store(folder / "store").manifest.lineage
    assert [(left.reason, left.n_episodes) for left in entry.left] == [
        ("abandoned: not stored", 1),
        ("abandoned: server error", 2),
    ]


def test_a_store_of_a_run_that_went_on_takes_the_place_of_the_one_before(folder, monkeypatch) -> None:
    with_policy(session(store=folder / "store"), Failing(act=(1, 3)), monkeypatch)
    assert open_store(folder / "store").manifest.counts.n_episodes == 4
    play(session(store=folder / "store"))
    assert open_store(folder / "store").manifest.counts.n_episodes == 6
    assert sorted(path.name for path in folder.iterdir()) == [".trajkit", "store"]


def test_a_store_of_another_run_is_in_the_way(folder: Path) -> None:
    play(session(store=folder / "store"))
    with pytest.raises(StoreError, match="exists already"):
        play(session(store=folder / "store", new_run=True))
    with pytest.raises(StoreError, match="exists already"):
        play(session(store=folder / "store", seeds="0:2"))


def test_a_run_that_gives_up_keeps_what_was_played(folder, monkeypatch) -> None:
    made = session(seeds="0:60", concurrency=2)
    order = [job.seed for job in made.plan.jobs()]
    with pytest.raises(ServiceError, match="5 episodes in a row"):
        with_policy(made, Failing(act=order[10:]), monkeypatch)
    assert len(play(session(seeds="0:60"))) == 50


@pytest.mark.full
def test_a_limit_on_time_stops_a_run_cleanly_and_the_same_command_goes_on(folder: Path) -> None:
    made = session(seeds="0:150", max_minutes=0.15 / 60, store=folder / "store")
    with open_run(made) as opened:
        opened.play(on_played=lambda played: None)
        assert str(opened.reached) == "--max-minutes is reached: 0.0025 min"
        assert 0 < opened.journal.n_done < 150
        n_done = opened.journal.n_done
        assert opened.journal.abandoned["stopped by --max-minutes"] <= made.plan.concurrency
        assert opened.write().manifest.counts.n_episodes == n_done
    rest = play(session(seeds="0:150", store=folder / "store"))
    assert len(rest) == 150 - n_done
    assert open_store(folder / "store").manifest.counts.n_episodes == 150


def test_a_run_that_is_being_played_refuses_to_be_played_twice(folder: Path) -> None:
    made = session()
    said = f"process {os.getpid()} already plays this run.*--shard I/N"
    with open_run(made), pytest.raises(RolloutError, match=said):
        play(made)
    assert len(play(made)) == 6


def test_a_full_disk_stops_the_run_and_the_same_command_goes_on(folder: Path) -> None:
    # a limit on the size of a file makes writes fail for real, in a process of its own
    script = (
        "import resource, signal\n"
        "from trajkit.errors import StoreError\n"
        "from trajkit.rollouts.options import Options\n"
        "from trajkit.rollouts.session import prepare, run\n"
        f"made = prepare(Options.model_validate({EXPERT!r}))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))\n"
        "played = []\n"
        "try:\n"
        "    run(made, on_played=played.append)\n"
        "except StoreError as error:\n"
        "    print(len(played), error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    n_played, message = done.stdout.split(" ", 1)
    assert message.startswith("the journal .trajkit/runs/rollout-")
    assert " cannot be written: File too large (" in message
    assert "run the same command again to resume" in message
    assert 0 < int(n_played) < 6
    assert len(play(session())) == 6 - int(n_played)


@pytest.mark.full
def test_a_long_journal_is_read_in_little_memory(folder: Path) -> None:
    """Heads alone are read: what an episode says takes no memory until the store is written."""
    import tracemalloc

    made = session(seeds="0:100000")
    journal = find_journal(made.plan, made.arguments)
    play(session(seeds="0:1"))
    one = (
        find_journal(session(seeds="0:1").plan, session(seeds="0:1").arguments).path.read_text().splitlines()
    )
    journal.path.parent.mkdir(parents=True)
    with journal.path.open("w") as file:
        file.write(one[0] + "\n")
        for seed in range(5_000):
            file.write(one[2].replace('"goto",0]', f'"goto",{seed}]') + "\n")
    tracemalloc.start()
    read = find_journal(made.plan, made.arguments)
    n_scores = sum(1 for _ in read.scores())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (read.n_done, n_scores) == (5_000, 5_000)
    assert peak < 200_000  # the file has 20 MB


def what(episode: Episode) -> object:
    """What was played, without ids and times."""
    steps = [(step.observation, step.action, step.action_valid, step.reward) for step in episode.steps]
    return (episode.origin or {})["policy"], episode.task, episode.seed, episode.metrics, steps


@pytest.mark.full
@pytest.mark.parametrize("n_kills", daily((2, 8, 20), 1))
def test_a_run_killed_again_and_again_comes_to_what_an_undisturbed_one_comes_to(
    folder: Path, n_kills: int
) -> None:
    (folder / "killed").mkdir()
    script = Path(__file__).with_name("killed.py")
    arguments = [str(folder / "killed"), "7", str(n_kills)]
    done = warm.trajkit(arguments, script.parent, dict(os.environ), module="killed")
    *kills, last = map(json.loads, done.stdout.splitlines())
    assert [one["ended"] for one in kills] == [-signal.SIGKILL] * n_kills, done.stderr
    assert last["ended"] == 0, done.stderr
    sys.path.insert(0, str(script.parent))
    try:
        from killed import OPTIONS
    finally:
        sys.path.pop(0)
    run(prepare(OPTIONS), on_played=lambda played: None)
    undisturbed = list(open_dataset(folder / "store"))
    survived = list(open_dataset(folder / "killed" / "store"))
    assert len(undisturbed) == 48
    assert sorted(map(what, survived), key=repr) == sorted(map(what, undisturbed), key=repr)
    assert len({episode.episode_id for episode in survived}) == 48
    os.chdir(folder / "killed")
    made = prepare(OPTIONS)
    journal = find_journal(made.plan, made.arguments)
    assert journal.n_done == 48
    # a kill may fall before the first episode, and hit up to four
    assert journal.abandoned[KILLED] >= 0.75 * n_kills
    assert not {episode.episode_id for episode in survived} & set(journal.unmarked)
    (entry,) = open_store(folder / "killed" / "store").manifest.lineage
    assert [(left.reason, left.n_episodes) for left in entry.left] == [
        ("abandoned: killed", journal.abandoned[KILLED])
    ]
    assert entry.n_episodes_in == 48 + journal.abandoned[KILLED]
