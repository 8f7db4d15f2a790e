from __future__ import annotations

import functools
import json

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from tests.schema.conftest import episode, episodes, transition
from trajkit.schema.json_schema import NOUNS, json_schema


@pytest.mark.parametrize("noun", NOUNS)
def test_every_schema_is_a_schema_with_an_id_of_its_own(noun):
    schema = json_schema(noun)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:trajkit:v1:{noun}"
    assert schema["additionalProperties"] is False
    # a field whose description is that of its type refers to the type
    assert all("description" in field or "$ref" in field for field in schema["properties"].values())


@settings(max_examples=50, deadline=None)
@given(episodes())
def test_what_trajkit_writes_is_valid(one):
    assert _errors("episode", json.loads(one.model_dump_json())) == []


def test_a_stranger_is_told_what_is_wrong():
    good = json.loads(episode(transition(0)).model_dump_json())
    assert _errors("episode", {**good, "purpose": "fun"})
    assert _errors("episode", {**good, "surprise": 1})
    assert _errors("episode", {**good, "steps": [{"step_index": -1}]})
    assert _errors("message", {"role": "user", "content": [{"type": "text"}]})
    assert _errors("message", {"role": "user", "content": [{"type": "text", "text": "a"}]}) == []


@functools.cache
def _validator(noun: str) -> Draft202012Validator:
    return Draft202012Validator(json_schema(noun))


def _errors(noun: str, value: object) -> list[str]:
    return [error.message for error in _validator(noun).iter_errors(value)]
