"""Which text of an input goes through which template, and the line of JSON mode: as the gateway does it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources import render_gateway
from trajkit.errors import ConfigError, DataError
from trajkit.sources.tensorzero.render.config import Template
from trajkit.sources.tensorzero.render.engine import Engine
from trajkit.sources.tensorzero.render.files import from_file
from trajkit.sources.tensorzero.render.prompt import Prompt, Renderer

tensorzero = pytest.importorskip("tensorzero", reason="pip install 'trajkit[tensorzero]'")
pytest.importorskip("minijinja", reason="pip install 'trajkit[render]'")

SCHEMA = '{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}'

FUNCTIONS = """\
[functions.none]
type = "chat"
[functions.none.variants.v]
type = "chat_completion"
model = "m"

[functions.named]
type = "chat"
[functions.named.variants.v]
type = "chat_completion"
model = "m"
templates.system.path = "say.minijinja"
templates.user.path = "say.minijinja"
templates.assistant.path = "shout.minijinja"
templates.other.path = "shout.minijinja"

[functions.named_schema]
type = "chat"
schemas.system.path = "schema.json"
schemas.user.path = "schema.json"
[functions.named_schema.variants.v]
type = "chat_completion"
model = "m"
templates.system.path = "say.minijinja"
templates.user.path = "say.minijinja"

[functions.legacy_schema]
type = "chat"
system_schema = "schema.json"
user_schema = "schema.json"
assistant_schema = "schema.json"
[functions.legacy_schema.variants.v]
type = "chat_completion"
model = "m"
system_template = "say.minijinja"
user_template = "say.minijinja"
assistant_template = "shout.minijinja"

[functions.legacy]
type = "chat"
[functions.legacy.variants.v]
type = "chat_completion"
model = "m"
system_template = "system_text.minijinja"
user_template = "user_text.minijinja"
assistant_template = "assistant_text.minijinja"

[functions.static]
type = "chat"
[functions.static.variants.v]
type = "chat_completion"
model = "m"
system_template = "static.minijinja"
user_template = "static.minijinja"

[functions.wrapped]
type = "chat"
[functions.wrapped.variants.v]
type = "chat_completion"
model = "m"
input_wrappers.system = "system_text.minijinja"
input_wrappers.user = "user_text.minijinja"

