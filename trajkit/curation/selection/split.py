"""Split a store into sides, such as `train` and `val`, that share no group.

A group's place is a hash of its key, without shuffling. So the same rule gives the same sides on every
machine, from rows in any order, and groups keep their sides when data is added. There are two exceptions. A
side without a group gets the nearest group, and may lose it when data is added. And new data may connect two
groups that must stay together: then one moves to the side of the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from trajkit._core.files import building_folder
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.keys import PLACES, Key, group_key, place
from trajkit.curation.selection.connected import HAS_STATE, TEXTS, find_texts, join_groups
from trajkit.engines.engine import Engine
from trajkit.errors import NothingMatched, QueryError, RequestError
from trajkit.schema import Left, LineageEntry, Manifest
from trajkit.schema.base import Count, JsonObject, Model, Name
from trajkit.store.engine import literal
from trajkit.store.reader import Store

RULE = "sha256(seed:key), 52 bits"
"""Name in the manifest of how a group's place is computed; another computation needs another name."""

PROMPT = "prompt"
"""Name among the columns of a key that also keeps together episodes with a common prompt, world or state."""

_TOLERANCE = Decimal("1e-9")
"""Shares whose sum is this close to 1 count as everything: thirds have no finite decimal."""

_SIDE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_EXAMPLES = "such as train=0.9,val=0.1, or train=500,val=100"


class Missing(StrEnum):
    """What happens to episodes that lack a column of the key."""

    EPISODE = "episode"
    """Each is a group of its own."""
    LEAVE = "leave"
    """They are left out and counted."""


class Side(Model):
    """One side of a split."""

    name: Name
    """Its name, also of its folder."""
    n_groups: Count
    """Its groups."""
    n_episodes: Count
    """Their episodes."""
    n_steps: Count
    """Their steps."""


class Split(Model):
    """Result of a split."""

    by: Name
    """The key, in words."""
    sides: tuple[Side, ...]
    """In the order asked for."""
    n_groups: Count
    """Groups in the store."""
    n_episodes: Count
    """Episodes in the store."""
    n_episodes_left: Count
    """Episodes on no side: beyond the shares or counts, or without a key."""
    n_episodes_without_key: Count
    """Episodes that lack a column of the key."""
    n_worlds_shared: Count
    """Worlds (environment, task and seed) with episodes on more than one side, which `leak` refuses."""
    n_states_shared: Count
    """Initial states with episodes on more than one side, which `leak` refuses."""
    n_texts_shared: Count
    """Texts on more than one side that an episode without a seed has, which `leak` refuses."""
    nearest: tuple[Name, ...]
    """Sides whose interval contains no group; each got the nearest one."""
    entries: tuple[LineageEntry, ...]
    """A lineage entry per side: the last of each new store's lineage."""


def split(
    path: str | Path,
    goal: Path | None,
    *,
    ratio: Mapping[str, float],
    by: Sequence[str] = (),
    seed: int = 0,
    missing: Missing | None = None,
    leak_free: bool = False,
    engine: Engine | None = None,
) -> tuple[Split, dict[str, Manifest]]:
    """Split a store into sides, so that every episode of a group lands on the same one.

    A group's place is the first 52 bits of `sha256("{seed}:{key}")`. With shares, each side has an interval
    of places, in the order given. A side whose interval contains no group gets the one nearest to its
    interval, unless that group is the only one of its side. With counts, the first of two sides takes groups
    from the lowest place up, the second from the highest down, until the next group would exceed the count.
    Three or more sides have intervals in proportion to their counts, and each takes groups from the beginning
    of its own. When data is added, a full side may lose a group, which is then on no side; no group changes
    to another side.

    Args:
        path: The store.
        goal: The folder to write, with a store per side; None to write nothing.
        ratio: Side to share (a float from 0 to 1; they add up to at most 1, the rest is left out), or side to
            the most episodes it takes (an int).
        by: Columns of episodes, metrics, or `tags.NAME`, which together are the key. Empty for the world:
            environment, task and seed; else the initial state; else the episode. With `prompt` among them,
            groups that share a prompt, a first text, a world or an initial state become one.
        seed: Another seed gives another split.
        missing: What happens to episodes that lack a column of `by`. None: each is a group of its own, and if
            more than half of the episodes lack one, an error.
        leak_free: Join groups that share what `leak` would refuse: as with `prompt`, but episodes of two
            known worlds may have the same text.
        engine: Writes the stores; None for this process.

    Returns:
        The result, and the manifest of each store by side (empty without a goal).

    Raises:
        RequestError: `ratio` is invalid, or the counts exceed the store.
        QueryError: A column of `by` does not exist, or most episodes lack it.
        NothingMatched: A side has no group.
        StoreError: `goal` exists, or the store cannot be read.
    """
    asked = _as_ratio(ratio)
    with deriving(path, engine=engine, goal=goal) as derivation:
        key = group_key(derivation.connection, derivation.store, [name for name in by if name != PROMPT])
        find_texts(derivation.connection, even_with_seeds=PROMPT in by)
        if PROMPT in by:
            key = key._replace(words=f"{key.words}; and by what they share", columns=(*key.columns, PROMPT))
        _make_groups(derivation, key, seed, missing, joined=leak_free or PROMPT in by)
        _choose_sides(derivation, asked)
        report = _report(derivation, key, asked, seed, missing, leak_free=leak_free)
        _refuse_empty(report, asked, key, derivation.store)
        if goal is None:
            return report, {}
        with building_folder(goal.absolute()) as folder:
            return report, {
                entry_side: derivation.write(
                    folder / entry_side,
                    verb="split",
                    arguments=entry.arguments,
                    kept=_members(entry_side),
                    left=entry.left,
                    split=entry_side,
                )
                for entry_side, entry in zip(asked.shares, report.entries, strict=True)
            }


