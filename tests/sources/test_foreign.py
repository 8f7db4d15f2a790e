"""Files that other projects wrote, mostly for their own tests, are read as a person would expect.

`tests/data/sources/foreign/README.md` says whose they are.
"""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from tests.sources.reading import written
from trajkit.errors import RequestError
from trajkit.schema import Episode, Message, TextBlock, ToolCallBlock, ToolResultBlock
from trajkit.sources.catalog import source_named
from trajkit.sources.exchange import exchange_of
from trajkit.sources.files.found import Found
from trajkit.sources.wish import Wish

DATA = Path(__file__).parents[1] / "data" / "sources" / "foreign"


def found(source: str, path: Path) -> list[Found]:
    return [one for one in source_named(source).read(str(path), Wish()) if isinstance(one, Found)]


def episodes(source: str, path: Path) -> list[Episode]:
    all_found = found(source, path)
    assert [one.problem for one in all_found if one.problem] == []
    return [episode for one in all_found if one.reading is not None for episode in one.reading.episodes]


def texts(message: Message | None) -> list[str]:
    return [one.text for one in message.content if isinstance(one, TextBlock)] if message else []


def calls(message: Message | None) -> list[str]:
    return [one.name for one in message.content if isinstance(one, ToolCallBlock)] if message else []


def results(episode: Episode) -> list[tuple[str, str]]:
    return [
        (one.name, str(one.result))
        for step in episode.steps
        for message in step.messages or ()
        for one in message.content
        if isinstance(one, ToolResultBlock)
    ]


def said(episode: Episode, step: int) -> list[str]:
    return [text for message in episode.prompt(step) or () for text in texts(message)]


def test_claude_code_goes_on_after_a_summary_with_the_messages_that_it_kept() -> None:
    main, first, second = episodes(
        "claude-code", DATA / "claude_code" / "dag_compact_after_rewind_preserved.jsonl"
    )
    assert [texts(step.completion) for step in main.steps] == [["Kept going"], ["Final answer"]]
    assert said(main, 1)[1:] == ["Second answer", "Keep going", "Kept going", "After compaction"]
    assert [texts(step.completion) for step in first.steps] == [["Ready"], ["First answer"]]
    assert said(second, 0) == ["Start", "Ready", "Second attempt"]


def test_the_result_of_a_sub_agent_stays_with_the_agent_that_asked() -> None:
    main, agent = episodes("claude-code", DATA / "claude_code" / "sidechain_integrated.jsonl")
    assert [calls(step.completion) for step in main.steps] == [["Task"], []]
    assert results(main) == [("Task", "Perfect! Now I have a complete understanding. Let ...")]
    assert [calls(step.completion) for step in agent.steps] == [["Grep"]]
    assert main.steps[1].n_input_tokens == 3 + 2952 + 141272


def test_codex_has_its_three_kinds_of_tools() -> None:
    (episode,) = episodes("codex", next((DATA / "codex").glob("rollout-2026*")))
    assert [calls(step.completion) for step in episode.steps] == [
        ["exec_command"],
        ["apply_patch"],
        ["mcp__synthetic__lookup"],
        [],
    ]
    assert results(episode)[0] == ("exec_command", "./alpha.txt\n./beta.txt")
    assert {step.model_name for step in episode.steps} == {"synthetic-model"}


def test_codex_is_read_from_before_its_lines_had_a_payload() -> None:
    path = next((DATA / "codex").glob("rollout-4*"))
    (episode,) = episodes("codex", path)
    assert episode.episode_id == "44444444-4444-4444-8444-444444444444"
    assert said(episode, 0) == ["Open the synthetic legacy session."]
    assert texts(episode.steps[0].completion) == ["The synthetic legacy session is open."]


def test_an_old_session_of_codex_is_recognised_with_its_tools(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {
            "id": "legacy",
            "timestamp": "2025-08-26T00:00:00Z",
            "instructions": None,
            "git": {"branch": "main"},
        },
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "question"}]},
        {"type": "function_call", "call_id": "call-1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call-1", "output": "contents"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "answer"}]},
    ]
    path = written(tmp_path / "rollout-2025-08-26T00-00-00-legacy.jsonl", lines)
    assert source_named("codex").recognises(str(path))
    (episode,) = episodes("codex", path)
    assert [calls(step.completion) for step in episode.steps] == [["read"], []]
    assert results(episode) == [("read", "contents")]
    assert (episode.origin or {})["git_branch"] == "main"


