"""Every shape that TensorZero's content ever had, and what it means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sources.row_database import RowDatabase, spelled
from tests.sources.shapes import Steps, plain
from trajkit.sources.tensorzero.export.texts.raw_prompts import prompt_of

DISABLED = {"kind": {"type": "disabled"}, "path": "observability/files/x.png"}

# what is stored, and the block that it becomes
BLOCKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "text": ({"type": "text", "text": "hi"}, {"type": "text", "text": "hi"}),
    "text of 2024, under `value`": ({"type": "text", "value": "hi"}, {"type": "text", "text": "hi"}),
    "arguments of a template, under `value`": (
        {"type": "text", "value": {"b": 1, "a": [2]}},
        {"type": "unknown", "data": {"type": "text", "value": {"a": [2], "b": 1}}},
    ),
    "template": (
        {"type": "template", "name": "user", "arguments": {"x": 1}},
        {"type": "unknown", "data": {"arguments": {"x": 1}, "name": "user", "type": "template"}},
    ),
    "raw text": ({"type": "raw_text", "value": "as it is"}, {"type": "text", "text": "as it is"}),
    "a text by itself": ("hi", {"type": "text", "text": "hi"}),
    "tool call": (
        {"type": "tool_call", "id": "c", "name": "move", "arguments": '{"to": "n"}'},
        {"type": "tool_call", "id": "c", "name": "move", "arguments": '{"to": "n"}'},
    ),
    "tool call as a chat function answers it": (
        {
            "type": "tool_call",
            "id": "c",
            "raw_name": "fly",
            "raw_arguments": "{",
            "name": None,
            "arguments": None,
        },
        {"type": "tool_call", "id": "c", "name": "fly", "arguments": "{"},
    ),
    "tool call whose arguments are an object": (
        {"type": "tool_call", "id": "c", "name": "move", "arguments": {"to": "n", "by": 1}},
        {"type": "tool_call", "id": "c", "name": "move", "arguments": '{"by":1,"to":"n"}'},
    ),
    "tool result": (
        {"type": "tool_result", "name": "move", "result": "ok", "id": "c"},
        {"type": "tool_result", "id": "c", "name": "move", "result": "ok"},
    ),
    "thought": (
        {"type": "thought", "text": "hm", "signature": "s", "provider_type": "anthropic"},
        {"type": "thought", "text": "hm", "signature": "s", "provider_type": "anthropic"},
    ),
    "thought without text": (
        {"type": "thought", "text": None, "signature": "s"},
        {"type": "thought", "signature": "s"},
    ),
    "thought that is only a summary": (
        {"type": "thought", "summary": [{"type": "summary_text", "text": "in short"}]},
        {"type": "thought", "summary": [{"text": "in short", "type": "summary_text"}]},
    ),
    "thought with its provider under the name of 2025": (
        {"type": "thought", "text": "hm", "_internal_provider_type": "gcp_vertex_gemini"},
        {"type": "thought", "text": "hm", "provider_type": "gcp_vertex_gemini"},
    ),
    "thought with more data": (
        {"type": "thought", "text": "hm", "extra_data": {"z": None, "a": 1.5}},
        {"type": "thought", "text": "hm", "extra_data": {"a": 1.5, "z": None}},
    ),
    "file": (
        {
            "type": "file",
            "source_url": "https://x/y.png",
            "mime_type": "image/png",
            "storage_path": DISABLED,
            "detail": "low",
            "filename": "y.png",
        },
        {
            "type": "file",
            "source_url": "https://x/y.png",
            "mime_type": "image/png",
            "storage_path": DISABLED,
            "detail": "low",
            "filename": "y.png",
        },
    ),
    "file with the field `url`": (
        {"type": "file", "url": "https://x/y.png", "mime_type": "image/png", "storage_path": DISABLED},
        {"type": "file", "source_url": "https://x/y.png", "mime_type": "image/png", "storage_path": DISABLED},
    ),
    "file in a file": (
        {"type": "file", "file": {"url": None, "mime_type": "application/pdf"}, "storage_path": DISABLED},
        {"type": "file", "mime_type": "application/pdf", "storage_path": DISABLED},
    ),
    "image in an image": (
        {
            "type": "image",
            "image": {"url": "https://x/y.gif", "mime_type": "image/gif"},
            "storage_path": DISABLED,
        },
        {"type": "file", "source_url": "https://x/y.gif", "mime_type": "image/gif", "storage_path": DISABLED},
    ),
    "image in a file": (
        {
            "type": "image",
            "file": {"source_url": "https://x/y.gif", "mime_type": "image/gif"},
            "storage_path": DISABLED,
        },
        {"type": "file", "source_url": "https://x/y.gif", "mime_type": "image/gif", "storage_path": DISABLED},
    ),
    "unknown": (
        {"type": "unknown", "data": {"z": 1, "a": None}, "model_name": "m", "provider_name": "p"},
        {"type": "unknown", "data": {"a": None, "z": 1}, "model_name": "m", "provider_name": "p"},
    ),
    "unknown with model and provider in one name": (
        {
            "type": "unknown",
            "data": {"x": 1},
            "model_provider_name": "tensorzero::model_name::openai::gpt-4o::provider_name::openai",
        },
        {"type": "unknown", "data": {"x": 1}, "model_name": "openai::gpt-4o", "provider_name": "openai"},
    ),
    "unknown that is null": ({"type": "unknown", "data": None}, {"type": "unknown"}),
    "a type from later": (
        {"type": "hologram", "z": 3},
        {"type": "unknown", "data": {"type": "hologram", "z": 3}},
    ),
    "no type": ({"x": 1}, {"type": "unknown", "data": {"x": 1}}),
    "no object": (7, {"type": "unknown", "data": 7}),
}


@pytest.fixture(scope="module")
def prompts() -> dict[str, list[dict[str, Any]]]:
    """The blocks of a prompt for each of them, beside a text, from one export."""
    steps = Steps()
    for stored, _ in BLOCKS.values():
        steps.json(messages=[{"role": "user", "content": [{"type": "text", "text": "first"}, stored]}])
    _, made = steps.export()
    found = {}
    for name, step in zip(BLOCKS, made, strict=True):
        assert step.messages is not None, name
        found[name] = plain(step.messages[0])
    return found


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_in_a_prompt_means_the_same_in_all_its_spellings(
    prompts: dict[str, list[dict[str, Any]]], name: str
) -> None:
    assert prompts[name] == [{"type": "text", "text": "first"}, BLOCKS[name][1]]


@pytest.fixture(scope="module")
def answers() -> dict[str, list[dict[str, Any]]]:
    """The same as the answers of chat functions."""
    steps = Steps()
    for stored, _ in BLOCKS.values():
        steps.chat([stored])
    _, made = steps.export()
    return {name: plain(step.completion) for name, step in zip(BLOCKS, made, strict=True)}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_in_an_answer_means_the_same_in_all_its_spellings(
    answers: dict[str, list[dict[str, Any]]], name: str
) -> None:
    assert answers[name] == [BLOCKS[name][1]]


CONTENTS = {
    "list": [{"type": "text", "text": "hi"}],
    "text": "hi",
    "block": {"type": "text", "text": "hi"},
}


@pytest.mark.full
def test_content_may_be_a_list_a_text_or_one_block() -> None:
    steps = Steps()
    for content in CONTENTS.values():
        steps.json(messages=[{"role": "user", "content": content}])
    _, made = steps.export()
    assert [plain(step.messages[0]) for step in made if step.messages] == [CONTENTS["list"]] * 3


@pytest.mark.full
def test_json_may_be_spelled_with_spaces_and_in_any_order() -> None:
    text = '[{"content":[{"text":"say \\"hi\\"","type":"text"}],"role":"user"}]'
    steps = Steps()
    for spelling in (text, json.dumps(json.loads(text))):
        steps.json(messages=spelling)
    _, made = steps.export()
    found = [plain(step.messages[0]) for step in made if step.messages]
    assert found == [[{"type": "text", "text": 'say "hi"'}]] * 2


INPUTS: dict[str, tuple[Any, str | None]] = {
    "template": ([{"type": "template", "name": "user", "arguments": {"observation": "a wall"}}], "a wall"),
    "legacy template": ([{"type": "text", "value": {"observation": "a wall"}}], "a wall"),
    "legacy text": ([{"type": "text", "value": "a wall"}], "a wall"),
    "text": ([{"type": "text", "text": "a wall"}], "a wall"),
    "text that looks like a list": ([{"type": "text", "text": "[x"}], "[x"),
    "several": ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "two"),
    "text as content": ("a wall", "a wall"),
    "block as content": ({"type": "text", "text": "a wall"}, "a wall"),
    "argument that is an object": (
        [{"type": "template", "name": "user", "arguments": {"observation": {"z": 1, "a": "é"}}}],
        '{"a":"é","z":1}',
    ),
    "argument that is JSON as text": (
        [{"type": "template", "name": "user", "arguments": {"observation": '{"z":1, "a":2}'}}],
        '{"z":1, "a":2}',
    ),
    "argument that is a number": (
        [{"type": "template", "name": "user", "arguments": {"observation": 7}}],
        "7",
    ),
    "argument that is null": (
        [{"type": "template", "name": "user", "arguments": {"observation": None}}],
        None,
    ),
    "only a result of a tool": ([{"type": "tool_result", "id": "c", "name": "n", "result": "r"}], None),
    "nothing": ([], None),
}


def test_the_observation_is_found_in_every_shape_of_the_input() -> None:
    steps = Steps()
    for content, _ in INPUTS.values():
        steps.json(input=spelled({"system": {"x": 1}, "messages": [{"role": "user", "content": content}]}))
    _, made = steps.export()
    found = dict(zip(INPUTS, (step.observation for step in made), strict=True))
    assert found == {name: observation for name, (_, observation) in INPUTS.items()}


def test_the_system_of_an_input_is_a_text_or_an_object_and_is_kept() -> None:
    said = {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}
    values = [{"system": "be good", **said}, {"system": {"mission": "m", "depth": {"n": 1}}, **said}, said]
    steps = Steps()
    for value in values:
        steps.json(input=spelled(value))
    _, made = steps.export()
    assert [step.input for step in made] == values


@pytest.mark.full
def test_the_system_message_comes_first_and_may_be_empty_or_alone() -> None:
    steps = Steps()
    for system, messages in (
        ("be good", [{"role": "user", "content": [{"type": "text", "text": "x"}]}]),
        ("", []),
    ):
        steps.call(steps.json(calls=0), messages=messages, system=system)
    _, made = steps.export()
    assert [[(m.role, m.text) for m in step.messages or ()] for step in made] == [
        [("system", "be good"), ("user", "x")],
        [("system", "")],
    ]


OUTPUTS: dict[str, tuple[str, str | None, list[dict[str, Any]]]] = {
    "raw and parsed": (
        '{"raw":"{\\"a\\": 1}","parsed":{"a":1}}',
        None,
        [{"type": "text", "text": '{"a": 1}'}],
    ),
    "parsed is null": (
        '{"raw":"not json","parsed":null}',
        "invalid output",
        [{"type": "text", "text": "not json"}],
    ),
    "raw is null": ('{"raw":null,"parsed":null}', "invalid output", []),
    "parsed is not there": ('{"raw":"x"}', "invalid output", [{"type": "text", "text": "x"}]),
    "parsed is a text": ('{"raw":"\\"x\\"","parsed":"x"}', None, [{"type": "text", "text": '"x"'}]),
}


def test_the_output_of_a_json_function_in_all_its_shapes() -> None:
    steps = Steps()
    for output, _, _ in OUTPUTS.values():
        steps.json(output=output)
    _, made = steps.export()
    found = {
        name: (step.mask_reason, plain(step.completion)) for name, step in zip(OUTPUTS, made, strict=True)
    }
    assert found == {name: (reason, blocks) for name, (_, reason, blocks) in OUTPUTS.items()}


@pytest.mark.full
def test_thoughts_beside_the_output_of_a_json_function_come_before_it() -> None:
    thought = {"type": "thought", "text": "hm"}
    call = {"type": "tool_call", "id": "c", "name": "respond", "arguments": '{"a":1}'}
    steps = Steps()
    for auxiliary in ([thought], [thought, call], [], None):
        steps.json(raw='{"a":1}', auxiliary_content=None if auxiliary is None else spelled(auxiliary))
    _, made = steps.export()
    answer = {"type": "text", "text": '{"a":1}'}
    assert [plain(step.completion) for step in made] == [
        [thought, answer],
        [thought, answer],
        [answer],
        [answer],
    ]


REQUESTS = {
    "OpenAI": (
        {
            "model": "gpt-4o",
            "messages": [
                {"role": "system", "content": "You play."},
                {"role": "user", "content": [{"type": "text", "text": "go"}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c", "type": "function", "function": {"name": "move", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": "ok"},
            ],
        },
        ["system", "user", "assistant", "tool"],
    ),
    "Anthropic": (
        {
            "model": "claude",
            "system": [{"type": "text", "text": "You play."}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}],
        },
        ["system", "user"],
    ),
    "Anthropic, system as text": (
        {"system": "You play.", "messages": [{"role": "user", "content": "go"}]},
        ["system", "user"],
    ),
}


def test_a_call_from_before_prompts_were_kept_has_the_one_that_went_over_the_wire() -> None:
    steps = Steps()
    requests = {
        steps.call(steps.json(calls=0), messages="", said=""): spelled(request)
        for request, _ in REQUESTS.values()
    }
    database = RowDatabase(steps.inferences, steps.calls, raw_requests=requests)
    _, made = steps.export(database)
    for (name, (_, roles)), step in zip(REQUESTS.items(), made, strict=True):
        assert step.mask_reason is None, name
        assert [message.role for message in step.messages or ()] == roles
        assert [message.text for message in step.messages or ()][:2] == ["You play.", "go"]


def test_a_request_that_nobody_understands_leaves_the_prompt_unknown() -> None:
    texts = ("", "not json", "[]", '{"messages":[]}', '{"contents":[{"parts":[{"text":"x"}]}]}', "5")
    assert {prompt_of(text) for text in texts} == {None}
    steps = Steps()
    requests = {steps.call(steps.json(calls=0), messages=None, said=None): text for text in texts}
    database = RowDatabase(steps.inferences, steps.calls, raw_requests=requests)
    tally, made = steps.export(database)
    assert [(step.messages, step.mask_reason) for step in made] == [(None, "prompt unknown")] * len(texts)
    assert [(entry.reason, entry.n_steps) for entry in tally.masked] == [("prompt unknown", len(texts))]