def _make_groups(
    derivation: Derivation, key: Key, seed: int, missing: Missing | None, *, joined: bool
) -> None:
    """Create `trajkit_members`, a row per episode with its group, and `trajkit_groups` with their places."""
    connection = derivation.connection
    connection.execute(f"CREATE TEMP TABLE trajkit_members AS SELECT * FROM {key.relation}")
    ((n_episodes, n_missing),) = connection.execute(
        "SELECT count(*), count(*) FILTER (NOT has_key) FROM trajkit_members"
    ).fetchall()
    if missing is None and 2 * n_missing > n_episodes:
        raise QueryError(
            f"{n_missing:,} of {n_episodes:,} episodes have no {key.words}: few would be kept together",
            hint="--missing episode makes each of them a group of its own, --missing leave leaves them out",
        )
    where = "WHERE has_key" if missing == Missing.LEAVE else ""
    if joined:
        join_groups(connection, "trajkit_members", only_keyed=missing == Missing.LEAVE)
    connection.execute(
        f"CREATE TEMP TABLE trajkit_groups AS SELECT key, {place('key', seed)} AS place, "
        f"count(*) AS n_episodes FROM trajkit_members {where} GROUP BY key"
    )


def _choose_sides(derivation: Derivation, asked: Ratio) -> None:
    """Create `trajkit_sides` with each group's side, null for none."""
    interval = _interval(asked.shares)
    if not asked.counts:
        chosen = f"SELECT key, {interval} AS side FROM trajkit_groups"
    elif len(asked.counts) <= 2:
        chosen = _from_both_ends(derivation, asked.counts)
    else:
        chosen = _from_each_beginning(derivation, asked.counts, interval)
    derivation.connection.execute(f"CREATE TEMP TABLE trajkit_sides AS {chosen}")
    derivation.connection.execute("CREATE TEMP TABLE trajkit_nearest (key VARCHAR, side VARCHAR)")
    if not asked.counts:
        _fill_empty(derivation, asked.shares)


def _fill_empty(derivation: Derivation, shares: Mapping[str, Decimal]) -> None:
    """Give each empty side the group nearest to its interval, and insert it into `trajkit_nearest`."""
    ask = derivation.connection.execute
    start = Decimal(0)
    for name, share in shares.items():
        first, end = int(start * PLACES), int((start + share) * PLACES)
        start += share
        ask(
            f"INSERT INTO trajkit_nearest SELECT key, {literal(name)} FROM (SELECT *, side IS NULL OR "
            "count(*) OVER (PARTITION BY side) > 1 AS may_go FROM trajkit_sides JOIN trajkit_groups USING "
            f"(key)) WHERE may_go AND NOT EXISTS (SELECT 1 FROM trajkit_sides WHERE side = {literal(name)}) "
            f"ORDER BY greatest({first} - place, place - {end - 1}), key LIMIT 1"
        )
        ask(
            "UPDATE trajkit_sides SET side = n.side FROM trajkit_nearest AS n WHERE n.key = trajkit_sides.key"
        )


def _interval(shares: Mapping[str, Decimal]) -> str:
    """Return SQL of the side whose interval contains a group's place."""
    total = Decimal(0)
    cases: list[str] = []
    for name, share in shares.items():
        total += share
        is_all = len(cases) == len(shares) - 1 and total > 1 - _TOLERANCE
        end = PLACES if is_all else int(total * PLACES)
        cases.append(f"WHEN place < {end} THEN {literal(name)}")
    return f"CASE {' '.join(cases)} END"


