"""Names that transformers 5 calls old and that peft 0.21 and TRL 1.16 still ask it for."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def old_names() -> Iterator[None]:
    """Without the warnings about them, which no user of ours can do anything about."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`\w*gradient_checkpointing\w*`", FutureWarning)
        yield
