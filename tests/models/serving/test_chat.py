"""Chat completions, asked for with OpenAI's own client."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import openai
import pytest
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.models.serving.conftest import Running
from trajkit.formats.tokens.sampled import Sampled, read_sampled
from trajkit.models.generation.ask import Ask
from trajkit.models.generation.generate import generate
from trajkit.models.generation.model import LocalModel
from trajkit.rollouts.options import Options
from trajkit.rollouts.recorder.calls.sse import chat_completion, events
from trajkit.rollouts.session import open_run, prepare
from trajkit.store.dataset import open_dataset

BASE = "sample:tiny-base"
ACTION = {
    "type": "object",
    "properties": {"action": {"type": "string", "enum": ["go forward", "turn left"]}},
    "required": ["action"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "move", "parameters": ACTION}}


def messages(text: str = "You see a ball.") -> list[Any]:
    return [{"role": "system", "content": "Play."}, {"role": "user", "content": text}]


def complete(client: openai.OpenAI, text: str = "You see a ball.", **how: Any) -> ChatCompletion:
    asked = {"model": BASE, "messages": messages(text), "max_completion_tokens": 40, **how}
    found: ChatCompletion = client.chat.completions.create(**asked)
    return found


def texts(completion: ChatCompletion) -> list[str | None]:
    return [choice.message.content for choice in completion.choices]


def test_an_answer_is_what_the_model_says_in_process(client: openai.OpenAI) -> None:
    model = LocalModel.open(BASE)
    said = generate(model, [Ask(messages(), seed=3, max_new_tokens=40)])[0]
    found = complete(client, seed=3)
    assert texts(found) == [said.text]
    assert found.model == BASE
    assert found.object == "chat.completion"
    assert found.id.startswith("chatcmpl-")
    assert found.choices[0].finish_reason == said.finish_reason
    assert found.usage is not None
    assert found.usage.prompt_tokens == said.n_input_tokens
    assert found.usage.completion_tokens == said.n_output_tokens
    assert found.usage.total_tokens == said.n_input_tokens + said.n_output_tokens


def test_ids_come_with_what_they_were_sampled_with_whole_and_streamed(
    client: openai.OpenAI, server: Running
) -> None:
    model = LocalModel.open(BASE)
    asked: dict[str, Any] = {"temperature": 0.7, "top_p": 0.9, "seed": 3}
    expected = generate(model, [Ask(messages(), max_new_tokens=40, **asked)])[0].sampled
    assert expected is not None
    body = {"model": BASE, "messages": messages(), "max_tokens": 40, "logprobs": True, **asked}
    whole = httpx.post(f"{server.url}/chat/completions", json={**body, "return_token_ids": True}).json()
    assert whole["choices"][0]["token_ids"] == list(expected.completion_token_ids or ())
    found = read_sampled(body, whole)
    assert found._replace(logprobs=None) == expected._replace(logprobs=None)
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
    own = [each["logprob"] for each in whole["choices"][0]["logprobs"]["content"]]
    assert own != pytest.approx(list(expected.logprobs or ())[: len(own)], abs=1e-3)  # before temperature
    streamed = httpx.post(
        f"{server.url}/chat/completions", json={**body, "return_token_ids": True, "stream": True}
    )
    assert read_sampled(body, chat_completion(events(streamed.content))) == found
    silent = httpx.post(f"{server.url}/chat/completions", json=body).json()
    assert read_sampled(body, silent) == Sampled()


def test_a_later_turn_extends_the_ids_of_the_one_before_also_after_a_tool_call(server: Running) -> None:
    talk, held = messages(), []
    for turn in range(3):
        body = {
            "model": BASE,
            "messages": talk,
            "max_tokens": 40,
            "seed": turn,
            "tools": [TOOL],
            "tool_choice": "required",
            "return_token_ids": True,
            "prompt_cache_key": "a talk",
        }
        found = httpx.post(f"{server.url}/chat/completions", json=body).json()
        (choice,) = found["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert found["prompt_token_ids"][: len(held)] == held
        held = found["prompt_token_ids"] + choice["token_ids"]
        result = {"role": "tool", "tool_call_id": choice["message"]["tool_calls"][0]["id"], "content": "done"}
        talk = [*talk, choice["message"], result]


def test_a_rollout_of_this_server_stores_what_one_in_process_does(
    server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    common: dict[str, Any] = {
        "env_id": "babyai",
        "tasks": ("goto",),
        "model": BASE,
        "seeds": "0:2",
        "max_steps": 3,
    }
    settings = {"temperature": "0.8", "json_mode": "schema"}
    stores = []
    for policy, url, more in (
        ("local", None, {"max_new_tokens": "40"}),
        ("openai", server.url, {"max_tokens": "40", "tokens": "true"}),
    ):
        options = Options(
            policy=policy, model_url=url, policy_settings={**settings, **more}, store=Path(policy), **common
        )
        with open_run(prepare(options)) as run:
            run.play(on_played=lambda one: None)
            run.write()
        stores.append([step for one in open_dataset(Path(policy)) for step in one.steps])
    for here, there in zip(*stores, strict=True):
        for name in ("prompt_token_ids", "completion_token_ids", "model_version"):
            assert getattr(there, name) == getattr(here, name) is not None
        assert there.logprobs == pytest.approx(here.logprobs, abs=1e-5)
        assert here.extra is not None
        assert there.extra is not None
        assert there.extra["tokenizer"] == here.extra["tokenizer"]
        assert there.extra["sampling"]["is_masked"] is True
        schemas = [one.extra["request"]["response_format"]["json_schema"]["schema"] for one in (here, there)]
        assert schemas[0] == schemas[1]  # from it the grammar can be made again


def test_adapter_and_base_are_chosen_by_name(client: openai.OpenAI, server: Running) -> None:
    assert [model.id for model in client.models.list()] == [BASE, "tuned"]
    assert client.models.retrieve("tuned").id == "tuned"
    assert client.models.retrieve(BASE).owned_by == "trajkit"
    drawn = {"seed": 5, "n": 8, "temperature": 2}
    assert texts(complete(client, **drawn)) != texts(complete(client, model="tuned", **drawn))
    assert httpx.get(server.url.replace("/v1", "/health")).json() == {
        "status": "ok",
        "models": [BASE, "tuned"],
    }


def test_temperature_and_seed_are_heard(client: openai.OpenAI) -> None:
    cold = {tuple(texts(complete(client, temperature=0))) for _ in range(3)}
    assert len(cold) == 1
    warm = complete(client, n=12, temperature=2)
    assert len(set(texts(warm))) > 6
    assert warm.usage is not None
    assert [choice.index for choice in warm.choices] == list(range(12))
    drawn = {"n": 4, "temperature": 2}
    assert texts(complete(client, seed=5, **drawn)) == texts(complete(client, seed=5, **drawn))
    assert texts(complete(client, seed=5)) == texts(complete(client, seed=5, n=2))[:1]
    assert texts(complete(client, seed=5, **drawn)) != texts(complete(client, seed=6, **drawn))


def test_a_schema_holds_at_any_temperature(client: openai.OpenAI) -> None:
    how = {"type": "json_schema", "json_schema": {"name": "act", "strict": True, "schema": ACTION}}
    # a seed and room: JSON may have so many blanks that an answer ends before it does
    asked = {"n": 20, "temperature": 2, "seed": 1, "max_completion_tokens": 300}
    for text in texts(complete(client, **asked, response_format=how)):
        jsonschema.validate(json.loads(text or ""), ACTION)
    found = complete(client, n=4, response_format={"type": "json_object"}, max_completion_tokens=300, seed=1)
    for choice in found.choices:
        assert choice.finish_reason != "stop" or isinstance(json.loads(choice.message.content or ""), dict)


def test_a_tool_is_called_and_its_answer_is_read(client: openai.OpenAI) -> None:
    found = complete(client, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, seed=1)
    choice = found.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    call = choice.message.tool_calls[0]
    assert call.type == "function"
    assert call.function.name == "move"
    jsonschema.validate(json.loads(call.function.arguments), ACTION)
    again: Any = client.chat.completions.create(
        model=BASE,
        messages=[
            *messages(),
            choice.message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "You see a key."},
        ],
        tools=[TOOL],  # type: ignore[list-item]
        max_tokens=5,
    )
    assert again.usage.prompt_tokens > (found.usage.prompt_tokens if found.usage else 0)


def test_chances_are_told_with_the_likeliest_beside_them(client: openai.OpenAI) -> None:
    found = complete(client, temperature=0, logprobs=True, top_logprobs=3)
    told = found.choices[0].logprobs
    assert told is not None
    assert told.content
    assert b"".join(bytes(each.bytes or []) for each in told.content).decode() == texts(found)[0]
    for each in told.content:
        assert each.logprob == each.top_logprobs[0].logprob  # the likeliest was taken
        assert [other.logprob for other in each.top_logprobs] == sorted(
            (other.logprob for other in each.top_logprobs), reverse=True
        )
        assert sum(math.exp(other.logprob) for other in each.top_logprobs) <= 1 + 1e-5
    assert complete(client).choices[0].logprobs is None


def test_what_stops_an_answer_is_no_part_of_it(client: openai.OpenAI) -> None:
    whole = texts(complete(client, temperature=0))[0] or ""
    stop = whole[4:8]
    assert texts(complete(client, temperature=0, stop=[stop])) == [whole[: whole.index(stop)]]
    assert texts(complete(client, temperature=0, stop=stop)) == [whole[: whole.index(stop)]]
    cut = complete(client, temperature=0, max_completion_tokens=1)
    assert cut.choices[0].finish_reason == "length"


def test_a_stream_says_the_same_in_pieces(client: openai.OpenAI) -> None:
    how: dict[str, Any] = {"seed": 7, "n": 2, "logprobs": True, "top_logprobs": 1}
    whole = complete(client, **how)
    chunks = list(
        client.chat.completions.create(
            model=BASE,
            messages=messages(),
            max_completion_tokens=40,
            stream=True,
            stream_options={"include_usage": True},
            **how,
        )
    )
    pieces: dict[int, list[str]] = {0: [], 1: []}
    for chunk in chunks:
        for choice in chunk.choices:
            pieces[choice.index].append(choice.delta.content or "")
    assert ["".join(each) for each in pieces.values()] == texts(whole)
    assert any(len([piece for piece in each if piece]) > 1 for each in pieces.values())
    assert chunks[-1].usage == whole.usage
    ends = [choice for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert sorted(end.index for end in ends) == [0, 1]
    for end, choice in zip(sorted(ends, key=lambda end: end.index), whole.choices, strict=True):
        assert chances(end.logprobs) == chances(choice.logprobs)


def chances(logprobs: Any) -> list[tuple[str, Any]]:
    """Tokens and their chances but for the noise of floats, which what is computed beside them changes."""
    return [(each.token, pytest.approx(each.logprob, abs=1e-3)) for each in logprobs.content]


def test_a_stream_of_a_call_has_the_call_whole(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=BASE,
        messages=messages(),
        tools=[TOOL],  # type: ignore[list-item]
        tool_choice="required",
        parallel_tool_calls=False,
        seed=1,
        max_completion_tokens=40,
    ) as stream:
        found = stream.get_final_completion()
    assert found.choices[0].finish_reason == "tool_calls"
    assert not found.choices[0].message.content
    assert found.choices[0].message.tool_calls is not None
    jsonschema.validate(json.loads(found.choices[0].message.tool_calls[0].function.arguments), ACTION)


def test_many_at_once_are_answered_as_one_by_one(client: openai.OpenAI) -> None:
    def asked(number: int) -> list[str | None]:
        return texts(complete(client, f"You see {number} balls.", seed=number))

    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(asked, range(32)))
    assert together == [asked(number) for number in range(32)]


@pytest.mark.parametrize(
    "how", [{}, {"tools": [TOOL], "tool_choice": "required"}, {"logprobs": True, "top_logprobs": 2, "n": 2}]
)
def test_every_field_has_the_type_that_openai_says(server: Running, how: dict[str, Any]) -> None:
    """The client is lenient; its models, which are made from OpenAI's specification, are not."""
    asked = {"model": BASE, "messages": messages(), "max_tokens": 60, "seed": 1, **how}
    whole = httpx.post(f"{server.url}/chat/completions", json=asked, timeout=60)
    ChatCompletion.model_validate_json(whole.content, strict=True)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    streamed = httpx.post(f"{server.url}/chat/completions", json={**asked, **options}, timeout=60)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    *chunks, end = (line.removeprefix("data: ") for line in streamed.text.split("\n\n") if line)
    assert end == "[DONE]"
    for chunk in chunks:
        ChatCompletionChunk.model_validate_json(chunk, strict=True)
    listed = httpx.get(f"{server.url}/models").json()
    assert listed["object"] == "list"
    for model in listed["data"]:
        Model.model_validate(model, strict=True)


