"""Silence warnings about names that transformers 5 deprecates and peft 0.21 and TRL 1.16 still use."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def old_names() -> Iterator[None]:
    """Suppress the warnings in the block; users of trajkit cannot act on them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`\w*gradient_checkpointing\w*`", FutureWarning)
        yield
