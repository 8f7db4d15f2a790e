"""Sessions of LangSmith, from runs and feedback in the published formats, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sources.reading import Reader, answer
from trajkit.errors import RequestError
from trajkit.schema import FileBlock, ThoughtBlock, ToolCallBlock
from trajkit.sources.calls import NO_SESSION
from trajkit.sources.langsmith.connect import SOURCE
from trajkit.sources.wish import Wish
from trajkit.testing import SourceContract

READ = Reader(SOURCE)

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": [{"type": "text", "text": "Look."}]}
USER["content"] += [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]  # type: ignore[operator]


def run(number: int, kind: str, trace: int, parent: int | None, **fields: Any) -> dict[str, Any]:
    """A run as `Client.list_runs` gives it."""
    own, around = f"r{number}", "" if parent is None else f"20261101T100000000000Zr{parent}."
    metadata = fields.pop("metadata", {})
    return {
        "id": own,
        "name": fields.pop("name", kind),
        "run_type": kind,
        "trace_id": f"r{trace}",
        "parent_run_id": None if parent is None else f"r{parent}",
        "dotted_order": f"{around}20261101T1000{number:02d}000000Z{own}",
        "start_time": f"2026-11-01T10:00:{number:02d}.000000",
        "end_time": f"2026-11-01T10:00:{number:02d}.500000",
        "session_id": "project-1",
        "status": "error" if "error" in fields else "success",
        "extra": {"metadata": metadata, **fields.pop("extra", {})},
        "tags": ["beta"],
        **fields,
    }


def langchain(kind: str, content: Any, **kwargs: Any) -> dict[str, Any]:
    """A message as LangChain serializes it."""
    name = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}[kind]
    inner = {"content": content, "type": kind, **kwargs}
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", name], "kwargs": inner}


THREAD = {"thread_id": "thread-1", "user_id": "ada", "customer": "acme"}
CALLS = [{"name": "weather", "args": {"city": "Paris"}, "id": "c1", "type": "tool_call"}]
ANSWER = langchain("ai", "I look.", tool_calls=CALLS)
RUNS = [
    run(1, "chain", 1, None, metadata={**THREAD, "lc_agent_name": "lead"}, feedback_stats={}),
    run(
        2,
        "llm",
        1,
        1,
        metadata={**THREAD, "lc_agent_name": "lead", "ls_model_name": "gpt-4o"},
        inputs={"messages": [[langchain("human", "Paris?")]]},
        outputs={
            "generations": [
                [{"text": "I look.", "message": ANSWER, "generation_info": {"finish_reason": "tool_calls"}}]
            ]
        },
        extra={"invocation_params": {"model": "gpt-4o", "temperature": 0.5, "tools": [TOOL]}},
        prompt_tokens=10,
        completion_tokens=5,
        total_cost="0.25",
    ),
    run(3, "tool", 1, 1, metadata={**THREAD, "lc_agent_name": "lead"}),
    run(4, "chain", 1, 3, metadata={**THREAD, "lc_agent_name": "searcher"}),
    run(
        5,
        "llm",
        1,
        4,
        metadata={**THREAD, "lc_agent_name": "searcher"},
        inputs={"messages": [USER], "model": "claude"},
        outputs={
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Rain."}, {"type": "text", "text": "Rain."}],
            "stop_reason": "end_turn",
        },
    ),
    run(
        6,
        "llm",
        1,
        1,
        metadata={**THREAD, "lc_agent_name": "lead"},
        inputs={
            "messages": [
                [langchain("human", "Paris?"), ANSWER, langchain("tool", "Rain.", tool_call_id="c1")]
            ]
        },
        outputs={"generations": [[{"text": "It rains.", "message": langchain("ai", "It rains.")}]]},
        feedback_stats={"quality": {"n": 2, "avg": 0.5, "values": {}, "comments": ["fair"]}},
    ),
    run(7, "llm", 7, None, metadata=THREAD, inputs={"messages": [USER]}, error="overloaded"),
    run(8, "llm", 8, None, inputs={"prompt": "Hi."}, outputs={"choices": [{"text": "Hello."}]}),
    run(9, "retriever", 9, None),
]
FEEDBACK = [
    {"id": "f1", "run_id": "r1", "key": "helpful", "score": 1, "created_at": "2026-11-01T11:00:00+00:00"},
    {
        "id": "f2",
        "run_id": "r7",
        "key": "tone",
        "score": None,
        "value": "rude",
        "comment": "It failed.",
        "created_at": "2026-11-01T11:00:00+00:00",
        "feedback_source": {"type": "app"},
    },
]


def lines(folder: Path, rows: list[dict[str, Any]], name: str = "runs.jsonl") -> Path:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def parquet(folder: Path) -> Path:
    """The bulk export: objects are JSON."""
    names = list({name: None for row in RUNS for name in row})
    columns = {
        name: [json.dumps(row[name]) if isinstance(row.get(name), dict) else row.get(name) for row in RUNS]
        for name in names
    }
    path = folder / "export_id=e" / "year=2026" / "month=11"
    path.mkdir(parents=True)
    pq.write_table(pa.table(columns), path / "data.parquet")
    return folder


class TestLangSmith(SourceContract):
    source = SOURCE
    n_episodes = 3
    n_steps = 5

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = lines(tmp_path_factory.mktemp("langsmith"), RUNS[::-1])
        type(self).place = str(lines(folder, FEEDBACK, "feedback.jsonl"))


def test_a_thread_has_its_traces_its_sub_agent_and_its_tools(tmp_path: Path) -> None:
    found = READ.episodes(lines(tmp_path, RUNS))
    assert set(found) == {"thread-1", "thread-1/r4", "r8"}
    lead, searcher = found["thread-1"], found["thread-1/r4"]
    assert [step.agent_name for step in lead.steps] == ["lead", "lead", None]
    assert [step.n_prompt_kept for step in lead.steps] == [0, 2, 0]
    assert lead.tags == {"beta": "true", "user_id": "ada"}
    assert (lead.origin or {})["metadata"] == {"customer": "acme"}
    first, last, failed = lead.steps
    (call,) = [one for one in answer(first).content if isinstance(one, ToolCallBlock)]
    assert (call.id, call.name, json.loads(call.arguments)) == ("c1", "weather", {"city": "Paris"})
    assert (first.model_name, first.cost_usd, first.n_input_tokens, first.finish_reason) == (
        "gpt-4o",
        0.25,
        10,
        "tool_calls",
    )
    assert (first.extra or {})["settings"] == {"temperature": 0.5}
    assert [tool["name"] for tool in first.tools or ()] == ["weather"]
    assert answer(last).text == "It rains."
    assert ((failed.extra or {})["error"], failed.completion) == ("overloaded", None)
    assert isinstance((searcher.steps[0].messages or ())[0].content[1], FileBlock)
    assert isinstance(answer(searcher.steps[0]).content[0], ThoughtBlock)


def test_feedback_counts_before_the_averages_of_a_run(tmp_path: Path) -> None:
    lead = READ.episodes(lines(lines(tmp_path, RUNS), FEEDBACK, "feedback.jsonl"))["thread-1"]
    assert [step.metrics for step in lead.steps] == [{}, {"quality": 0.5, "helpful": 1.0}, {}]
    said = {(one.tags["name"], one.value, one.inference_id) for one in lead.feedback if one.kind == "comment"}
    assert said == {("quality", "fair", "r6"), ("tone", "rude", "r7"), ("tone", "It failed.", "r7")}
    given = [{**FEEDBACK[0], "run_id": "r6", "key": "quality", "score": 1.0}]
    again = READ.episodes(lines(tmp_path, given, "feedback.jsonl"))["thread-1"]
    assert again.steps[1].metrics == {"quality": 1.0}


def test_the_bulk_export_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    assert READ.episodes(parquet(tmp_path / "bulk")) == READ.episodes(lines(tmp_path / "lines", RUNS))


def test_what_is_around_a_run_is_known_from_the_order(tmp_path: Path) -> None:
    rows = [{name: value for name, value in row.items() if name != "parent_run_id"} for row in RUNS]
    assert set(READ.episodes(lines(tmp_path, rows))) == {"thread-1", "thread-1/r4", "r8"}


def test_a_trace_in_no_thread_is_an_episode_and_one_without_a_model_is_not(tmp_path: Path) -> None:
    found = READ.found(lines(tmp_path, RUNS))
    assert [one.place for one in found if one.missing == (NO_SESSION,)] == ["trace r8"]
    assert [one.aside for one in found if one.aside] == ["it has no model call"]


def test_bad_rows_are_named(tmp_path: Path) -> None:
    rows = [{"a": 1}, {"id": "x"}, {**RUNS[7], "start_time": "soon"}]
    wrong = [
        (one.place, one.problem.kind) for one in READ.found(lines(tmp_path, rows)) if one.problem is not None
    ]
    assert wrong == [
        ("runs.jsonl:1", "a row without its id"),
        ("runs.jsonl:2", "neither a LangSmith run nor feedback"),
        ("trace r8", "not a time"),
    ]
    with pytest.raises(RequestError, match="read from files"):
        list(SOURCE.read("https://api.smith.langchain.com", Wish()))