def _from_both_ends(derivation: Derivation, counts: Mapping[str, int]) -> str:
    """Return SQL of two sides that grow towards each other, so that each is as full as whole groups allow."""
    ((available,),) = derivation.connection.execute(
        "SELECT CAST(coalesce(sum(n_episodes), 0) AS BIGINT) FROM trajkit_groups"
    ).fetchall()
    if available < sum(counts.values()):
        raise RequestError(
            f"{_typed(counts)} asks for {sum(counts.values()):,} episodes; there are {available:,}",
            hint="ask for fewer, or for shares",
        )
    cases = [
        f"WHEN sum(n_episodes) OVER (ORDER BY place {way}, key {way}) <= {most} THEN {literal(name)}"
        for (name, most), way in zip(counts.items(), ("ASC", "DESC"), strict=False)
    ]
    return f"SELECT key, CASE {' '.join(cases)} END AS side FROM trajkit_groups"


def _from_each_beginning(derivation: Derivation, counts: Mapping[str, int], interval: str) -> str:
    """Return SQL of sides that each fill up within their own interval."""
    found = derivation.connection.execute(
        f"SELECT {interval} AS side, CAST(sum(n_episodes) AS BIGINT) FROM trajkit_groups GROUP BY side"
    ).fetchall()
    available = dict(found)
    for name, most in counts.items():
        if available.get(name, 0) < most:
            raise RequestError(
                f"{available.get(name, 0):,} episodes fall to {name}, but {most:,} were asked for",
                hint=f"{_typed(counts)} needs more data than it takes; ask for fewer, or for shares",
            )
    cases = [f"WHEN side = {literal(name)} AND n <= {most} THEN side" for name, most in counts.items()]
    return (
        f"SELECT key, CASE {' '.join(cases)} END AS side FROM (SELECT key, side, "
        "sum(n_episodes) OVER (PARTITION BY side ORDER BY place, key) AS n "
        f"FROM (SELECT *, {interval} AS side FROM trajkit_groups))"
    )


def _members(side: str) -> str:
    """Return SQL of the episodes of a side."""
    mine = f"SELECT key FROM trajkit_sides WHERE side = {literal(side)}"
    return f"(SELECT episode_id FROM trajkit_members WHERE key IN ({mine}))"


def _report(
    derivation: Derivation, key: Key, asked: Ratio, seed: int, missing: Missing | None, *, leak_free: bool
) -> Split:
    ask = derivation.connection.execute
    by_side: dict[str | None, tuple[int, int, int]] = {
        name: (n_groups, n_episodes, n_steps)
        for name, n_groups, n_episodes, n_steps in ask(
            "SELECT side, count(DISTINCT key), count(*), CAST(sum(n_steps) AS BIGINT) "
            "FROM trajkit_members JOIN trajkit_sides USING (key) GROUP BY side"
        ).fetchall()
    }
    ((without, n_left, n_left_steps),) = ask(
        "SELECT count(*) FILTER (NOT has_key), count(*) FILTER (key NOT IN (SELECT key FROM trajkit_sides)), "
        "CAST(coalesce(sum(n_steps) FILTER (key NOT IN (SELECT key FROM trajkit_sides)), 0) AS BIGINT) "
        "FROM trajkit_members"
    ).fetchall()
    sides = tuple(
        Side(name=name, n_groups=groups, n_episodes=episodes, n_steps=steps)
        for name in asked.shares
        for groups, episodes, steps in [by_side.get(name, (0, 0, 0))]
    )
    _, n_over, n_over_steps = by_side.get(None, (0, 0, 0))
    rest = (
        Left(
            reason="after the count was full" if asked.counts else "outside the shares",
            n_episodes=n_over,
            n_steps=n_over_steps,
        ),
        Left(reason=f"without {key.words}", n_episodes=n_left, n_steps=n_left_steps),
    )
    arguments: JsonObject = {
        "ratio": _typed(asked.counts or {name: float(share) for name, share in asked.shares.items()}),
        "by": list(key.columns),
        "seed": seed,
        "missing": None if missing is None else missing.value,
    }
    if leak_free:
        arguments["leak_free"] = True
    found: JsonObject = {"by": key.words, "rule": RULE}
    nearest = tuple(name for (name,) in ask("SELECT side FROM trajkit_nearest").fetchall())
    if nearest:
        found["nearest"] = list(nearest)
    return Split(
        by=key.words,
        sides=sides,
        n_groups=sum(n_groups for n_groups, _, _ in by_side.values()),
        n_episodes=derivation.store.manifest.counts.n_episodes,
        n_episodes_left=n_over + n_left,
        n_episodes_without_key=without,
        n_worlds_shared=_n_shared(derivation, "env_id, task, seed", "seed IS NOT NULL"),
        n_states_shared=_n_shared(derivation, "initial_state_hash", HAS_STATE),
        n_texts_shared=_n_shared(derivation, "value", "true", f"{TEXTS} JOIN trajkit_members"),
        nearest=nearest,
        entries=tuple(
            derivation.entry(
                verb="split",
                arguments={**arguments, "result": {**found, "side": side.name}},
                kept=_members(side.name),
                left=(
                    *(
                        Left(reason=f"in {other.name}", n_episodes=other.n_episodes, n_steps=other.n_steps)
                        for other in sides
                        if other is not side
                    ),
                    *rest,
                ),
            )
            for side in sides
        ),
    )