[functions.mixed]
type = "chat"
user_schema = "schema.json"
[functions.mixed.variants.v]
type = "chat_completion"
model = "m"
user_template = "say.minijinja"
templates.other.path = "shout.minijinja"
"""
FILES = {
    "say.minijinja": "say {{ a }}\n",
    "shout.minijinja": "SHOUT {{ a|upper }}",
    "static.minijinja": "always the same",
    "system_text.minijinja": "[S {{ system_text }}]",
    "user_text.minijinja": "[U {{ user_text }}]",
    "assistant_text.minijinja": "[A {{ assistant_text }}]",
    "schema.json": SCHEMA,
}
SYSTEMS: list[Any] = [None, "", "be kind", {"a": "kind"}, {"b": 1}]
CONTENTS: list[list[dict[str, Any]]] = [
    [{"type": "text", "text": "hello"}],
    [{"type": "text", "text": ""}],
    [{"type": "template", "name": "user", "arguments": {"a": "x"}}],
    [{"type": "template", "name": "assistant", "arguments": {"a": "x"}}],
    [{"type": "template", "name": "other", "arguments": {"a": "x"}}],
    [{"type": "template", "name": "nowhere", "arguments": {"a": "x"}}],
    [{"type": "template", "name": "system", "arguments": {"a": "x"}}],
    [{"type": "template", "name": "user", "arguments": {"b": "x"}}],
    [{"type": "raw_text", "value": "{{ a }}"}],
    [
        {"type": "text", "text": "hello"},
        {"type": "raw_text", "value": "raw"},
        {"type": "template", "name": "other", "arguments": {"a": "x"}},
    ],
]


def sent_of(messages: list[dict[str, Any]]) -> tuple[str | None, list[Any]]:
    """The system message, and role and texts of the others."""
    system = messages[0]["content"] if messages[0]["role"] == "system" else None
    return system, [
        (message["role"], _texts(message.get("content"))) for message in messages[system is not None :]
    ]


def _texts(content: Any) -> list[str]:
    return [content] if isinstance(content, str) else [block["text"] for block in content or ()]


def made_of(prompt: Prompt) -> tuple[str | None, list[Any]]:
    """The same of a prompt of ours."""
    return prompt.system, [
        (message["role"], [block["text"] for block in message["content"]])
        for message in json.loads(prompt.messages)
    ]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Any]:
    with render_gateway.recording_gateway(tmp_path) as found:
        for name, text in FILES.items():
            found.write(name, text)
        yield found


async def _ask_all(gateway: Any, config: Path, calls: list[dict[str, Any]]) -> list[Any]:
    client = await tensorzero.AsyncTensorZeroGateway.build_embedded(config_file=str(config))
    try:
        return [await gateway.ask(client, **call) for call in calls]
    finally:
        await client.close()


def _inputs() -> Iterator[dict[str, Any]]:
    for system in SYSTEMS:
        for content in CONTENTS:
            for role in ("user", "assistant"):
                messages = [{"role": role, "content": content}, {"role": "user", "content": CONTENTS[0]}]
                yield {"messages": messages} | ({} if system is None else {"system": system})


def test_texts_and_templates_of_every_kind_of_variant_become_what_the_gateway_sends(gateway: Any) -> None:
    config = gateway.configure(FUNCTIONS)
    configuration = from_file(config)
    engine = Engine(configuration.load)
    functions = [
        line[11:-1]
        for line in FUNCTIONS.splitlines()
        if line.startswith("[functions.") and line.count(".") == 1
    ]
    calls = [{"function_name": function, "input": given} for function in functions for given in _inputs()]
    n_sent = n_refused = 0
    for call, sent in zip(calls, asyncio.run(_ask_all(gateway, config, calls)), strict=True):
        function, given = call["function_name"], call["input"]
        renderer = Renderer(engine, configuration.variant(function, "v"))
        if sent is None:
            # it also refuses what a schema forbids; no such input is ever stored
            n_refused += 1
            continue
        n_sent += 1
        # empty texts do not reach the wire as a message of their own
        assert made_of(renderer.prompt(json.dumps(given))) == sent_of(sent), (function, given)
    assert n_sent > 80
    assert n_refused > 80


def test_what_no_template_fits_is_an_error_that_names_no_data(gateway: Any) -> None:
    configuration = from_file(gateway.configure(FUNCTIONS))
    engine = Engine(configuration.load)

    def message(function: str, given: Any) -> str:
        with pytest.raises(DataError) as caught:
            Renderer(engine, configuration.variant(function, "v")).prompt(given)
        return caught.value.message

    def user(**block: Any) -> str:
        return json.dumps({"system": {"a": "x"}, "messages": [{"role": "user", "content": [block]}]})

    assert (
        message("named", user(type="template", name="user", arguments={}))
        == "undefined value in say.minijinja:1"
    )
    assert (
        message("named", user(type="template", name="gone", arguments={}))
        == "the variant has no template 'gone'"
    )
    told = user(type="template", name="user", arguments={}).replace('{"a": "x"}', '"x"')
    assert "the template 'user', which takes text" in message("wrapped", told)
    assert "the variant has none" in message("none", '{"system": {"a": 1}, "messages": []}')
    assert "takes text" in message("legacy", '{"system": {"a": 1}, "messages": []}')
    assert message("none", None) == "the input is gone"
    assert message("none", "") == "the input is gone"
    assert message("none", "{") == "the input is not JSON"
    assert message("none", "[]") == "the input is not an object"
    assert message("none", '{"messages": ["hello"]}') == "the input has a message that is not an object"
    assert message("none", "[" * 100_000) == "the input is nested too deeply"
    large = '{"messages": [{"role": "user", "content": [{"type": "unknown", "data": 1e999}]}]}'
    assert message("none", large) == "the input has a number that is too large"


def test_a_reason_names_the_template_and_nothing_of_the_values() -> None:
    engine = Engine({"part": "{{ x|int }}"}.get)
    numbers = itertools.count(1)

    def reason(source: str, value: Any = "hunter2") -> str:
        template = Template(f"t{next(numbers)}", source, takes_text=False, is_wrapper=False)
        with pytest.raises(DataError) as caught:
            engine.render(template, {"x": value})
        return caught.value.message

    assert reason("\n\n{{ x|int }}") == "invalid operation in t1:3"
    assert reason("{{ x|nothing }}") == "unknown filter in t2:1"
    assert reason("{{ x.a.b }}") == "undefined value in t3:1"
    assert reason("{% include 'gone' %}") == "t4 includes a missing template"
    assert reason("{% include 'part' %}") == "could not render include in t5:1"
    assert reason("{{ x[::-1] }}", []) == "panic during rendering in t6"
    assert reason("{{ x|int }}") == "invalid operation in t7:1"  # it renders on after that


def test_an_argument_is_never_a_piece_of_a_template() -> None:
    engine = Engine({}.get)
    template = Template("t", "{{ x }}", takes_text=False, is_wrapper=False)
    for name in ("y = 1 %}{{ 2 }}{% set y", "a b", "1", "", "y.z", "if", "é", "y\n"):
        assert engine.render(template, {"x": '{{ 1 }}" %}', name: "%}{{ 2 }}"}) == '{{ 1 }}" %}'
    asking = Template("asking", "{{ self }}{% for i in [1] %}{{ loop.index }}{% endfor %}", False, False)
    with pytest.raises(DataError, match="asking uses an argument 'self'"):
        engine.render(asking, {"self": 1})
    assert engine.render(template, {"x": 1, "self": 2, "loop": 3}) == "1"


def test_older_spellings_of_text_and_templates_are_read(gateway: Any) -> None:
    configuration = from_file(gateway.configure(FUNCTIONS))
    renderer = Renderer(Engine(configuration.load), configuration.variant("named", "v"))

    def text(content: Any, role: str = "user") -> list[str]:
        prompt = renderer.prompt(
            json.dumps({"system": {"a": "s"}, "messages": [{"role": role, "content": content}]})
        )
        return made_of(prompt)[1][0][1]

    assert text([{"type": "text", "value": "hello"}]) == ["hello"]
    assert text([{"type": "text", "value": {"a": "x"}}]) == ["say x"]
    assert text([{"type": "text", "value": {"a": "x"}}], "assistant") == ["SHOUT X"]
    assert text([{"type": "text", "arguments": {"a": "x"}}]) == ["say x"]
    assert text("hello") == ["hello"]
    assert text({"a": "x"}) == ["say x"]


def test_blocks_without_templates_stay_as_they_are(gateway: Any) -> None:
    configuration = from_file(gateway.configure(FUNCTIONS))
    renderer = Renderer(Engine(configuration.load), configuration.variant("named", "v"))
    blocks = [
        {"type": "tool_call", "id": "c1", "name": "move", "arguments": '{"d":"{{ a }}"}'},
        {"type": "tool_result", "id": "c1", "name": "move", "result": "ok {{ a }}"},
        {"type": "thought", "text": "hm", "signature": None},
        {
            "type": "file",
            "mime_type": "image/png",
            "storage_path": {"kind": {"type": "disabled"}, "path": "p"},
        },
        {"type": "image", "image": {"url": "http://x", "mime_type": "image/png"}},
        {"type": "unknown", "data": {"z": 1, "a": [1.5, 12345678901234567890123]}},
    ]
    given = {"system": {"a": "s"}, "messages": [{"role": "user", "content": blocks}]}
    assert json.loads(renderer.prompt(json.dumps(given)).messages)[0]["content"] == blocks


JSON_FUNCTIONS = "".join(
    f"""\
