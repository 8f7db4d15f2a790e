from __future__ import annotations

import trajkit
from trajkit.rollouts.recorder.calls.responses import ResponsesReader
from trajkit.schema import (
    FileBlock,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)

TOOL = {"type": "function", "name": "look", "description": "d", "parameters": {}, "strict": True}


def test_items_of_the_assistant_that_follow_each_other_are_one_message(wire):
    reader = ResponsesReader({})
    output = [wire.reasoning("hm"), wire.text_message("I look"), wire.function_call("1", "look", "{}")]
    answer = reader.completion({"output": output})
    sent = [
        {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
        *output,
        {"type": "function_call_output", "call_id": "1", "output": "a door"},
    ]
    messages = reader.messages(sent)
    assert [message.role for message in messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert messages[1] == answer
    summary = ({"type": "summary_text", "text": "hm"},)
    assert answer.content == (
        ThoughtBlock(signature="opaque", summary=summary, extra_data={"id": "rs_1"}),
        TextBlock(text="I look"),
        ToolCallBlock(id="1", name="look", arguments="{}"),
    )
    assert messages[2].content == (ToolResultBlock(id="1", name="look", result="a door"),)


def test_items_without_a_type_of_their_own_are_kept_verbatim():
    reader = ResponsesReader({})
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "door"}}
    shot = {
        "type": "computer_call_output",
        "call_id": "2",
        "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"},
    }
    picture = {"type": "image_generation_call", "id": "ig_1", "result": "A" * 400}
    files = [{"type": "input_image", "file_id": "f"}, {"type": "input_file", "file_url": "u"}]
    sent = [
        {"role": "user", "content": files},
        search,
        picture,
        shot,
        {"type": "item_reference", "id": "msg_9"},
    ]  # fmt: skip
    user, made, result, reference = reader.messages(sent)
    assert user.content == (
        FileBlock(mime_type="image/*", storage_path={"file_id": "f"}),
        FileBlock(source_url="u"),
    )
    assert made.role == Role.ASSISTANT
    assert made.content[0] == UnknownBlock(data=search)
    assert made.content[1].data["result"]["n_bytes"] == 300
    assert result.role == Role.TOOL
    assert result.content[0].data["output"]["image_url"]["mime_type"] == "image/png"
    assert reference.content == (UnknownBlock(data={"type": "item_reference", "id": "msg_9"}),)


def test_a_chain_is_followed_where_it_was_recorded_and_marked_where_not(
    client, server, wire, store, episodes
):
    server.script = [
        wire.Answer(wire.response(wire.function_call("1", "look", "{}"), response_id="resp_a")),
        wire.Answer(wire.response(wire.text_message("done"), response_id="resp_b")),
        wire.Answer(wire.response(wire.text_message("what?"), response_id="resp_c")),
        wire.Answer(wire.response(wire.text_message("hm"), response_id="resp_d")),
    ]
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        ask = recorder.client.responses.create
        ask(model="m", input="go", instructions="rules", tools=[TOOL])
        result = {"type": "function_call_output", "call_id": "1", "output": "a door"}
        ask(model="m", input=[result], instructions="rules", previous_response_id="resp_a")
        ask(model="m", input="more", previous_response_id="resp_of_another_day")
        ask(model="m", input="more", conversation="conv_1")
    called, done, unknown, conversing = episodes()[0].steps
    assert called.tools == ({"name": "look", "description": "d", "parameters": {}, "strict": True},)
    assert (called.finish_reason, done.finish_reason) == ("tool_calls", "stop")
    assert (done.n_prompt_kept, len(done.messages)) == (3, 1)
    assert done.messages[0].content[0].name == "look"
    for step in (unknown, conversing):
        assert step.messages is None
        assert (step.loss_weight, step.mask_reason) == (0.0, "prompt unknown")
        assert step.input["input"] == "more"
    assert unknown.extra["previous_response_id"] == "resp_of_another_day"
    assert (called.n_input_tokens, called.n_output_tokens) == (13, 6)
    assert called.extra["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}
    entry = trajkit.open_dataset(store).store.manifest.lineage[0]
    assert [(one.reason, one.n_steps) for one in entry.masked] == [("prompt unknown", 2)]


def test_answers_that_are_cut_failed_or_fetched_later_say_so(client, server, wire, store, episodes):
    cut = wire.response(
        wire.text_message("too lo"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}
    )
    failed = wire.response(status="failed", error={"code": "server_error", "message": "oh"}, usage=None)
    queued = wire.response(status="queued", background=True, usage=None)
    server.script = [
        wire.Answer(cut),
        wire.Answer(failed),
        wire.Answer(queued),
        wire.Answer(events=wire.response_events(cut)),
        wire.Answer(events=wire.response_events(failed)),
    ]
    recorder = trajkit.Recorder(client, store=store)
    with recorder.episode():
        for more in ({}, {}, {"background": True}, {"stream": True}, {"stream": True}):
            made = recorder.client.responses.create(model="m", input="go", **more)
            if more.get("stream"):
                assert list(made)
    recorder.close()
    steps = episodes()[0].steps
    assert [(step.finish_reason, step.mask_reason) for step in steps] == [
        ("length", None),
        (None, "answer failed"),
        ("length", None),
        (None, "answer failed"),
    ]
    assert steps[0].completion.text == "too lo"
    assert steps[1].completion is None
    entry = trajkit.open_dataset(store).store.manifest.lineage[0]
    assert [(one.reason, one.n_steps) for one in entry.left] == [("answered in the background", 1)]


def test_a_stream_of_events_that_breaks_off_is_kept_as_far_as_it_came(client, server, wire, store, episodes):
    whole = wire.response(
        wire.reasoning("hm"), wire.text_message("a long answer"), wire.function_call("1", "look", '{"a": 1}')
    )
    events = wire.response_events(whole)
    in_text = next(n for n, one in enumerate(events) if one["type"] == "response.output_text.delta") + 1
    in_call = next(n for n, one in enumerate(events) if "arguments.delta" in one["type"]) + 1
    server.script = [wire.Answer(events=events[:in_text]), wire.Answer(events=events[:in_call])]
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        for _ in range(2):
            assert list(recorder.client.responses.create(model="m", input="go", stream=True))
    text, call = episodes()[0].steps
    assert text.completion.content[1] == TextBlock(text="a l")
    assert call.completion.content[2] == ToolCallBlock(id="1", name="look", arguments='{"a')
    assert {text.mask_reason, call.mask_reason} == {"answer broken off"}
