"""Find what a training store and an evaluation store share: report it, or drop it.

An episode id, a world (environment, task and seed), an initial state, a reserved world, or a group that the
user names (such as a customer) on both sides is a leak. A shared text is a leak if either side has no seeds.
If both have seeds the text is only counted: small worlds often have the same text, and another seed is
another world. Also only counted is a room that both sides have under different tasks, because its mission
differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from trajkit._core.division import own_folder
from trajkit._core.files import refuse_existing
from trajkit._core.settings import Reservation, reserved
from trajkit.curation.derive import NO_ROOM, Derivation, deriving, nothing_left, reading
from trajkit.curation.keys import group_text
from trajkit.curation.leaks.alike import ALIKE, THRESHOLD, create_none, find_alike
from trajkit.curation.leaks.report import (
    NAMES,
    Aliased,
    Example,
    Finding,
    LeakKind,
    LeakReport,
    LeakSide,
    World,
)
from trajkit.curation.leaks.texts import first_texts, hashed_steps, hashes_as, step_texts
from trajkit.curation.reserve import in_reserved
from trajkit.curation.selection.connected import HAS_SEED, HAS_STATE
from trajkit.engines.engine import Engine
from trajkit.errors import RequestError
from trajkit.schema import Left, LineageEntry, Manifest
from trajkit.schema.base import JsonObject
from trajkit.store.engine import connect, file_literal, literal
from trajkit.store.reader import Store, open_store, verify
from trajkit.store.view import create_views, spans

_MOST_EXAMPLES = 3
_SHOWN_CHARACTERS = 100
_STEPS_PER_SPAN = 10_000
"""A step of a long conversation has the hashes of all its messages, in several forms at once."""
_HASHES = {"starts": ("first_text",), "texts": ("prompt", "near", "frame", "answer")}
"""The columns of hashes in each table of texts."""
_NO_STEPS = f"({hashed_steps('false')})"


def leak(
    train: str | Path,
    evaluation: str | Path | None = None,
    *,
    strict_text: bool = False,
    near: float | None = THRESHOLD,
    by: Sequence[str] = (),
    reservations: Iterable[Reservation] | None = None,
    engine: Engine | None = None,
) -> LeakReport:
    """Compare a training store with an evaluation store and with reserved worlds.

    Every episode and step of both counts, learned or not.

    Args:
        train: The training store.
        evaluation: The evaluation store; None to look for reserved worlds only. If nothing is reserved
            either, the report says that nothing was compared.
        strict_text: Shared text blocks even if both sides have seeds.
        near: Share of common word n-grams from which on two prompts are near-identical (`alike.py`), from
            above 0 to 1. None to compare only prompts that read the same.
        by: Columns, metrics or `tags.NAME` whose values must not be on both sides together.
        reservations: Reserved worlds; None for the `trajkit.toml` of the working folder and those above it.
        engine: Reads and compares the texts; None for this process.

    Raises:
        RequestError: `near` is out of range.
        QueryError: A store has no such column.
        StoreError: A path is not a store, or a part is missing or changed.
        ConfigError: A `trajkit.toml` is not valid.
    """
    _check_share(near)
    kept = tuple(reserved() if reservations is None else reservations)
    stores = {"train": open_store(train)}
    if evaluation is not None:
        stores["eval"] = open_store(evaluation)
    with _connected(stores, by) as connection:
        findings = [_reserved_worlds(connection, kept)]
        aliased = Aliased(n=0, n_of=0, worlds=())
        if evaluation is not None:
            _compare_texts(connection, stores, near, strict_text, engine, None)
            findings += [*_same_worlds(connection), *_same_texts(connection, strict_text)]
            findings.append(_same_rooms(connection))
            aliased = _aliased(connection)
        kinds = list(LeakKind)
        return LeakReport(
            train=_side(connection, "train", stores["train"]),
            evaluation=_side(connection, "eval", stores["eval"]) if evaluation is not None else None,
            strict_text=strict_text,
            near=near,
            n_reserved=len(kept),
            findings=tuple(sorted((one for one in findings if one.n), key=lambda one: kinds.index(one.kind))),
            aliased=aliased,
        )


def drop_leaks(
    path: str | Path,
    goal: Path | None,
    *,
    other: str | Path,
    is_train: bool,
    strict_text: bool = False,
    near: float | None = THRESHOLD,
    by: Sequence[str] = (),
    reservations: Iterable[Reservation] | None = None,
    engine: Engine | None = None,
) -> tuple[Manifest | None, LineageEntry]:
    """Write a store without the episodes that leak into another store.

    Args:
        path: The store to clean.
        goal: The folder to write; None only counts.
        other: The store that stays as it is.
        is_train: Whether the cleaned store is the training store: then reserved worlds are also removed.
        strict_text: As in `leak`.
        near: As in `leak`.
        by: As in `leak`.
        reservations: As in `leak`.
        engine: Reads and compares the texts, and writes the new store; None for this process.

    Returns:
        The manifest of the new store, None without a goal; and the lineage entry.

    Raises:
        RequestError: `near` is out of range.
        NothingMatched: No episode is left.
        StoreError: `goal` exists or cannot be written, or a store cannot be read.
    """
    _check_share(near)
    if goal is not None:
        refuse_existing(goal)
    kept = tuple(reserved() if reservations is None else reservations) if is_train else ()
    # only for prompts of `eval` every similar one is found, so the cleaned store is opened as `eval`
    stores = {"train": open_store(other), "eval": open_store(path)}
    why: dict[str, LeakKind] = {}
    with _connected(stores, by) as connection:
        barred = in_reserved(connection, kept, "o")
        rows = connection.execute(f"SELECT episode_id FROM eval.own AS o WHERE {barred}").fetchall()
        why |= {episode_id: LeakKind.RESERVED for (episode_id,) in rows}
        _compare_texts(connection, stores, near, strict_text, engine, goal)
        for finding in chain(_same_worlds(connection), _same_texts(connection, strict_text)):
            rows = connection.execute(
                "SELECT episode_id FROM eval_rows WHERE value IN (SELECT value FROM both_have WHERE blocks)"
            ).fetchall()
            for (episode_id,) in rows:
                why.setdefault(episode_id, finding.kind)
    arguments: JsonObject = {
        "drop": "train" if is_train else "eval",
        "evaluation" if is_train else "train": stores["train"].manifest.digest,
        "strict_text": strict_text,
        "near": near,
        **({"by": list(by)} if by else {}),
    }
    with deriving(path, engine=engine, goal=goal) as derivation:
        names = pa.table(
            {"episode_id": pa.array(why, pa.string()), "kind": pa.array(list(why.values()), pa.string())}
        )
        derivation.connection.register("trajkit_leaking", names)
        rows = derivation.connection.execute(
            "SELECT kind, count(*), CAST(sum(n_steps) AS BIGINT) FROM trajkit_leaking "
            "JOIN episodes USING (episode_id) GROUP BY kind"
        ).fetchall()
        left = [
            Left(reason=f"leak: {NAMES[LeakKind(kind)][0]}", n_episodes=n, n_steps=n_steps)
            for kind, n, n_steps in sorted(rows, key=lambda row: list(LeakKind).index(row[0]))
        ]
        stay = "(SELECT episode_id FROM episodes ANTI JOIN trajkit_leaking USING (episode_id))"
        entry = derivation.entry(verb="leak", arguments=arguments, kept=stay, left=left)
        if not entry.n_episodes_out:
            raise nothing_left(derivation.store, entry)
        if goal is None:
            return None, entry
        manifest = derivation.write(goal, verb="leak", arguments=arguments, kept=stay, left=left)
        return manifest, manifest.lineage[-1]


def _check_share(near: float | None) -> None:
    if near is not None and not 0 < near <= 1:
        raise RequestError(
            f"the similarity must be above 0 and at most 1, not {near:g}", hint=f"such as {THRESHOLD}"
        )


@contextmanager
def _connected(stores: dict[str, Store], by: Sequence[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection with the views of each store in its own schema, and a table `own` of its episodes."""
    for store in stores.values():
        verify(store)
    paths = " or ".join(str(store.path) for store in stores.values())
    with connect() as connection, reading(connection, paths, hint=NO_ROOM):
        for name, store in stores.items():
            connection.execute(f"CREATE SCHEMA {name}")
            connection.execute(f"SET schema = '{name}'")
            create_views(connection, store)
            group = group_text(connection, store, by) if by else "NULL"
            connection.execute(
                "CREATE TABLE own AS SELECT episode_id, env_id, task, seed, purpose, "
                f"initial_state_hash, {HAS_STATE} AS has_state, {HAS_SEED} AS has_seed, "
                f"CAST({group} AS VARCHAR) AS group_name FROM episodes"
            )
        connection.execute("SET schema = 'main'")
        yield connection