def test_pi_is_read_from_before_its_entries_had_ids() -> None:
    (episode,) = episodes("pi", DATA / "pi" / "before-compaction.jsonl")
    (step,) = episode.steps
    assert calls(step.completion) == ["read", "read"]
    assert (step.n_input_tokens, step.n_output_tokens, step.cost_usd) == (2775, 141, 0.017400000000000002)


def test_langsmith_has_what_the_client_posted_and_patched(tmp_path: Path) -> None:
    sent = json.loads((DATA / "langsmith" / "langsmith_py_wrap_openai_.json").read_text())
    runs: dict[str, dict[str, Any]] = {}
    for one in [*sent["post"], *sent["patch"]]:
        runs[one["id"]] = {**runs.get(one["id"], {}), **{k: v for k, v in one.items() if v is not None}}
    path = written(tmp_path / "runs.jsonl", runs.values())
    (episode,) = episodes("langsmith", path)
    (step,) = episode.steps
    answered = tmp_path / "runs.json"
    answered.write_text(json.dumps({"runs": list(runs.values()), "cursors": {}}))
    assert episodes("langsmith", answered) == [episode]
    assert (said(episode, 0), texts(step.completion)) == (["howdy"], ["Howdy! How can I assist you today?"])
    assert (step.n_input_tokens, step.n_output_tokens) == (9, 9)


def test_a_downloaded_trace_of_langfuse_has_messages_of_parts_and_scores() -> None:
    (episode,) = episodes("langfuse", DATA / "langfuse" / "microsoft-agent-2025-10-14.json")
    assert [calls(step.completion) for step in episode.steps] == [["get_weather"], []]
    assert results(episode) == [("get_weather", "The weather in Portland is stormy with a high of 19°C.")]
    assert said(episode, 0) == ["What's the weather like in Portland?"]
    assert [step.cost_usd for step in episode.steps] == [0.000762499999, 0.0019275]
    assert episode.metrics == {"toxicity": 0}


def test_tools_that_langfuse_s_client_puts_behind_the_messages_are_tools() -> None:
    (episode,) = episodes("langfuse", DATA / "langfuse" / "google-vertex-tools-2025-09-19.json")
    (step,) = episode.steps
    assert [tool["name"] for tool in step.tools or ()] == ["transition_to_service_a", "get_customer_info"]
    assert said(episode, 0)[-1] == "John Smith"
    assert texts(step.completion) == ["Thank you, John Smith. Which of our services are you interested in?"]


def test_mini_swe_agent_s_messages_are_a_trajectory_by_themselves() -> None:
    (episode,) = episodes("swe-agent", DATA / "mini_swe_agent" / "local.traj.json")
    assert len(episode.steps) == 2
    assert said(episode, 1)[-1] == "<returncode>0</returncode>\n<output>\nhello world\n</output>"


def test_a_spend_log_of_litellm_may_be_one_json_object() -> None:
    (episode,) = episodes("litellm", DATA / "litellm" / "spend_logs_payload.json")
    (step,) = episode.steps
    assert (episode.episode_id, step.model_name) == ("1234567890", "gpt-4o")
    assert (step.n_input_tokens, step.n_output_tokens) == (10, 20)
    assert step.messages is None


def test_an_early_row_of_verifiers_has_its_metrics() -> None:
    (episode,) = episodes("verifiers", DATA / "verifiers" / "results.jsonl")
    assert [calls(step.completion) for step in episode.steps] == [["call_python_repl"], []]
    assert episode.metrics["reward"] == episode.metrics["correct_answer_rlm"] == 1.0
    assert "generation_ms" not in episode.metrics


def test_a_row_of_verifiers_without_an_answer_is_set_aside(tmp_path: Path) -> None:
    row = {
        "id": 0,
        "prompt": [{"role": "user", "content": "?"}],
        "completion": [],
        "task": "default",
        "reward": 0.0,
    }
    path = written(tmp_path / "results.jsonl", [row])
    assert [one.aside for one in found("verifiers", path)] == ["no model call"]


