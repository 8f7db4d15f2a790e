"""Reserve worlds for evaluation in a whole project: a `[[reserved]]` table in its `trajkit.toml`.

`rollout --purpose train` refuses reserved seeds, and `leak` and every training run refuse their episodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import tomlkit
from tomlkit.items import AoT

from trajkit._core.files import unwritable, write_text
from trajkit._core.seeds import Seeds, typed_seeds
from trajkit._core.settings import PROJECT_FILE, Reservation, project_files, reserved
from trajkit.curation.keys import FROM_TEXT
from trajkit.environments import NO_SETTINGS, known, typed_environment
from trajkit.environments.base import EnvironmentInfo
from trajkit.errors import ConfigError, RequestError
from trajkit.store.engine import literal

MOST_STATES = 20_000
"""Maximum worlds whose initial states are computed and stored; for more, only the seeds are stored."""

RESERVED_REASON = "its world is reserved"
"""Reason for leaving such an episode out of a selection."""
_SEEDS = "trajkit_reserved_seeds"
_SEED_COLUMNS = ("env", "task", "first", "last", "step")
_STATES = "trajkit_reserved_states"


class Reserved(NamedTuple):
    """A reservation."""

    path: Path
    """The project's `trajkit.toml`."""
    reservation: Reservation
    is_new: bool
    """Whether the file did not cover it before."""


def reserve(
    env_id: str,
    *,
    seeds: str,
    tasks: Sequence[str] = (),
    settings: Mapping[str, str] = NO_SETTINGS,
    with_states: bool = True,
    folder: Path | None = None,
    dry_run: bool = False,
) -> Reserved:
    """Reserve the worlds of some seeds for evaluation.

    The reservation is written into the nearest `trajkit.toml` in the folder or above it. Without one, a file
    is created at the root of the version control, else in the folder. Comments in the file stay.

    Args:
        env_id: A known environment, or `my_pkg.env:MyEnv`. Without states and with tasks named, any value of
            the tag `trajkit.env`.
        seeds: Half-open, such as `200:220`; `0:1000:7`, `1,5,9`, or a file with one on each line.
        tasks: Its tasks; empty for all of them.
        settings: Raw texts of `--env-set`, for its initial states.
        with_states: Reset every world once and store the hash of its initial state, so that it is recognised
            under another seed, too. A hash that was made from text is not stored.
        folder: Where to look from; None for the working folder.
        dry_run: Write nothing.

    Raises:
        RequestError: The environment or a task does not exist, there are no seeds, or too many.
        ConfigError: The `trajkit.toml` is not valid.
        MissingExtra: The environment's package is not installed.
    """
    chosen = typed_seeds(seeds)
    name, asked = env_id, tuple(dict.fromkeys(tasks))
    states: tuple[str, ...] = ()
    if with_states or not asked or env_id in known():
        info = typed_environment(env_id, settings)
        if unknown := [task for task in asked if task not in info.tasks]:
            known_tasks = ", ".join(info.tasks)
            raise RequestError(f"no task {unknown[0]!r} in {info.env_id}", hint=f"known: {known_tasks}")
        name, asked = info.env_id, asked or info.tasks
        states = _states(info, asked, chosen) if with_states else ()
    reservation = Reservation(env=name, tasks=asked, seeds=chosen, states=states)
    path = _goal(folder)
    if any(_covers(each, reservation) for each in reserved(folder)):
        return Reserved(path, reservation, is_new=False)
    if not dry_run:
        _append(path, reservation)
    return Reserved(path, reservation, is_new=True)


def _states(info: EnvironmentInfo, tasks: tuple[str, ...], seeds: Seeds) -> tuple[str, ...]:
    n_worlds = len(tasks) * len(seeds)
    if n_worlds > MOST_STATES:
        raise RequestError(
            f"{n_worlds:,} worlds are too many to reset each once (at most {MOST_STATES:,})",
            hint="reserve fewer seeds, or --no-states, which stores only the seeds",
        )
    states: dict[str, None] = {}
    for task in tasks:
        environment = info.make(task)
        try:
            for seed in seeds:
                states[environment.reset(seed).initial_state_hash] = None
        finally:
            environment.close()
    return tuple(state for state in states if state and not state.startswith(FROM_TEXT))


def _covers(old: Reservation, new: Reservation) -> bool:
    return (
        old.env == new.env
        and set(new.tasks) <= set(old.tasks)
        and new.seeds == old.seeds
        and set(new.states) <= set(old.states)
    )


def _goal(folder: Path | None) -> Path:
    """Return the `trajkit.toml` of the folder's project."""
    for path in project_files(folder):
        return path.resolve()
    here = (folder or Path()).resolve()
    roots = [one for one in (here, *here.parents) if (one / ".git").exists()]
    return (roots[0] if roots else here) / PROJECT_FILE


def _append(path: Path, reservation: Reservation) -> None:
    try:
        text = path.read_bytes().decode() if path.exists() else ""
        document = tomlkit.parse(text)
    except (OSError, ValueError) as error:  # tomlkit's ParseError is a ValueError
        raise ConfigError(f"{path} cannot be read: {error}") from error
    tables = document.setdefault("reserved", tomlkit.aot())
    table = tomlkit.table() if isinstance(tables, AoT) else tomlkit.inline_table()
    table.add("env", reservation.env)
    table.add("tasks", list(reservation.tasks))
    table.add("seeds", str(reservation.seeds))
    if reservation.states:
        states = tomlkit.array().multiline(True)
        states.extend(reservation.states)
        table.add("states", states)
    tables.append(table)
    try:
        write_text(
            path, tomlkit.dumps(document), mode=path.stat().st_mode & 0o777 if path.exists() else 0o644
        )
    except OSError as error:
        raise unwritable(path, error) from error


def in_reserved(connection: duckdb.DuckDBPyConnection, kept: Sequence[Reservation], episode: str) -> str:
    """Return SQL that is true of an episode in a reserved world, and never null; register its tables.

    Args:
        connection: Runs the SQL.
        kept: The reservations.
        episode: The alias of a relation with `env_id`, `task`, `seed` and `initial_state_hash`. A state hash
            that was made from text is ignored: small worlds often have the same text.
    """
    seeds = [
        {"env": each.env, "task": task, "first": one[0], "last": one[-1], "step": one.step}
        for each in kept
        for task in each.tasks
        for one in each.seeds.ranges
    ]
    kinds = {name: pa.string() if name in ("env", "task") else pa.int64() for name in _SEED_COLUMNS}
    connection.register(_SEEDS, pa.Table.from_pylist(seeds, pa.schema(kinds)))
    states = sorted({state for each in kept for state in each.states})
    connection.register(_STATES, pa.table({"state": pa.array(states, pa.string())}))
    state = f"{episode}.initial_state_hash"
    return (
        f"(coalesce({state} <> '' AND NOT starts_with({state}, {literal(FROM_TEXT)}) "
        f"AND {state} IN (SELECT state FROM {_STATES}), false) OR EXISTS ("
        f"SELECT 1 FROM {_SEEDS} AS r WHERE r.env = {episode}.env_id AND r.task = {episode}.task "
        f"AND {episode}.seed BETWEEN r.first AND r.last AND ({episode}.seed - r.first) % r.step = 0))"
    )