def _compare_texts(
    connection: duckdb.DuckDBPyConnection,
    stores: Mapping[str, Store],
    near: float | None,
    strict_text: bool,
    engine: Engine | None,
    goal: Path | None,
) -> None:
    """Create in both schemas the tables `texts`, of steps, and `starts`, of episodes; and `alike`."""
    with_seeds = "SELECT t.*, has_seed, env_id, task, seed FROM ({}) AS t JOIN own USING (episode_id)"
    with ExitStack() as stack:
        by_engine = {
            side: stack.enter_context(deriving(store.path, engine=engine, goal=goal, is_verified=True))
            for side, store in stores.items()
            if engine is not None
        }
        if by_engine:  # Ctrl-C stops this connection, not those of the stores, and errors name both
            paths = " or ".join(str(store.path) for store in stores.values())
            stack.enter_context(reading(connection, paths, hint=NO_ROOM))
        for side in stores:
            connection.execute(f"SET schema = '{side}'")
            for table, text in (("starts", first_texts("false")), ("texts", step_texts(_NO_STEPS))):
                connection.execute(f"CREATE TABLE {table} AS {with_seeds.format(text)}")
            if not by_engine:
                connection.execute(f"CREATE TABLE hashed AS {hashed_steps()}")
                connection.execute(f"INSERT INTO starts {with_seeds.format(first_texts())}")
                for span in spans(connection, n_steps=_STEPS_PER_SPAN):
                    texts = step_texts(f"(SELECT * FROM hashed WHERE {span})")
                    connection.execute(f"INSERT INTO texts {with_seeds.format(texts)}")
                connection.execute("DROP TABLE hashed")
                continue
            for folder in by_engine[side].over(write_texts, {}, what=f"texts-{side}"):
                for table, hashes in _HASHES.items():
                    rows = f"read_parquet({file_literal(folder / table)})"
                    found = with_seeds.format(
                        f"SELECT * REPLACE ({hashes_as('UHUGEINT', hashes)}) FROM {rows}"
                    )
                    connection.execute(f"INSERT INTO {table} {found}")
        connection.execute("SET schema = 'main'")
        _alike_if_blocking(connection, near, strict_text, by_engine)


