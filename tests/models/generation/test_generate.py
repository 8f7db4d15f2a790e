"""What models answer, alone and side by side: the same, and what transformers says."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from trajkit._core.samples import model_path
from trajkit.errors import RequestError
from trajkit.models.generation import model as models
from trajkit.models.generation.ask import Ask, AskError
from trajkit.models.generation.generate import generate
from trajkit.models.generation.model import LocalModel
from trajkit.models.generation.weights import old_names

SYSTEM = "You play a game on a grid. Answer with the next action as JSON. "


def ask(number: int, **how: Any) -> Ask:
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"Mission: go to the red ball\n\nObservation: {'a wall ' * number}"},
    ]
    return Ask(**{"messages": messages, "seed": number, "max_new_tokens": 24, **how})


def by_transformers(
    folder: str, prompt: tuple[int, ...], n_new: int, adapter: str | None = None
) -> list[int]:
    """The likeliest tokens, each from the whole text before it: no cache, no batch, nothing of ours."""
    import peft
    import torch
    import transformers

    network = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    if adapter is not None:
        with old_names():
            network = peft.PeftModel.from_pretrained(network, adapter).eval()
    line = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(n_new):
            line = torch.cat([line, network(input_ids=line).logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    new: list[int] = line[0, len(prompt) :].tolist()
    return new


@pytest.mark.parametrize("name", daily(["base", "one"], 1))
def test_the_likeliest_answer_is_the_one_of_transformers(
    fresh: LocalModel, adapters: dict[str, str], name: str
) -> None:
    asks = [ask(number, model=name, temperature=0) for number in range(5)]
    for asked, said in zip(asks, generate(fresh, asks), strict=True):
        prompt = fresh.voice(name).template.prompt(asked.messages)
        expected = by_transformers(
            model_path("sample:tiny-base"), prompt, len(said.tokens), adapters.get(name)
        )
        assert list(said.tokens) == expected
        assert said.n_input_tokens == len(prompt)


def test_places_are_right_where_rows_are_filled_up_and_a_beginning_is_known(gpt2: Path) -> None:
    model = LocalModel.open(str(gpt2))
    texts = ["go to the red ball", "go to the red", "go to the r", "go to the red ball, then stop now"]
    asks = [Ask([{"role": "user", "content": text}], temperature=0, max_new_tokens=12) for text in texts]
    for _ in range(2):  # the second time what they begin with is known
        said = generate(model, asks)
        for asked, each in zip(asks, said, strict=True):
            prompt = model.voice(None).template.prompt(asked.messages)
            assert list(each.tokens) == by_transformers(str(gpt2), prompt, len(each.tokens))
    assert len({each.tokens for each in said}) == 4


def test_an_answer_follows_from_its_ask_and_seed_and_not_from_its_neighbours(fresh: LocalModel) -> None:
    asks = [
        ask(number, model=name, top_p=top_p)
        for number in range(6)
        for name, top_p in (("base", 1.0), ("one", 0.8), ("two", 1.0))
    ]
    together = generate(fresh, asks)
    fresh.forget()
    alone = [generate(fresh, [each])[0] for each in reversed(asks)][::-1]
    assert [each.tokens for each in together] == [each.tokens for each in alone]
    assert [each.tokens for each in generate(fresh, asks, side_by_side=2)] == [each.tokens for each in alone]
    assert len({each.tokens for each in together}) > 5
    others = generate(fresh, [each._replace(seed=1000 + number) for number, each in enumerate(asks)])
    assert [each.tokens for each in others] != [each.tokens for each in together]


@pytest.mark.full
def test_tokens_are_drawn_as_often_as_they_are_likely(fresh: LocalModel) -> None:
    asked = ask(1, max_new_tokens=1, n_logprobs=3)
    heat = 1.5
    said = generate(fresh, [asked._replace(seed=seed, temperature=heat) for seed in range(2000)])
    seen = Counter(each.tokens[0] for each in said)
    voice = fresh.voice(None)
    import torch

    with torch.inference_mode():
        prompt = torch.tensor([voice.template.prompt(asked.messages)])
        logits, _ = voice(prompt, torch.ones_like(prompt), torch.arange(prompt.shape[1])[None], None)
    chances = torch.softmax(logits[0] / heat, dim=-1)
    for token in chances.topk(3).indices.tolist():
        expected, share = float(chances[token]), seen[token] / 2000
        assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / 2000)
    told = said[0].logprobs
    assert told is not None  # it was asked for; what is told does not know the temperature
    assert told[0].logprob == pytest.approx(float(logits[0].log_softmax(-1)[told[0].token]), abs=1e-4)
    assert [each.logprob for each in told[0].top] == sorted((e.logprob for e in told[0].top), reverse=True)


def test_top_p_draws_the_likeliest_alone_when_they_are_enough(fresh: LocalModel) -> None:
    best = generate(fresh, [ask(1, temperature=0, max_new_tokens=1)])[0].tokens
    drawn = generate(fresh, [ask(1, seed=s, top_p=1e-6, max_new_tokens=1) for s in range(20)])
    assert {each.tokens for each in drawn} == {best}


def test_an_answer_ends_where_a_text_stops_it_or_its_room_does(fresh: LocalModel) -> None:
    whole = generate(fresh, [ask(2, temperature=0)])[0]
    assert whole.finish_reason == "stop"
    assert whole.tokens[-1] in fresh.voice(None).stops
    middle = whole.text[5:9]
    stopped = generate(fresh, [ask(2, temperature=0, stop=(middle,))])[0]
    assert stopped.text == whole.text[: whole.text.index(middle)]
    assert stopped.finish_reason == "stop"
    cut = generate(fresh, [ask(2, temperature=0, max_new_tokens=1)])[0]
    assert (cut.tokens, cut.finish_reason) == (whole.tokens[:1], "length")


def test_a_prompt_that_is_too_long_is_refused_and_an_answer_is_cut_to_the_room(gpt2: Path) -> None:
    model = LocalModel.open(str(gpt2))
    with pytest.raises(AskError, match=r"the prompt has 64 tokens; .* takes 64") as caught:
        generate(model, [Ask([{"role": "user", "content": "a" * 64}])])
    assert caught.value.param == "messages"
    said = generate(model, [Ask([{"role": "user", "content": "a" * 60}], max_new_tokens=50, temperature=0)])
    assert said[0].n_output_tokens <= 4


@pytest.mark.parametrize(
    ("how", "param"),
    [
        ({"messages": []}, "messages"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"model": "three"}, "model"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_what_cannot_be_asked_is_named(fresh: LocalModel, how: dict[str, Any], param: str) -> None:
    with pytest.raises(AskError) as caught:
        generate(fresh, [ask(1), ask(2, **how)])
    assert caught.value.param == param


def test_adapters_that_are_not_merged_say_the_same(
    fresh: LocalModel,
    adapters: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "trajkit")
    asks = [ask(number, model=name, temperature=0) for number in range(3) for name in ("base", "one", "two")]
    expected = [each.tokens for each in generate(fresh, asks)]
    monkeypatch.setattr(models, "SMALL", 0)
    dotted = {**adapters, "runs/above-0.3/model": adapters["one"]}
    large = LocalModel.open("sample:tiny-base", adapters=dotted, name="base")
    assert not large.voice("one").is_small
    (note,) = caplog.messages  # a small model gets none
    assert note.startswith("note: base runs on trajkit's own engine: transformers on one device")
    assert [each.tokens for each in generate(large, asks)] == expected
    assert len(set(expected)) > 3
    (said,) = generate(large, [ask(0, model="runs/above-0.3/model", temperature=0)])
    assert said.tokens == expected[1]


def test_an_adapter_may_be_called_by_a_path_with_a_dot(fresh: LocalModel, adapters: dict[str, str]) -> None:
    (expected,) = generate(fresh, [ask(1, model="one", temperature=0)])
    dotted = LocalModel.open("sample:tiny-base", adapters={"runs/above-0.3/model": adapters["one"]})
    (said,) = generate(dotted, [ask(1, model="runs/above-0.3/model", temperature=0)])
    assert said.tokens == expected.tokens


def test_an_adapter_of_another_model_is_refused(gpt2: Path, adapters: dict[str, str]) -> None:
    with pytest.raises(RequestError, match="the adapter one does not fit its base"):
        LocalModel.open(str(gpt2), adapters={"one": adapters["one"]})


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no model in"):
        LocalModel.open(str(tmp_path))
