from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest

from trajkit.curation.scores.score import Scored, score
from trajkit.curation.scores.scorer import Scorer
from trajkit.engines.engine import engine_named
from trajkit.errors import DataError, NothingMatched, RequestError
from trajkit.schema import Episode, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes

Run = Callable[..., Scored]


def make_episode(number: int, **fields: Any) -> Episode:
    steps = tuple(
        Transition(
            step_index=i,
            messages=(message("user", f"turn {i}"),),
            completion=message("assistant", "go" * i),
            reward=float(number),
        )
        for i in range(3)
    )
    default = {"source": "test", "seed": number, "metrics": {"episode_return": number / 10}, "steps": steps}
    return Episode(episode_id=f"ep-{number:02}", **{**default, **fields})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterable[Episode]], Path]:
    monkeypatch.chdir(tmp_path)

    def write(episodes: Iterable[Episode]) -> Path:
        write_episodes(tmp_path / "store", episodes, kind="test")
        return tmp_path / "store"

    return write


@pytest.fixture
def run(store: Callable[[Iterable[Episode]], Path], tmp_path: Path) -> Run:
    """Score ten episodes, seeds 0 to 9, of three steps each, with a scorer of this body."""

    def run(body: str, *, name: str = "mark", goal: str | None = "out", **options: Any) -> Scored:
        if not Path("store").exists():
            store(make_episode(number) for number in range(10))
        Path("scorers.py").write_text(body)
        path = None if goal is None else tmp_path / goal
        return score("store", path, scorer="scorers.py:fn", name=name, **options)

    return run


def marks(goal: str = "out", name: str = "mark") -> list[Any]:
    return [episode.metrics.get(name) for episode in open_dataset(goal)]


def test_a_number_per_episode_is_a_metric_of_the_new_store(run: Run) -> None:
    done = run("def fn(episode): return episode.seed ** 2\n", optimize="max")
    assert (done.n_scored, done.n_none, done.n_bad, done.mean) == (10, 0, 0, 28.5)
    assert marks() == [n**2 for n in range(10)]
    assert marks(name="episode_return") == [n / 10 for n in range(10)]
    (metric,) = [m for m in open_dataset("out").store.manifest.metrics if m.name == "mark"]
    assert (metric.level, metric.kind, metric.optimize) == ("episode", "float", "max")


@pytest.mark.full
def test_the_rest_of_the_store_is_as_it_was(run: Run) -> None:
    run("def fn(episode): return 1\n")
    before, after = list(open_dataset("store")), list(open_dataset("out"))
    assert [
        e.model_copy(update={"metrics": {"episode_return": e.metrics["episode_return"]}}) for e in after
    ] == before


def test_a_step_is_scored_alone_or_with_its_episode(run: Run) -> None:
    run("def fn(step): return len(step.completion.content[0].text)\n", per="step")
    assert [[step.metrics for step in e.steps] for e in open_dataset("out")] == [
        [{"mark": 0}, {"mark": 2}, {"mark": 4}]
    ] * 10
    run(
        "def fn(step, episode):\n    return len(episode.prompt(step.step_index)) == 1 and episode.seed > 8\n",
        per="step",
        name="late",
        goal="late",
    )
    assert [step.metrics["late"] for e in open_dataset("late") for step in e.steps] == [False] * 27 + [
        True
    ] * 3


@pytest.mark.full
def test_metrics_of_steps_that_were_there_stay(run: Run, store: Callable[..., Path]) -> None:
    steps = tuple(Transition(step_index=i, metrics={"zz": float(i), "aa": True}) for i in range(2))
    store([make_episode(0, steps=steps)])
    run("def fn(step): return 0.5\n", per="step")
    (episode,) = open_dataset("out")
    assert [s.metrics for s in episode.steps] == [
        {"aa": True, "mark": 0.5, "zz": 0.0},
        {"aa": True, "mark": 0.5, "zz": 1.0},
    ]


def test_yes_and_no_make_a_boolean_metric_and_none_is_unknown(run: Run) -> None:
    done = run("def fn(episode): return None if episode.seed % 3 == 0 else episode.seed > 4\n")
    assert (done.n_scored, done.n_none, done.mean) == (6, 4, 0.5)
    assert marks() == [None, False, False, None, False, True, None, True, True, None]


@pytest.mark.full
def test_numbers_of_numpy_are_numbers(run: Run) -> None:
    run("import numpy as np\ndef fn(episode): return np.float32(0.5) if episode.seed else np.int64(3)\n")
    assert marks() == [3.0] + [0.5] * 9
    run("import numpy as np\ndef fn(episode): return np.bool_(True)\n", goal="yes")
    assert marks("yes") == [True] * 10


