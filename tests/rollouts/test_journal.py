import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from trajkit._core.ids import uuid7
from trajkit.errors import StoreError
from trajkit.rollouts.plan import Job, Plan
from trajkit.rollouts.records.journal import KILLED, Abandoned, find_journal, open_journal, run_folder
from trajkit.rollouts.records.summary import Score
from trajkit.schema import Episode, Transition

ARGUMENTS = {"env_id": "babyai", "seeds": "0:4"}
SCORE = Score("a", "goto", None, True, 0.5, 2, None, 7, 1)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(**changes) -> Plan:
    values = {"env_id": "babyai", "tasks": ("goto",), "variants": ("a",), "seeds": "0:4"}
    return Plan(**(values | changes))


def episode(n_steps=2) -> Episode:
    steps = tuple(Transition(step_index=i, observation="a wall\n\u2028é") for i in range(n_steps))
    return Episode(episode_id=uuid7(), source="rollout", steps=steps)


def finish(journal, seed, kept=None) -> Episode:
    kept = kept or episode()
    journal.begin(Job("a", "goto", seed), kept.episode_id)
    journal.finish(Job("a", "goto", seed), kept, SCORE)
    return kept


def test_what_was_finished_is_there_the_next_time():
    with open_journal(plan(), ARGUMENTS) as journal:
        kept = [finish(journal, 2), finish(journal, 0)]
        run = journal.run
    with open_journal(plan(), ARGUMENTS) as journal:
        assert [journal.is_done(Job("a", "goto", seed)) for seed in range(4)] == [True, False, True, False]
        assert (journal.n_done, journal.n_steps) == (2, 4)
        assert list(journal.finished()) == [(SCORE, kept[0]), (SCORE, kept[1])]
        assert list(journal.scores()) == [SCORE] * 2
        assert journal.run == run
        assert not journal.unmarked


def test_an_episode_that_was_begun_and_not_finished_is_abandoned_the_next_time():
    with open_journal(plan(), ARGUMENTS) as journal:
        journal.begin(Job("a", "goto", 1), "half-played")
    with open_journal(plan(), ARGUMENTS) as journal:
        one = Abandoned("half-played", KILLED, "the run was killed while it was played")
        assert journal.unmarked == {"half-played": one}
        assert not journal.is_done(Job("a", "goto", 1))
        finish(journal, 1)
        journal.mark("half-played")
    with open_journal(plan(), ARGUMENTS) as journal:
        assert (journal.n_done, journal.abandoned, journal.unmarked) == (1, {KILLED: 1}, {})


def test_another_run_begins_empty_and_remembers_what_is_to_be_marked():
    with open_journal(plan(), ARGUMENTS) as journal:
        finish(journal, 0)
        journal.abandon("one", "server error", "boom")
        journal.begin(Job("a", "goto", 1), "two")
        first = journal.run
    with open_journal(plan(), ARGUMENTS, begin_anew=True) as journal:
        assert (journal.n_done, journal.abandoned, sorted(journal.unmarked)) == (0, {}, ["one", "two"])
        assert journal.run != first
        second = journal.run
    with open_journal(plan(), ARGUMENTS) as journal:
        assert (journal.run, sorted(journal.unmarked)) == (second, ["one", "two"])
    files = sorted(run_folder(ARGUMENTS).glob("journal-*"))
    assert [path.name for path in files] == ["journal-0001.jsonl", "journal-0002.jsonl"]
    files[1].write_bytes(files[1].read_bytes()[:9])  # killed in its first line: as if it had never begun
    with open_journal(plan(), ARGUMENTS) as journal:
        assert (journal.run, journal.n_done) == (first, 1)
    with open_journal(plan(), ARGUMENTS, begin_anew=True) as journal:
        assert (journal.path.name, sorted(journal.unmarked)) == ("journal-0002.jsonl", ["one", "two"])


def test_a_run_has_a_folder_by_what_it_plays():
    assert run_folder(ARGUMENTS) == run_folder(dict(reversed(ARGUMENTS.items())))
    assert run_folder(ARGUMENTS) != run_folder(ARGUMENTS | {"seeds": "0:5"})
    assert run_folder(ARGUMENTS).parts[:2] == (".trajkit", "runs")


def test_a_look_at_a_journal_makes_none(folder):
    assert find_journal(plan(), ARGUMENTS).n_done == 0
    assert list(folder.iterdir()) == []
    with open_journal(plan(), ARGUMENTS) as journal:
        finish(journal, 3)
    assert find_journal(plan(), ARGUMENTS).n_done == 1


def test_a_journal_of_a_newer_version_is_refused_and_not_overwritten():
    with open_journal(plan(), ARGUMENTS) as journal:
        path = journal.path
    text = path.read_text().replace('"version":1', '"version":2')
    path.write_text(text)
    with (
        pytest.raises(StoreError, match="is of journal version 2; this trajkit reads 1"),
        open_journal(plan(), ARGUMENTS),
    ):
        pass
    assert path.read_text() == text


def test_a_journal_whose_head_was_torn_begins_again():
    with open_journal(plan(), ARGUMENTS) as journal:
        path = journal.path
    path.write_bytes(path.read_bytes()[:20])
    with open_journal(plan(), ARGUMENTS) as journal:
        assert journal.path == path
        finish(journal, 0)
    assert find_journal(plan(), ARGUMENTS).n_done == 1


def test_an_episode_that_cannot_be_read_names_its_line():
    with open_journal(plan(), ARGUMENTS) as journal:
        finish(journal, 0)
        finish(journal, 1)
        path = journal.path
    path.write_text(path.read_text().replace('"source":"rollout"', '"source":7', 1))
    with pytest.raises(StoreError, match=r"journal-0001\.jsonl:3: the line is damaged"):
        list(find_journal(plan(), ARGUMENTS).episodes())


def test_the_episodes_of_a_shard_are_told_apart_in_a_journal_of_a_billion():
    huge = plan(seeds="0:1000000000")
    with open_journal(huge, ARGUMENTS) as journal:
        finish(journal, 999_999_999)
        assert journal.is_done(Job("a", "goto", 999_999_999))
        assert not journal.is_done(Job("a", "goto", 999_999_998))
        assert sys.getsizeof(journal._done._bits) < 1000


@pytest.mark.full
def test_a_second_process_is_refused_with_the_name_of_the_first(folder):
    script = (
        "import sys\n"
        "from trajkit.errors import RolloutError\n"
        "from trajkit.rollouts.records.journal import open_journal\n"
        "from trajkit.rollouts.plan import Plan\n"
        "plan = Plan(env_id='babyai', tasks=('goto',), variants=('a',), seeds='0:4')\n"
        "try:\n"
        f"    with open_journal(plan, {ARGUMENTS!r}):\n"
        "        print('mine')\n"
        "except RolloutError as error:\n"
        "    print(error)\n"
    )

    def other():
        return subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            cwd=folder,
            env={"PYTHONPATH": str(Path(__file__).parents[2])},
        ).stdout

    with open_journal(plan(), ARGUMENTS):
        said = other()
    assert said.startswith(f"process {multiprocessing.current_process().pid} already plays this run")
    assert "--shard I/N" in said
    assert other() == "mine\n"