def _n_shared(
    derivation: Derivation, columns: str, where: str, rows: str = "episodes JOIN trajkit_members"
) -> int:
    """Count the values of the columns that are on more than one side."""
    found = derivation.connection.execute(
        f"SELECT count(*) FROM (SELECT {columns} FROM {rows} USING (episode_id) JOIN "
        f"trajkit_sides USING (key) WHERE side IS NOT NULL AND {where} "
        f"GROUP BY {columns} HAVING count(DISTINCT side) > 1)"
    ).fetchone()
    return int(found[0]) if found else 0


def _refuse_empty(report: Split, asked: Ratio, key: Key, store: Store) -> None:
    for side in report.sides:
        if not side.n_episodes:
            why = (
                "the first group is larger than that" if asked.counts else "there are fewer groups than sides"
            )
            raise NothingMatched(
                f"no group falls to {side.name}: {store.path} has "
                f"{report.n_groups:,} {'group' if report.n_groups == 1 else 'groups'} by {key.words}",
                hint=f"{why}; more data, fewer sides, or another --by",
            )


class Ratio(NamedTuple):
    """Shares or counts by side, in the order given."""

    shares: Mapping[str, Decimal]
    """Share of all places for each side; they add up to 1 at most."""
    counts: Mapping[str, int]
    """Maximum episodes per side; empty if shares were given."""


def parse_ratio(text: str) -> dict[str, float]:
    """Parse a ratio: `train=0.9,val=0.1` (a point or a % makes a share), or `train=500,val=100`.

    Raises:
        RequestError: It is not a ratio.
    """
    ratio: dict[str, float] = {}
    for piece in text.split(","):
        name, _, value = (part.strip() for part in piece.partition("="))
        try:
            number = float(Decimal(value.removesuffix("%")) / 100) if value.endswith("%") else float(value)
        except (ValueError, ArithmeticError):
            raise RequestError(f"{piece.strip()!r} is not a side and its share", hint=_EXAMPLES) from None
        if name in ratio:
            raise RequestError(f"side {name!r} is given twice", hint=_EXAMPLES)
        ratio[name] = int(value) if value.isdecimal() else number
    return ratio


def _as_ratio(ratio: Mapping[str, float]) -> Ratio:
    """Validate sides with floats as shares, or ints as counts.

    Raises:
        RequestError: Shares and counts are mixed, add up to more than 1, or a name cannot be a folder's.
    """
    if not ratio:
        raise RequestError("a split needs sides", hint=_EXAMPLES)
    if len({name.lower() for name in ratio}) < len(ratio):
        raise RequestError(
            f"two of {', '.join(ratio)} differ only by case", hint="their folders would be one"
        )
    for name, value in ratio.items():
        if not _SIDE_NAME.fullmatch(name):
            raise RequestError(f"side {name!r} cannot be a folder", hint="letters, digits, _, - and .")
        if isinstance(value, bool) or not value > 0 or value == float("inf"):
            raise RequestError(f"{name}={value}: a share or count must be above 0", hint=_EXAMPLES)
    n_counts = sum(isinstance(value, int) for value in ratio.values())
    if n_counts == len(ratio):
        total = Decimal(sum(int(value) for value in ratio.values()))
        counts = {name: int(value) for name, value in ratio.items()}
        return Ratio({name: Decimal(value) / total for name, value in counts.items()}, counts)
    if n_counts:
        raise RequestError("some sides have a share and some a count", hint=_EXAMPLES)
    shares = {name: Decimal(str(value)) for name, value in ratio.items()}  # 0.1, not the nearest double
    if sum(shares.values()) > 1 + _TOLERANCE:
        raise RequestError(f"the shares add up to {sum(shares.values())}, more than 1", hint=_EXAMPLES)
    return Ratio(shares, {})


def _typed(sizes: Mapping[str, float]) -> str:
    """Write shares or counts as `parse_ratio` reads them."""
    return ",".join(f"{name}={size}" for name, size in sizes.items())
