"""Answers that keep to a JSON schema, whatever the model would rather say."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.matrix import daily
from trajkit.models.generation.ask import Ask, AskError
from trajkit.models.generation.generate import generate
from trajkit.models.generation.model import LocalModel

MOVE = {
    "type": "object",
    "properties": {"action": {"type": "string", "enum": ["go forward", "turn left", "pick up"]}},
    "required": ["action"],
    "additionalProperties": False,
}


def ask(seed: int, schema: Any, **how: Any) -> Ask:
    messages = [{"role": "user", "content": "You see a ball."}]
    return Ask(**{"messages": messages, "seed": seed, "json_schema": schema, "max_new_tokens": 200, **how})


@pytest.mark.parametrize("temperature", daily([0.0, 1.0, 3.0], 1))
def test_every_answer_keeps_to_an_enum(fresh: LocalModel, temperature: float) -> None:
    said = generate(fresh, [ask(seed, MOVE, temperature=temperature) for seed in range(40)])
    for each in said:
        jsonschema.validate(json.loads(each.text), MOVE)
        assert each.finish_reason == "stop"
    free = generate(fresh, [ask(seed, None, temperature=3.0) for seed in range(5)])
    assert not any(each.text.startswith('{"action"') for each in free)


@pytest.mark.parametrize(
    "schema",
    daily(
        [
            {"type": "object"},
            {"enum": ["left", 3, None]},
            {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
            {"anyOf": [{"const": "stop"}, MOVE]},
            {"$ref": "#/$defs/move", "$defs": {"move": MOVE}},
            {
                "type": "object",
                "properties": {"n": {"type": "integer", "minimum": 2, "maximum": 5}},
                "required": ["n"],
                "additionalProperties": False,
            },
            {"type": "string", "pattern": "^[a-c]{2,4}$"},
        ],
        4,
    ),
)
def test_other_shapes_hold_too(fresh: LocalModel, schema: dict[str, Any]) -> None:
    for each in generate(fresh, [ask(seed, schema) for seed in range(8)]):
        if each.finish_reason == "stop":
            jsonschema.validate(json.loads(each.text), schema)
    assert any(each.finish_reason == "stop" for each in generate(fresh, [ask(s, schema) for s in range(8)]))


def test_rows_with_and_without_a_schema_are_answered_side_by_side(fresh: LocalModel) -> None:
    mixed = generate(fresh, [ask(1, MOVE), ask(1, None), ask(2, {"const": "yes"})])
    assert json.loads(mixed[0].text)["action"]
    assert mixed[1].tokens == generate(fresh, [ask(1, None)])[0].tokens
    assert mixed[2].text == '"yes"'


def test_chances_are_those_that_the_model_gave_by_itself(fresh: LocalModel) -> None:
    free = generate(fresh, [ask(1, None, temperature=0.0, n_logprobs=1)])[0]
    bound = generate(fresh, [ask(1, MOVE, temperature=0.0, n_logprobs=1)])[0]
    assert free.logprobs is not None
    assert bound.logprobs is not None
    assert bound.logprobs[0].top == free.logprobs[0].top
    assert bound.logprobs[0].token != free.logprobs[0].token
    assert bound.logprobs[0].logprob < free.logprobs[0].logprob


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objekt"}, "Invalid type: objekt"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"not": {"type": "string"}}, "not"),
        ({"$ref": "http://nowhere.invalid/x"}, "nowhere"),
        ({"enum": []}, "Unsatisfiable"),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_the_reason(
    fresh: LocalModel, schema: dict[str, Any], words: str
) -> None:
    with pytest.raises(AskError, match=words) as caught:
        generate(fresh, [ask(1, schema)])
    assert caught.value.param == "json_schema"
    assert "\n" not in caught.value.message
