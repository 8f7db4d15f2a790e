"""Every format for training keeps the contract; and what is particular to each."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.formats import exchange
from tests.formats.conftest import ANY_EXAMPLES, PLAIN_EXAMPLES, conversation_examples
from tests.formats.contract import check_row
from tests.formats.exchange import result
from tests.formats.exchange import say as said
from tests.matrix import daily, examples
from trajkit.formats import format_named, known
from trajkit.formats.base import (
    Example,
    Judged,
    JudgedFormat,
    LossKind,
    Preference,
    PreferenceFormat,
    SftFormat,
    Training,
    Unit,
    json_line,
    one_answer,
)
from trajkit.formats.chat.think import Thoughts, with_thoughts
from trajkit.schema import message

call = partial(exchange.call, arguments='{"at": "door"}')
FORMATS = [form for name in known() if isinstance(form := format_named(name), SftFormat)]
BY_NAME = {form.name: form for form in FORMATS}
TOOL = {"name": "look", "description": "See", "parameters": {"type": "object", "properties": {}}}


THOUGHT = {"type": "thought", "text": "hm"}
TALK = one_answer(
    (
        message("system", "Play."),
        message("user", "go"),
        said("assistant", THOUGHT, call()),
        said("tool", result()),
    ),
    message("assistant", "The door is locked."),
    tools=(TOOL,),
)


def kinds(name: str, example: Example) -> set[str]:
    return {loss.kind.value for loss in BY_NAME[name].row(example).losses}


def problems(name: str, example: Example) -> list[str]:
    return [problem.kind for problem in BY_NAME[name].row(example).problems]


@examples(30, 120)
@pytest.mark.parametrize("form", daily(FORMATS, 4), ids=lambda form: form.name)
def test_a_row_says_all_but_what_its_losses_name(form: SftFormat, n_examples: int) -> None:
    @settings(max_examples=n_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(ANY_EXAMPLES | PLAIN_EXAMPLES | conversation_examples())
    def check(example: Example) -> None:
        check_row(form, example)

    check()


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_rows_with_the_same_messages_and_tools_are_the_same(form: SftFormat) -> None:
    check_row(form, TALK)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("role", ["system", "user", "tool"])
@pytest.mark.parametrize("beside", [[], ["text"], [result()]], ids=["alone", "text", "result"])
def test_a_call_that_is_not_the_models_is_kept_or_refused(
    form: SftFormat, role: str, beside: list[Any]
) -> None:
    check_row(form, one_answer((said(role, call(), *beside),), message("assistant", "left")))


@examples(15, 80)
@pytest.mark.parametrize("form", daily(FORMATS, 3), ids=lambda form: form.name)
@pytest.mark.parametrize("unit", list(Unit))
def test_columns_give_the_bytes_that_python_writes(form: SftFormat, unit: Unit, n_examples: int) -> None:
    plain = form.plain(unit)
    usual = one_answer((message("user", "go"),), message("assistant", "left"))

    @settings(max_examples=n_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(ANY_EXAMPLES | PLAIN_EXAMPLES, min_size=1, max_size=5))
    def check(examples: list[Example]) -> None:
        given = [*examples, usual]
        found = exchange.plain_lines(plain, given)
        assert found[-1] is not None
        for example, line in zip(given, found, strict=True):
            if line is not None:
                row = form.row(example._replace(tools=(), weights=(*example.weights[:-1], 1.0)))
                assert line == json_line(row.value) + "\n"
                assert (row.losses, row.problems) == ((), ())

    check()


@pytest.mark.parametrize("name", ["trl-messages", "trl-prompt-completion"])
def test_trl_gets_arguments_as_objects_and_contents_as_text(name: str) -> None:
    row = BY_NAME[name].row(TALK)
    messages = row.value.get("messages") or row.value["prompt"] + row.value["completion"]
    assert messages[2] == {
        "role": "assistant",
        "reasoning_content": "hm",
        "content": "",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"at": "door"}}}
        ],
    }
    assert messages[3] == {"role": "tool", "name": "look", "tool_call_id": "c1", "content": "locked"}
    assert messages[4:] == [{"role": "assistant", "content": "The door is locked."}]
    assert name == "trl-messages" or row.value["completion"] == messages[4:]
    assert (row.losses, row.problems) == ((), ())


@pytest.mark.parametrize("arguments", ["not json", "[1]", '{"a": NaN}', '{"a": 1, "a": 2}'])
@pytest.mark.parametrize("name", ["trl-messages", "sharegpt", "vertex"])
def test_arguments_that_are_no_object_are_a_problem_where_one_is_wanted(name: str, arguments: str) -> None:
    bad = one_answer((message("user", "go"),), said("assistant", call(arguments=arguments)))
    assert any(kind.startswith("tool arguments that are not") for kind in problems(name, bad))


def test_axolotl_marks_every_message() -> None:
    talk = TALK._replace(weights=(0, 0, 1, 0, 1))
    row = BY_NAME["axolotl"].row(talk)
    assert [message["train"] for message in row.value["messages"]] == [False, False, True, False, True]
    function = row.value["tools"][0]["function"]
    assert function["parameters"] == '{"type":"object","properties":{}}'
    assert row.losses == ()


def test_together_has_zero_weights_and_places_for_thoughts() -> None:
    row = BY_NAME["together"].row(TALK)
    assert row.value["messages"][2]["weight"] == 0
    assert row.value["messages"][2]["reasoning_content"] == "hm"
    assert (row.losses, row.problems) == ((), ())
    twice = one_answer((message("user", "a"), message("user", "b")), message("assistant", "c"))
    assert problems("together", twice) == ["two messages of role user in a row"]


def test_sharegpt_says_who_speaks_and_takes_turns() -> None:
    row = BY_NAME["sharegpt"].row(TALK)
    assert row.value["conversations"] == [
        {"from": "system", "value": "Play."},
        {"from": "human", "value": "go"},
        {
            "from": "function_call",
            "value": '<think>\nhm\n</think>\n\n{"name":"look","arguments":{"at":"door"}}',
        },
        {"from": "observation", "value": "locked"},
        {"from": "gpt", "value": "The door is locked."},
    ]
    assert json.loads(row.value["tools"]) == [TOOL]
    assert {loss.kind for loss in row.losses} == {LossKind.TOOL_CALL_ID}
    assert row.problems == ()


def test_sharegpt_joins_what_would_break_the_turns_and_says_so() -> None:
    joined = one_answer(
        (message("user", "go"), said("assistant", call()), said("user", result(), "and now?")),
        message("assistant", "in"),
    )
    row = BY_NAME["sharegpt"].row(joined)
    assert row.value["conversations"][2] == {"from": "observation", "value": "locked\nand now?"}
    assert LossKind.JOINED_MESSAGE in {loss.kind for loss in row.losses}
    assert row.problems == ()
    twice = one_answer((message("user", "a"), message("assistant", "b")), message("assistant", "c"))
    assert problems("sharegpt", twice) == ["gpt where it is the other's turn"]


def test_sharegpt_has_a_result_in_an_answer_after_what_asked_for_it() -> None:
    row = BY_NAME["sharegpt"].row(
        one_answer((message("user", "go"), said("assistant", result(), call())), message("assistant", "in"))
    )
    speakers = [turn["from"] for turn in row.value["conversations"]]
    assert speakers == ["human", "function_call", "observation", "gpt"]
    assert row.problems == ()


def test_sharegpt_names_a_thought_that_is_no_answers() -> None:
    row = BY_NAME["sharegpt"].row(one_answer((said("user", "go", THOUGHT),), message("assistant", "in")))
    assert [loss.kind for loss in row.losses] == [LossKind.THOUGHT]


def test_vertex_has_the_system_message_beside_the_contents() -> None:
    row = BY_NAME["vertex"].row(TALK)
    assert row.value["systemInstruction"] == {"role": "system", "parts": [{"text": "Play."}]}
    assert row.value["contents"] == [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"at": "door"}}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "look", "response": {"result": "locked"}}}],
        },
        {"role": "model", "parts": [{"text": "The door is locked."}]},
    ]
    assert row.value["tools"] == [{"functionDeclarations": [TOOL]}]
    assert kinds("vertex", TALK) == {"thought", "tool call id"}


def test_text_has_a_prompt_that_ends_with_a_line_break() -> None:
    row = BY_NAME["text"].row(
        one_answer((message("system", "Play."), message("user", "go")), message("assistant", "left"))
    )
    assert row.value == {"prompt": "System:\nPlay.\n\nUser:\ngo\n\nAssistant:\n", "completion": "left"}
    assert kinds("text", TALK) == {"block as text", "joined text", "tool"}


def test_images_are_carried_by_reference_or_named() -> None:
    kept = {"kind": {"type": "filesystem", "path": "/data"}, "path": "seen/a.png"}
    image = {"type": "file", "mime_type": "image/png", "storage_path": kept}
    shown = one_answer((said("user", "look", image),), message("assistant", "a door"))
    assert BY_NAME["axolotl"].row(shown).value["messages"][0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "path": "/data/seen/a.png"},
    ]
    row = BY_NAME["sharegpt"].row(shown)
    assert row.value["images"] == ["/data/seen/a.png"]
    assert row.value["conversations"][0]["value"] == "look\n<image>"
    for name in ("openai-sft", "together", "vertex", "trl-messages", "text"):
        assert kinds(name, shown) == {"image"}, name
    out = {**image, "storage_path": {**kept, "path": "../../etc/passwd"}}
    for name in ("axolotl", "sharegpt"):
        left = one_answer((said("user", "look", out),), message("assistant", "a door"))
        assert kinds(name, left) == {"image"}


def training(**fields: Any) -> Training:
    default = {"data": "train.jsonl", "unit": Unit.STEP, "model": "org/model", "max_tokens": 2048}
    return Training(**{**default, **fields})


def files(name: str, **fields: Any) -> dict[str, str]:
    form = BY_NAME[name]
    return dict(form.files(training(**fields)))


def test_llama_factory_finds_the_columns_and_what_to_learn() -> None:
    made = files("sharegpt", columns=frozenset({"conversations", "tools"}))
    about = json.loads(made["dataset_info.json"])["trajkit"]
    assert about["file_name"] == "train.jsonl"
    assert about["columns"] == {"messages": "conversations", "tools": "tools"}
    assert about["tags"]["function_tag"] == "function_call"
    settings_ = yaml.safe_load(made["train.yaml"])
    assert (settings_["dataset"], settings_["mask_history"], settings_["cutoff_len"]) == (
        "trajkit",
        True,
        2048,
    )
    assert yaml.safe_load(files("sharegpt", unit=Unit.EPISODE)["train.yaml"])["mask_history"] is False
    assert made["train.sh"].endswith("exec llamafactory-cli train train.yaml\n")


def test_axolotl_learns_what_each_message_says() -> None:
    made = yaml.safe_load(files("axolotl", data="train.parquet")["train.yaml"])
    (dataset,) = made["datasets"]
    assert (dataset["path"], dataset["ds_type"]) == ("train.parquet", "parquet")
    assert (dataset["message_field_training"], dataset["roles_to_train"]) == ("train", [])
    assert (made["base_model"], made["sequence_len"]) == ("org/model", 2048)


@pytest.mark.parametrize(
    ("thoughts", "expected"),
    [
        (Thoughts.KEEP, [("thought", "hm"), ("text", "go")]),
        (Thoughts.STRIP, [("text", "go")]),
        (Thoughts.THINK_TEXT, [("text", "<think>\nhm\n</think>\n\ngo")]),
    ],
)
def test_thoughts_are_kept_stripped_or_text(thoughts: Thoughts, expected: list[Any]) -> None:
    made = with_thoughts(said("assistant", THOUGHT, "go"), thoughts)
    assert [(block.type, getattr(block, "text", None)) for block in made.content] == expected


def test_a_thought_without_a_text_stays_a_loss_and_is_no_empty_text() -> None:
    signed = {"type": "thought", "signature": "abc"}
    assert with_thoughts(said("assistant", signed, "go"), Thoughts.THINK_TEXT) == said(
        "assistant", signed, "go"
    )


def test_preferences_and_judgements_read_back_as_they_were() -> None:
    preference = Preference(
        TALK.messages[:-1], message("assistant", "in"), message("assistant", "out"), (TOOL,)
    )
    judged = Judged(TALK.messages[:-1], message("assistant", "in"), False, (TOOL,))
    for name in known():
        form = format_named(name)
        if isinstance(form, PreferenceFormat):
            row = form.row(preference)
            read = form.read(json.loads(json_line(row.value)))
            assert (read.chosen, read.rejected, read.tools) == preference[1:]
            assert len(read.prompt) == len(preference.prompt)
        if isinstance(form, JudgedFormat):
            row = form.row(judged)
            assert form.read(json.loads(json_line(row.value)))[1:] == judged[1:]


@pytest.mark.parametrize(
    "form", [form for form in FORMATS if form.name != "fireworks"], ids=lambda form: form.name
)
def test_partial_weights_are_losses_since_no_row_has_a_place_for_them(form: SftFormat) -> None:
    whole = one_answer((message("user", "go"),), message("assistant", "left"))
    half = form.row(whole._replace(weights=(0.0, 0.5)))
    assert {loss.kind for loss in half.losses} == {LossKind.PARTIAL_WEIGHT}
    assert half.value == form.row(whole).value
