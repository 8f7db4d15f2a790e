"""Exports whose prompts are rendered anew, from a real ClickHouse that a real gateway wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.matrix import daily
from tests.sources import render_gateway
from trajkit.errors import ConfigError, QueryError
from trajkit.schema import Episode
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.export import grouping
from trajkit.sources.tensorzero.export.prompts import rendered_prompts
from trajkit.stack.gateway import open_gateway

pytest.importorskip("minijinja", reason="pip install 'trajkit[render]'")

FUNCTIONS = """\
[functions.story]
type = "json"
output_schema = "output.json"
[functions.story.experimentation]
type = "static"
candidate_variants = { first = 1.0 }
[functions.story.variants.first]
type = "chat_completion"
model = "m"
json_mode = "on"
templates.system.path = "first_system.minijinja"
templates.user.path = "first_user.minijinja"
[functions.story.variants.second]
type = "chat_completion"
model = "m"
json_mode = "strict"
templates.system.path = "second_system.minijinja"
templates.user.path = "second_user.minijinja"
[functions.story.variants.third]
type = "chat_completion"
model = "m"
json_mode = "on"
templates.system.path = "second_system.minijinja"
templates.user.path = "first_user.minijinja"
[functions.story.variants.best]
type = "experimental_best_of_n_sampling"
candidates = ["first", "first"]
[functions.story.variants.best.evaluator]
model = "m"
json_mode = "strict"

[functions.aside]
type = "chat"
[functions.aside.variants.plain]
type = "chat_completion"
model = "m"
"""
FILES = {
    "output.json": '{"type": "object"}',
    "first_system.minijinja": "You write.",
    "first_user.minijinja": "Topic: {{ topic }}\n",
    "second_system.minijinja": "Be brief.",
    "second_user.minijinja": "{{ topic|upper }}: {{ notes|tojson }} {{ notes }}",
}
NOTES = {"z": [1, 2.5, None], "a": "é <b>"}


class Sent(NamedTuple):
    """A prompt that went over the wire."""

    inference_id: str
    episode_id: str
    messages: list[dict[str, Any]]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Any]:
    with render_gateway.recording_gateway(tmp_path) as found:
        for name, text in FILES.items():
            found.write(name, text)
        found.configure(FUNCTIONS)
        yield found


Play = Callable[..., list[Sent]]


@pytest.fixture
def play(gateway: Any, server: Any, url: str) -> Play:
    """Make one inference for each call; one that names no episode goes on with the one before."""

    async def played(calls: list[dict[str, Any]]) -> list[Sent]:
        found: list[Sent] = []
        async with open_gateway(
            gateway.folder / "tensorzero.toml", clickhouse_url=server.secret_url
        ) as client:
            for call in calls:
                episode = (
                    {} if call.pop("is_new", False) or not found else {"episode_id": found[-1].episode_id}
                )
                answer = await client.inference(**call, **episode)
                found.append(Sent(str(answer.inference_id), str(answer.episode_id), gateway.last_messages))
        return found

    return lambda *calls: asyncio.run(played([dict(call) for call in calls]))


def told(topic: str, **more: Any) -> dict[str, Any]:
    """A call of the function that has templates."""
    arguments = {"topic": topic, "notes": NOTES, **more}
    block = {
        "type": "template",
        "name": "user",
        "arguments": {k: v for k, v in arguments.items() if v is not ...},
    }
    return {
        "function_name": "story",
        "input": {"system": {}, "messages": [{"role": "user", "content": [block]}]},
    }


def prompts(episodes: dict[str, Episode], sent: Sent) -> list[tuple[str, str]]:
    """Role and text of each message of a step's prompt."""
    episode = episodes[sent.episode_id]
    index = next(s.step_index for s in episode.steps if s.inference_id == sent.inference_id)
    messages = episode.prompt(index)
    assert messages is not None
    return [(message.role, "".join(block.text for block in message.content)) for message in messages]  # type: ignore[union-attr]


