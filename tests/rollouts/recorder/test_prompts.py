"""What was sent is what the store gives back, whole, whatever the conversation does."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trajkit
from trajkit.schema import Message, Role, TextBlock, ToolCallBlock, ToolResultBlock

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
NAMES = st.sampled_from(["look", "go", "täke"])
CALLS = st.lists(st.tuples(NAMES, TEXT), min_size=1, max_size=3)


@st.composite
def turns(draw):
    """What the caller and the model say in turns; it may also begin anew or be rewritten."""
    made = []
    for _ in range(draw(st.integers(1, 6))):
        how = draw(st.sampled_from(["go on"] * 6 + ["begin anew", "drop the last", "rewrite the first"]))
        answer = draw(st.one_of(TEXT, CALLS))
        made.append((how, draw(TEXT), answer, draw(st.booleans())))
    return made


def chat_answer(wire, answer, number):
    if isinstance(answer, str):
        return wire.completion(answer)
    calls = [(f"call_{number}_{index}", name, text) for index, (name, text) in enumerate(answer)]
    return wire.completion(None, calls=calls)


def chat_wire(message: Message) -> list[dict]:
    """A message of the store as it goes over the wire: the way back, written once more."""
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    if message.role == Role.TOOL:
        (result,) = message.content
        return {"role": "tool", "tool_call_id": result.id, "content": result.result}
    sent = {"role": message.role.value, "content": texts[0] if texts else None}
    calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
    if calls:
        sent["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return sent


def plain(sent: dict) -> dict:
    """What was sent, without what says nothing."""
    return {name: value for name, value in sent.items() if value is not None}


@settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversation=turns())
def test_chat_prompts_come_back_as_they_were_sent(client, server, wire, conversation):
    server.clear()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
            messages = [{"role": "system", "content": "rules"}]
            for number, (how, text, answer, is_dumped) in enumerate(conversation):
                match how:
                    case "begin anew":
                        messages = [{"role": "system", "content": text}]
                    case "drop the last" if len(messages) > 1:
                        messages.pop()
                    case "rewrite the first":
                        messages[0] = {"role": "system", "content": text}
                messages.append({"role": "user", "content": text})
                server.script.append(wire.Answer(chat_answer(wire, answer, number)))
                made = recorder.client.chat.completions.create(model="m", messages=messages)
                said = made.choices[0].message
                messages.append(said.model_dump(exclude_none=True) if is_dumped else said)
                for call in said.tool_calls or ():
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{text}!"})
        (episode,) = trajkit.open_dataset(store)
        rows = trajkit.open_dataset(store).arrow("steps_full").read_all().to_pylist()
    sent = [[plain(message) for message in request["messages"]] for request in server.requests]
    given_back = [[plain(chat_wire(message)) for message in prompt] for prompt in episode.prompts()]
    assert given_back == sent
    rows.sort(key=lambda row: row["step_index"])
    full = [[Message.model_validate(one) for one in json.loads(row["prompt"])] for row in rows]
    assert full == [list(prompt) for prompt in episode.prompts()]


def item_wire(message: Message) -> list[dict]:
    """A message of the store as the items that it was."""
    if message.role == Role.ASSISTANT:
        return [
            {"text": block.text}
            if isinstance(block, TextBlock)
            else {"call_id": block.id, "name": block.name, "arguments": block.arguments}
            for block in message.content
        ]
    (block,) = message.content
    if isinstance(block, ToolResultBlock):
        return [{"call_id": block.id, "output": block.result}]
    return [{"role": message.role.value, "text": block.text}]


def item_plain(item: dict) -> dict:
    """An item as it was sent, in the same few words."""
    if item.get("type") == "function_call":
        return {name: item[name] for name in ("call_id", "name", "arguments")}
    if item.get("type") == "function_call_output":
        return {"call_id": item["call_id"], "output": item["output"]}
    if item["role"] == "assistant":
        return {"text": item["content"][0]["text"]}
    return {"role": item["role"], "text": item["content"]}


@pytest.mark.full
@settings(deadline=None, max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversation=turns(), is_chained=st.booleans())
def test_prompts_of_responses_come_back_as_they_were_sent(client, server, wire, conversation, is_chained):
    server.clear()
    expected = []
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
            items: list[dict] = []  # all that the model saw
            new: list[dict] = []  # what it has not seen yet
            last = None
            for number, (how, text, answer, is_text) in enumerate(conversation):
                if how == "begin anew":
                    items, new, last = [], [], None
                new.append({"role": "user", "content": text})
                if isinstance(answer, str):
                    output = [wire.text_message(answer, f"msg_{number}")]
                else:
                    output = [
                        wire.function_call(f"call_{number}_{index}", name, arguments)
                        for index, (name, arguments) in enumerate(answer)
                    ]
                body = wire.response(*output, response_id=f"resp_{number}")
                server.script.append(wire.Answer(body))
                asked = new if is_chained else items + new
                whole_input = text if is_text and len(asked) == 1 else asked
                more = {"previous_response_id": last} if is_chained and last else {}
                recorder.client.responses.create(
                    model="m", input=whole_input, instructions=f"rules {number % 2}", **more
                )
                system = {"role": "system", "content": f"rules {number % 2}"}
                expected.append([item_plain(item) for item in (system, *items, *new)])
                items, last = items + new + output, f"resp_{number}"
                new = [
                    {"type": "function_call_output", "call_id": item["call_id"], "output": f"{text}!"}
                    for item in output
                    if item["type"] == "function_call"
                ]
        (episode,) = trajkit.open_dataset(store)
    given_back = [[item for message in prompt for item in item_wire(message)] for prompt in episode.prompts()]
    assert given_back == expected


def test_a_conversation_that_grows_is_stored_once(client, server, wire, store, episodes):
    server.reply = lambda request: wire.Answer(
        wire.completion("on", calls=[(f"call_{len(request['messages'])}", "look", '{"at": "door"}')])
    )
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        messages = [{"role": "system", "content": "rules"}, {"role": "user", "content": "go"}]
        for number in range(20):
            said = recorder.client.chat.completions.create(model="m", messages=messages).choices[0].message
            messages += [
                said,
                {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": f"{number}"},
            ]
        journal = (store.parent / "store.journal").read_bytes()
    (episode,) = episodes()
    assert [step.n_prompt_kept for step in episode.steps] == [0, *range(3, 40, 2)]
    assert [len(step.messages) for step in episode.steps] == [2, *[1] * 19]
    assert journal.count(b'"rules"') == 1
    results = [step.messages[0].content[0] for step in episode.steps[1:]]
    assert {result.name for result in results} == {"look"}
    assert [step.observation for step in episode.steps] == ["go", *map(str, range(19))]


@pytest.mark.parametrize("n_agents", [2, 4])
def test_conversations_in_turns_stay_small_in_the_journal(client, store, episodes, n_agents):
    names = [f"agent {number}" for number in range(n_agents)]
    talks = {name: [{"role": "user", "content": f"You are {name}. " + name * 2000}] for name in names}
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode() as e:
        for _ in range(5):
            for name in names:
                with e.agent(name):
                    recorder.client.chat.completions.create(model="m", messages=talks[name])
                talks[name] += [{"role": "assistant", "content": "yes"}, {"role": "user", "content": "more"}]
        journal = (store.parent / "store.journal").read_bytes()
    (episode,) = episodes()
    for step, prompt in zip(episode.steps, episode.prompts(), strict=True):
        assert prompt[0].text.startswith(f"You are {step.agent_name}.")
    assert [len(prompt) for prompt in episode.prompts()] == [n for n in (1, 3, 5, 7, 9) for _ in names]
    n_new = sum(len(talk[0]["content"]) for talk in talks.values())
    assert n_new < len(journal) < n_new + 5 * n_agents * 1000  # of each call its headers and the answer