def write_texts(item: dict[str, Any]) -> str:
    """Write the hashes of the texts of a span of the episodes; return the name of the folder."""
    folder = own_folder(Path(item["folder"]), "texts")
    with deriving(item["store"], threads=1, is_verified=True) as derivation:
        run = derivation.connection.execute
        run(f"CREATE TEMP TABLE hashed AS {hashed_steps(item['where'])}")
        for table, rows in (("starts", first_texts(item["where"])), ("texts", step_texts("hashed"))):
            path, hashes = literal(str(folder / table)), hashes_as("UUID", _HASHES[table])
            run(f"COPY (SELECT * REPLACE ({hashes}) FROM ({rows})) TO {path} (FORMAT parquet)")
    return folder.name


def _alike_if_blocking(
    connection: duckdb.DuckDBPyConnection,
    near: float | None,
    strict_text: bool,
    by_engine: Mapping[str, Derivation],
) -> None:
    """Create `alike`, of nearly identical prompts; empty if shared text does not block."""
    seedless = "SELECT count(*) FROM {}.own WHERE NOT has_seed"
    blocks = strict_text or any(_number(connection, seedless.format(side)) for side in ("train", "eval"))
    if near is None or not blocks:
        create_none(connection)
    else:
        find_alike(connection, near, even_with_seeds=strict_text, by_engine=by_engine)


