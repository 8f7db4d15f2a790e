from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from tests.formats import exchange
from tests.formats.conftest import conversation_examples
from tests.formats.exchange import result
from tests.formats.exchange import say as said
from trajkit.curation.rows.calls import Calls
from trajkit.errors import RequestError
from trajkit.formats import format_named, known
from trajkit.formats.base import Example, Loss, LossKind, Preference, Unit, one_answer
from trajkit.formats.openai import FIREWORKS, OPENAI_DPO, OPENAI_SFT
from trajkit.formats.validation.file import validate
from trajkit.schema import Message, message

call = partial(exchange.call, arguments='{"at": "door"}')
CLIENT = TypeAdapter(list[ChatCompletionMessageParam])
WEATHER = {"name": "weather", "description": "Say it", "parameters": {"type": "object"}, "strict": True}


def example(*prompt: Message, answer: Message | str = "go", **fields: Any) -> Example:
    answered = message("assistant", answer) if isinstance(answer, str) else answer
    return one_answer(prompt or (message("user", "turn"),), answered, **fields)


def messages_of(made: Example) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = OPENAI_SFT.row(made).value["messages"]
    return written


def test_only_the_last_answer_of_a_conversation_is_learned() -> None:
    made = example(
        message("system", "s"), message("user", "u"), message("assistant", "a"), message("user", "v")
    )
    assert OPENAI_SFT.row(made).value == {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": "a", "weight": 0},
            {"role": "user", "content": "v"},
            {"role": "assistant", "content": "go"},
        ]
    }


def test_tool_calls_keep_their_arguments_as_the_text_that_the_model_wrote() -> None:
    made = example(answer=said("assistant", "I look", call(arguments='{"city":  "Oslo"')))
    assert messages_of(made)[-1] == {
        "role": "assistant",
        "content": "I look",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"city":  "Oslo"'}}
        ],
    }


def test_an_answer_of_only_a_tool_call_has_no_content() -> None:
    assert "content" not in messages_of(example(answer=said("assistant", call())))[-1]


def test_tool_results_become_messages_of_their_own_before_the_text_beside_them() -> None:
    made = example(
        said("user", "u"),
        said("assistant", call("a"), call("b")),
        said("user", "next", result("a"), result("b")),
    )
    row = OPENAI_SFT.row(made)
    assert [message["role"] for message in row.value["messages"]] == [
        *("user", "assistant", "tool", "tool", "user", "assistant")
    ]
    assert row.value["messages"][2] == {"role": "tool", "tool_call_id": "a", "content": "locked"}
    assert row.problems == ()


def test_results_in_a_message_of_role_tool_are_the_same() -> None:
    made = example(said("user", "u"), said("assistant", call()), said("tool", result()))
    assert messages_of(made)[2:3] == [{"role": "tool", "tool_call_id": "c1", "content": "locked"}]


def test_several_texts_of_a_message_stay_apart_and_empty_ones_go() -> None:
    assert messages_of(example(said("user", "a", "", "b")))[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    assert messages_of(example(said("user", "a", "")))[0]["content"] == "a"


def test_what_cannot_be_carried_is_named_with_its_place() -> None:
    made = example(
        said("user", "look", {"type": "file", "mime_type": "image/png"}, {"type": "file"}),
        answer=said("assistant", {"type": "thought", "text": "hm"}, "go", {"type": "unknown", "data": 1}),
        weight=0.5,
    )
    row = OPENAI_SFT.row(made)
    assert row.losses == (
        Loss(LossKind.IMAGE, "messages.0.content.1"),
        Loss(LossKind.FILE, "messages.0.content.2"),
        Loss(LossKind.PARTIAL_WEIGHT, "messages.1"),
        Loss(LossKind.UNKNOWN_BLOCK, "messages.1.content.2"),
        Loss(LossKind.THOUGHT, "messages.1.content.0"),
    )
    assert row.value["messages"] == [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "go"},
    ]


def test_a_message_of_thoughts_alone_goes_with_them() -> None:
    made = example(
        said("user", "u"), said("assistant", {"type": "thought", "text": "hm"}, ""), said("user", "v")
    )
    row = OPENAI_SFT.row(made)
    assert [message["content"] for message in row.value["messages"]] == ["u", "v", "go"]
    assert row.problems == ()


def test_a_message_of_an_image_alone_is_refused_and_not_dropped_in_silence() -> None:
    made = example(said("user", {"type": "file", "mime_type": "image/png"}), said("user", "v"))
    row = Calls("openai", None).checked(OPENAI_SFT.row(made))
    assert [problem.kind for problem in row.problems] == ["empty user message"]


def test_tools_are_wrapped_as_functions_and_absent_when_there_are_none() -> None:
    assert OPENAI_SFT.row(example(tools=(WEATHER,))).value["tools"] == [
        {"type": "function", "function": WEATHER}
    ]
    bare = {"type": "function", "name": "wait", "description": None}
    assert OPENAI_SFT.row(example(tools=(bare,))).value["tools"] == [
        {"type": "function", "function": {"name": "wait"}}
    ]
    assert OPENAI_SFT.row(example()).value.keys() == {"messages"}


