from __future__ import annotations

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter


def test_the_scripted_bodies_are_what_the_package_openai_says_they_are(wire):
    for body in (
        wire.completion("hello"),
        wire.completion(None, calls=[("call_1", "look", '{"at": "door"}')]),
        wire.completion(None, message={"refusal": "no"}),
    ):
        ChatCompletion.model_validate(body)
    for body in (wire.chunk({"role": "assistant", "content": ""}), wire.USAGE_CHUNK):
        ChatCompletionChunk.model_validate(body)
    whole = wire.response(
        wire.reasoning("hm"), wire.text_message("hello"), wire.function_call("call_1", "look", '{"at": 1}')
    )
    Response.model_validate(whole)
    events = wire.response_events(whole)
    assert [TypeAdapter(ResponseStreamEvent).validate_python(event).type for event in events] == [
        event["type"] for event in events
    ]
