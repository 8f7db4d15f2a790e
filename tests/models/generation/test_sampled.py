"""Log-probabilities of sampled tokens, recomputed by a plain forward pass of transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trajkit._core.samples import model_path
from trajkit.models.generation.ask import Ask
from trajkit.models.generation.generate import generate
from trajkit.models.generation.model import LocalModel
from trajkit.models.generation.row import Row

SCHEMA = {"type": "object", "properties": {"action": {"enum": ["turn left", "go forward", "drop"]}}}
MESSAGES = [{"role": "user", "content": "Mission: go to the red ball\n\nObservation: a wall"}]


@pytest.fixture(scope="module")
def plain() -> Any:
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(model_path("sample:tiny-base"))


def allowed(model: LocalModel, ask: Ask, tokens: tuple[int, ...]) -> Any:
    """bool [tokens, vocabulary]: what the grammar left open at each place."""
    import numpy
    import torch

    constraint = Row(model.voice(None), ask).constraint
    width = model.voice(None).grammars.n_vocabulary
    masks = []
    for token in tokens:
        bits = numpy.zeros((width + 31) // 32, dtype=numpy.int32)
        assert constraint is not None
        constraint.allow(bits)
        masks.append(numpy.unpackbits(bits.view(numpy.uint8), bitorder="little", count=width).astype(bool))
        constraint.take(token)
    return torch.from_numpy(numpy.array(masks))


def recomputed(plain: Any, model: LocalModel, ask: Ask, prompt: tuple[int, ...], tokens: Any) -> list[float]:
    """One forward pass over prompt and completion, then temperature, mask and top-p by their definitions."""
    import torch

    with torch.no_grad():
        logits = plain(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].double()
    if ask.json_schema is not None:
        logits = logits.masked_fill(~allowed(model, ask, tokens), float("-inf"))
    chances = (logits / ask.temperature).softmax(-1)
    for row in chances if ask.top_p < 1 else ():
        order = row.argsort(descending=True, stable=True)
        before = row[order].cumsum(0) - row[order]
        row[order[before >= ask.top_p]] = 0
        row /= row.sum()
    found: list[float] = chances[range(len(tokens)), list(tokens)].log().tolist()
    return found


def test_log_probabilities_are_those_of_the_distribution_that_was_sampled(
    fresh: LocalModel, plain: Any
) -> None:
    ways: list[dict[str, Any]] = [
        {},
        {"temperature": 0.6},
        {"temperature": 1.7, "top_p": 0.8},
        {"json_schema": SCHEMA},
        {"json_schema": SCHEMA, "temperature": 1.5, "top_p": 0.9},
    ]
    asks = [Ask(MESSAGES, seed=seed, max_new_tokens=16, **way) for seed, way in enumerate(ways * 3)]
    fresh.forget()
    for ask, said in zip(asks, generate(fresh, asks), strict=True):
        sampled = said.sampled
        assert sampled is not None
        prompt, tokens, logprobs = sampled[:3]
        assert prompt == fresh.voice(None).template.prompt(ask.messages)
        assert tokens == said.tokens
        assert sampled.is_masked == (ask.json_schema is not None)
        assert prompt
        expected = recomputed(plain, fresh, ask, prompt, tokens)
        assert logprobs == pytest.approx(expected, abs=1e-4)
        ratios = [math.exp(new - old) for new, old in zip(expected, logprobs or (), strict=True)]
        assert ratios == pytest.approx([1] * len(tokens), abs=1e-4)  # on policy


def test_the_likeliest_token_is_certain_at_temperature_0_beside_others_that_are_drawn(
    fresh: LocalModel,
) -> None:
    cold, hot = generate(fresh, [Ask(MESSAGES, temperature=heat, seed=1) for heat in (0, 1)])
    assert cold.sampled
    assert hot.sampled
    assert cold.sampled.logprobs == (0.0,) * len(cold.tokens)
    assert any(each < 0 for each in hot.sampled.logprobs or ())


def test_a_model_is_told_from_its_adapters(fresh: LocalModel) -> None:
    versions = {fresh.voice(name).version for name in ("base", "one", "two")}
    assert len(versions) == 3
    (said,) = generate(fresh, [Ask(MESSAGES, max_new_tokens=1)])
    assert said.sampled
    assert said.sampled.model_version == fresh.voice("base").version
    assert said.sampled.tokenizer == fresh.voice("base").template.digest