def test_fields_and_names_of_tools_that_have_no_place_are_losses() -> None:
    odd = {**WEATHER, "type": "custom", "format": {"type": "text"}}
    made = example(
        said("user", "u"), said("assistant", call()), said("user", result(name="other")), tools=(odd,)
    )
    assert OPENAI_SFT.row(made).losses == (
        Loss(LossKind.TOOL_NAME, "messages.2.content.0"),
        Loss(LossKind.TOOL_FIELD, "tools.0.type"),
        Loss(LossKind.TOOL_FIELD, "tools.0.format"),
    )


def test_a_format_that_is_not_known_is_told_with_those_that_are() -> None:
    assert {"openai-sft", "openai-dpo", "trl-messages", "sharegpt", "axolotl", "vertex"} <= set(known())
    assert format_named("openai-sft") is OPENAI_SFT
    with pytest.raises(RequestError, match="no format 'openai-sftt'") as caught:
        format_named("openai-sftt")
    assert "did you mean openai-sft? known: openai-sft" in str(caught.value)


def test_a_format_of_one_s_own_is_found_by_its_place() -> None:
    assert format_named("trajkit.formats.openai:OPENAI_SFT") is OPENAI_SFT
    with pytest.raises(RequestError, match="no format at 'nowhere:FORMAT'"):
        format_named("nowhere:FORMAT")
    with pytest.raises(RequestError, match="is a str, not a format"):
        format_named("trajkit:__version__")


def test_an_image_is_referred_to_where_a_user_shows_it_by_its_address() -> None:
    image = {"type": "file", "mime_type": "image/png", "source_url": "https://x.org/a.png", "detail": "low"}
    row = OPENAI_SFT.row(example(said("user", "look", image)))
    assert row.value["messages"][0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://x.org/a.png", "detail": "low"}},
    ]
    assert row.losses == ()
    named = OPENAI_SFT.row(example(said("user", "look", {**image, "filename": "a.png"})))
    assert named.losses == (Loss(LossKind.FILE_FIELD, "messages.0.content.1"),)


def test_a_preference_has_its_prompt_once_and_both_answers() -> None:
    row = OPENAI_DPO.row(
        Preference(
            (message("user", "turn"),),
            message("assistant", "left"),
            message("assistant", "right"),
            (WEATHER,),
        )
    )
    assert row.value == {
        "input": {
            "messages": [{"role": "user", "content": "turn"}],
            "tools": [{"type": "function", "function": WEATHER}],
        },
        "preferred_output": [{"role": "assistant", "content": "left"}],
        "non_preferred_output": [{"role": "assistant", "content": "right"}],
    }
    assert row.problems == ()


def test_columns_give_the_lines_of_plain_text() -> None:
    assert OPENAI_SFT.plain is not None
    made = example(message("user", 'é "q" \u2028\n'), message("assistant", "a"), message("user", "b"))
    (line,) = exchange.plain_lines(OPENAI_SFT.plain(Unit.STEP), [made])
    assert line == (
        '{"messages":[{"role":"user","content":"é \\"q\\" \u2028\\n"},'
        '{"role":"assistant","weight":0,"content":"a"},{"role":"user","content":"b"},'
        '{"role":"assistant","content":"go"}]}\n'
    )


@settings(max_examples=20, deadline=None)
@given(conversation_examples())
def test_openai_s_own_types_take_the_messages(made: Example) -> None:
    sent = [{k: v for k, v in each.items() if k != "weight"} for each in messages_of(made)]
    CLIENT.validate_python(sent)


TALK = tuple(message(role, text) for role, text in (("user", "hi"), ("assistant", "yo"), ("user", "and")))


@pytest.mark.parametrize("weight", [0.25, 1.0, 3.5])
def test_the_weight_of_a_step_is_that_of_its_row(weight: float) -> None:
    example = one_answer(TALK, message("assistant", "so"), weight=weight)
    row = FIREWORKS.row(example)
    assert row.value["weight"] == weight
    assert [one.get("weight") for one in row.value["messages"]] == [None, 0, None, None]
    assert not row.losses
    assert FIREWORKS.read(row.value) == example


def test_answers_of_the_same_weight_share_it_and_others_are_counted() -> None:
    talk = (*TALK, message("assistant", "so"))
    same = Example(talk, (0, 0.5, 0, 0.5))
    assert FIREWORKS.row(same).value["weight"] == 0.5
    assert FIREWORKS.read(FIREWORKS.row(same).value) == same
    mixed = FIREWORKS.row(Example(talk, (0, 0.5, 0, 2.0)))
    assert mixed.value["weight"] == 1.0
    assert [(loss.kind, loss.where) for loss in mixed.losses] == [
        (LossKind.PARTIAL_WEIGHT, "messages.1"),
        (LossKind.PARTIAL_WEIGHT, "messages.3"),
    ]


def test_a_file_of_such_rows_is_what_fireworks_takes(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [FIREWORKS.row(one_answer(TALK, message("assistant", "so"), weight=w)).value for w in (0.5, 1, 2)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert validate(path, target="fireworks").n_errors == 0
