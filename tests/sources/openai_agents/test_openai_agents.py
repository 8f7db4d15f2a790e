"""The source `openai-agents`: what the real SDK exported comes back as it was played."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.sources import foreign, thirty
from tests.sources.openai_agents import record
from tests.sources.reading import Reader, answer, written
from trajkit.formats.reading.document import Reading
from trajkit.schema import FileBlock, ThoughtBlock, ToolResultBlock
from trajkit.sources.calls import NO_PROMPT, NO_SESSION
from trajkit.sources.catalog import recognised
from trajkit.sources.openai_agents.connect import SOURCE
from trajkit.testing.source import SourceContract

READ = Reader(SOURCE)

AGENTS = record.DATA / "agents.jsonl"


class TestOpenAIAgents(SourceContract):
    source = SOURCE
    place = str(AGENTS)
    n_episodes = 4
    n_steps = 6


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in AGENTS.read_text(encoding="utf-8").splitlines()]


def test_thirty_episodes_of_the_real_sdk_come_back_the_same(tmp_path: Path) -> None:
    found = READ.episodes(foreign.unpacked(record.DATA / "thirty.jsonl.gz", tmp_path / "thirty.jsonl"))
    thirty.assert_same(found.values(), thirty.expected(), has_tools=False, has_metric=False)
    first = found["babyai-000"]
    assert first.tags == {"player": "expert"}
    assert first.steps[0].n_input_tokens == 100
    assert first.steps[0].agent_name == "player"
    assert first.steps[0].extra is not None
    assert first.steps[0].extra["settings"]["temperature"] == 0.0


@pytest.mark.full
def test_thirty_episodes_recorded_anew_come_back_the_same(tmp_path: Path) -> None:
    played = record.record(tmp_path, tmp_path / "out")
    found = READ.episodes(foreign.unpacked(tmp_path / "out" / "thirty.jsonl.gz", tmp_path / "thirty.jsonl"))
    thirty.assert_same(found.values(), played, has_tools=False, has_metric=False)


def test_agents_as_tools_and_handoffs_are_linked_episodes() -> None:
    found = READ.episodes(AGENTS)
    root = found["chat-1"]
    subs = {one.steps[0].agent_name: one for name, one in found.items() if name.startswith("chat-1/")}
    assert set(subs) == {"searcher", "closer"}
    assert {(one.origin or {})["parent_episode_id"] for one in subs.values()} == {"chat-1"}
    assert [step.agent_name for step in root.steps] == ["root"] * 3
    assert subs["searcher"].steps[0].completion is not None
    assert subs["searcher"].steps[0].completion.text == "It is in the attic."
    prompt = subs["closer"].prompt(0)
    assert prompt is not None
    results = [one for message in prompt for one in message.content if isinstance(one, ToolResultBlock)]
    assert results[0].result == "It is in the attic."


def test_response_spans_keep_thoughts_images_tools_and_settings() -> None:
    root = READ.episodes(AGENTS)["chat-1"]
    first = root.steps[0]
    assert first.messages is not None
    assert [str(message.role) for message in first.messages] == ["system", "user"]
    assert any(isinstance(one, FileBlock) for one in first.messages[1].content)
    (thought,) = [one for one in answer(first).content if isinstance(one, ThoughtBlock)]
    assert thought.summary == ({"type": "summary_text", "text": "I ask the searcher."},)
    assert [tool["name"] for tool in first.tools or ()] == ["ask_searcher"]
    assert (first.model_name, first.n_input_tokens, first.n_output_tokens) == ("scripted-2026", 40, 5)
    assert root.steps[1].n_prompt_kept == 3
    assert root.tags == {"user": "u-7"}


def test_a_failed_call_keeps_its_error_and_a_trace_without_a_group_is_alone() -> None:
    found = READ.found(AGENTS)
    grouped, alone = found
    assert NO_SESSION in alone.missing
    assert NO_SESSION not in grouped.missing
    assert isinstance(grouped.reading, Reading)
    failed = grouped.reading.episodes[0].steps[2]
    assert failed.completion is None
    assert failed.extra is not None
    assert "out of order" in failed.extra["error"]
    assert NO_PROMPT in grouped.missing  # the SDK notes neither prompt nor answer of a call that fails


def test_lines_in_any_order_and_in_batches_are_the_same_episodes(tmp_path: Path) -> None:
    items = rows()
    random.Random(3).shuffle(items)
    batches = [{"data": items[at : at + 4]} for at in range(0, len(items), 4)]
    again = READ.episodes(written(tmp_path / "batches.jsonl", batches))
    for name, one in READ.episodes(AGENTS).items():
        assert again[name].steps == one.steps


def test_a_bad_line_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    bad = [{"object": "session", "id": "x"}, {"object": "trace.span", "id": "y"}, [1]]
    found = READ.found(written(tmp_path / "bad.jsonl", [*bad, *rows()]))
    wrong = [(one.place, one.problem.kind) for one in found if one.problem is not None]
    assert wrong == [
        ("bad.jsonl:1", "neither a trace nor a span"),
        ("bad.jsonl:2", "not the id of a trace"),
        ("bad.jsonl:3", "not an object"),
    ]
    assert sum(one.reading is not None for one in found) == 2


def test_a_time_that_is_none_is_the_problem_of_its_session(tmp_path: Path) -> None:
    items = [row | ({"started_at": "soon"} if row["object"] == "trace.span" else {}) for row in rows()]
    path = written(tmp_path / "times.jsonl", items)
    assert {one.problem.kind for one in READ.found(path) if one.problem is not None} == {"not a time"}


def test_it_is_recognised_by_its_first_line(tmp_path: Path) -> None:
    assert recognised(str(AGENTS)) == "openai-agents"
    assert recognised(str(AGENTS.parent)) == "openai-agents"
    (tmp_path / "chat.jsonl").write_text('{"messages": []}\n', encoding="utf-8")
    assert recognised(str(tmp_path)) != "openai-agents"