def test_spans_without_a_model_are_set_aside() -> None:
    (one,) = found("otel", DATA / "otel" / "trace.json")
    assert (one.reading, one.problem, one.aside) == (None, None, "no model call")


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "chat", "gen_ai.input.messages": "hi", "gen_ai.output.messages": "ok"},
        {
            "openinference.span.kind": "LLM",
            "llm.input_messages": json.dumps([{"message": {"role": "user", "content": "hi"}}]),
            "llm.output_messages": json.dumps([{"message.role": "assistant", "message.content": "ok"}]),
        },
    ],
    ids=["plain texts", "JSON in one attribute"],
)
def test_a_span_may_have_its_messages_in_one_text(tmp_path: Path, attributes: dict[str, str]) -> None:
    values = [{"key": name, "value": {"stringValue": text}} for name, text in attributes.items()]
    span = {"traceId": "a" * 32, "spanId": "b" * 16, "name": "chat", "attributes": values}
    path = tmp_path / "spans.json"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    (episode,) = episodes("otel", path)
    assert (said(episode, 0), texts(episode.steps[0].completion)) == (["hi"], ["ok"])


def test_a_generation_of_the_agents_sdk_may_have_texts(tmp_path: Path) -> None:
    data = {"type": "generation", "input": "hi", "output": "hello", "model": "m"}
    span = {
        "object": "trace.span",
        "id": "span_1",
        "trace_id": "trace_1",
        "parent_id": None,
        "span_data": data,
    }
    path = written(tmp_path / "spans.jsonl", [span])
    (episode,) = episodes("openai-agents", path)
    assert (said(episode, 0), texts(episode.steps[0].completion)) == (["hi"], ["hello"])


def test_an_answer_of_the_responses_api_says_the_instructions_and_tools() -> None:
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]}
    told = exchange_of(
        [{"role": "user", "content": "And in Tokyo?"}],
        {"object": "response", "instructions": "Be brief.", "tools": [tool], "output": [answer]},
    )
    assert [texts(one) for one in told.prompt or ()] == [["Be brief."], ["And in Tokyo?"]]
    assert [one["name"] for one in told.tools or ()] == ["get_weather"]


def test_an_answer_of_google_s_agents_is_a_content_by_itself() -> None:
    told = exchange_of(
        {"model": "gemini-2.0-flash", "contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
        {"content": {"parts": [{"text": "Hello"}], "role": "model"}, "finish_reason": "STOP"},
    )
    assert (texts(told.answer), told.finish_reason) == (["Hello"], "stop")


ODD: tuple[Any, ...] = (None, 0, -1, 1e300, True, "", "x", "[", [], {}, [None], ["a"], [[]], {"a": 1}, 10**30)
"""Values that no field expects."""
FILES = {
    "claude-code": "claude_code/sidechain_integrated.jsonl",
    "codex": "codex/rollout-2026-01-02T03-04-05-11111111-1111-4111-8111-111111111111.jsonl",
    "pi": "pi/before-compaction.jsonl",
    "langfuse": "langfuse/microsoft-agent-2025-10-14.json",
    "swe-agent": "mini_swe_agent/local.traj.json",
    "litellm": "litellm/spend_logs_payload.json",
    "verifiers": "verifiers/results.jsonl",
    "otel": "otel/trace.json",
    "openai-agents": "../openai_agents/agents.jsonl",
}


def places_in(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [each for name, one in inner for each in places_in(one, (*place, name))]
    return [place, *below] if place else below


@pytest.mark.parametrize("source", daily(FILES, 4))
def test_a_value_of_another_type_is_a_problem_and_no_crash(tmp_path: Path, source: str) -> None:
    path = DATA / FILES[source]
    is_lines = path.suffix == ".jsonl"
    text = path.read_text()
    document = [json.loads(line) for line in text.splitlines()] if is_lines else json.loads(text)
    places = places_in(document)
    chosen = random.Random(0)
    for _ in range(60):
        changed = copy.deepcopy(document)
        *above, last = chosen.choice(places)
        inner = changed
        for name in above:
            inner = inner[name]
        inner[last] = chosen.choice(ODD)
        spoilt = "".join(json.dumps(one) + "\n" for one in changed) if is_lines else json.dumps(changed)
        odd = tmp_path / path.name
        odd.write_text(spoilt)
        try:
            found(source, odd)
        except RequestError:  # nothing is left of what it was
            assert source == "langfuse"
