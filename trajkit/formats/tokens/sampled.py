"""Read the sampled tokens of one call: ids, log-probabilities, and the version of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajkit.schema.base import JsonObject

_SETTINGS = ("temperature", "top_p", "top_k", "min_p", "seed", "stop", "max_tokens", "max_completion_tokens")
"""Fields of a request with its sampling settings."""
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (None, 1),
    "top_k": (None, -1, 0),
    "min_p": (None, 0),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "logit_bias": (None, {}),
}
"""Values of a request's fields that keep the model's own distribution."""
_GRAMMARS = (
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "regex",
    "ebnf",
)


class Sampled(NamedTuple):
    """The sampled tokens of one call. Unknown values are None."""

    prompt_token_ids: tuple[int, ...] | None = None
    """Token ids of the prompt."""
    completion_token_ids: tuple[int, ...] | None = None
    """Sampled token ids, including the one that ended the turn."""
    logprobs: tuple[float, ...] | None = None
    """Natural-log probability of each sampled token under the distribution that it was drawn from: after
    temperature, top-p and grammar mask. At temperature 0 it is 0, because the most likely token is taken with
    probability 1."""
    model_version: str | None = None
    """Fingerprint of the weights."""
    tokenizer: str | None = None
    """`sha256:` and the hash of the tokenizer of the ids."""
    is_masked: bool | None = None
    """Whether a grammar (a JSON schema or tools) limited the tokens that could be drawn."""
    allowed: tuple[bytes, ...] | None = None
    """For each token those that the grammar allowed: a bit for each of the vocabulary, the lowest first,
    compressed by zlib. None without a grammar. It is not stored: it follows from the request
    (`models.generation.row.allowed_tokens`)."""

    @property
    def columns(self) -> dict[str, Any]:
        """The values as columns of a step."""
        return {
            "prompt_token_ids": self.prompt_token_ids,
            "completion_token_ids": self.completion_token_ids,
            "logprobs": self.logprobs,
            "model_version": self.model_version,
        }

    @property
    def on_wire(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values as fields of a chat completion, and of its choice; `read_sampled` reads them.

        `prompt_token_ids` and `token_ids` are vLLM's names; the others are trajkit's own.
        """
        return (
            {
                "prompt_token_ids": self.prompt_token_ids,
                "model_version": self.model_version,
                "tokenizer": self.tokenizer,
            },
            {
                "token_ids": self.completion_token_ids,
                "sampled_logprobs": self.logprobs,
                "is_masked": self.is_masked,
            },
        )

    def extra(self, settings: JsonObject) -> JsonObject:
        """Return the other values, for the `extra` of a step.

        Args:
            settings: Sampling settings: temperature, top_p and so on.
        """
        masked: JsonObject = {} if self.is_masked is None else {"is_masked": self.is_masked}
        tokenizer: JsonObject = {} if self.tokenizer is None else {"tokenizer": self.tokenizer}
        return {"sampling": {**settings, **masked}, **tokenizer}


def read_sampled(request: Mapping[str, Any], answer: Mapping[str, Any]) -> Sampled:
    """Read the tokens of a chat completion, if the server returns them.

    Known are vLLM's shape (`prompt_token_ids` of the completion or its choice, `token_ids` of the choice,
    `logprobs.content`), SGLang's (`meta_info.output_token_logprobs`, under the sampled distribution:
    https://github.com/sgl-project/sglang/pull/2664) and trajkit's own (`sampled_logprobs`). Values whose
    lengths do not match each other, or the server's usage, are unknown.

    `logprobs.content` of vLLM and others is under the model's own distribution, so it is used only if that is
    the sampled one: the request has temperature 1, and nothing else that changes the distribution.

    Args:
        request: The body of the request.
        answer: The body of the answer.
    """
    choices = answer.get("choices")
    choice = _object(choices[0]) if isinstance(choices, Sequence) and choices else {}
    usage = _object(answer.get("usage"))
    meta = _object(choice.get("meta_info")) or _object(answer.get("meta_info"))
    pairs = _pairs(meta.get("output_token_logprobs"))
    ids = _ids(choice.get("token_ids")) or (tuple(token for _, token in pairs) if pairs else None)
    if ids is None or (len(choices or ()) == 1 and usage.get("completion_tokens") not in (None, len(ids))):
        ids, pairs = None, None
    prompt = _ids(answer.get("prompt_token_ids")) or _ids(choice.get("prompt_token_ids"))
    if prompt is None and (read := _pairs(meta.get("input_token_logprobs"), first_is_none=True)):
        prompt = tuple(token for _, token in read)
        if usage.get("prompt_tokens", meta.get("prompt_tokens")) != len(prompt):
            prompt = None  # the server returned only a part of it
    if prompt is not None and usage.get("prompt_tokens") not in (None, len(prompt)):
        prompt = None
    logprobs = _numbers(choice.get("sampled_logprobs")) or (
        tuple(each for each, _ in pairs) if pairs else None
    )
    if logprobs is None and _is_plain(request):
        content = _object(choice.get("logprobs")).get("content")
        logprobs = (
            _numbers([_object(each).get("logprob") for each in content])
            if isinstance(content, list)
            else None
        )
    if logprobs is not None and ids is not None and len(logprobs) != len(ids):
        logprobs = None
    version = answer.get("model_version") or meta.get("weight_version")
    version = version or _object(answer.get("metadata")).get("weight_version")
    tokenizer, is_masked = answer.get("tokenizer"), choice.get("is_masked")
    return Sampled(
        prompt,
        ids,
        logprobs,
        str(version) if isinstance(version, str | int) else None,
        tokenizer if isinstance(tokenizer, str) else None,
        is_masked if isinstance(is_masked, bool) else None,
    )


def settings_of(request: Mapping[str, Any]) -> JsonObject:
    """Return the sampling settings of a request."""
    return {name: request[name] for name in _SETTINGS if request.get(name) is not None}


def _is_plain(request: Mapping[str, Any]) -> bool:
    """Whether the tokens are certainly drawn from the model's own distribution."""
    shape = _object(request.get("response_format")).get("type", "text")
    choice = request.get("tool_choice")
    return (
        request.get("temperature") == 1
        and all(request.get(name) in values for name, values in _NEUTRAL.items())
        and not any(request.get(name) for name in _GRAMMARS)
        and shape == "text"
        and (not request.get("tools") or choice in (None, "auto", "none"))
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _ids(value: Any) -> tuple[int, ...] | None:
    """Return token ids; None if a value is not one."""
    if not isinstance(value, list) or not value:
        return None
    is_id = all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 2**31 for each in value)
    return tuple(value) if is_id else None


def _numbers(value: Any) -> tuple[float, ...] | None:
    """Return log-probabilities; None if a value is not one."""
    if not isinstance(value, list) or not value:
        return None
    is_one = all(isinstance(each, int | float) and math.isfinite(each) and each <= 1e-6 for each in value)
    return tuple(min(0.0, float(each)) for each in value) if is_one else None


def _pairs(value: Any, *, first_is_none: bool = False) -> list[tuple[float, int]] | None:
    """Parse SGLang's `[[logprob, id, text], …]`; None if invalid. A prompt's first token has no value."""
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(each, list) and len(each) > 1 for each in value)
    ):
        return None
    numbers = [each[0] for each in value]
    if first_is_none and numbers[0] is None:
        numbers[0] = 0.0
    logprobs, ids = _numbers(numbers), _ids([each[1] for each in value])
    return list(zip(logprobs, ids, strict=True)) if logprobs and ids else None
