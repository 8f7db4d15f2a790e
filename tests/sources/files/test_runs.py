"""BALROG's result folders."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from trajkit.sources.files.importing import Wish, import_files
from trajkit.sources.files.runs import runs
from trajkit.store.dataset import open_dataset

HEADER = ["Step", "Observation", "Action", "Reasoning", "Reward", "Done"]
ROWS = [
    [0, "a wall\na key, near", "turn left", "", 0.0, False],
    [1, 'a "door"', "go forward", "closer", 0.0, False],
    [2, "the end ˘", "pick up", "", 0.9, True],
]


def write_run(folder: Path, rows=ROWS, header=HEADER, *, with_score: bool = True, **score: object) -> Path:
    """A run as BALROG's evaluator writes one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{folder.name}_run_00.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, escapechar="˘", quoting=csv.QUOTE_MINIMAL)
        writer.writerow(header)
        writer.writerows(rows)
    log = {
        "task": folder.name,
        "action_frequency": {"go forward": 1},
        "input_tokens": 300,
        "output_tokens": 30,
        "episode_return": 0.9,
        "num_steps": len(rows),
        "failed_candidates": [],
        "progression": 1.0,
        "seed": 42,
        "agent": {"type": "naive"},
        "client": {"client_name": "vllm", "model_id": "m", "base_url": "http://user:secret@host"},
        **score,
    }
    if with_score:
        path.with_suffix(".json").write_text(json.dumps(log))
    return path


def test_a_run_is_an_episode_with_its_seed_its_rewards_and_its_score(tmp_path):
    write_run(tmp_path / "results" / "babyai" / "goto")
    imported, _ = import_files(tmp_path / "results", tmp_path / "store", Wish())
    assert (imported.format, imported.n_episodes, imported.unread) == ("balrog", 1, {})
    (episode,) = open_dataset(tmp_path / "store")
    assert (episode.env_id, episode.task, episode.seed) == ("babyai", "goto", 42)
    assert episode.metrics == {"episode_return": 0.9, "progression": 1.0}
    assert (str(episode.outcome), episode.total_reward) == ("success", 0.9)
    assert [step.action_executed for step in episode.steps] == ["turn left", "go forward", "pick up"]
    assert [step.reward for step in episode.steps] == [0.0, 0.0, 0.9]
    assert [step.terminated for step in episode.steps] == [False, False, True]
    assert episode.steps[0].model_name == "m"


def test_what_came_after_an_action_is_what_the_next_one_saw(tmp_path):
    path = write_run(tmp_path / "babyai" / "goto")
    import_files(path, tmp_path / "store", Wish())
    (episode,) = open_dataset(tmp_path / "store")
    assert [step.observation for step in episode.steps] == [None, "a wall\na key, near", 'a "door"']
    assert episode.steps[-1].info == {"after": "the end ˘"}
    assert episode.steps[1].extra == {"reasoning": "closer"}
    assert all(step.messages is None and step.completion is None for step in episode.steps)
    assert "secret" not in episode.model_dump_json()  # an address with a password


def test_columns_may_come_in_any_order(tmp_path):
    order = [0, 2, 3, 1, 4, 5]
    rows = [[row[i] for i in order] for row in ROWS]
    path = write_run(tmp_path / "babyai" / "goto", rows, [HEADER[i] for i in order])
    import_files(path, tmp_path / "store", Wish())
    (episode,) = open_dataset(tmp_path / "store")
    assert episode.steps[2].observation == 'a "door"'


def test_a_run_that_was_cut_off_by_its_length_is_truncated(tmp_path):
    path = write_run(tmp_path / "babyai" / "goto", ROWS[:2], progression=0.0)
    import_files(path, tmp_path / "store", Wish())
    (episode,) = open_dataset(tmp_path / "store")
    assert (str(episode.outcome), episode.steps[-1].truncated) == ("truncated", True)


def test_a_run_that_did_not_end_is_set_aside(tmp_path):
    write_run(tmp_path / "results" / "babyai" / "goto")
    write_run(tmp_path / "results" / "babyai" / "open", with_score=False)
    imported, _ = import_files(tmp_path / "results", tmp_path / "store", Wish())
    assert imported.left == {"a run that did not end: it has no JSON file": 1}


@pytest.mark.parametrize(
    ("rows", "header", "score", "words"),
    [
        (ROWS, HEADER, {"num_steps": 9}, "num_steps: the CSV file has 3 rows 9"),
        (ROWS, [*HEADER[:-1], "End"], {}, "line 1: columns are missing Done"),
        ([[0, "x", "go", "", "much", False]], HEADER, {}, "rows.0.Reward: not a number 'much'"),
        ([[0, "x", "go", "", "nan", False]], HEADER, {}, "rows.0.Reward: not a number 'nan'"),
        ([[5, "x", "go", "", 0, False]], HEADER, {}, "rows.0.Step: not 0 '5'"),
        ([[0, "x", "go", "", 0, "perhaps"]], HEADER, {}, "rows.0.Done: neither True nor False 'perhaps'"),
        ([[0, "x", "go"]], HEADER, {}, "rows.0: a row with a different number of columns"),
        (ROWS, HEADER, {"progression": "all"}, "progression: not a number 'all'"),
        (ROWS, HEADER, {"seed": "soon"}, "seed"),
    ],
)
def test_what_is_wrong_with_a_run_is_named(rows, header, score, words, tmp_path):
    (only,) = runs(write_run(tmp_path / "babyai" / "goto", rows, header, **score))
    assert words in str(only.problem)
