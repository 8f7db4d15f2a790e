"""The tokens of one call as they were sampled: ids, log-probabilities, and the version of the model."""

from __future__ import annotations

from typing import Any, NamedTuple

from trajkit.schema.base import JsonObject


class Sampled(NamedTuple):
    """The tokens of one call. What is unknown is None."""

    prompt_token_ids: tuple[int, ...] | None = None
    """Token ids of the prompt that the model read."""
    completion_token_ids: tuple[int, ...] | None = None
    """Token ids that were sampled, the one that ended the turn included."""
    logprobs: tuple[float, ...] | None = None
    """For each of them the natural-log probability under the distribution it was drawn from: after
    temperature, top-p and grammar mask. At temperature 0 it is 0, because the likeliest token is taken with
    probability 1."""
    model_version: str | None = None
    """Fingerprint of the weights."""
    tokenizer: str | None = None
    """`sha256:` and the hash of the tokenizer that the ids belong to."""
    is_masked: bool | None = None
    """Whether a grammar (a JSON schema or tools) limited which tokens could be drawn."""

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of a step that hold it."""
        return {
            "prompt_token_ids": self.prompt_token_ids,
            "completion_token_ids": self.completion_token_ids,
            "logprobs": self.logprobs,
            "model_version": self.model_version,
        }

    def extra(self, settings: JsonObject) -> JsonObject:
        """The rest of it, for the `extra` of a step.

        Args:
            settings: How the completion was sampled: temperature, top_p and so on.
        """
        masked: JsonObject = {} if self.is_masked is None else {"is_masked": self.is_masked}
        tokenizer: JsonObject = {} if self.tokenizer is None else {"tokenizer": self.tokenizer}
        return {"sampling": {**settings, **masked}, **tokenizer}
