"""The recorded client is the user's client in every way."""

from __future__ import annotations

import asyncio
import importlib

import openai
import pytest
from httpx import HTTPError  # openai 2 lets through what breaks a stream
from openai import AsyncOpenAI, AzureOpenAI, OpenAI
from pydantic import BaseModel

import trajkit
from trajkit.errors import RequestError
from trajkit.schema import ThoughtBlock, ToolCallBlock

ASK = {"model": "small", "messages": [{"role": "user", "content": "go"}]}


class Move(BaseModel):
    action: str


def streamed(wire, *texts, calls=()):
    """Events of a streamed chat completion."""
    events = [wire.chunk({"role": "assistant", "content": ""})]
    events += [wire.chunk({"content": text}) for text in texts]
    for index, (call_id, name, arguments) in enumerate(calls):
        first = {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        events.append(wire.chunk({"tool_calls": [first]}))
        for piece in (arguments[:4], arguments[4:]):
            rest = {"index": index, "function": {"arguments": piece}}
            events.append(wire.chunk({"tool_calls": [rest]}))
    events.append(wire.chunk({}, finish_reason="tool_calls" if calls else "stop"))
    return wire.Answer(events=[*events, wire.USAGE_CHUNK, "data: [DONE]\n\n"])


def test_it_is_of_the_same_class_and_nothing_of_the_users_own_is_changed(client, server, store):
    class Mine(OpenAI):
        def ask(self) -> str:
            return self.chat.completions.create(**ASK).choices[0].message.content

    mine = Mine(base_url=server.url, api_key="unused", max_retries=0)
    before = dict(vars(mine)), mine.chat
    with trajkit.Recorder(mine, store=store) as recorder:
        assert isinstance(recorder.client, Mine)
        assert type(recorder.client).__name__ == "Mine"
        assert recorder.client.api_key == "unused"
        assert recorder.client.base_url == mine.base_url
        assert recorder.client.ask() == "yes"
        assert mine.ask() == "yes"
        assert recorder.counts.n_calls == 1
        assert mine.chat is before[1]
        assert {name: vars(mine)[name] for name in before[0]} == before[0]
    assert len(trajkit.open_dataset(store)) == 1
    mine.close()


def test_what_is_sent_is_the_same_byte_for_byte(client, server, store):
    client.chat.completions.create(**ASK, temperature=0.5)
    with trajkit.Recorder(client, store=store) as recorder:
        recorder.client.chat.completions.create(**ASK, temperature=0.5)
    assert server.requests[0] == server.requests[1]
    first, second = ({**one.headers, "idempotency-key": None} for one in server.asked)
    assert first == second


def test_copies_are_recorded_too(client, store, episodes):
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        recorder.client.with_options(timeout=5).chat.completions.create(**ASK)
        recorder.client.copy(max_retries=1).chat.completions.create(**ASK)
        with openai.DefaultHttpxClient() as other:
            recorder.client.with_options(http_client=other).chat.completions.create(**ASK)
    assert episodes()[0].n_steps == 3


def test_raw_and_streaming_responses_are_what_they_ever_are(client, server, wire, store, episodes):
    server.reply = lambda request: wire.Answer(wire.completion("raw"))
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        completions = recorder.client.chat.completions
        raw = completions.with_raw_response.create(**ASK)
        assert raw.status_code == 200
        assert raw.parse().choices[0].message.content == "raw"
        with completions.with_streaming_response.create(**ASK) as streaming:
            assert b'"raw"' in b"".join(streaming.iter_bytes())
        with completions.with_streaming_response.create(**ASK) as streaming:
            assert streaming.parse().choices[0].message.content == "raw"
        server.reply = lambda request: streamed(wire, "one ", "two")
        raw = completions.with_raw_response.create(**ASK, stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in raw.parse() if c.choices) == "one two"
        assert raw.elapsed.total_seconds() > 0
    assert [step.completion.text for step in episodes()[0].steps] == ["raw", "raw", "raw", "one two"]
    assert [step.finish_reason for step in episodes()[0].steps] == ["stop"] * 4


def test_a_stream_is_put_together(client, server, wire, store, episodes):
    calls = [("call_1", "look", '{"at": "door"}'), ("call_2", "go", '{"to": "left"}')]
    server.script = [streamed(wire, "I ", "see"), streamed(wire, calls=calls)]
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        chunks = list(recorder.client.chat.completions.create(**ASK, stream=True))
        assert [chunk.choices[0].delta.content for chunk in chunks if chunk.choices][:3] == ["", "I ", "see"]
        with recorder.client.chat.completions.create(**ASK, stream=True) as stream:
            assert sum(1 for _ in stream) == 9
    said, called = episodes()[0].steps
    assert said.completion.text == "I see"
    assert (said.n_input_tokens, said.n_output_tokens, said.finish_reason) == (9, 3, "stop")
    assert called.completion.content[1:] == (
        ToolCallBlock(id="call_1", name="look", arguments='{"at": "door"}'),
        ToolCallBlock(id="call_2", name="go", arguments='{"to": "left"}'),
    )
    assert called.action == [
        {"name": "look", "arguments": {"at": "door"}},
        {"name": "go", "arguments": {"to": "left"}},
    ]
    assert called.latency_s > 0


def test_a_stream_that_is_not_read_to_its_end_is_kept_as_far_as_it_came(
    client, server, wire, store, episodes
):
    slow = streamed(wire, *["word "] * 50)._replace(delay_s=0.005)
    server.script = [slow, slow, slow]
    with trajkit.Recorder(client, store=store) as recorder:
        with recorder.episode(task="closed"):
            stream = recorder.client.chat.completions.create(**ASK, stream=True)
            for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
            stream.close()
        with recorder.episode(task="left open"):
            open_stream = recorder.client.chat.completions.create(**ASK, stream=True)
            next(open_stream)
            next(open_stream)
        with recorder.episode(task="never begun"):
            unread = recorder.client.chat.completions.create(**ASK, stream=True)
    open_stream.close()
    unread.close()
    closed, left, unread_one = (episode.steps[0] for episode in episodes())
    for step in (closed, left):
        assert step.completion.text.startswith("word")
        assert len(step.completion.text) < 50 * 5
    for step in (closed, left, unread_one):
        assert (step.loss_weight, step.mask_reason, step.finish_reason) in (
            (0.0, "answer broken off", None),
            (0.0, "answer not understood", None),
        )


def test_a_stream_that_breaks_raises_what_it_raises_and_is_kept(client, server, wire, store, episodes):
    server.script = [streamed(wire, "half")._replace(cut=True)]
    server.script[0] = server.script[0]._replace(events=server.script[0].events[:2])
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        stream = recorder.client.chat.completions.create(**ASK, stream=True)
        with pytest.raises((openai.APIConnectionError, HTTPError)):
            list(stream)
    (step,) = episodes()[0].steps
    assert (step.completion.text, step.mask_reason) == ("half", "answer broken off")


def test_compressed_answers_are_read(client, server, wire, store, episodes):
    server.script = [
        wire.Answer(wire.completion("small"), gzipped=True),
        streamed(wire, "a ", "b")._replace(gzipped=True),
    ]
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        recorder.client.chat.completions.create(**ASK)
        list(recorder.client.chat.completions.create(**ASK, stream=True))
    assert [step.completion.text for step in episodes()[0].steps] == ["small", "a b"]


def test_helpers_that_parse_and_stream_work_as_ever(client, server, wire, store, episodes):
    server.script = [
        wire.Answer(wire.completion('{"action": "go"}')),
        streamed(wire, '{"action": ', '"stay"}'),
        wire.Answer(wire.response(wire.text_message('{"action": "left"}'))),
        wire.Answer(events=wire.response_events(wire.response(wire.text_message('{"action": "right"}')))),
    ]
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        made = recorder.client
        assert (
            made.chat.completions.parse(**ASK, response_format=Move).choices[0].message.parsed.action == "go"
        )
        with made.chat.completions.stream(**ASK, response_format=Move) as stream:
            assert stream.get_final_completion().choices[0].message.parsed.action == "stay"
        parsed = made.responses.parse(model="small", input="go", text_format=Move)
        assert parsed.output_parsed.action == "left"
        with made.responses.stream(model="small", input="go", text_format=Move) as events:
            assert events.get_final_response().output_parsed.action == "right"
    steps = episodes()[0].steps
    assert [step.action for step in steps] == ["go", "stay", "left", "right"]
    schema = steps[0].extra["request"]["response_format"]["json_schema"]["schema"]
    assert list(schema["properties"]) == ["action"]


def test_an_asynchronous_client_is_recorded_in_all_its_ways(async_client, server, wire, store, episodes):
    server.script = [
        wire.Answer(wire.completion("one")),
        streamed(wire, "t", "wo"),
        streamed(wire, *["word "] * 30)._replace(delay_s=0.005),
        streamed(wire, "three"),
        wire.Answer(
            events=wire.response_events(wire.response(wire.reasoning("hm"), wire.text_message("four")))
        ),
        wire.Answer(wire.completion("five")),
    ]

    async def play() -> None:
        async with trajkit.Recorder(async_client, store=store) as recorder, recorder.episode():
            completions = recorder.client.chat.completions
            assert isinstance(recorder.client, AsyncOpenAI)
            assert (await completions.create(**ASK)).choices[0].message.content == "one"
            async for _ in await completions.create(**ASK, stream=True):
                pass
            stream = await completions.create(**ASK, stream=True)
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
            await stream.close()
            async with completions.stream(**ASK) as events:
                assert (await events.get_final_completion()).choices[0].message.content == "three"
            async for _ in await recorder.client.responses.create(model="small", input="go", stream=True):
                pass
            raw = await completions.with_raw_response.create(**ASK)
            assert raw.parse().choices[0].message.content == "five"
        await async_client.close()

    asyncio.run(play())
    steps = episodes()[0].steps
    assert [step.completion.text for step in steps[:2]] == ["one", "two"]
    assert steps[2].mask_reason == "answer broken off"
    assert [step.completion.text for step in steps[3:]] == ["three", "four", "five"]
    assert isinstance(steps[4].completion.content[0], ThoughtBlock)


def test_a_client_on_the_older_http_library_is_recorded(server, wire, store, episodes):
    httpx = importlib.import_module("httpx")
    server.script = [wire.Answer(wire.completion("old")), streamed(wire, "older")]
    with httpx.Client() as http_client:
        old = OpenAI(base_url=server.url, api_key="unused", http_client=http_client, max_retries=0)
        with trajkit.Recorder(old, store=store) as recorder, recorder.episode():
            recorder.client.chat.completions.create(**ASK)
            assert len(list(recorder.client.chat.completions.create(**ASK, stream=True))) == 4
    assert [step.completion.text for step in episodes()[0].steps] == ["old", "older"]


def test_azure_is_recorded(server, wire, store, episodes):
    server.script = [wire.Answer(wire.completion("blue"))]
    azure = AzureOpenAI(base_url=server.url, api_key="unused", api_version="2025-01-01", max_retries=0)
    with trajkit.Recorder(azure, store=store) as recorder, recorder.episode():
        assert isinstance(recorder.client.with_options(timeout=3), AzureOpenAI)
        recorder.client.chat.completions.create(**ASK)
    azure.close()
    assert episodes()[0].steps[0].completion.text == "blue"


def test_errors_of_the_call_are_the_callers_and_are_counted(client, server, wire, store, episodes):
    error = {"error": {"message": "slow down", "type": "rate_limit"}}
    server.script = [
        wire.Answer(error, status=429),
        wire.Answer(error, status=400),
        wire.Answer(error, status=500),
        wire.Answer(wire.completion("after all")),
    ]
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        with pytest.raises(openai.RateLimitError) as raised:
            recorder.client.chat.completions.create(**ASK)
        assert raised.value.body == error["error"]
        with pytest.raises(openai.BadRequestError):
            recorder.client.chat.completions.create(**ASK, stream=True)
        recorder.client.with_options(max_retries=1).chat.completions.create(**ASK)
        with pytest.raises(openai.APIConnectionError):
            recorder.client.with_options(base_url="http://127.0.0.1:9/v1").chat.completions.create(**ASK)
        assert recorder.counts.n_failed == 4
        assert recorder.counts.n_calls == 1
    (episode,) = episodes()
    assert episode.origin["n_failed_requests"] == 4
    assert [step.completion.text for step in episode.steps] == ["after all"]
    assert episode.steps[0].extra["n_retries"] == 1
    entry = trajkit.open_dataset(store).store.manifest.lineage[0]
    assert (entry.n_steps_in, entry.n_steps_out, entry.left[0].reason) == (5, 1, "request failed")


def test_other_requests_pass_and_are_counted(client, server, wire, store):
    server.reply = lambda request: wire.Answer({"object": "list", "data": [], "model": "m", "usage": {}})
    with trajkit.Recorder(client, store=store) as recorder:
        recorder.client.models.list()
        recorder.client.embeddings.create(model="m", input="text", encoding_format="float")
        assert recorder.counts.n_other == {"GET models": 1, "POST embeddings": 1}
        assert recorder.counts.n_calls == 0


def test_a_client_of_another_kind_is_refused_before_anything_is_made(store):
    with pytest.raises(RequestError, match="takes an OpenAI or AsyncOpenAI client, not object"):
        trajkit.Recorder(object(), store=store)
    assert not list(store.parent.iterdir())


def test_several_clients_go_into_one_store(client, async_client, server, wire, store, episodes):
    server.reply = lambda request: wire.Answer(wire.completion(request["model"]))

    async def play(made: AsyncOpenAI) -> None:
        await made.chat.completions.create(**{**ASK, "model": "second"})
        await async_client.close()

    with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        assert recorder.wrap(recorder.client) is recorder.client
        recorder.client.chat.completions.create(**ASK)
        asyncio.run(play(recorder.wrap(async_client)))
    assert [step.completion.text for step in episodes()[0].steps] == ["small", "second"]


def test_an_error_in_recording_never_reaches_the_call(client, store, episodes, full_disk):
    recorder = trajkit.Recorder(client, store=store)

    def call() -> str:
        return recorder.client.chat.completions.create(**ASK).choices[0].message.content

    with recorder.episode() as e:
        call()
        with full_disk():
            with pytest.warns(UserWarning, match="could not record a call: OSError"):
                assert call() == "yes"
            e.reward(1.0)  # it was said once: no warning here, where warnings are errors
        assert call() == "yes"
    with pytest.warns(UserWarning, match="is written, but incomplete: 1 calls, 1 rewards"):
        recorder.close()
    assert recorder.counts.n_lost_calls == 1
    (episode,) = episodes()
    assert [step.reward for step in episode.steps] == [None, None]
    assert trajkit.open_dataset(store).store.manifest.lineage[0].left[0].n_steps == 1


def test_where_warnings_are_errors_none_is_raised_into_the_call(client, store, full_disk):
    recorder = trajkit.Recorder(client, store=store)

    with full_disk():
        assert recorder.client.chat.completions.create(**ASK).choices[0].message.content == "yes"
    recorder.close()
    assert recorder.counts.fault == "OSError: [Errno 28] No space left on device"