def _same_worlds(connection: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    """Find shared ids, worlds, initial states and groups: each of them blocks."""
    world = "coalesce(env_id, '?') || ' ' || coalesce(task, '?') || ' seed ' || CAST(seed AS VARCHAR)"
    # as JSON, where two nulls are equal: an unknown task does not make two worlds different
    by_world = "CAST(to_json([env_id, task, CAST(seed AS VARCHAR)]) AS VARCHAR)"
    for kind, value, where in (
        (LeakKind.EPISODE_ID, "episode_id", "true"),
        (LeakKind.WORLD, by_world, "seed IS NOT NULL"),
        (LeakKind.INITIAL_STATE, "initial_state_hash", "has_state"),
        (LeakKind.GROUP, "group_name", "group_name IS NOT NULL"),
    ):
        sides = {
            name: f"SELECT {value} AS value, {world if kind == LeakKind.WORLD else value} AS what, "
            f"episode_id, 0 AS step_index, true AS blocks FROM {name}.own WHERE {where}"
            for name in ("train", "eval")
        }
        yield _shared(connection, kind, **sides)


def _same_rooms(connection: duckdb.DuckDBPyConnection) -> Finding:
    """Find rooms of one seed that both sides have under different tasks; they do not block."""
    value = "CAST(to_json([env_id, CAST(seed AS VARCHAR), md5(observation)]) AS VARCHAR)"
    for name in ("train", "eval"):
        connection.execute(
            f"CREATE TABLE {name}.rooms AS SELECT episode_id, task, {value} AS value, "
            "env_id || ' ' || task || ' seed ' || CAST(seed AS VARCHAR) AS what "
            f"FROM {name}.own JOIN {name}.steps USING (episode_id) "
            "WHERE step_index = 0 AND has_seed AND observation IS NOT NULL"
        )
    sides = {
        name: "SELECT value, what AS what, episode_id, 0 AS step_index, false AS blocks "
        f"FROM {name}.rooms AS mine WHERE EXISTS "
        f"(SELECT 1 FROM {other}.rooms AS o WHERE o.value = mine.value AND o.task <> mine.task)"
        for name, other in (("train", "eval"), ("eval", "train"))
    }
    n_of = _number(connection, "SELECT count(DISTINCT value) FROM eval.rooms")
    return _shared(connection, LeakKind.ROOM, **sides).model_copy(update={"n_of": n_of})


def _same_texts(connection: duckdb.DuckDBPyConnection, strict_text: bool) -> Iterator[Finding]:
    """Find shared prompts, answers and first texts: they block where a side has no seeds."""
    exact = "SELECT prompt FROM train.texts"
    for kind, table, value, where in (
        (LeakKind.PROMPT, "texts", "prompt", "true"),
        (LeakKind.NEAR_PROMPT, "texts", "near", f"prompt NOT IN ({exact})"),
        (LeakKind.PROMPT_ANSWER, "texts", "answer", "answer IS NOT NULL"),
        (LeakKind.FIRST_TEXT, "starts", "first_text", "true"),
    ):
        blocks = "true" if strict_text else "NOT has_seed"
        step = "step_index" if table == "texts" else "0"
        sides = {
            name: f"SELECT {value} AS value, episode_id, {step} AS step_index, {blocks} AS blocks "
            f"FROM {name}.{table} WHERE {where if name == 'eval' else 'true'}"
            for name in ("train", "eval")
        }
        if kind == LeakKind.NEAR_PROMPT:
            sides["train"] += (
                f" UNION ALL SELECT CAST(near AS UHUGEINT), episode_id, step_index, true FROM {ALIKE}"
            )
        n_of = _number(connection, f"SELECT count(DISTINCT {value}) FROM eval.{table}")
        finding = _shared(connection, kind, **sides)
        yield finding.model_copy(update={"n_of": n_of, "examples": _with_texts(connection, finding.examples)})


def _shared(connection: duckdb.DuckDBPyConnection, kind: LeakKind, *, train: str, eval: str) -> Finding:
    """Join two SELECTs by `value`; a shared value blocks if `blocks` holds in one of its rows.

    Creates `both_have`, the shared values, and `eval_rows`, the rows of the evaluation store.
    """
    what = "min(what)" if "AS what" in eval else "NULL"
    grouped = (
        "SELECT value, bool_or(blocks) AS blocks, {what} AS what, "
        "min({{'episode_id': episode_id, 'step_index': step_index}}) AS first FROM ({select}) GROUP BY value"
    )
    both = (
        "SELECT value, e.what, t.first AS train_first, e.first AS eval_first, t.blocks OR e.blocks AS blocks "
        f"FROM ({grouped.format(select=eval, what=what)}) AS e "
        f"JOIN ({grouped.format(select=train, what=what)}) AS t USING (value)"
    )
    connection.execute(f"CREATE OR REPLACE TEMP TABLE both_have AS {both}")
    connection.execute(f"CREATE OR REPLACE TEMP VIEW eval_rows AS {eval}")
    ((n, n_blocking),) = connection.execute(
        "SELECT count(*), count(*) FILTER (blocks) FROM both_have"
    ).fetchall()
    rows = connection.execute(
        "SELECT what, train_first.episode_id, eval_first.episode_id, eval_first.step_index FROM both_have "
        f"ORDER BY blocks DESC, eval_first, train_first LIMIT {_MOST_EXAMPLES}"
    ).fetchall()
    return Finding(
        kind=kind,
        n=n,
        n_of=_number(connection, f"SELECT count(DISTINCT value) FROM ({eval})"),
        n_blocking=n_blocking,
        examples=tuple(
            Example(what=f"step {step}" if what is None else what, train_episode=mine, eval_episode=other)
            for what, mine, other, step in rows
        ),
    )


def _with_texts(connection: duckdb.DuckDBPyConnection, examples: Sequence[Example]) -> tuple[Example, ...]:
    """Replace the step number of each example by the end of the step's prompt."""
    found = []
    for example in examples:
        step = int(example.what.removeprefix("step "))
        row = connection.execute(
            "SELECT coalesce((messages->'$[#-1]')->>'$.content[0].text', observation, '') FROM eval.steps "
            "WHERE episode_id = ? AND step_index = ?",
            [example.eval_episode, step],
        ).fetchone()
        text = " ".join(str(row[0]).split()) if row else ""
        cut = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} …"
        found.append(example.model_copy(update={"what": f"step {step}: {cut!r}" if cut else f"step {step}"}))
    return tuple(found)


