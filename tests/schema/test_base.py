from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from tests.schema.conftest import episode, say, transition
from trajkit.schema import Manifest, Message, Metric, Model


def test_a_noun_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        transition().reward = 1.0


def test_an_unknown_field_is_refused_by_name():
    with pytest.raises(ValidationError, match=r"reward\n.*Extra inputs are not permitted"):
        episode(reward=1.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("field", ["reward", "latency_s", "loss_weight", "cost_usd"])
def test_nan_and_infinity_are_refused_with_the_field_named(field, value):
    with pytest.raises(ValidationError, match=field):
        transition(**{field: value})


def test_nan_is_refused_deep_inside_free_form_values():
    with pytest.raises(ValidationError, match=r"input\.dict\.a\.list\.1\.dict\.b"):
        transition(input={"a": [1, {"b": float("nan")}]})


def test_half_of_a_surrogate_pair_is_refused_wherever_text_is():
    with pytest.raises(ValidationError, match=r"observation\n.*surrogate pair at character 1"):
        transition(observation="a\ud800")
    with pytest.raises(ValidationError, match="surrogate"):
        transition(info={"\udfff": 1})
    with pytest.raises(ValidationError, match="surrogate"):
        say("\ud83d")


def test_a_time_without_an_offset_is_refused_and_others_become_utc():
    with pytest.raises(ValidationError, match="started_at"):
        transition(started_at=datetime(2026, 1, 1))  # noqa: DTZ001
    offset = timezone(timedelta(hours=2))
    step = transition(started_at=datetime(2026, 1, 1, 14, tzinfo=offset))
    assert step.started_at == datetime(2026, 1, 1, 12, tzinfo=UTC)
    with pytest.raises(ValidationError, match="not in the years 1 to 9999 in UTC"):
        transition(started_at=datetime(1, 1, 1, tzinfo=offset))
    assert step.started_at.tzinfo == UTC


def test_every_field_of_every_noun_is_documented():
    waiting: list[type[Model]] = [Model]
    while waiting:
        model = waiting.pop()
        waiting += model.__subclasses__()
        if not model.__module__.startswith("trajkit.schema"):
            continue
        assert model.__doc__
        for name, field in model.model_fields.items():
            assert field.description or name == "type", f"{model.__name__}.{name}"


def test_an_unknown_role_block_or_optimum_is_refused():
    with pytest.raises(ValidationError, match="role"):
        Message.model_validate({"role": "robot", "content": []})
    with pytest.raises(ValidationError, match="hologram"):
        Message.model_validate({"role": "user", "content": [{"type": "hologram"}]})
    with pytest.raises(ValidationError, match="optimize"):
        Metric.model_validate({"name": "m", "level": "episode", "kind": "float", "optimize": "most"})


def test_a_manifest_needs_a_digest_that_is_a_sha256():
    with pytest.raises(ValidationError, match="digest"):
        Manifest.model_validate({"digest": "abc"})
