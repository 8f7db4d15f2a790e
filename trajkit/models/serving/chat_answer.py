"""Write answers in OpenAI's format of a chat completion, whole or as chunks of a stream."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from trajkit.models.generation.ask import Likely, Said, SaidToken
from trajkit.models.generation.model import Voice


class Answer:
    """The answer to one request.

    Args:
        voice: The model that answered.
        answer_id: Id of the answer.
        created_at_s: Unix time of the answer.
        has_ids: Whether to add token ids of prompt and answer, and the values of the sampling.
    """

    def __init__(self, voice: Voice, *, answer_id: str, created_at_s: int, has_ids: bool = False) -> None:
        self._voice, self._has_ids = voice, has_ids
        self._head = {"id": answer_id, "created": created_at_s, "model": voice.name}

    def whole(self, said: Sequence[Said]) -> dict[str, Any]:
        """Return the whole completion."""
        choices = [
            {
                "index": index,
                "message": {
                    "role": "assistant",
                    # OpenAI has null if there are tool calls and no text
                    "content": None if each.tool_calls and not each.text else each.text,
                    "refusal": None,
                    **({"tool_calls": _calls(each)} if each.tool_calls else {}),
                },
                "logprobs": self._logprobs(each),
                "finish_reason": each.finish_reason,
                **self._sampled(each)[1],
            }
            for index, each in enumerate(said)
        ]
        head = {**self._head, **self._sampled(said[0])[0]}
        return {**head, "object": "chat.completion", "choices": choices, "usage": usage(said)}

    def first(self, index: int) -> dict[str, Any]:
        """Return the first chunk, with the role."""
        return self._chunk(index, {"role": "assistant", "content": "", "refusal": None})

    def piece(self, index: int, text: str) -> dict[str, Any]:
        """Return a chunk of text."""
        return self._chunk(index, {"content": text})

    def last(self, index: int, said: Said) -> list[dict[str, Any]]:
        """Return the chunks of an answer's calls, log-probabilities and finish reason."""
        calls = [{"index": place, **call} for place, call in enumerate(_calls(said))]
        chunks = [self._chunk(index, {"tool_calls": calls})] if calls else []
        end = self._chunk(index, {}, finish_reason=said.finish_reason)
        of_answer, of_choice = self._sampled(said)
        end["choices"][0] |= {"logprobs": self._logprobs(said), **of_choice}
        return [*chunks, {**end, **of_answer}]

    def used(self, said: Sequence[Said]) -> dict[str, Any]:
        """Return the chunk with the usage of all answers."""
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage(said)}

    def _chunk(self, index: int, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def _sampled(self, said: Said) -> tuple[dict[str, Any], dict[str, Any]]:
        return said.sampled.on_wire if self._has_ids and said.sampled else ({}, {})

    def _logprobs(self, said: Said) -> dict[str, Any] | None:
        if said.logprobs is None:
            return None
        return {
            "content": [
                {**self._likely(each), "top_logprobs": [self._likely(other) for other in each.top]}
                for each in said.logprobs
            ],
            "refusal": None,
        }

    def _likely(self, each: Likely | SaidToken) -> dict[str, Any]:
        spelled = self._voice.bytes_of(each.token)
        text = spelled.decode("utf-8", errors="replace")
        return {"token": text, "logprob": each.logprob, "bytes": list(spelled)}


def usage(said: Sequence[Said]) -> dict[str, int]:
    """Return the token counts of some answers to one prompt."""
    n_prompt = said[0].n_input_tokens
    n_said = sum(each.n_output_tokens for each in said)
    return {"prompt_tokens": n_prompt, "completion_tokens": n_said, "total_tokens": n_prompt + n_said}


def _calls(said: Said) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{secrets.token_hex(12)}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in said.tool_calls
    ]