def on_the_wire(sent: Sent) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in sent.messages]


@pytest.mark.full
def test_a_prompt_carries_the_line_of_json_mode_that_only_the_raw_request_shows(play: Play, run: Any) -> None:
    sent = play(told("rain"), {**told("sun"), "variant_name": "second"}, told("json"))
    _, episodes = run()
    assert [prompts(episodes, each) for each in sent] == [on_the_wire(each) for each in sent]
    systems = [on_the_wire(each)[0][1] for each in sent]
    assert systems == ["Respond using JSON.\n\nYou write.", "Be brief.", "You write."]


def test_prompts_that_are_read_back_by_id_have_that_line_too(play: Play, url: str) -> None:
    sent = play(told("rain"), {**told("sun"), "variant_name": "second"})
    found = rendered_prompts(url, [each.inference_id for each in sent])
    texts = [found[each.inference_id].messages[0].content[0].text for each in sent]  # type: ignore[union-attr]
    assert texts == ["Respond using JSON.\n\nYou write.", "Be brief."]


@pytest.mark.parametrize("variant", daily(["second", "third"], 1))
def test_prompts_under_another_variant_are_those_that_the_gateway_would_have_sent(
    play: Play, run: Any, variant: str
) -> None:
    calls = [
        told("rain"),
        told("sun\n", notes=[1]),
        told("json", is_it=True),
        {**told("new"), "is_new": True},
    ]
    sent = play(*calls)
    wanted = play(*({**call, "variant_name": variant, "dryrun": True} for call in calls))
    tally, episodes = run(template_variant=variant)
    assert tally.masked == ()
    assert [prompts(episodes, each) for each in sent] == [on_the_wire(each) for each in wanted]
    steps = [step for episode in episodes.values() for step in episode.steps]
    assert {step.variant_name for step in steps} == {"first"}  # whose answer it is does not change
    assert all(step.n_input_tokens == 7 and step.loss_weight == 1 for step in steps)


@pytest.mark.full
def test_a_configuration_file_stands_in_the_place_of_the_snapshots(
    play: Play, run: Any, gateway: Any
) -> None:
    sent = play(told("rain"))
    gateway.write("second_user.minijinja", "only {{ topic }}")
    gateway.write(
        "other/tensorzero.toml",
        (gateway.folder / "tensorzero.toml")
        .read_text()
        .replace('"second_', '"../second_')
        .replace('"first_', '"../first_')
        .replace('"output', '"../output'),
    )
    _, episodes = run(
        template_variant="second", template_config=str(gateway.folder / "other" / "tensorzero.toml")
    )
    assert prompts(episodes, sent[0]) == [("system", "Be brief."), ("user", "only rain")]
    _, episodes = run(template_variant="second")
    assert prompts(episodes, sent[0])[1] == (
        "user",
        'RAIN: {"a":"é \\u003cb\\u003e","z":[1,2.5,null]} {"a": "é <b>", "z": [1, 2.5, none]}',
    )


def test_a_prompt_that_cannot_be_rendered_is_set_aside_and_counted_by_its_reason(
    play: Play, run: Any
) -> None:
    sent = play(told("rain", notes=..., secret="hunter2"), told("sun"), told("snow", notes=...))
    tally, episodes = run(template_variant="second")
    assert [(left.reason, left.n_steps) for left in tally.masked] == [
        ("prompt unknown: undefined value in second_user.minijinja:1", 2)
    ]
    assert "hunter2" not in tally.model_dump_json()
    (episode,) = episodes.values()
    assert [step.loss_weight for step in episode.steps] == [0, 1, 0]
    assert episode.steps[0].messages is None
    assert prompts(episodes, sent[1])[0] == ("system", "Be brief.")


