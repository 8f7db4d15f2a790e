"""Which seeds are played, and the seeds that follow from them: the same everywhere, by a hash."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from trajkit.errors import RequestError

_HIGHEST = 2**63 - 1
"""Seeds stay below this: a store keeps them in 64 bits."""
_SEED_LIMIT = 2**31
"""Derived seeds stay below this: every provider takes them."""

_EXAMPLES = "such as 200:220 (200 to 219), 0:1000:7, 1,5,9, or a file with one per line"


class Seeds:
    """Whole numbers from 0 to play, in ascending ranges, each once. A range takes no room, however long.

    Args:
        ranges: In any order.

    Raises:
        RequestError: There are none, one is negative, or one is there twice.
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
                raise RequestError(f"seed {min(both)} is there twice", hint="each is played once")
            seen.update(one)

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[int]:
        for one in self._ranges:
            yield from one

    def __getitem__(self, index: int) -> int:
        """The seed at a position from 0."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect.bisect_right(self._starts, index) - 1
        return self._ranges[number][index - self._starts[number]]

    def index(self, seed: int) -> int:
        """The position of a seed.

        Raises:
            ValueError: It is not among them.
        """
        number = bisect.bisect_right(self._firsts, seed) - 1
        while number >= 0:
            if seed in (one := self._ranges[number]):
                return self._starts[number] + one.index(seed)
            number = -1 if self._is_apart else number - 1
        raise ValueError(f"{seed} is not in {self}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seeds) and self._ranges == other._ranges

    def __hash__(self) -> int:
        return hash(self._ranges)

    def __str__(self) -> str:
        """As it is typed: `0:20`, `1,5,9`, `0:1000:7`."""
        return ",".join(_written(one) for one in self._ranges)

    def __repr__(self) -> str:
        return f"Seeds({self})"


def _written(one: range) -> str:
    if len(one) == 1:
        return str(one[0])
    return f"{one.start}:{one.stop}" if one.step == 1 else f"{one.start}:{one.stop}:{one.step}"


def as_seeds(value: object) -> Seeds:
    """Seeds from a text, a range, or numbers one by one.

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


def chosen_seeds(*, seeds: str | None = None, episodes: int | None = None, seed: int | None = None) -> Seeds:
    """The seeds to play, as they are typed, or from a number of episodes and the first seed.

    Args:
        seeds: `200:220` (half-open), `0:1000:7` (every 7th), `1,5,9`, several of these with commas, or the
            name of a file with one on each line; excludes the other two.
        episodes: How many; 20 when not given.
        seed: The first; 0 when not given.

    Raises:
        RequestError: Both forms are given, or there is no seed in it, or one that cannot be.
    """
    if seeds is None:
        start = seed or 0
        return as_seeds(f"{start}:{start + (20 if episodes is None else episodes)}")
    if episodes is not None or seed is not None:
        raise RequestError(
            f"--seeds {seeds} says which seeds to play; --episodes and --seed say it again",
            hint="give --seeds A:B, or --episodes N with --seed S",
        )
    if (path := Path(seeds)).is_file():
        return Seeds(_joined(_from_file(path)))
    return as_seeds(seeds)


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
            raise RequestError(f"no seed from {first} up to, without, {stop}", hint="A:B plays A to B-1")
        yield range(first, stop, numbers[2] if len(numbers) == 3 else 1)


def _joined(ranges: Iterable[range]) -> Iterator[range]:
    """Single numbers that follow each other as one range, so that a long list stays short."""
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


def derived_seed(*parts: int | str) -> int:
    """A seed in [0, 2^31) that follows from the parts, the same on every machine and in every version."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % _SEED_LIMIT


def derived_share(*parts: int | str) -> float:
    """A number in [0, 1) that follows from the parts."""
    return derived_seed(*parts) / _SEED_LIMIT


def shuffled(n: int, *parts: int | str) -> Iterator[int]:
    """The numbers below `n` in an order that follows from the parts, without a list of them.

    A Feistel network of four rounds is a permutation of the numbers with twice as many bits as a half;
    what it puts at `n` or beyond is sent through again until it is below.
    """
    half = max(1, (max(n - 1, 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    for index in range(n):
        place = index
        while True:
            left, right = place >> half, place & mask
            for turn in range(4):
                left, right = right, left ^ (derived_seed("shuffle", *parts, turn, right) & mask)
            place = left << half | right
            if place < n:
                break
        yield place
