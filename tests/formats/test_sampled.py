"""Sampled tokens from other servers: read by their shape, and unknown where they do not fit together."""

from __future__ import annotations

from typing import Any

import pytest

from trajkit.formats.tokens.sampled import Sampled, read_sampled

PLAIN = {"temperature": 1, "top_p": 1}


def vllm(*, n_prompt: int = 2, n_output: int = 2, **choice: Any) -> dict[str, Any]:
    content = [{"token": "a", "logprob": -0.5}, {"token": "<end>", "logprob": -0.25}]
    known = {"index": 0, "token_ids": [7, 8], "logprobs": {"content": content}}
    usage = {"prompt_tokens": n_prompt, "completion_tokens": n_output}
    return {"prompt_token_ids": [1, 2], "choices": [known | choice], "usage": usage}


def sglang(**meta: Any) -> dict[str, Any]:
    known = {
        "output_token_logprobs": [[-0.5, 7, "a"], [-0.25, 8, None]],
        "input_token_logprobs": [[None, 1, None], [-3.5, 2, None]],
        "weight_version": 3,
    }
    return {
        "choices": [{"index": 0, "meta_info": known | meta}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 2},
    }


def test_the_shape_of_vllm() -> None:
    assert read_sampled(PLAIN, vllm()) == Sampled((1, 2), (7, 8), (-0.5, -0.25))
    of_choice = vllm(prompt_token_ids=[1, 2])
    del of_choice["prompt_token_ids"]
    assert read_sampled(PLAIN, of_choice).prompt_token_ids == (1, 2)


def test_the_shape_of_sglang_whose_log_probabilities_are_of_the_distribution_sampled() -> None:
    found = read_sampled({"temperature": 0.5}, sglang())
    assert found == Sampled((1, 2), (7, 8), (-0.5, -0.25), "3")
    part = sglang(input_token_logprobs=[[-3.5, 2, None]])
    assert read_sampled({}, part) == Sampled(None, (7, 8), (-0.5, -0.25), "3")


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": None},
        {"temperature": 0.7},
        {"top_p": 0.9},
        {"top_k": 20},
        {"min_p": 0.1},
        {"frequency_penalty": 0.5},
        {"response_format": {"type": "json_schema"}},
        {"structured_outputs": {"json": {}}},
        {"tools": [{}], "tool_choice": "required"},
    ],
)
def test_log_probabilities_of_another_distribution_than_the_sampled_one_are_unknown(
    changes: dict[str, Any],
) -> None:
    assert read_sampled({**PLAIN, **changes}, vllm()) == Sampled((1, 2), (7, 8))
    told = vllm(sampled_logprobs=[-0.125, 0.0])
    assert read_sampled({**PLAIN, **changes}, told).logprobs == (-0.125, 0)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (vllm(n_output=3), Sampled((1, 2), None, (-0.5, -0.25))),  # a tool parser has lost an id
        (vllm(n_prompt=3), Sampled(None, (7, 8), (-0.5, -0.25))),
        (vllm(token_ids=[7, "8"]), Sampled((1, 2), None, (-0.5, -0.25))),
        (vllm(token_ids=[7, -1]), Sampled((1, 2), None, (-0.5, -0.25))),
        (vllm(logprobs={"content": [{"logprob": -0.5}]}), Sampled((1, 2), (7, 8))),
        (vllm(logprobs={"content": [{"logprob": -0.5}, {"logprob": 0.5}]}), Sampled((1, 2), (7, 8))),
        (vllm(logprobs=None), Sampled((1, 2), (7, 8))),
        (sglang(output_token_logprobs=[[-0.5, 7], [None, 8]]), Sampled((1, 2), None, None, "3")),
        ({"choices": [], "model_version": {}, "tokenizer": 1}, Sampled()),
        ({"choices": [{"meta_info": 1, "token_ids": {}}], "usage": []}, Sampled()),
    ],
)
def test_what_does_not_fit_together_is_unknown(answer: dict[str, Any], expected: Sampled) -> None:
    assert read_sampled(PLAIN, answer) == expected