@pytest.mark.full
def test_a_rendered_prompt_does_not_depend_on_how_many_calls_were_made(
    play: Play, run: Any, client: Any
) -> None:
    sent = play({**told("rain"), "variant_name": "best"}, told("sun"))
    client.command(f"DELETE FROM ModelInference WHERE inference_id = '{sent[1].inference_id}'")
    tally, _ = run()
    assert sum(left.n_steps or 0 for left in tally.masked) >= 1
    tally, episodes = run(template_variant="second")
    assert tally.masked == ()
    assert [prompts(episodes, each)[1][1].split(":")[0] for each in sent] == ["RAIN", "SUN"]


@pytest.mark.full
def test_functions_that_are_only_context_keep_the_prompts_that_were_sent(play: Play, run: Any) -> None:
    aside = {"function_name": "aside", "input": {"messages": [{"role": "user", "content": "hello"}]}}
    sent = play(told("rain"), aside, told("sun"))
    _, episodes = run(template_variant="second", functions=("story",))
    assert prompts(episodes, sent[0])[0] == ("system", "Be brief.")
    assert prompts(episodes, sent[1]) == on_the_wire(sent[1])
    with pytest.raises(QueryError, match="function 'aside' has no variant 'second'") as caught:
        run(template_variant="second")
    assert caught.value.hint == "it has plain"


@pytest.mark.full
def test_a_variant_without_templates_of_its_own_is_refused(play: Play, run: Any) -> None:
    play(told("rain"))
    with pytest.raises(ConfigError, match="is of type experimental_best_of_n_sampling"):
        run(template_variant="best")
    with pytest.raises(QueryError, match="function 'story' has no variant 'nope'") as caught:
        run(template_variant="nope")
    assert caught.value.hint == "it has best, first, second, third"
    with pytest.raises(ConfigError, match=r"there is no nowhere\.toml"):
        run(template_variant="second", template_config="nowhere.toml")


@pytest.mark.full
def test_a_conversation_under_other_templates_is_still_kept_as_what_is_new(play: Play, run: Any) -> None:
    def call(*topics: str) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        for topic in topics:
            block = {"type": "template", "name": "user", "arguments": {"topic": topic, "notes": 1}}
            messages += [
                {"role": "user", "content": [block]},
                {"role": "assistant", "content": '{"answer": "yes"}'},
            ]
        return {"function_name": "story", "input": {"system": {}, "messages": messages[:-1]}}

    sent = play(call("a"), call("a", "b"), call("a", "b", "c"))
    _, episodes = run(template_variant="second")
    (episode,) = episodes.values()
    assert [step.n_prompt_kept for step in episode.steps] == [0, 3, 5]
    assert [text for _, text in prompts(episodes, sent[2])] == [
        "Be brief.",
        "A: 1 1",
        '{"answer": "yes"}',
        "B: 1 1",
        '{"answer": "yes"}',
        "C: 1 1",
    ]


@pytest.mark.full
def test_many_buckets_render_as_one(play: Play, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = play(*({**told(f"topic {number}"), "is_new": True} for number in range(12)))
    monkeypatch.setattr(grouping, "GROUP_STEPS", 2)
    _, episodes = run(template_variant="second")
    assert [prompts(episodes, each)[1][1].split(":")[0] for each in sent] == [
        f"TOPIC {number}" for number in range(12)
    ]


def test_a_database_without_configurations_says_so(rows: Any, run: Any, client: Any) -> None:
    rows.episode()
    client.command("CREATE TABLE kept AS ConfigSnapshot")
    client.command("INSERT INTO kept SELECT * FROM ConfigSnapshot")
    client.command("TRUNCATE TABLE ConfigSnapshot")
    try:
        with pytest.raises(QueryError, match="holds no configuration"):
            run(template_variant="second")
    finally:
        client.command("INSERT INTO ConfigSnapshot SELECT * FROM kept")
        client.command("DROP TABLE kept")


def test_a_configuration_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="it needs --template-variant"):
        ExportRequest(template_config="tensorzero.toml")
