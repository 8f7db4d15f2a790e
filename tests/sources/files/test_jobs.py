"""Job folders of Harbor and BenchFlow, whole: trajectories, rewards, and what failed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.test_atif import ASKS, DONE, USER, document
from trajkit.sources.files.importing import Wish, import_files
from trajkit.sources.files.jobs import trials
from trajkit.store.dataset import open_dataset

FAILED = {
    "exception_type": "AgentTimeoutError",
    "exception_message": "…",
    "exception_traceback": "…",
    "occurred_at": "2026-11-21T12:00:00",
}


def put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def put_lines(path: Path, *values: Any) -> None:
    put(path, "".join(f"{json.dumps(value)}\n" for value in values))


def trial(folder: Path, trajectory: Any = None, **fields: Any) -> Path:
    """A trial as Harbor leaves one."""
    put(
        folder / "result.json",
        {
            "id": f"id-{folder.name}",
            "task_name": "fix-bug",
            "trial_name": folder.name,
            "trial_uri": "file:///jobs/1",
            "source": "terminal-bench",
            "task_checksum": "ab",
            "agent_info": {
                "name": "claude-code",
                "version": "2.1",
                "model_info": {"name": "opus", "provider": "a"},
            },
            "agent_result": {"n_input_tokens": 10, "cost_usd": 0.5},
            "verifier_result": {"rewards": {"reward": 1.0, "tests": 0.5}},
            "exception_info": None,
            "started_at": "2026-11-21T12:00:00Z",
            "finished_at": "2026-11-21T12:05:00Z",
            **fields,
        },
    )
    put(folder / "config.json", {})
    put(folder / "verifier" / "ctrf.json", {})
    if trajectory is not None:
        put(folder / "agent" / "trajectory.json", trajectory)
    return folder


def episodes(folder: Path, name: str = "harbor", *, include_errored: bool = False) -> list[Any]:
    found = trials(folder, name, include_errored=include_errored)
    return [episode for one in found for episode in one.reading.episodes]


def test_a_job_is_recognised_and_its_rewards_are_metrics(tmp_path):
    put(tmp_path / "job" / "result.json", {"stats": {"evals": {}}, "n_total_trials": 2})
    trial(tmp_path / "job" / "fix-bug__a", document(USER, ASKS, DONE))
    imported, _ = import_files(tmp_path / "job", tmp_path / "store", Wish())
    assert (imported.format, imported.n_documents, imported.n_steps) == ("harbor", 1, 2)
    (episode,) = open_dataset(tmp_path / "store")
    assert (episode.episode_id, episode.env_id, episode.task) == (
        "id-fix-bug__a",
        "terminal-bench",
        "fix-bug",
    )
    assert episode.metrics == {"reward": 1.0, "tests": 0.5}
    assert str(episode.outcome) == "success"
    assert episode.tags == {"agent": "claude-code", "agent_version": "2.1"}
    assert episode.origin["harbor"]["trial_name"] == "fix-bug__a"
    assert episode.ended_at.isoformat() == "2026-11-21T12:05:00+00:00"
    assert {step.model_name for step in episode.steps} == {"opus"}


def test_a_folder_of_jobs_is_read_whole(tmp_path):
    for job in ("monday", "tuesday"):
        trial(tmp_path / "jobs" / job / f"fix-{job}", document(USER, DONE))
    assert len(episodes(tmp_path / "jobs")) == 2


@pytest.mark.parametrize(
    ("rewards", "outcome"),
    [
        ({"reward": 0.99}, "failure"),
        ({"score": 1.0}, "unknown"),
        (None, "unknown"),
        ({"reward": None}, "unknown"),
    ],
)
def test_only_a_reward_of_1_is_a_success_unless_told_otherwise(rewards, outcome, tmp_path):
    folder = trial(tmp_path / "t", document(USER, DONE), verifier_result={"rewards": rewards})
    (episode,) = episodes(folder)
    assert str(episode.outcome) == outcome


def test_trials_that_failed_are_set_aside(tmp_path):
    trial(tmp_path / "job" / "good", document(USER, DONE))
    trial(tmp_path / "job" / "bad", document(USER, DONE), exception_info=FAILED)
    trial(tmp_path / "job" / "mute")
    imported, _ = import_files(tmp_path / "job", tmp_path / "store", Wish())
    assert imported.left == {
        "ended in an error: AgentTimeoutError": 1,
        "without a trajectory in ATIF": 1,
    }
    (tmp_path / "job" / "mute" / "result.json").unlink()
    found = episodes(tmp_path / "job", include_errored=True)
    assert sorted(str(episode.outcome) for episode in found) == ["error", "success"]


def test_rewards_that_the_verifier_left_in_files_are_read(tmp_path):
    trial(tmp_path / "job" / "a", document(USER, DONE), verifier_result=None)
    put(tmp_path / "job" / "a" / "verifier" / "reward.txt", "0.25\n")
    trial(tmp_path / "job" / "b", document(USER, DONE), verifier_result=None)
    put(tmp_path / "job" / "b" / "verifier" / "reward.json", {"reward": 1, "style": 0.5})
    found = {episode.episode_id: episode.metrics for episode in episodes(tmp_path / "job")}
    assert found == {"id-a": {"reward": 0.25}, "id-b": {"reward": 1.0, "style": 0.5}}


def test_a_trajectory_that_was_continued_is_one_episode(tmp_path):
    first = document(USER, DONE, continued_trajectory_ref="trajectory.cont-1.json")
    folder = trial(tmp_path / "t", first)
    copied = {**DONE, "message": "So far: fixed.", "is_copied_context": True}
    put(folder / "agent" / "trajectory.cont-1.json", document(USER, copied, USER, DONE))
    (episode,) = episodes(folder)
    assert [step.n_prompt_kept for step in episode.steps] == [0, 0]
    assert [message.text for message in episode.prompt(1)] == ["fix it", "So far: fixed.", "fix it"]


def referring(path: str) -> dict[str, Any]:
    step = copy.deepcopy(ASKS)
    step["observation"]["results"][0]["subagent_trajectory_ref"] = [{"trajectory_path": path}]
    return document(USER, step)


def test_sub_agents_with_files_of_their_own_are_episodes(tmp_path):
    folder = trial(tmp_path / "t", referring("helper.json"))
    put(folder / "agent" / "helper.json", document(USER, DONE, trajectory_id="helper"))
    main, helper = episodes(folder)
    assert (main.episode_id, helper.episode_id) == ("id-t", "id-t/helper")
    assert helper.origin["parent_episode_id"] == "id-t"
    assert helper.task == "fix-bug"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"trajectory.json": document(USER, DONE, continued_trajectory_ref="trajectory.json")},
            "trajectories that continue each other in a circle 'trajectory.json'",
        ),
        (
            {"trajectory.json": referring("b.json"), "b.json": referring("trajectory.json")},
            "sub-agents that call each other in a circle trajectory.json → b.json → trajectory.json",
        ),
        ({"trajectory.json": referring("b.json")}, "a missing trajectory 'b.json'"),
        ({"trajectory.json": referring("../../../secret.json")}, "a path that leads out of its folder"),
        ({"trajectory.json": "{"}, "t: trajectory.json: cut off: the file ends in the middle of it"),
        ({"trajectory.json": "{]"}, "t: trajectory.json: not JSON"),
    ],
)
def test_files_that_refer_to_each_other_wrongly_are_named(files, words, tmp_path):
    folder = trial(tmp_path / "t")
    for name, value in files.items():
        put(folder / "agent" / name, value)
    assert words in problem(folder)


def problem(folder: Path, name: str = "harbor") -> str:
    """What is wrong with the only trial in a folder, with its place."""
    (only,) = trials(folder, name, include_errored=False)
    return f"{only.place}: {only.problem}"


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    put(tmp_path / "secret.json", document(USER, DONE))
    folder = trial(tmp_path / "t", referring("b.json"))
    (folder / "agent" / "b.json").symlink_to(tmp_path / "secret.json")
    assert "a path that leads out of its folder 'b.json'" in problem(folder)


@pytest.mark.parametrize("reward", ["high", True, [1]])
def test_a_reward_that_is_no_number_is_named(reward, tmp_path):
    folder = trial(tmp_path / "t", document(USER, DONE), verifier_result={"rewards": {"reward": reward}})
    assert "verifier_result.rewards.reward: a reward that is not a number" in problem(folder)


@pytest.mark.parametrize("text", ["often", "nan", "inf", ""])
def test_a_reward_in_a_file_that_is_no_number_is_named(text, tmp_path):
    folder = trial(tmp_path / "t", document(USER, DONE), verifier_result=None)
    put(folder / "verifier" / "reward.txt", text)
    assert "verifier/reward.txt: a reward that is not a number" in problem(folder)


# --- BenchFlow ----------------------------------------------------------------------------------------------

EVENTS = [
    {"type": "user_message", "text": "fix it"},
    {"type": "agent_thought", "text": "hm"},
    {
        "type": "tool_call",
        "tool_call_id": "t1",
        "kind": "execute",
        "title": "ls",
        "content": [{"text": "a.py"}],
    },
    {"type": "agent_message", "text": "Done."},
]
TOOL = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}
ASKED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}],
}


def exchange(messages: list[Any], answer: Any, status: int = 200) -> dict[str, Any]:
    said = {
        "model": "m",
        "choices": [{"message": answer, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    return {
        "request": {"timestamp": "2026-11-21T12:00:00", "body": {"messages": messages, "tools": [TOOL]}},
        "response": {"status_code": status, "body": said},
        "duration_ms": 1500.0,
    }


def rollout(folder: Path, **fields: Any) -> Path:
    """A rollout as BenchFlow leaves one."""
    put(
        folder / "result.json",
        {
            "task_name": "fix-bug",
            "rollout_name": folder.name,
            "rewards": {
                "reward": 1.0,
                "metrics": {"speed": 0.5},
                "rubric": [{"name": "style", "score": 0.25}, {"score": 1}],
                "details": {"x": "y"},
            },
            "agent": "claude-code",
            "agent_name": "claude-agent-acp",
            "model": "haiku",
            "n_tool_calls": 1,
            "error": None,
            "verifier_error": None,
            "partial_trajectory": False,
            "started_at": "2026-11-21 12:00:00.5",
            "finished_at": "2026-11-21 12:01:00.5",
            **fields,
        },
    )
    put_lines(folder / "trajectory" / "acp_trajectory.jsonl", *EVENTS)
    return folder


def test_a_rollout_is_recognised_and_all_its_rewards_are_metrics(tmp_path):
    rollout(tmp_path / "jobs" / "1" / "fix-bug__x")
    imported, _ = import_files(tmp_path / "jobs", tmp_path / "store", Wish())
    assert imported.format == "benchflow"
    (episode,) = open_dataset(tmp_path / "store")
    assert episode.metrics == {"reward": 1.0, "speed": 0.5, "style": 0.25, "rubric_1": 1.0}
    assert (episode.episode_id, str(episode.outcome)) == ("fix-bug__x", "success")
    assert [step.model_name for step in episode.steps] == ["haiku", "haiku"]
    assert episode.steps[0].action == [{"name": "execute", "arguments": {}}]
    assert episode.steps[1].messages[0].content[0].result == "a.py"
    assert episode.origin["benchflow"]["trace"] == "acp_trajectory.jsonl"


def test_the_calls_of_the_model_say_more_than_atif_and_atif_more_than_the_events(tmp_path):
    folder = rollout(tmp_path / "fix-bug__x")
    put(folder / "trainer" / "atif.json", document(USER, ASKS, DONE))
    (episode,) = episodes(folder, "benchflow")
    assert episode.origin["benchflow"]["trace"] == "trainer/atif.json"
    user = {"role": "user", "content": "fix it"}
    seen = {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
    put_lines(
        folder / "trajectory" / "llm_trajectory.jsonl",
        exchange([user], ASKED),
        exchange([user], {"role": "assistant", "content": "?"}, status=500),
        exchange([user, ASKED, seen], {"role": "assistant", "content": "Done."}),
    )
    (episode,) = episodes(folder, "benchflow")
    assert episode.origin["benchflow"]["trace"] == "llm_trajectory.jsonl"
    assert [step.n_prompt_kept for step in episode.steps] == [0, 2]
    assert episode.steps[0].tools == ({"name": "run", "parameters": {"type": "object"}},)
    assert (episode.steps[1].n_input_tokens, episode.steps[1].latency_s) == (5, 1.5)


def test_rollouts_that_failed_or_are_in_part_are_set_aside(tmp_path):
    rollout(tmp_path / "job" / "good")
    rollout(tmp_path / "job" / "a", error="boom", error_category="provider_auth")
    rollout(tmp_path / "job" / "b", verifier_error="boom")
    rollout(tmp_path / "job" / "c", partial_trajectory=True)
    imported, _ = import_files(tmp_path / "job", tmp_path / "store", Wish())
    assert imported.left == {
        "ended in an error: partial trajectory": 1,
        "ended in an error: provider_auth": 1,
        "ended in an error: verifier error": 1,
    }


def test_a_trace_that_cannot_be_read_is_named_with_its_line(tmp_path):
    folder = rollout(tmp_path / "x")
    put(folder / "trajectory" / "acp_trajectory.jsonl", '{"type": "user_message", "text": "a"}\n{"type"')
    assert "acp_trajectory.jsonl:2: cut off: the file ends in the middle of it" in problem(
        folder, "benchflow"
    )