def _reserved_worlds(connection: duckdb.DuckDBPyConnection, kept: Sequence[Reservation]) -> Finding:
    """Find episodes of the training store in a reserved world, by its name or by its state."""
    connection.execute(
        "CREATE TEMP TABLE in_reserved AS SELECT DISTINCT episode_id, coalesce(o.env_id || ' ' || o.task || "
        "' seed ' || CAST(o.seed AS VARCHAR), 'state ' || o.initial_state_hash) AS what "
        f"FROM train.own AS o WHERE {in_reserved(connection, kept, 'o')}"
    )
    n = _number(connection, "SELECT count(*) FROM in_reserved")
    rows = connection.execute(
        f"SELECT what, episode_id FROM in_reserved ORDER BY episode_id LIMIT {_MOST_EXAMPLES}"
    ).fetchall()
    return Finding(
        kind=LeakKind.RESERVED,
        n=n,
        n_of=_number(connection, "SELECT count(*) FROM train.own"),
        n_blocking=n,
        examples=tuple(Example(what=what, train_episode=mine, eval_episode=None) for what, mine in rows),
    )


def _aliased(connection: duckdb.DuckDBPyConnection) -> Aliased:
    """Find seeded worlds whose first text also occurs in the training store."""
    rows = connection.execute(
        "SELECT DISTINCT env_id, task, seed FROM (SELECT env_id, task, seed FROM eval.texts "
        "WHERE has_seed AND step_index = 0 AND near IN (SELECT near FROM train.texts WHERE step_index = 0) "
        "UNION ALL SELECT env_id, task, seed FROM eval.starts "
        "WHERE has_seed AND first_text IN (SELECT first_text FROM train.starts)) ORDER BY ALL"
    ).fetchall()
    n_of = _number(
        connection, "SELECT count(*) FROM (SELECT DISTINCT env_id, task, seed FROM eval.own WHERE has_seed)"
    )
    worlds = tuple(World(env_id=env_id, task=task, seed=seed) for env_id, task, seed in rows)
    return Aliased(n=len(worlds), n_of=n_of, worlds=worlds)


def _side(connection: duckdb.DuckDBPyConnection, name: str, store: Store) -> LeakSide:
    ((n_without_seed, n_without_state, n_for_evaluation),) = connection.execute(
        "SELECT count(*) FILTER (NOT has_seed), count(*) FILTER (NOT has_state), "
        f"count(*) FILTER (purpose = 'eval') FROM {name}.own"
    ).fetchall()
    return LeakSide(
        path=str(store.path),
        digest=store.manifest.digest,
        n_episodes=store.manifest.counts.n_episodes,
        n_without_seed=n_without_seed,
        n_without_state=n_without_state,
        n_steps=store.manifest.counts.n_steps,
        n_without_prompt=_number(connection, f"SELECT count(*) FROM {name}.steps WHERE messages IS NULL"),
        n_for_evaluation=n_for_evaluation,
    )


def _number(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    ((number,),) = connection.execute(sql).fetchall()
    return int(number)
