"""What a source reads at a place, as the tests of sources look at it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajkit.formats.reading.document import Reading
from trajkit.schema import Episode, Message, Transition
from trajkit.sources.files.found import Found
from trajkit.sources.source import Source
from trajkit.sources.wish import Wish


@dataclass(frozen=True)
class Reader:
    """Reads with one source."""

    source: Source

    def found(self, place: Path | str, wish: Wish = Wish()) -> list[Found]:  # noqa: B008 -- frozen
        """What is found at a place, without the files that no source looks at."""
        return [one for one in self.source.read(str(place), wish) if isinstance(one, Found)]

    def episodes(self, place: Path | str, wish: Wish = Wish()) -> dict[str, Episode]:  # noqa: B008 -- frozen
        """The episodes at a place by id, of what can be read there."""
        readings = [one.reading for one in self.found(place, wish)]
        return {
            each.episode_id: each for one in readings if isinstance(one, Reading) for each in one.episodes
        }

    def sound(self, place: Path | str, wish: Wish = Wish()) -> dict[str, Episode]:  # noqa: B008 -- frozen
        """The episodes at a place where all can be read."""
        assert [one.problem for one in self.found(place, wish) if one.problem is not None] == []
        return self.episodes(place, wish)

    def session(self, place: Path | str) -> list[Episode]:
        """The episodes of the only session at a place."""
        assert len(self.found(place)) == 1
        return list(self.sound(place).values())

    def of_babyai(self, place: Path | str) -> list[Episode]:
        """Those of the thirty episodes."""
        return [one for name, one in self.episodes(place).items() if name.startswith("babyai-")]


def written(path: Path, rows: Iterable[Any]) -> Path:
    """Write a file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(one)}\n" for one in rows), encoding="utf-8")
    return path


def answer(step: Transition) -> Message:
    """What the model answered."""
    assert step.completion is not None
    return step.completion