FAILING = (
    "def fn(episode):\n"
    "    if episode.seed == 3: return float('nan')\n"
    "    if episode.seed == 5: raise KeyError('answer')\n"
    "    if episode.seed == 7: return 'seven'\n"
    "    return 1.0\n"
)


def test_what_fails_is_named_and_nothing_is_written(run: Run) -> None:
    with pytest.raises(DataError, match=r"failed on 3 of 10, first on episode ep-03: the scorer gave nan"):
        run(FAILING, max_bad=2)
    assert not Path("out").exists()


@pytest.mark.full
def test_as_many_may_fail_as_max_bad_says(run: Run) -> None:
    done = run(FAILING, max_bad=3)
    assert [str(bad) for bad in done.bad] == [
        "episode ep-03: the scorer gave nan",
        "episode ep-05: the scorer raised KeyError: 'answer' (scorers.py:3)",
        "episode ep-07: the scorer gave str, not a number, True, False or None",
    ]
    assert [i for i, mark in enumerate(marks()) if mark is None] == [3, 5, 7]
    assert done.entry.result["n_bad"] == 3
    assert done.entry.result["bad"] == {
        "gave nan": 1,
        "raised KeyError: 'answer' (scorers.py:3)": 1,
        "gave str, not a number, True, False or None": 1,
    }


def test_a_scorer_that_always_fails_is_given_up(run: Run, store: Callable[..., Path]) -> None:
    store(make_episode(number) for number in range(60))
    body = (
        "def fn(episode):\n"
        "    with open('asked', 'a') as asked: asked.write('x')\n"
        "    raise OSError('no reward model')\n"
    )
    with pytest.raises(DataError, match="failed on 20 episodes in a row, first on episode ep-00"):
        run(body)
    assert Path("asked").read_text() == "x" * 20


def test_numbers_beside_yes_and_no_are_refused(run: Run) -> None:
    with pytest.raises(DataError, match=r"returns numbers and booleans: True for episode ep-00 and 0\.5 for"):
        run("def fn(episode): return 0.5 if episode.seed else True\n")


def test_a_scorer_with_nothing_to_say_is_told(run: Run) -> None:
    with pytest.raises(NothingMatched, match="scored nothing") as caught:
        run("def fn(episode): return None\n")
    assert caught.value.hint == "it returned None 10 times and failed 0 times"


def test_the_lineage_says_which_code_scored(run: Run) -> None:
    body = "__version__ = '1.4'\ndef fn(episode): return 1\n"
    entry = run(body).entry
    assert entry.result["source_sha256"] == hashlib.sha256(body.encode()).hexdigest()
    assert (entry.result["version"], entry.arguments["with"]) == ("1.4", "scorers.py:fn")
    assert (entry.n_episodes_in, entry.n_episodes_out, entry.left) == (10, 10, ())
    assert open_dataset("out").store.manifest.lineage[-1] == entry


@pytest.mark.full
def test_a_module_of_a_package_has_the_packages_version(run: Run, store: Callable[..., Path]) -> None:
    store([make_episode(0)])
    with pytest.raises(DataError, match="failed on 1 of 1"):
        score("store", None, scorer="click:unstyle", name="mark")  # it takes a text
    identity = Scorer("click:unstyle", per_step=False).identity
    assert identity.version == version("click")
    assert identity.sha256 == hashlib.sha256(Path(click.termui.__file__).read_bytes()).hexdigest()


STOPPING = (
    "import pathlib\n"
    "def fn(episode):\n"
    "    with open('asked', 'a') as asked: asked.write(episode.episode_id + ' ')\n"
    "    if episode.seed == 4 and not pathlib.Path('go').exists(): raise KeyboardInterrupt\n"
    "    return episode.seed\n"
)


def test_a_run_that_was_stopped_goes_on_where_it_was(run: Run) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(STOPPING)
    assert Path("asked").read_text().split() == [f"ep-{n:02}" for n in range(5)]
    (journal,) = Path(".trajkit/score").iterdir()
    with journal.open("a") as file:
        file.write('["ep-04",[[null,4')  # killed in the middle of a line
    Path("asked").unlink()
    Path("go").touch()
    done = run(STOPPING)
    assert done.n_resumed == 4
    assert Path("asked").read_text().split() == [f"ep-{n:02}" for n in range(4, 10)]
    assert marks() == list(range(10))
    assert not list(Path(".trajkit/score").iterdir())


@pytest.mark.full
def test_other_code_begins_anew_and_so_does_a_new_run(run: Run) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(STOPPING)
    Path("go").touch()
    assert run(STOPPING + "# mended\n", goal="mended").n_resumed == 0
    assert run(STOPPING, goal="new", new_run=True).n_resumed == 0


def test_progress_is_told_in_episodes(run: Run) -> None:
    told: list[tuple[str, int, int | None]] = []
    run("def fn(episode): return 1\n", on_progress=lambda *what: told.append(what))
    assert told == [("scoring", n, 10) for n in range(11)]