@pytest.mark.parametrize(
    ("how", "param", "status"),
    [
        ({"model": "nobody"}, "model", 404),
        ({"messages": []}, "messages", 400),
        ({"messages": [{"role": "king", "content": ""}]}, "messages.0.role", 400),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", 400),
        ({"messages": [{"role": "user", "content": "a ball " * 9000}]}, "messages", 400),
        ({"temperature": -1}, "temperature", 400),
        ({"top_p": 0}, "top_p", 400),
        ({"n": 0}, "n", 400),
        ({"top_logprobs": 3}, "top_logprobs", 400),
        ({"max_completion_tokens": 0}, "max_completion_tokens", 400),
        ({"logit_bias": {"5": 10}}, "logit_bias", 400),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "x"}},
                }
            },
            "response_format",
            400,
        ),
        ({"tool_choice": "required"}, "tool_choice", 400),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_is_refused_as_openai_does(
    server: Running, how: dict[str, Any], param: str, status: int, stream: bool
) -> None:
    asked = {"model": BASE, "messages": messages(), "stream": stream, **how}
    answer = httpx.post(f"{server.url}/chat/completions", json=asked, timeout=60)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["message"]
    assert error["code"] == {"model": "model_not_found"}.get(param, error["code"])


def test_a_prompt_that_is_too_long_has_openais_code(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, "a ball " * 9000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as stranger:
        complete(client, model="nobody")
    assert stranger.value.code == "model_not_found"


def test_what_is_no_request_is_refused(server: Running) -> None:
    kind = {"content-type": "application/json"}
    assert httpx.post(f"{server.url}/chat/completions", content=b"{", headers=kind).status_code == 400
    assert httpx.get(f"{server.url}/embeddings").status_code == 404
    assert httpx.get(f"{server.url}/chat/completions").status_code == 405
    assert "error" in httpx.get(f"{server.url}/chat/completions").json()
