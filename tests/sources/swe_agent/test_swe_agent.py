"""The source `swe-agent`: runs of SWE-agent, old and new, and of the real mini-swe-agent."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.sources.reading import Reader, answer
from tests.sources.swe_agent import record
from trajkit.formats.reading.document import Reading
from trajkit.schema import FileBlock, ThoughtBlock, ToolCallBlock, ToolResultBlock
from trajkit.sources.catalog import recognised
from trajkit.sources.swe_agent.connect import FROM_HISTORY, SOURCE
from trajkit.sources.wish import Wish
from trajkit.testing.source import SourceContract

READ = Reader(SOURCE)

DATA = record.DATA.parent


class TestSweAgent(SourceContract):
    source = SOURCE
    place = str(DATA)
    n_episodes = 4
    n_steps = 13


def test_mini_keeps_calls_results_tokens_and_cost() -> None:
    _check_mini(record.DATA)


@pytest.mark.full
def test_mini_recorded_anew_is_read_the_same(tmp_path: Path) -> None:
    record.record(tmp_path, tmp_path / "out")
    _check_mini(tmp_path / "out")


def _check_mini(run: Path) -> None:
    found = READ.episodes(run)
    assert {name: one.metrics for name, one in found.items()} == {
        "repo__1": {"resolved": True},
        "repo__2": {"resolved": False},
    }
    first = found["repo__1"]
    assert [step.action for step in first.steps] == [
        [{"name": "bash", "arguments": {"command": command}}]
        for command in ("ls", "sed -i s/a/b/ a.py", "submit")
    ]
    assert [step.n_prompt_kept for step in first.steps] == [0, 3, 5]
    (result,) = first.steps[1].messages or ()
    assert isinstance(result.content[0], ToolResultBlock)
    assert "a.py" in result.content[0].result
    assert {step.n_input_tokens for step in first.steps} == {100}
    assert first.steps[0].finish_reason == "tool_calls"
    assert first.steps[0].model_name == "openai/stand-in"
    assert first.origin is not None
    assert first.origin["info"]["exit_status"] == "Submitted"
    assert first.origin["info"]["submission"] == "diff --git a/a.py b/a.py"


def test_an_answer_with_a_wrong_format_is_a_step_that_the_next_prompt_lacks() -> None:
    steps = READ.episodes(record.DATA)["repo__2"].steps
    assert answer(steps[0]).text == "I forget to call."
    assert steps[0].extra is not None
    assert steps[0].extra["error"] == "FormatError"
    assert steps[1].n_prompt_kept == 2
    assert [str(message.role) for message in steps[1].messages or ()] == ["user"]


def test_a_new_trajectory_has_the_prompt_of_each_query() -> None:
    episode = READ.episodes(DATA / "run")["repo__3"]
    wrong, look, submit = episode.steps
    assert (answer(wrong).text, wrong.action) == ("Hm.", None)
    assert [str(message.role) for message in episode.prompt(1) or ()] == ["system", "user", "user"]
    assert any(isinstance(one, FileBlock) for one in (episode.prompt(1) or ())[2].content)
    blocks = answer(look).content
    assert [one.text for one in blocks if isinstance(one, ThoughtBlock)] == ["The bug is in a.py."]
    assert [one.name for one in blocks if isinstance(one, ToolCallBlock)] == ["bash"]
    (result,) = submit.messages or ()
    assert isinstance(result.content[0], ToolResultBlock)
    assert (result.content[0].id, result.content[0].result) == ("call_a", "a.py")
    assert (look.model_name, (look.extra or {})["settings"]) == (
        "gpt-stand-in",
        {"temperature": 0.0, "top_p": 1.0},
    )
    assert (look.extra or {})["state"] == {"working_dir": "/repo", "open_file": "n/a"}
    assert episode.metrics == {"resolved": True}


def test_an_old_trajectory_takes_its_prompts_from_the_history_and_says_so() -> None:
    (found,) = READ.found(DATA / "old")
    assert FROM_HISTORY in found.missing
    assert isinstance(found.reading, Reading)
    (episode,) = found.reading.episodes
    assert [len(prompt or ()) for prompt in episode.prompts()] == [3, 5, 0]
    assert answer(episode.steps[1]).text == "I submit.\n```\nsubmit\n```"
    assert episode.steps[2].completion is None
    assert (episode.steps[2].extra or {})["error"] == "exit_cost"
    assert episode.metrics == {}


def test_the_same_instance_of_two_runs_is_two_episodes(tmp_path: Path) -> None:
    from trajkit.sources.files.importing import import_files

    for name in ("one", "two"):
        shutil.copytree(record.DATA, tmp_path / "runs" / name)
    (tmp_path / "runs" / "two" / "stand-in.report.json").write_text('{"resolved_ids": ["repo__2"]}')
    judged = [one.reading.episodes[0].metrics for one in READ.found(tmp_path / "runs") if one.reading]  # type: ignore[union-attr]
    assert judged == [{"resolved": True}, {"resolved": False}, {}, {"resolved": True}]
    report, _ = import_files(tmp_path / "runs", tmp_path / "store", Wish())
    assert (report.format, report.n_episodes) == ("swe-agent", 4)


def _changed(path: Path, **fields: Any) -> Path:
    value = json.loads((record.DATA / "repo__1" / "repo__1.traj.json").read_text(encoding="utf-8"))
    path.write_text(json.dumps({**value, **fields}), encoding="utf-8")
    return path


def test_what_makes_no_sense_is_a_problem_of_its_file(tmp_path: Path) -> None:
    _changed(tmp_path / "a.traj.json", trajectory_format="mini-swe-agent-3.0")
    _changed(tmp_path / "b.traj.json", messages=[{"role": "assistant", "content": 5}])
    _changed(tmp_path / "c.traj.json", info="none")
    (tmp_path / "d.traj").write_text("{}", encoding="utf-8")
    (tmp_path / "e.traj").write_text('{"trajectory": [{"query"', encoding="utf-8")
    wrong = {one.place: one.problem for one in READ.found(tmp_path)}
    assert all(one is not None for one in wrong.values())
    assert "known: mini-swe-agent-1.x" in str(wrong["a.traj.json"])
    assert str(wrong["d.traj"]).endswith("not a trajectory of SWE-agent or mini-swe-agent")
    assert "cut off" in str(wrong["e.traj"])


def test_it_is_recognised_by_the_names_of_its_files() -> None:
    assert recognised(str(DATA / "old")) == "swe-agent"
    assert recognised(str(record.DATA)) == "swe-agent"
    assert recognised(str(DATA / "run" / "repo__3" / "repo__3.traj")) == "swe-agent"
