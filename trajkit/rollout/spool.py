"""Finished episodes wait on disk until a run is over: only then is there a store, whole or not at all."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from trajkit.errors import StoreError
from trajkit.rollout.record import with_prompts
from trajkit.schema import Episode, Message

Prompts = Callable[[Sequence[str]], Mapping[str, tuple[Message, ...]]]
"""Finds the exact prompts of inferences in the gateway's database."""

_BATCH_STEPS = 2000


class Spool:
    """Episodes in a file without a name, which is gone when the process is."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115 -- closed by __exit__
        self.n_episodes = 0
        self.n_steps = 0
        self.n_without_prompt = 0
        """Inferences whose prompt was asked for and not found."""

    def add(self, episode: Episode) -> None:
        """Keep an episode.

        Raises:
            StoreError: There is no room for it.
        """
        try:
            self._file.write(episode.model_dump_json() + "\n")
        except OSError as error:
            raise StoreError(
                f"{tempfile.gettempdir()} cannot hold the episodes until the store is written: {error}",
                hint="make room, or set TMPDIR to another folder",
            ) from error
        self.n_episodes += 1
        self.n_steps += episode.n_steps

    def episodes(self, prompts: Prompts | None = None) -> Iterator[Episode]:
        """Every episode in the order added, with its exact prompts where there is someone to ask."""
        self._file.seek(0)
        batch: list[Episode] = []
        for line in self._file:
            batch.append(Episode.model_validate_json(line))
            if sum(episode.n_steps for episode in batch) >= _BATCH_STEPS:
                yield from self._prompted(batch, prompts)
                batch = []
        yield from self._prompted(batch, prompts)

    def _prompted(self, batch: list[Episode], prompts: Prompts | None) -> Iterator[Episode]:
        ids = [
            step.inference_id for episode in batch for step in episode.steps if step.inference_id is not None
        ]
        if prompts is None or not ids:
            yield from batch
            return
        found = prompts(ids)
        self.n_without_prompt += sum(inference_id not in found for inference_id in ids)
        for episode in batch:
            yield with_prompts(episode, found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # what did not fit is not written by closing either
            self._file.close()