@pytest.mark.full
def test_what_failed_is_tried_again(run: Run) -> None:
    body = (
        "import pathlib\n"
        "def fn(episode):\n"
        "    if episode.seed == 4 and not pathlib.Path('go').exists(): raise OSError('busy')\n"
        "    return episode.seed\n"
    )
    with pytest.raises(DataError, match="ep-04: the scorer raised OSError: busy"):
        run(body)
    Path("go").touch()
    assert run(body).n_resumed == 9
    assert marks() == list(range(10))


def test_a_dry_run_scores_and_writes_no_store(run: Run) -> None:
    done = run("def fn(episode): return 1\n", goal=None)
    assert (done.manifest, done.n_scored) == (None, 10)
    assert not Path("out").exists()
    assert run("def fn(episode): return 1\n").n_resumed == 10


@pytest.mark.full
def test_several_processes_give_the_same_store(run: Run) -> None:
    body = (
        "import os, pathlib\n"
        "def fn(episode):\n"
        "    pathlib.Path(f'pid-{os.getpid()}').touch()\n"
        "    return episode.seed / 3\n"
    )
    one = run(body)
    several = run(body, goal="several", engine=engine_named("local", 2))
    assert several.manifest.digest == one.manifest.digest
    Path(f"pid-{os.getpid()}").unlink()
    assert 1 <= len(list(Path().glob("pid-*"))) <= 2


def test_what_a_scorer_prints_does_not_reach_stdout(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("print('loading')\ndef fn(episode):\n    print('scoring')\n    return 1\n")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("scoring") == 10


def test_what_is_no_scorer_is_told_before_anything_is_read(run: Run) -> None:
    for body, told in (
        ("def fm(episode): return 1\n", "scorers.py has no 'fn'"),
        ("class fn: pass\n", "an instance of scorers.py:fn cannot be called"),
        ("fn = 3\n", "scorers.py:fn is int, not a function"),
        ("def fn(): return 1\n", "takes 0 arguments and is given an episode"),
        ("def fn(episode, threshold): return 1\n", "takes 2 arguments and is given an episode"),
        (
            "import nothing_h\ndef fn(episode): return 1\n",
            "scorers.py cannot be imported: ModuleNotFoundError",
        ),
    ):
        with pytest.raises(RequestError, match=told):
            run(body)


def test_a_metric_needs_a_name_of_its_own(run: Run) -> None:
    for name in ("episode_return", "Episode_Return"):
        with pytest.raises(RequestError, match="the metric 'episode_return' exists already"):
            run("def fn(episode): return 1\n", name=name)
    with pytest.raises(RequestError, match="cannot be"):
        run("def fn(episode): return 1\n", name="a b")


def test_a_class_is_made_once_and_called_for_each(run: Run) -> None:
    run(
        "class fn:\n"
        "    def __init__(self):\n"
        "        self.n = 0\n"
        "        with open('made', 'a') as made: made.write('x')\n"
        "    def __call__(self, episode): self.n += 1; return self.n\n"
    )
    assert marks() == list(range(1, 11))
    assert Path("made").read_text() == "x"


def test_the_command_prints_the_tally_and_remembers_the_store(
    store: Callable[..., Path], tmp_path: Path
) -> None:
    store(make_episode(number) for number in range(4))
    Path("scorers.py").write_text("def fn(episode): return episode.seed > 0 or None\n")
    from click.testing import CliRunner

    from trajkit.cli.main import cli

    asked = ["score", "store", "--with", "scorers.py:fn", "--name", "good", "-o", "out"]
    done = CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert done.stdout.splitlines()[0] == "good: 3 episodes scored, mean 1; no score for 1"
    assert done.stdout.splitlines()[-1].startswith("out  4 episodes  12 steps  digest ")
    remembered = json.loads(Path(".trajkit/last_store.json").read_text())
    assert remembered == {"path": str(tmp_path / "out")}
    again = CliRunner().invoke(cli, [*asked[:-1], "again", "--json"], catch_exceptions=False)
    assert json.loads(again.stdout)["n_none"] == 1


def test_a_killed_run_leaves_a_journal_and_no_store(store: Callable[..., Path]) -> None:
    store(make_episode(number) for number in range(10))
    Path("scorers.py").write_text(
        "import os\ndef fn(episode):\n    if episode.seed == 6: os.kill(os.getpid(), 9)\n    return 1\n"
    )
    code = "from pathlib import Path; from trajkit.curation.scores.score import score; "
    code += "score('store', Path('out'), scorer='scorers.py:fn', name='mark')"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == -9
    assert not Path("out").exists()
    (journal,) = Path(".trajkit/score").iterdir()
    assert len(journal.read_text().split()) == 6
