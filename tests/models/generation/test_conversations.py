"""Turns that go on from what was sampled, with tokenizers that spell the same text in other ways."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tiny import byte_tokenizer
from trajkit.models.generation.ask import Ask
from trajkit.models.generation.conversations import Conversations
from trajkit.models.generation.generate import generate
from trajkit.models.generation.model import LocalModel

MERGES = ["go north", "go forth", "norm", "north to the door", "the other forge"] * 4
"""What the tokenizer has merged: an answer that ends in `g` and a prompt that goes on with `o` are `go`."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    """A model of random weights, no mark between its turns, and 40 merges."""
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("bpe")
    byte_tokenizer(folder, "{% for m in messages %}{{ m.content }}{% endfor %}", merged=MERGES)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=297, n_positions=512, n_embd=32, n_layer=1, n_head=4, bos_token_id=0, eos_token_id=0
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return LocalModel.open(str(folder))


def test_every_turn_extends_the_ids_of_the_one_before_whatever_was_sampled(model: LocalModel) -> None:
    import torch

    template, network = model.voice(None).template, model.voice(None)._network
    n_spelled_otherwise = n_broken = 0
    talks: list[list[dict[str, Any]]] = [[{"role": "user", "content": "go n"}] for _ in range(8)]
    held: list[tuple[int, ...]] = [()] * len(talks)
    for turn in range(4):
        asks = [
            Ask(messages, conversation=str(n), seed=100 * turn + n, max_new_tokens=12)
            for n, messages in enumerate(talks)
        ]
        for n, said in enumerate(generate(model, asks)):
            assert said.sampled
            prompt, tokens, logprobs = said.sampled[:3]
            assert prompt and tokens and logprobs  # noqa: PT018
            ends = held[n][-1:] == (0,)  # the end of a turn, which this template does not write
            assert prompt[: len(held[n]) - ends] == held[n][: len(held[n]) - ends]
            n_spelled_otherwise += prompt != template.prompt(talks[n])
            n_broken += "\ufffd" in said.text
            held[n] = prompt + tokens
            with torch.no_grad():
                logits = network(input_ids=torch.tensor([held[n]])).logits[0, len(prompt) - 1 : -1]
            expected = logits.log_softmax(-1)[range(len(tokens)), list(tokens)].tolist()
            assert logprobs == pytest.approx(expected, abs=1e-4)
            talks[n] += [{"role": "assistant", "content": said.text}, {"role": "user", "content": "orth"}]
    assert n_spelled_otherwise > 8  # tokenised again, these prompts would not have extended the ids
    assert n_broken > 8


def test_a_prompt_that_does_not_go_on_from_a_turn_stays_as_it_is(model: LocalModel) -> None:
    template = model.voice(None).template
    talks = Conversations(template)
    prompt, said = tuple(template.encode("go n")), tuple(template.encode("<think>no</think>orth"))
    talks.keep("one", prompt, said)
    stripped = tuple(template.encode("go north to the door"))  # a template has left the thought out
    assert talks.extended("one", stripped) == stripped
    whole = tuple(template.encode("go n<think>no</think>orth to the door"))
    assert talks.extended("other", whole) == whole
    extended = talks.extended("one", whole)
    assert extended[: len(prompt + said)] == prompt + said
    assert template.spelled(extended) == template.spelled(whole)


def test_a_turn_can_be_sampled_again_from_an_earlier_one(model: LocalModel) -> None:
    template = model.voice(None).template
    talks = Conversations(template)
    prompt = tuple(template.encode("go n"))
    for said in ("or", "orth", "ord"):
        talks.keep("one", prompt, tuple(template.encode(said)))
    assert talks.extended("one", tuple(template.encode("go nord"))) == prompt + tuple(template.encode("ord"))
    assert talks.extended("one", tuple(template.encode("go norx")))[: len(prompt)] == prompt
