"""How fast this machine trains a model: a short warm-up, measured."""

from __future__ import annotations

import time
from typing import Any

from trajkit._core.lazy import need
from trajkit._core.samples import pretrained
from trajkit.errors import RequestError

_SECONDS = 3.0
_TOKENS_PER_ROW = 256
_ROWS = 4


def trained_tokens_per_second(model: str) -> float:
    """Train a model for about three seconds on tokens of no meaning; nothing is kept.

    Args:
        model: The folder of a causal language model, or `sample:NAME`.

    Returns:
        Tokens in a second, forward and backward, over all weights in 32 bits. LoRA takes about two thirds of
        the time.

    Raises:
        RequestError: The folder holds no such model.
        MissingExtra: torch or transformers is not installed.
    """
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    try:
        learner: Any = pretrained(transformers.AutoModelForCausalLM, model, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise RequestError(f"no model in {model}: {str(error).splitlines()[0]}") from error
    learner.to("cuda" if torch.cuda.is_available() else "cpu").train()
    length = min(_TOKENS_PER_ROW, getattr(learner.config, "max_position_embeddings", _TOKENS_PER_ROW))
    rows = torch.zeros((_ROWS, length), dtype=torch.long, device=learner.device)
    _step(learner, rows)  # the first one makes room and compiles
    started, n_tokens = time.perf_counter(), 0
    while time.perf_counter() - started < _SECONDS:
        _step(learner, rows)
        n_tokens += rows.numel()
    return n_tokens / (time.perf_counter() - started)


def _step(learner: Any, rows: Any) -> None:
    learner(input_ids=rows, labels=rows).loss.backward()
    learner.zero_grad()
    if learner.device.type == "cuda":
        need("torch", extra="local").cuda.synchronize()
