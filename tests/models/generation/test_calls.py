"""Tools: told to the model, called when they must be, and read in what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.tiny import byte_tokenizer
from trajkit.formats.chat.rows import functions
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.ask import Ask, AskError, ToolCall
from trajkit.models.generation.generate import generate
from trajkit.models.generation.model import LocalModel
from trajkit.models.generation.tools.call_style import OWN, CallStyle, call_style, with_tools
from trajkit.models.generation.tools.calls import read_calls, tools_of

MOVE = {
    "type": "object",
    "properties": {"action": {"enum": ["go forward", "turn left"]}},
    "required": ["action"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "move", "description": "Move.", "parameters": MOVE}},
    {"type": "function", "function": {"name": "stop"}},
]
# as those of Qwen 3 (with empty thoughts before a call) and of Llama 3.1
QWEN = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}<think>

</think>

{% endif %}{{ m.content }}{% for call in m.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LLAMA = """\
{%- if tools %}{{ tools | tojson }}{% endif %}{%- for m in messages %}{% if m.tool_calls %}{% generation %}\
{"name": "{{ m.tool_calls[0].function.name }}", \
"parameters": {{ m.tool_calls[0].function.arguments | tojson }}}\
<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"""


def style_of(folder: Path, template: str) -> CallStyle:
    return call_style(ChatTemplate(byte_tokenizer(folder, template)))


def ask(seed: int, **how: Any) -> Ask:
    messages = [{"role": "user", "content": "You see a ball."}]
    return Ask(**{"messages": messages, "seed": seed, "tools": TOOLS, "max_new_tokens": 120, **how})


def test_the_style_of_a_call_is_what_the_template_writes(tmp_path: Path) -> None:
    tiny = call_style(ChatTemplate("sample:tiny-base"))
    assert tiny == CallStyle("<call>", '{"name": "', '", "arguments": ', "}", "</call>", takes_tools=True)
    qwen = style_of(tmp_path / "qwen", QWEN)
    assert (qwen.begin, qwen.mark, qwen.end) == ("<tool_call>\n", "<tool_call>", "\n</tool_call>")
    llama = style_of(tmp_path / "llama", LLAMA)
    assert (llama.mark, llama.middle, llama.end) == ("", '", "parameters": ', "")
    assert style_of(tmp_path / "none", "{% for m in messages %}{{ m.content }}{% endfor %}") == OWN


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"move", "stop"}),
        ({"type": "function", "function": {"name": "move"}}, {"move"}),
        ({"type": "function", "function": {"name": "stop"}}, {"stop"}),
    ],
)
def test_a_tool_that_must_be_called_is(fresh: LocalModel, choice: Any, names: set[str]) -> None:
    said = generate(fresh, [ask(seed, tool_choice=choice, parallel_tool_calls=False) for seed in range(12)])
    whole = [each for each in said if each.finish_reason == "tool_calls"]
    assert len(whole) > 5
    for each in whole:
        assert len(each.tool_calls) == 1
        assert each.text == ""
        call = each.tool_calls[0]
        assert call.name in names
        jsonschema.validate(json.loads(call.arguments), MOVE if call.name == "move" else {"const": {}})


def test_without_a_choice_of_tools_the_model_says_what_it_wants(fresh: LocalModel) -> None:
    free = generate(fresh, [ask(1, tools=None)])[0]
    none = generate(fresh, [ask(1, tool_choice="none")])[0]
    assert (none.text, none.n_input_tokens) == (free.text, free.n_input_tokens)
    auto = generate(fresh, [ask(seed) for seed in range(30)])
    assert auto[0].n_input_tokens > free.n_input_tokens + 50
    calls = [call for each in auto if each.finish_reason == "tool_calls" for call in each.tool_calls]
    assert all(each.tool_calls or each.text for each in auto)
    for call in calls:  # one that it chose to make keeps to the schema too
        jsonschema.validate(json.loads(call.arguments), MOVE if call.name == "move" else {"const": {}})
    assert calls


def test_a_schema_or_a_call_is_one_or_the_other(fresh: LocalModel) -> None:
    schema = {"const": "nothing to do"}
    for each in generate(fresh, [ask(seed, json_schema=schema, temperature=2.0) for seed in range(10)]):
        if each.finish_reason != "length":
            assert bool(each.tool_calls) != (each.text == '"nothing to do"')


def test_calls_are_read_and_what_is_none_stays_text() -> None:
    style = OWN
    call = '<tool_call>{"name": "move", "arguments": {"to": "left"}}</tool_call>'
    assert read_calls(f"I go. {call}", style) == ("I go.", (ToolCall("move", '{"to": "left"}'),))
    twice = read_calls(f'{call}\n<tool_call>\n{{"name": "stop"}}\n</tool_call>', style)
    assert twice == ("", (ToolCall("move", '{"to": "left"}'), ToolCall("stop", "{}")))
    for text in ("<tool_call>move</tool_call>", call[:-3], '<tool_call>{"arguments": {}}</tool_call>', "no"):
        assert read_calls(text, style) == (text, ())
    bare = style._replace(begin="", end="")
    assert read_calls('{"name": "move", "parameters": {"to": 1}}', bare) == (
        "",
        (ToolCall("move", '{"to": 1}'),),
    )
    assert read_calls('{"name": 3}', bare) == ('{"name": 3}', ())


def test_a_template_without_tools_is_told_of_them_in_the_system_message() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "move", "arguments": "{}"}}
    told = with_tools(
        [
            {"role": "system", "content": "Play."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "a wall", "tool_call_id": "c"},
        ],
        TOOLS,
    )
    assert [message["role"] for message in told] == ["system", "assistant", "user"]
    assert told[0]["content"].startswith("Play.\n\nYou can call these tools:\n<tools>\n")
    assert '"name": "move"' in told[0]["content"]
    assert told[1]["content"] == '<tool_call>{"name": "move", "arguments": {}}</tool_call>'
    assert told[2]["content"] == "<tool_response>a wall</tool_response>"
    assert with_tools([{"role": "user", "content": "?"}], TOOLS)[0]["role"] == "system"


def test_a_model_whose_template_knows_no_tools_calls_them_in_our_way(gpt2: Path) -> None:
    model = LocalModel.open(str(gpt2))
    assert model.voice(None).call_style == OWN
    tools = [{"type": "function", "function": {"name": "a", "parameters": {"const": {}}}}]
    with pytest.raises(AskError, match="the prompt has"):  # the tools are told, and it reads but 64 tokens
        generate(model, [Ask([{"role": "user", "content": "?"}], tools=tools, tool_choice="required")])


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"tools": [{"type": "custom"}]}, "not a function"),
        ({"tools": [{"type": "function", "function": {"name": 'a"b'}}]}, "invalid tool name"),
        ({"tool_choice": {"type": "function", "function": {"name": "fly"}}}, "there is no tool 'fly'"),
        ({"tool_choice": "sometimes"}, "sometimes"),
        (
            {
                "tool_choice": "required",
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "a", "strict": True, "parameters": {"not": {"type": "string"}}},
                    }
                ],
            },
            "not",
        ),
    ],
)
def test_tools_that_are_none_are_refused(fresh: LocalModel, how: dict[str, Any], words: str) -> None:
    with pytest.raises(AskError, match=words):
        generate(fresh, [ask(1, **how)])


def test_a_tool_is_told_as_training_rows_have_it_however_it_was_sent():
    told = {"name": "move", "description": "Move.", "parameters": MOVE, "strict": True}
    trained = list(functions([told], []))
    beside = {"type": "function", "function": {"name": "move", "description": "Move.", "parameters": MOVE}}
    sent = [
        {"type": "function", "function": told},
        {**beside, "strict": True},  # as TensorZero sends it
        {"function": dict(reversed(told.items()))},
    ]
    heard = [tools_of(ask(1, tools=[tool])) for tool in sent]
    # as text: the order of the fields is part of the prompt
    assert [json.dumps(tools.listed) for tools in heard if tools] == [json.dumps(trained)] * len(sent)
