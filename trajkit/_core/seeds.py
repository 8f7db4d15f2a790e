"""Parse and keep seeds: half-open ranges, each seed once; a range takes constant memory."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from trajkit.errors import RequestError

_HIGHEST = 2**63 - 1
"""Seeds stay below this: a store keeps them in 64 bits."""

_EXAMPLES = "such as 200:220 (200 to 219), 0:1000:7, 1,5,9, or a file with one per line"


class Seeds:
    """Whole numbers from 0 to play, in ascending ranges, each once. A range takes constant memory.

    Args:
        ranges: In any order.

    Raises:
        RequestError: There are none, one is negative, or one is given twice.
    """

    def __init__(self, ranges: Iterable[range]) -> None:
        self._ranges = tuple(sorted((one for one in ranges if len(one)), key=lambda one: (one[0], one[-1])))
        if not self._ranges:
            raise RequestError("no seeds are given", hint=_EXAMPLES)
        if self._ranges[0][0] < 0:
            raise RequestError(f"seed {self._ranges[0][0]} is negative", hint="seeds count from 0")
        self._firsts = [one[0] for one in self._ranges]
        self._is_apart = all(
            one[-1] < after for one, after in zip(self._ranges, self._firsts[1:], strict=False)
        )
        if not self._is_apart:
            self._refuse_repeats()
        self._starts = [0]
        for one in self._ranges:
            self._starts.append(self._starts[-1] + len(one))

    def _refuse_repeats(self) -> None:
        seen: set[int] = set()
        for one in self._ranges:
            if both := seen.intersection(one):
                raise RequestError(f"seed {min(both)} is given twice", hint="each is played once")
            seen.update(one)

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[int]:
        for one in self._ranges:
            yield from one

    def __getitem__(self, index: int) -> int:
        """Return the seed at a position from 0."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect.bisect_right(self._starts, index) - 1
        return self._ranges[number][index - self._starts[number]]

    def index(self, seed: int) -> int:
        """Return the position of a seed.

        Raises:
            ValueError: It is not among them.
        """
        number = bisect.bisect_right(self._firsts, seed) - 1
        while number >= 0:
            if seed in (one := self._ranges[number]):
                return self._starts[number] + one.index(seed)
            number = -1 if self._is_apart else number - 1
        raise ValueError(f"{seed} is not in {self}")

    def has(self, seed: int) -> bool:
        """Whether a seed is among them."""
        try:
            self.index(seed)
        except ValueError:
            return False
        return True

    @property
    def ranges(self) -> tuple[range, ...]:
        """The seeds as ascending ranges, none of them empty."""
        return self._ranges

    def first_shared(self, other: Seeds) -> int | None:
        """Return the smallest seed that both have; None when there is none."""
        if not (self._is_apart and other._is_apart):
            pairs = itertools.product(self._ranges, other._ranges)
            return min((seed for pair in pairs if (seed := _first_of_both(*pair)) is not None), default=None)
        mine, theirs = 0, 0
        while mine < len(self._ranges) and theirs < len(other._ranges):
            one, two = self._ranges[mine], other._ranges[theirs]
            if (seed := _first_of_both(one, two)) is not None:
                return seed
            if one[-1] < two[-1]:
                mine += 1
            else:
                theirs += 1
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seeds) and self._ranges == other._ranges

    def __hash__(self) -> int:
        return hash(self._ranges)

    def __str__(self) -> str:
        """Return them as typed: `0:20`, `1,5,9`, `0:1000:7`."""
        return ",".join(_written(one) for one in self._ranges)

    def __repr__(self) -> str:
        return f"Seeds({self})"


def _first_of_both(one: range, other: range) -> int | None:
    """Return the smallest number that is in two ascending ranges; the smaller step bounds the tries."""
    start = max(one[0], other[0])
    wide, fine = (one, other) if one.step >= other.step else (other, one)
    first = wide[0] + -(-(start - wide[0]) // wide.step) * wide.step
    looks = range(first, min(wide[-1], fine[-1]) + 1, wide.step)[: fine.step]
    return next((seed for seed in looks if seed in fine), None)


def _written(one: range) -> str:
    if len(one) == 1:
        return str(one[0])
    return f"{one.start}:{one.stop}" if one.step == 1 else f"{one.start}:{one.stop}:{one.step}"


def as_seeds(value: object) -> Seeds:
    """Return seeds from a text, a range, or numbers one by one.

    Raises:
        RequestError: It is none of these, or not what `Seeds` takes.
    """
    if isinstance(value, Seeds):
        return value
    if isinstance(value, str):
        return Seeds(_joined(_read(value, value)))
    if isinstance(value, range):
        return Seeds([value])
    if isinstance(value, Iterable):
        return Seeds(_joined(range(one, one + 1) for one in value if isinstance(one, int)))
    raise RequestError(f"{value!r} names no seeds", hint=_EXAMPLES)


def typed_seeds(text: str) -> Seeds:
    """Parse seeds, or read them from a file of that name, one per line.

    Args:
        text: `200:220` (half-open), `0:1000:7` (every 7th), `1,5,9`, several of these with commas, or a file.

    Raises:
        RequestError: It has no seed, or an invalid one.
    """
    if (path := Path(text)).is_file():
        return Seeds(_joined(_from_file(path)))
    return as_seeds(text)


def _from_file(path: Path) -> Iterator[range]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if text := line.partition("#")[0].strip():
            yield from _read(text, f"{path}:{number}: {text}")


def _read(text: str, shown: str) -> Iterator[range]:
    for piece in text.split(","):
        try:
            numbers = [int(part) for part in piece.split(":")]
        except ValueError:
            numbers = []
        if not 1 <= len(numbers) <= 3 or min(numbers) < 0 or (len(numbers) == 3 and numbers[2] == 0):
            raise RequestError(f"{shown!r} is not a list of seeds", hint=_EXAMPLES)
        first, stop = numbers[0], numbers[1] if len(numbers) > 1 else numbers[0] + 1
        if stop > _HIGHEST:
            raise RequestError(f"seed {stop - 1} is too large", hint="seeds are below 2^63 - 1")
        if stop <= first:
            raise RequestError(f"no seed is in {first}:{stop}", hint="A:B plays A to B-1")
        yield range(first, stop, numbers[2] if len(numbers) == 3 else 1)


def _joined(ranges: Iterable[range]) -> Iterator[range]:
    """Join consecutive single numbers into ranges, so that a long list stays short."""
    now: range | None = None
    for one in sorted(ranges, key=lambda one: one.start):
        if now is not None and now.step == one.step == 1 and now.stop == one.start:
            now = range(now.start, one.stop)
            continue
        if now is not None:
            yield now
        now = one
    if now is not None:
        yield now
