"""ATIF as Harbor writes it, read; and what trajkit writes, as those see it who know nothing of trajkit."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.formats.exchange import NOON, call, conversation, result, say, whole
from trajkit.formats.atif import ATIF
from trajkit.formats.reading.atif import VERSIONS, read_atif
from trajkit.formats.reading.document import BadDocument
from trajkit.schema import Episode, FileBlock, Role, TextBlock, ThoughtBlock, ToolResultBlock, Transition

SEARCH = {
    "type": "function",
    "function": {"name": "search", "description": "", "parameters": {"type": "object"}},
}


def document(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A document with these steps, numbered."""
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, 1)]
    agent = {"name": "claude-code", "version": "2.1", "model_name": "opus", "tool_definitions": [SEARCH]}
    return {"schema_version": VERSIONS[-1], "session_id": "s1", "agent": agent, "steps": numbered, **fields}


USER = {"source": "user", "message": "fix it"}
ASKS = {
    "source": "agent",
    "message": "I search.",
    "reasoning_content": "hm",
    "timestamp": "2026-11-21T12:00:00Z",
    "tool_calls": [{"tool_call_id": "c1", "function_name": "search", "arguments": {"q": "bug", "n": 1}}],
    "observation": {"results": [{"source_call_id": "c1", "content": "line 7"}]},
    "metrics": {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "cached_tokens": 3,
        "cost_usd": 0.01,
        "logprobs": [-0.5],
    },
}
DONE = {"source": "agent", "message": "Done.", "timestamp": "2026-11-21T14:00:05+02:00"}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_step_of_the_agent_is_a_step_with_what_came_before_as_its_prompt(version):
    (episode,) = read_atif(document(USER, ASKS, DONE, schema_version=version)).episodes
    first, second = episode.steps
    assert [message.role for message in episode.prompt(1)] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert first.completion.content[:2] == (ThoughtBlock(text="hm"), TextBlock(text="I search."))
    assert second.messages == (say("tool", result("c1", "line 7", name="search")),)
    assert second.n_prompt_kept == 2
    assert (first.observation, second.observation) == ("fix it", "line 7")
    assert first.action == [{"name": "search", "arguments": {"q": "bug", "n": 1}}]
    assert (first.n_input_tokens, first.n_output_tokens, first.cost_usd, first.logprobs) == (
        10,
        4,
        0.01,
        (-0.5,),
    )
    assert [step.model_name for step in episode.steps] == ["opus", "opus"]
    assert first.started_at == NOON
    assert (episode.started_at, episode.ended_at) == (NOON, second.started_at)
    assert first.tools == (SEARCH["function"],)
    assert episode.tags == {"agent": "claude-code", "agent_version": "2.1"}


def test_what_has_no_field_stays_in_extra_and_origin():
    step = {**ASKS, "reasoning_effort": "high", "extra": {"theirs": 1}}
    value = document(USER, step, notes="n", final_metrics={"total_steps": 2}, extra={"job": "j"})
    (episode,) = read_atif(value).episodes
    assert episode.steps[0].extra == {
        "atif": {"reasoning_effort": "high", "extra": {"theirs": 1}, "metrics": {"cached_tokens": 3}}
    }
    assert episode.origin == {
        "atif": {
            "session_id": "s1",
            "notes": "n",
            "final_metrics": {"total_steps": 2},
            "extra": {"job": "j"},
        }
    }


def test_copied_context_is_a_prompt_and_no_answer():
    copied = {**DONE, "is_copied_context": True, "message": "As I said."}
    (episode,) = read_atif(document(USER, copied, USER, DONE)).episodes
    assert len(episode.steps) == 1
    assert [message.role for message in episode.prompt(0)] == ["user", "assistant", "user"]


def test_a_step_for_which_no_model_was_asked_is_not_learned():
    (episode,) = read_atif(document(USER, {**DONE, "llm_call_count": 0})).episodes
    assert (episode.steps[0].loss_weight, episode.steps[0].mask_reason) == (0, "no model was asked")


def test_images_and_sounds_are_files_by_their_paths():
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}},
        {
            "type": "audio",
            "source": {"media_type": "audio/wav", "path": "https://host/a.wav", "duration_sec": 2},
        },
    ]
    (episode,) = read_atif(document({"source": "user", "message": parts}, DONE)).episodes
    assert episode.steps[0].messages[0].content == (
        TextBlock(text="see"),
        FileBlock(source_url="images/a.png", mime_type="image/png"),
        FileBlock(source_url="https://host/a.wav", mime_type="audio/wav", storage_path={"duration_sec": 2}),
    )