[functions.{name}]
type = "json"
output_schema = "output.json"
[functions.{name}.variants.on]
type = "chat_completion"
model = "m"
json_mode = "on"
{template}
[functions.{name}.variants.strict]
type = "chat_completion"
model = "m"
json_mode = "strict"
{template}
[functions.{name}.variants.off]
type = "chat_completion"
model = "m"
json_mode = "off"
{template}
[functions.{name}.variants.vllm]
type = "chat_completion"
model = "v"
json_mode = "on"
{template}
[functions.{name}.variants.short]
type = "chat_completion"
model = "m"
json_mode = "tool"
{template}
"""
    for name, template in (("plain", ""), ("static", 'templates.system.path = "static.minijinja"'))
)
VLLM = """\
[models.v]
routing = ["p"]
[models.v.providers.p]
type = "vllm"
model_name = "v"
api_base = "{url}/"
api_key_location = "none"
"""


def test_the_line_of_json_mode_is_where_the_gateway_puts_it(gateway: Any) -> None:
    gateway.write("output.json", '{"type": "object"}')
    config = gateway.configure(JSON_FUNCTIONS + VLLM.format(url=gateway.url))
    configuration = from_file(config)
    engine = Engine(configuration.load)
    texts = ["hello", "give me JsOn", "", "Respond using JSON."]
    inputs: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}], **system}
        for text in texts
        for system in ({}, {"system": "be kind"}, {"system": "answer in json"}, {"system": ""})
    ]
    inputs.append(
        {
            "system": "be kind",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hello"}]},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_call", "id": "1", "name": "t", "arguments": "{}"}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "id": "1", "name": "t", "result": "JSON"}],
                },
            ],
        }
    )

    calls = [
        {"function_name": function, "variant_name": variant, "input": given}
        for function in ("plain", "static")
        for variant in ("on", "strict", "off", "vllm", "short")
        for given in inputs
    ]
    n_prefixed = n_sent = 0
    for call, sent in zip(calls, asyncio.run(_ask_all(gateway, config, calls)), strict=True):
        function, variant, given = call.values()
        if sent is None:
            continue
        n_sent += 1
        system, _ = sent_of(sent)
        prompt = Renderer(engine, configuration.variant(function, variant)).prompt(json.dumps(given))
        assert prompt.system == system, (function, variant, given)
        n_prefixed += bool(system and system.startswith("Respond using JSON.") and variant == "on")
    assert n_prefixed > 8
    assert n_sent > 100


def test_only_variants_with_templates_of_their_own_can_render(gateway: Any) -> None:
    config = gateway.configure(
        '[functions.f]\ntype = "chat"\n[functions.f.variants.best]\n'
        'type = "experimental_best_of_n_sampling"\ncandidates = ["a"]\n'
        '[functions.f.variants.a]\ntype = "chat_completion"\nsystem_template = "gone.minijinja"\n'
    )
    configuration = from_file(config)
    with pytest.raises(ConfigError, match="is of type experimental_best_of_n_sampling"):
        configuration.variant("f", "best")
    with pytest.raises(ConfigError, match=r"there is no template file .*gone\.minijinja"):
        configuration.variant("f", "a")
