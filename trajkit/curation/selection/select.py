"""Select episodes: by conditions, rank within groups, balance, or at random."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import field_validator, model_validator

from trajkit._core.files import building_both, refuse_existing
from trajkit._core.settings import reserved
from trajkit.curation.derive import Derivation, deriving, nothing_left
from trajkit.curation.options import validated
from trajkit.curation.reserve import RESERVED_REASON, in_reserved
from trajkit.curation.selection.control import control_goal, draw_control, is_same_control, write_control
from trajkit.curation.selection.pool import Pool, drawn
from trajkit.engines.engine import Engine
from trajkit.errors import RequestError
from trajkit.schema import LineageEntry, Manifest
from trajkit.schema.base import JsonObject, Model


def select(
    path: str | Path,
    goal: Path | None,
    *,
    threads: int | None = None,
    engine: Engine | None = None,
    **options: Any,
) -> tuple[Manifest | None, LineageEntry]:
    """Write a store of some of the episodes of another.

    Args:
        path: The store.
        goal: The folder to write; None only counts.
        threads: Threads of DuckDB; None for one per core.
        engine: Writes the new store; None for this process.
        **options: The fields of `Selection`.

    Returns:
        The manifest of the new store, None without a goal; and the lineage entry.

    Raises:
        QueryError: A column, a metric or a tag does not exist, or a condition is invalid.
        RequestError: A number is out of range, or the sample is larger than the pool.
        ConfigError: The reservations cannot be read.
        NothingMatched: No episode is left, or the control would be the selection itself.
        StoreError: `goal` exists or cannot be written, or the store cannot be read.
    """
    selection = validated(Selection, options, of="select")
    if goal is not None:
        refuse_existing(goal)
    share = None if selection.top is None else parse_share(selection.top)
    with deriving(path, threads=threads, verifies_beside=True, engine=engine, goal=goal) as derivation:
        barred = in_reserved(derivation.connection, reserved() if selection.unreserved else (), "e")
        pool = _narrowed(derivation, selection, share, barred)
        arguments = _arguments(selection, pool)
        entry = derivation.entry(verb="select", arguments=arguments, kept=pool.relation, left=pool.left)
        if not entry.n_episodes_out:
            raise nothing_left(derivation.store, entry)
        amount = None
        if selection.control:
            amount = draw_control(derivation, kept=pool.relation, barred=barred, seed=selection.seed)
        if goal is None:
            return None, entry
        write = partial(
            derivation.write, verb="select", arguments=arguments, kept=pool.relation, left=pool.left
        )
        if amount is None:
            manifest = write(goal)
        else:
            with building_both(goal, control_goal(goal), is_same=is_same_control) as folder:
                manifest = write(folder / goal.name)
                write_control(
                    derivation, folder / goal.name, amount=amount, chosen=manifest, arguments=arguments
                )
        return manifest, manifest.lineage[-1]


def _narrowed(derivation: Derivation, selection: Selection, share: Share | None, barred: str) -> Pool:
    """Return the pool after all stages, without the barred episodes `e`."""
    compares = share is not None or selection.best_of is not None
    pool = Pool(
        derivation,
        by=selection.by,
        score=selection.score,
        needs_score=compares,
        may_score=selection.shortest,
        conditions=selection.where,
    )
    if selection.unreserved:
        of_barred = f"SELECT e.episode_id FROM episodes AS e WHERE {barred}"
        pool.keep(f"episode_id NOT IN ({of_barred})", reason=RESERVED_REASON)
    for condition in pool.conditions:
        pool.where(condition)
    if pool.score is not None and compares:
        pool.keep("score IS NOT NULL", reason=f"{pool.score.name} was not measured")
    for stage in _stages(pool, selection, share):
        pool.keep(stage.condition, reason=stage.reason, columns=stage.columns)
    return pool


class _Stage(NamedTuple):
    columns: str
    condition: str
    reason: str


def _stages(pool: Pool, selection: Selection, share: Share | None) -> Iterator[_Stage]:
    """Yield the stages that rank episodes, each when the previous one has been applied."""
    best = f"{pool.score.best_first}, n_steps, episode_id" if pool.score else "n_steps, episode_id"
    if selection.best_of is not None:
        n = selection.best_of
        yield _Stage(
            f"{_place('key', drawn('best-of', selection.seed))} AS lot",
            f"lot <= {n} QUALIFY row_number() OVER (PARTITION BY key ORDER BY {best}) = 1",
            f"not the best of {n} drawn from its group",
        )
    if share is not None:
        yield _Stage(
            f"{_place('key', best)} AS place, count(*) OVER (PARTITION BY key) AS size",
            f"place <= {share.limit('size')}",
            f"not in the top {share.text} of its group",
        )
    if selection.shortest:
        order = f"n_steps, {pool.score.best_first}, episode_id" if pool.score else "n_steps, episode_id"
        yield _Stage(f"{_place('key', order)} AS place", "place = 1", "not the shortest of its group")
    if selection.max_per_task is not None:
        lot = _place("env_id, task", drawn("max-per-task", selection.seed))
        yield _Stage(
            f"{lot} AS place",
            f"place <= {selection.max_per_task}",
            f"beyond {selection.max_per_task} of its task",
        )
    if selection.balance:
        yield from _balanced(pool, selection)
    if selection.sample is not None:
        if pool.size.n_episodes < selection.sample:
            raise RequestError(
                f"a sample of {selection.sample:,}, but only {pool.size.n_episodes:,} episodes are left",
                hint=f"ask for at most {pool.size.n_episodes:,}, or loosen the earlier options",
            )
        order = drawn("sample", selection.seed)
        yield _Stage(
            f"row_number() OVER (ORDER BY {order}) AS place",
            f"place <= {selection.sample}",
            f"not in the sample of {selection.sample}",
        )


def _balanced(pool: Pool, selection: Selection) -> Iterator[_Stage]:
    key = pool.keys_by(selection.balance)
    relation = f"(SELECT episode_id, key AS cell, has_key FROM {key.relation})"
    yield _Stage(
        "", f"episode_id IN (SELECT episode_id FROM {relation} WHERE has_key)", f"its {key.words} is unknown"
    )
    cells = f"(SELECT p.*, c.cell FROM {pool.relation} AS p JOIN {relation} AS c USING (episode_id))"
    order = drawn("balance", selection.seed)
    placed = (
        f"SELECT episode_id, {_place('cell', order)} AS place, count(*) OVER (PARTITION BY cell) AS size "
        f"FROM {cells}"
    )
    yield _Stage(
        "",
        "episode_id IN (SELECT episode_id FROM (SELECT *, min(size) OVER () AS least "
        f"FROM ({placed})) WHERE place <= least)",
        f"more than the rarest {key.words} has",
    )


def _place(partition: str, order: str) -> str:
    return f"row_number() OVER (PARTITION BY {partition} ORDER BY {order})"


def _arguments(selection: Selection, pool: Pool) -> JsonObject:
    """Return the options for the lineage: those that are not defaults, and what names were resolved to."""
    asked = selection.model_dump(mode="json", exclude_defaults=True)
    if asked.keys() & {"best_of", "max_per_task", "balance", "sample", "control"}:
        asked["seed"] = selection.seed
    if pool.score is not None:
        asked["score"] = pool.score.name
    if asked.keys() & {"best_of", "top", "shortest"} or pool.asks_about_groups:
        found: JsonObject = {"group": pool.key.words}
        if pool.largest_group == 1:
            found["largest_group"] = 1
        if pool.n_ungrouped:
            found["n_ungrouped"] = pool.n_ungrouped
        asked["result"] = found
    return asked


class Share(NamedTuple):
    """A number, or a share of a group."""

    text: str
    """As the user wrote it."""
    number: int
    """The number; of a share the numerator."""
    of: int | None = None
    """The denominator of a share; None for a number."""

    def limit(self, n: str) -> str:
        """Return SQL of the number out of `n`; a share is rounded up."""
        return (
            str(self.number) if self.of is None else f"(({n} * {self.number} + {self.of - 1}) // {self.of})"
        )


def parse_share(text: str) -> Share:
    """Parse `50` or `20%`.

    Raises:
        RequestError: It is neither.
    """
    is_share = text.strip().endswith("%")
    try:
        value = Fraction(text.strip().removesuffix("%"))
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if is_share and 0 < value <= 100:
        return Share(text.strip(), (value / 100).numerator, (value / 100).denominator)
    if not is_share and value >= 1 and value.denominator == 1:
        return Share(text.strip(), value.numerator)
    raise RequestError(f"top {text!r} is neither a number of 1 or more nor a share", hint="such as 50 or 20%")


class Selection(Model):
    """The options of a selection. The stages apply in the order of the fields."""

    unreserved: bool = False
    """Whether to leave out episodes of reserved worlds, by seed and by state, also from the control."""
    where: tuple[str, ...] = ()
    """Conditions, or one, over the columns of episodes, metrics, `tags.KEY`, and `n`, `n_success`, `avg`,
    `best`, `worst`, `rank` and `pass@k` of the episode's group in the whole store, such as `0 < avg < 1 and
    rank == 1`. A comparison with a missing value is false, its negation true."""
    best_of: int | None = None
    """The best of this many random attempts of each group, as best-of-n sampling gives it."""
    top: str | None = None
    """The best of each group: `50`, or `20%` of it rounded up."""
    shortest: bool = False
    """The episode with the fewest steps of each group; of equal ones the better, if there is a score."""
    max_per_task: int | None = None
    """At most this many random episodes of each environment and task."""
    balance: tuple[str, ...] = ()
    """Columns: keep equally many random episodes of each combination: as many as the rarest has."""
    sample: int | None = None
    """This many random episodes."""
    by: tuple[str, ...] = ()
    """Columns, metrics or `tags.KEY` that make a group; empty for environment, task and seed."""
    score: str | None = None
    """The score to compare by; None for `episode_return` or `total_reward`."""
    seed: int = 0
    """Seed of all random choices, which do not depend on the store's layout."""
    control: bool = False
    """Whether to write `GOAL-control`, too: a random set of equal size (module `control`)."""

    @field_validator("where", mode="before")
    @classmethod
    def _as_conditions(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("top", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("best_of", "max_per_task", "sample"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be 1 or more")
        return self