def test_what_the_environment_says_without_a_call_is_said_to_the_agent():
    step = {**DONE, "observation": {"results": [{"content": "the screen is dark"}]}}
    (episode,) = read_atif(document(USER, step, DONE)).episodes
    assert episode.steps[1].messages == (say("user", "the screen is dark"),)


def test_what_was_seen_after_the_last_answer_is_kept():
    (episode,) = read_atif(document(USER, ASKS)).episodes
    assert episode.steps[-1].info == {"after": "line 7"}


def test_embedded_sub_agents_are_episodes_of_their_own():
    sub = document(USER, DONE, trajectory_id="helper")
    reference = {"trajectory_id": "helper"}
    asks = copy.deepcopy(ASKS)
    asks["observation"]["results"][0]["subagent_trajectory_ref"] = [reference]
    reading = read_atif(document(USER, asks, trajectory_id="main", subagent_trajectories=[sub]))
    main, helper = reading.episodes
    assert (main.episode_id, helper.episode_id) == ("main", "main/helper")
    assert helper.origin["parent_episode_id"] == "main"
    assert helper.steps[0].agent_name == "claude-code"
    assert main.steps[0].extra["atif"]["results"] == [
        {"source_call_id": "c1", "subagent_trajectory_ref": [reference]}
    ]


