from __future__ import annotations

import json
from typing import Any

import pytest

from trajkit.formats.chat.request import Refusal
from trajkit.stack.chat_completion import INVALID_ANSWERS, Player, complete, read_request
from trajkit.stack.rule_player import ACTIONS

PERFECT = Player(mistakes=0.0, invalid=0.0)
SEEN = "Observation:\na wall 4 steps forward\na red ball 1 step right"


def body(**changes: Any) -> bytes:
    """A request that asks the way to a ball on the right."""
    messages = [
        {"role": "system", "content": "Your mission: go to the red ball."},
        {"role": "user", "content": SEEN},
    ]
    return json.dumps({"model": "any", "messages": messages, "seed": 1} | changes).encode()


def schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    value = {"type": "object", "properties": properties, "required": required}
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": value}}


def ask(request: bytes, player: Player = PERFECT) -> dict[str, Any]:
    """The answer's content, as the caller would parse it."""
    answer = complete(read_request(request), player, completion_id="chatcmpl-1", created_at_s=7)
    content: dict[str, Any] = json.loads(answer["choices"][0]["message"]["content"])
    return content


TEXT = {"type": "string"}


def test_a_completion_has_the_shape_of_openai() -> None:
    answer = complete(read_request(body()), PERFECT, completion_id="chatcmpl-1", created_at_s=7)

    assert {key: answer[key] for key in ("id", "object", "created", "model")} == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 7,
        "model": "any",
    }
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop"]
    assert "not-a-language-model" in answer["system_fingerprint"]


def test_usage_counts_words_numbers_and_marks() -> None:
    answer = complete(
        read_request(body(messages=[{"role": "user", "content": "Go, 2 steps!"}])),
        PERFECT,
        completion_id="chatcmpl-1",
        created_at_s=7,
    )

    assert answer["usage"]["prompt_tokens"] == 5  # Go , 2 steps !
    assert answer["usage"]["total_tokens"] == 5 + answer["usage"]["completion_tokens"]


@pytest.mark.parametrize(
    ("response_format", "names"),
    [
        (None, ["thinking", "action"]),
        ({"type": "text"}, ["thinking", "action"]),
        ({"type": "json_object"}, ["thinking", "action"]),
        (schema({"action": TEXT}, ["action"]), ["action"]),
        (schema({"action": TEXT, "thinking": TEXT}, ["action"]), ["thinking", "action"]),
        (schema({"action": TEXT, "mood": TEXT}, ["action"]), ["action"]),
    ],
)
def test_it_answers_the_properties_that_are_asked_for(response_format: Any, names: list[str]) -> None:
    answer = ask(body(response_format=response_format))

    assert list(answer) == names
    assert answer["action"] == "turn right"


def test_thinking_is_empty_when_the_prompt_says_so() -> None:
    messages = [{"role": "user", "content": f'Task: go to the red ball.\n{SEEN}\n\nLeave "thinking" empty.'}]

    assert ask(body(messages=messages)) == {"thinking": "", "action": "turn right"}
    assert "red ball" in ask(body())["thinking"]


def test_content_in_parts_is_read_as_text() -> None:
    parts = [{"type": "text", "text": "Goal: go to the red ball."}, {"type": "text", "text": SEEN}]

    assert ask(body(messages=[{"role": "user", "content": parts}]))["action"] == "turn right"


def test_it_never_leaves_the_enum_of_a_schema() -> None:
    wanted = schema({"action": {"type": "string", "enum": ["turn left", "drop"]}}, ["action"])
    player = Player(mistakes=0.5, invalid=0.5)

    answers = {ask(body(response_format=wanted, seed=seed), player)["action"] for seed in range(50)}

    assert answers == {"turn left", "drop"}


def test_the_same_request_has_the_same_answer_and_another_seed_makes_other_mistakes() -> None:
    player = Player(mistakes=0.5, invalid=0.1)
    first = [ask(body(seed=seed), player)["action"] for seed in range(60)]

    assert [ask(body(seed=seed), player)["action"] for seed in range(60)] == first
    assert len(set(first)) > 4
    assert [
        ask(body(seed=seed), player.model_copy(update={"seed": 1}))["action"] for seed in range(60)
    ] != first


def test_the_model_name_and_the_sampling_options_change_nothing() -> None:
    player = Player(mistakes=0.5, invalid=0.1)
    plain = [ask(body(seed=seed), player) for seed in range(30)]

    assert [
        ask(body(seed=seed, model="b", temperature=0, max_tokens=3), player) for seed in range(30)
    ] == plain


def test_mistakes_come_as_often_as_asked_for() -> None:
    player = Player(mistakes=0.2, invalid=0.05)
    actions = [ask(body(seed=seed), player)["action"] for seed in range(2000)]

    n_right = actions.count("turn right")
    n_invalid = sum(action in INVALID_ANSWERS for action in actions)
    # Binomial standard errors: sqrt(2000 * .75 * .25) = 19.4 and sqrt(2000 * .05 * .95) = 9.7; four of them.
    assert abs(n_right - 1500) < 78
    assert abs(n_invalid - 100) < 39
    assert {action for action in actions if action not in INVALID_ANSWERS} == set(ACTIONS)


def test_a_player_that_always_errs_never_gives_the_right_action() -> None:
    player = Player(mistakes=1.0, invalid=0.0)

    assert "turn right" not in {ask(body(seed=seed), player)["action"] for seed in range(50)}


@pytest.mark.parametrize(
    ("request_body", "param", "words"),
    [
        (b"", None, "not valid JSON"),
        (b"{", None, "not valid JSON"),
        (b"\xff\xfe", None, "not valid JSON"),
        (b"[" * 100_000, None, "not valid JSON"),
        (b"[]", None, "body"),
        (b"{}", "model", "model"),
        (body(messages=[]), "messages", "messages"),
        (body(messages=[{"role": "user", "content": 5}]), "messages.0.content", "messages.0.content"),
        (body(messages="hello"), "messages", "messages"),
        (body(seed="one"), "seed", "seed"),
        (body(stream=True), "stream", "does not stream"),
        (body(n=2), "n", "one answer"),
        (body(tools=[{"type": "function"}]), "tools", "no tools"),
        (body(response_format={"type": "xml"}), "response_format.type", "json_schema"),
    ],
)
def test_a_bad_request_is_refused_with_what_is_wrong(
    request_body: bytes, param: str | None, words: str
) -> None:
    with pytest.raises(Refusal) as refused:
        read_request(request_body)

    assert (refused.value.param or "").startswith(param or "")
    assert words in refused.value.message
    assert refused.value.status == 400
    assert set(refused.value.body["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "json_schema"},
        schema({"answer": TEXT}, ["answer"]),
        schema({"action": TEXT, "mood": TEXT}, ["action", "mood"]),
        schema({"action": {"type": "integer"}}, ["action"]),
        schema({"action": {"type": "string", "enum": ["fly"]}}, ["action"]),
        schema({"action": "text"}, ["action"]),
    ],
)
def test_a_schema_that_it_cannot_fill_is_refused(response_format: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        ask(body(response_format=response_format))

    assert (refused.value.param or "").startswith("response_format")


def test_half_a_character_in_the_prompt_is_no_trouble() -> None:
    request = body(messages=[{"role": "user", "content": "\ud800 Goal: go to the red ball.\n" + SEEN}])

    assert ask(request)["action"] == "turn right"