def calling(name: str, *others: str) -> dict[str, Any]:
    step = copy.deepcopy(ASKS)
    refs = [{"trajectory_id": other} for other in others]
    step["observation"]["results"][0]["subagent_trajectory_ref"] = refs
    return document(USER, step, trajectory_id=name)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            document(USER, DONE, schema_version="ATIF-v2.0"),
            r"schema_version: not a known version .* 'ATIF-v2.0'",
        ),
        (document(), "steps: no steps"),
        (document(USER, {**DONE, "step_id": 9}), "steps.1.step_id: not 2 9"),
        (document({"source": "robot", "message": ""}), "steps.0.source: not a source 'robot'"),
        (document({**USER, "tool_calls": []}), "steps.0: tool_calls in a step of the user"),
        (document({"source": "user"}), "steps.0.message: no message"),
        (document(USER, {**DONE, "timestamp": "noon"}), "steps.1.timestamp: not an ISO 8601 time 'noon'"),
        (
            document(USER, {**DONE, "timestamp": "0001-01-01T00:00:00+14:00"}),
            "steps.1.timestamp: not an ISO 8601 time '0001-01-01",
        ),
        (
            document(USER, {**ASKS, "tool_calls": ASKS["tool_calls"] * 2}),
            "steps.1.tool_calls.1.tool_call_id: a tool call id that is there twice 'c1'",
        ),
        (
            document(USER, {**DONE, "observation": ASKS["observation"]}),
            "steps.1.observation.results.0.source_call_id: a tool result without its call 'c1'",
        ),
        (
            document(
                {"source": "user", "message": [{"type": "image", "source": {"path": "../../etc/passwd"}}]}
            ),
            "steps.0.message.0.source.path: a path that leads out of its folder '../../etc/passwd'",
        ),
        (
            document(
                {"source": "user", "message": [{"type": "image", "source": {"path": "C:\\secret.png"}}]}
            ),
            "a path that leads out of its folder",
        ),
        (
            {
                **calling("a", "b"),
                "subagent_trajectories": [calling("b", "c"), calling("c", "b")],
            },
            "sub-agents that call each other in a circle b → c → b",
        ),
        (
            {**calling("a"), "subagent_trajectories": [calling("b"), calling("b")]},
            "a trajectory id that is there twice 'b'",
        ),
        (document(USER, {**DONE, "metrics": {"cost_usd": "much"}}), "steps.0.cost_usd"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_is_no_trajectory_is_named_with_its_place(wrong, words):
    with pytest.raises(BadDocument, match=words):
        read_atif(wrong)


# --- writing ------------------------------------------------------------------------------------------------


def written(episode: Episode) -> dict[str, Any]:
    (value,) = ATIF.write(episode).values
    return value


def test_what_atif_can_say_is_said_in_its_own_fields():
    value = written(whole())
    assert (value["schema_version"], value["trajectory_id"]) == ("ATIF-v1.8", "e1")
    system, user, asked, answered = value["steps"]
    assert (system["source"], user["message"]) == ("system", "where is the key?")
    assert asked["tool_calls"] == [
        {"tool_call_id": "c1", "function_name": "look", "arguments": {"far": True}}
    ]
    assert asked["observation"] == {"results": [{"source_call_id": "c1", "content": "a key"}]}
    assert asked["metrics"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "cost_usd": 0.001,
        "prompt_token_ids": [1, 2],
        "completion_token_ids": [3],
        "logprobs": [-0.5],
    }
    assert (answered["message"], answered["model_name"]) == ("It is here.", "small")
    assert answered["timestamp"] == "2026-11-21T12:00:01Z"
    assert value["final_metrics"]["total_prompt_tokens"] == 14
    assert [tool["function"]["name"] for tool in value["agent"]["tool_definitions"]] == ["look", "go"]


def test_the_profile_has_what_atif_cannot_say_and_nothing_else():
    value = written(whole())
    profile = value["extra"]["trajkit"]
    assert (profile["seed"], profile["outcome"], profile["metrics"]) == (7, "success", {"success": 1.0})
    of_step = value["steps"][2]["extra"]["trajkit"]
    assert (of_step["reward"], of_step["action"], of_step["loss_weight"]) == (0.5, {"go": "left"}, 0.0)
    assert (
        not {"messages", "completion", "tools", "n_input_tokens", "model_name", "started_at"} & of_step.keys()
    )
    assert "steps" not in profile
    plain = written(conversation())
    assert [step.get("extra") for step in plain["steps"]] == [None] * 4
    assert plain["extra"] == {"trajkit": {"version": 1, "source": "test", "tags": {}, "origin": None}}


def test_arguments_keep_the_spelling_of_the_model():
    for arguments in ('{"a": 1}', '{"a":1.0}', "not json", '{"a":1,"a":2}', "[1]", '{"a": "\\ud800"}', ""):
        answer = say("assistant", call("c1", arguments=arguments))
        steps = (Transition(step_index=0, messages=(say("user", "x"),), completion=answer),)
        episode = Episode(episode_id="e", source="test", steps=steps)
        value = json.loads(json.dumps(written(episode)))
        assert isinstance(value["steps"][1]["tool_calls"][0]["arguments"], dict)
        assert ATIF.read([value]) == episode


def test_prompts_that_are_written_anew_stay_apart():
    steps = tuple(
        Transition(
            step_index=i,
            messages=(say("system", "rules"), say("user", f"turn {i}")),
            completion=say("assistant", "go"),
            observation=f"turn {i}",
        )
        for i in range(2)
    )
    episode = Episode(episode_id="e", source="test", steps=steps)
    value = written(episode)
    assert [step["source"] for step in value["steps"]] == ["system", "user", "agent"] * 2
    assert value["steps"][5]["extra"] == {"trajkit": {"n_prompt_kept": 0}}
    assert ATIF.read([value]) == episode


def test_a_path_out_of_the_folder_is_never_written_as_one():
    step = Transition(
        step_index=0,
        messages=(say("user", {"type": "file", "source_url": "../x.png", "mime_type": "image/png"}),),
        completion=say("assistant", "ok"),
    )
    episode = Episode(episode_id="e", source="test", steps=(step,))
    value = written(episode)
    assert value["steps"][0]["message"] == ""
    assert ATIF.read([value]) == episode


def test_an_episode_without_steps_is_a_document_all_the_same():
    episode = Episode(episode_id="e", source="test", seed=3)
    assert written(episode)["steps"] == [
        {"step_id": 1, "source": "system", "message": "no steps were recorded"}
    ]
    assert ATIF.read([written(episode)]) == episode


def test_results_among_what_the_user_says_come_back_as_they_were():
    steps = (
        Transition(step_index=0, messages=(say("user", "x"),), completion=say("assistant", call("c1"))),
        Transition(
            step_index=1,
            n_prompt_kept=2,
            messages=(say("user", result("c1", "a door"), "and now?"),),
            completion=say("assistant", "go"),
        ),
    )
    episode = Episode(episode_id="e", source="test", steps=steps)
    assert isinstance(ATIF.read([written(episode)]).steps[1].messages[0].content[0], ToolResultBlock)
    assert ATIF.read([written(episode)]) == episode
