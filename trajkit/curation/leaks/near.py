"""Compute keys of steps and episodes that are equal for equal content, and find near duplicates.

Texts are compared after normalisation: Unicode NFC; every run of white space is one space; white space at
the beginning and the end of a text is removed, and so are the ids of tool calls and the signatures of
thoughts, which are unique. A prompt includes all its messages and the tools that were offered.

Near-identical prompts are found by MinHash signatures of their words and locality-sensitive hashing: Broder
1997, "On the resemblance and containment of documents"; banding as in Leskovec, Rajaraman and Ullman, "Mining
of Massive Datasets", section 3.4. Signatures and bands are DuckDB tables, which can spill to disk.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trajkit._core.division import own_folder
from trajkit._core.lazy import need
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.keys import FROM_TEXT
from trajkit.curation.leaks.texts import OTHER, SYSTEM, hashes_as, mixed, shingle_hashes
from trajkit.schema.base import JsonObject
from trajkit.store.digest import spelled_json
from trajkit.store.engine import file_literal, literal
from trajkit.store.view import full_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

GROUPS = "trajkit_near"
"""Table `(is_eval, prompt, act, kept, similarity)`: each dropped prompt, the prompt kept for it, and their
estimated Jaccard similarity."""

N_VALUES = 128
"""Values of a signature. The standard error of an estimate is at most 1 / (2 * sqrt(128)) = 0.044."""

_SAVED = np.dtype(np.uint16)
"""The kept part of a value: its lowest bits, in which different values are equal once in 65,536 times (Li and
König 2010, "b-bit minwise hashing")."""
_SEED = 1
_RECALL = 0.99
_BATCH_ROWS = 512
_BATCH_BYTES = 4_000_000
_TEXT_BYTES = 300_000
"""Text whose hashes stay in a processor's cache."""
_PAIRS_AT_ONCE = 20_000
_BANDS_AT_ONCE, _MOST_PIECES = 1_000_000, 8
_PART = "trajkit_near_part"
_PROMPTS = "trajkit_near_prompts"
"""The steps of `_PART` without their texts, with the `hashes` of all messages of their prompts."""
_FIRSTS = "trajkit_near_firsts"
SIGNATURES = "trajkit_near_signatures"
BANDS = "trajkit_near_bands"
_PAIRS = "trajkit_near_pairs"
_LOST = "trajkit_near_lost"
STEP_KEYS = "trajkit_step_keys"
"""Table `(number, episode_id, step_index, is_eval, is_learned, prompt, answer, act)`: a row per step,
numbered in the order of episode and step. `prompt` is null if unknown, `answer` if there is none. `act` is a
hash of the action, else of the answer."""
LEARNED = "is_learned AND prompt IS NOT NULL AND answer IS NOT NULL"
"""Condition on `STEP_KEYS`: the step is learned and can be compared."""

EPISODE_KEYS = "trajkit_episode_keys"
"""Table `(episode_id, is_eval, start, actions)`; null if unknown."""
_WIDE_SPACES = r"[\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
_CHANGING = r'"(?:id|signature)":(?:"[^"]*"|null)'
_HASHES = ("prompt", "answer", "act")
"""The columns of hashes in `STEP_KEYS`."""


def rows_per_band(threshold: float) -> int:
    """Return the largest number of values per band that finds a pair at the threshold 99 % of the time."""
    for n_rows in (32, 16, 8, 4, 2):
        if 1 - (1 - threshold**n_rows) ** (N_VALUES // n_rows) >= _RECALL:
            return n_rows
    return 1


class Signing:
    """Signs the prompts of learned steps, part by part, into a table of signatures and one of bands.

    Near-identical prompts have the same system messages and tools, and the Jaccard similarity of the word
    n-grams of their other messages is at least `threshold`. A word is letters, digits and _, ignoring the
    case of A to Z, and an n-gram is within one message. So the signature of a prompt is the minimum of those
    of its messages, and a message that every later prompt repeats is signed once.

    Args:
        derivation: The store.
        threshold: Lowest Jaccard similarity, from above 0 to 1.
        shingle: Words of an n-gram.
        threads: None for one per core: with more, they wait for each other in Python.

    Raises:
        MissingExtra: rensa is not installed.
    """

    def __init__(
        self, derivation: Derivation, *, threshold: float, shingle: int, threads: int | None = None
    ) -> None:
        self._sketch = need("rensa", extra="dedupe").RMinHash
        self._connection, self._threads = derivation.connection, threads or min(32, os.cpu_count() or 1)
        self._shingle, self._n_rows = shingle, rows_per_band(threshold)
        self.settings = {"threshold": threshold, "shingle": shingle}
        """The settings by name."""
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {SIGNATURES} (number BIGINT, frame UBIGINT, signature BLOB); "
            f"CREATE OR REPLACE TEMP TABLE {BANDS} (number BIGINT, bucket UBIGINT)"
        )

    def add(self, n_before: int) -> None:
        """Sign the prompts in `_PROMPTS`, whose numbers are above `n_before`."""
        hashes, of_messages = self._messages()
        frame = f"array_to_string(list_filter(hashes, lambda h: h[1] = '{SYSTEM}'), '')"
        others = f"{frame}, coalesce({spelled_json('tools')}, ''), CAST(is_eval AS VARCHAR), hex(act)"
        # read at once: a connection with an open result cannot be written to
        prompts = self._connection.sql(
            f"SELECT number, md5_number_lower(concat_ws(chr(3), {others})) AS frame, "
            f"list_append(list_filter(hashes, lambda h: h[1] = '{OTHER}'), '') AS hashes "
            f"FROM {_PROMPTS} JOIN {STEP_KEYS} AS k USING (episode_id, step_index) "
            f"WHERE number > {n_before} AND {LEARNED}"
        ).to_arrow_table()
        made = []
        for batch in prompts.to_batches():
            for piece in _slices(batch, "hashes", _BATCH_BYTES):  # each look-up makes a table of all hashes
                column = cast("pa.ListArray[Any]", piece.column("hashes"))
                places = cast("pa.Array[Any]", pc.index_in(column.flatten(), hashes)).to_numpy()
                bounds = column.offsets.to_numpy() - column.offsets[0].as_py()
                for first in range(0, len(column), _BATCH_ROWS):
                    mine = bounds[first : first + _BATCH_ROWS + 1]
                    signed = of_messages[places[mine[0] : mine[-1]]]
                    made.append(np.minimum.reduceat(signed, mine[:-1] - mine[0]))
        if made:
            _insert(self._connection, prompts, np.concatenate(made), self._n_rows)

    def _messages(self) -> tuple[pa.Array[Any], NDArray[np.uint32]]:
        """Return the hashes of the messages in `_PART` and their signatures; first those of no message."""
        texts = self._connection.sql(
            "SELECT hash, any_value(text) AS text FROM (SELECT unnest(hashes) AS hash, "
            f"unnest(texts) AS text FROM {_PART}) WHERE hash[1] = '{OTHER}' GROUP BY hash"
        ).to_arrow_table()

        def signed(batch: pa.RecordBatch) -> NDArray[np.uint32]:
            hashes, offsets = shingle_hashes(batch.column("text"), self._shingle)
            matrix = self._sketch.digest_matrix_from_flat_token_hashes(hashes, offsets, N_VALUES, _SEED)
            rows = b"".join(array("I", row) for row in matrix.to_rows())  # np.array would check each number
            return np.frombuffer(rows, np.uint32).reshape(-1, N_VALUES)

        batches = [piece for batch in texts.to_batches() for piece in _slices(batch, "text", _TEXT_BYTES)]
        nothing = np.full((1, N_VALUES), np.iinfo(np.uint32).max, np.uint32)
        with ThreadPoolExecutor(self._threads) as pool:
            signatures = np.concatenate([nothing, *pool.map(signed, batches)])
        return pa.concat_arrays([pa.array([""]), *texts.column("hash").chunks]), signatures


def find_near(derivation: Derivation, rest: str, *, threshold: float) -> None:
    """Create the table `GROUPS`. A prompt is dropped only for an earlier one that stays.

    Args:
        derivation: The store; its prompts were signed for this threshold.
        rest: Relation of the rows of `STEP_KEYS` to compare: prompts with the same `act` and `is_eval`.
        threshold: Lowest Jaccard similarity, from above 0 to 1.
    """
    run = derivation.connection.execute
    run(
        f"CREATE OR REPLACE TEMP TABLE {_FIRSTS} AS SELECT is_eval, prompt, act, min(number) AS number "
        f"FROM {rest} GROUP BY ALL"
    )
    _keep_bands(derivation, f"SEMI JOIN {_FIRSTS}")
    derivation.connection.register("trajkit_near_found", _standing(derivation, threshold))
    run(
        f"CREATE OR REPLACE TEMP TABLE {GROUPS} AS SELECT d.is_eval, d.prompt, d.act, k.prompt AS kept, "
        f"f.similarity FROM trajkit_near_found AS f JOIN {_FIRSTS} AS d ON d.number = f.number "
        f"JOIN {_FIRSTS} AS k ON k.number = f.kept"
    )
    derivation.connection.unregister("trajkit_near_found")


def _keep_bands(derivation: Derivation, join: str) -> None:
    """Keep the bands of some prompts. A copy spills to disk; DELETE would list the deleted rows in memory."""
    derivation.connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {BANDS} AS SELECT * FROM {BANDS} {join} USING (number)"
    )


def _slices(batch: pa.RecordBatch, column: str, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Split a batch into slices with at most this many bytes in a column, or one row."""
    if batch.num_rows <= 1 or batch.column(column).nbytes <= most_bytes:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _slices(batch.slice(0, half), column, most_bytes)
    yield from _slices(batch.slice(half), column, most_bytes)


def _insert(
    connection: duckdb.DuckDBPyConnection, prompts: pa.Table, signatures: NDArray[np.uint32], n_rows: int
) -> None:
    """Insert the signatures and the bucket of each of their bands."""
    n_bands = N_VALUES // n_rows
    frames = prompts.column("frame").to_numpy()
    values = signatures.reshape(len(signatures), n_bands, n_rows)
    buckets = np.zeros((len(signatures), n_bands), np.uint64)
    for place in range(n_rows):
        buckets = mixed(buckets ^ values[:, :, place])
    buckets = mixed(buckets ^ mixed(np.arange(n_bands, dtype=np.uint64))[None, :] ^ frames[:, None])
    width = pa.binary(_SAVED.itemsize * N_VALUES)
    saved = pa.py_buffer(signatures.astype(_SAVED).tobytes())
    blobs = pa.Array.from_buffers(width, len(signatures), [None, saved])
    rows = {
        SIGNATURES: prompts.select(["number", "frame"]).append_column("signature", blobs),
        BANDS: pa.table(
            {"number": np.repeat(prompts.column("number").to_numpy(), n_bands), "bucket": buckets.reshape(-1)}
        ),
    }
    for table, made in rows.items():
        connection.from_arrow(made).insert_into(table)


def _standing(derivation: Derivation, threshold: float) -> pa.Table:
    """Return which prompt is kept for each dropped one, as columns `number`, `kept`, `similarity`.

    The first round compares the prompts of each bucket with its first. Where that was dropped, the next round
    compares with another first, until no more is dropped.
    """
    kept_for: dict[int, tuple[int, float]] = {}
    standing: set[int] = set()
    run, bands = derivation.connection.execute, BANDS
    while True:
        n_before = len(kept_for)
        for number, first, similarity in _alike(derivation, bands, threshold):
            # a prompt that was kept for others stays, and a dropped one cannot be kept for others
            if number not in kept_for and number not in standing and first not in kept_for:
                kept_for[number] = (first, similarity)
                standing.add(first)
        gone = list(kept_for)[n_before:]
        if not gone:
            break
        derivation.connection.register("trajkit_near_gone", pa.table({"number": gone}))
        theirs = f"SELECT bucket FROM {BANDS} SEMI JOIN trajkit_near_gone USING (number)"
        lost = (
            f"SELECT bucket FROM (SELECT bucket, min(number) AS number FROM {BANDS} SEMI JOIN ({theirs}) "
            "USING (bucket) GROUP BY bucket) SEMI JOIN trajkit_near_gone USING (number)"
        )
        run(
            f"CREATE OR REPLACE TEMP TABLE {_LOST} AS SELECT * FROM {BANDS} SEMI JOIN ({lost}) "
            "USING (bucket) ANTI JOIN trajkit_near_gone USING (number)"
        )
        _keep_bands(derivation, "ANTI JOIN trajkit_near_gone")
        derivation.connection.unregister("trajkit_near_gone")
        bands = _LOST
    return pa.table(
        {
            "number": pa.array(kept_for, pa.int64()),
            "kept": pa.array([first for first, _ in kept_for.values()], pa.int64()),
            "similarity": pa.array([similarity for _, similarity in kept_for.values()], pa.float64()),
        }
    )


def _alike(derivation: Derivation, bands: str, threshold: float) -> Iterator[tuple[int, int, float]]:
    """Yield each prompt with the first of one of its buckets and their similarity, ordered by prompt."""
    run = derivation.connection.execute
    run(f"CREATE OR REPLACE TEMP TABLE {_PAIRS} (number BIGINT, first BIGINT)")
    ((n_bands,),) = run(f"SELECT count(*) FROM {bands}").fetchall()
    n_pieces = min(n_bands // _BANDS_AT_ONCE + 1, _MOST_PIECES)
    for piece in range(n_pieces):  # grouped at once, all buckets would need several times the memory
        mine = f"(SELECT * FROM {bands} WHERE bucket % {n_pieces} = {piece})"
        run(
            f"INSERT INTO {_PAIRS} SELECT DISTINCT number, first FROM {mine} JOIN (SELECT bucket, "
            f"min(number) AS first FROM {mine} GROUP BY bucket HAVING count(*) > 1) USING (bucket) "
            "WHERE number > first"
        )
    reader = derivation.connection.sql(
        "SELECT p.number, p.first, a.signature AS one, b.signature AS other "
        f"FROM (SELECT DISTINCT * FROM {_PAIRS}) AS p "
        f"JOIN {SIGNATURES} AS a ON a.number = p.number JOIN {SIGNATURES} AS b ON b.number = p.first "
        "WHERE a.frame = b.frame"
    ).to_arrow_reader(_PAIRS_AT_ONCE)
    found: list[pa.RecordBatch] = []
    for batch in reader:
        one, other = (_matrix(batch.column(name)) for name in ("one", "other"))
        similarity = (one == other).mean(axis=1) if batch.num_rows else np.zeros(0)
        pairs = pa.record_batch([batch.column(0), batch.column(1), pa.array(similarity)], ["n", "first", "s"])
        found.append(pairs.filter(pa.array(similarity >= threshold)))
    reader.close()
    run(f"DROP TABLE {_PAIRS}")
    if not found:
        return
    table = pa.Table.from_batches(found).sort_by(
        [("n", "ascending"), ("s", "descending"), ("first", "ascending")]
    )
    for batch in table.to_batches(_PAIRS_AT_ONCE):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _matrix(blobs: pa.Array[Any]) -> NDArray[np.uint16]:
    return np.frombuffer(b"".join(cast("list[bytes]", blobs.to_pylist())), _SAVED).reshape(
        len(blobs), N_VALUES
    )


def make_step_keys(
    derivation: Derivation,
    signing: Signing | None = None,
    on_progress: Callable[[int, int], None] = lambda n_done, n_total: None,
) -> None:
    """Create the table `STEP_KEYS`, reading one part at a time, or by the engine one span at a time.

    Args:
        derivation: The store.
        signing: Also signs the prompts.
        on_progress: Gets how many steps are read, and how many there are.
    """
    if derivation.engine is None:
        _make_step_keys(derivation, "episodes", signing, on_progress)
        return
    _make_step_keys(derivation, "(SELECT episode_id FROM episodes WHERE false)", signing, on_progress)
    n_total, n_read, run = derivation.store.manifest.counts.n_steps, 0, derivation.connection.execute
    found = []
    facts: JsonObject = {"signing": None if signing is None else dict(signing.settings)}
    for folder in derivation.over(write_step_keys, facts, what="keys"):
        keys = file_literal(folder / f"{STEP_KEYS}.parquet")
        ((lowest, n),) = run(f"SELECT min(episode_id), count(*) FROM read_parquet({keys})").fetchall()
        found.append((lowest, n, folder))
        n_read += n
        on_progress(n_read, n_total)
    n_before = 0
    for _, n, folder in sorted(found, key=lambda each: each[0]):
        for path in folder.iterdir():  # numbers count from the first step of the span
            hashes = f", {hashes_as('UHUGEINT', _HASHES)}" if path.stem == STEP_KEYS else ""
            run(
                f"INSERT INTO {path.stem} SELECT * REPLACE (number + {n_before} AS number{hashes}) "
                f"FROM read_parquet({file_literal(path)})"
            )
        n_before += n


def write_step_keys(item: dict[str, Any]) -> str:
    """Write the keys of a span of the episodes, and their signatures; return the name of the folder."""
    folder = own_folder(Path(item["folder"]), "keys")
    with deriving(item["store"], threads=1, is_verified=True) as derivation:
        signing = None if item["signing"] is None else Signing(derivation, **item["signing"], threads=1)
        _make_step_keys(derivation, f"(SELECT episode_id FROM episodes WHERE {item['where']})", signing)
        tables = {STEP_KEYS: f"SELECT * REPLACE ({hashes_as('UUID', _HASHES)}) FROM {STEP_KEYS}"}
        if signing is not None:
            tables |= {table: f"SELECT * FROM {table}" for table in (SIGNATURES, BANDS)}
        for table, rows in tables.items():
            path = folder / f"{table}.parquet"
            derivation.connection.execute(f"COPY ({rows}) TO {literal(str(path))} (FORMAT parquet)")
    return folder.name


def _make_step_keys(
    derivation: Derivation,
    kept: str,
    signing: Signing | None,
    on_progress: Callable[[int, int], None] = lambda n_done, n_total: None,
) -> None:
    """Create the table `STEP_KEYS` of the episodes in the relation `kept`."""
    run = derivation.connection.execute
    run(
        f"CREATE OR REPLACE TEMP TABLE {STEP_KEYS} (number BIGINT, episode_id VARCHAR, step_index BIGINT, "
        "is_eval BOOLEAN, is_learned BOOLEAN, prompt UHUGEINT, answer UHUGEINT, act UHUGEINT)"
    )
    n_total = derivation.store.manifest.counts.n_steps
    n_done = 0
    for mine in derivation.parts(kept):
        _read(derivation, f"(SELECT * FROM steps {mine})", with_texts=signing is not None)
        prompts = (
            "(SELECT episode_id, step_index, tools, action, loss_weight, completion, "
            f"CAST(prompt AS VARCHAR[]) AS hashes FROM ({full_steps(_PART)}))"
        )
        if signing is not None:  # which reads them, too
            run(f"CREATE TEMP TABLE {_PROMPTS} AS {prompts}")
            prompts = _PROMPTS
        number = f"{n_done} + row_number() OVER (ORDER BY s.episode_id, step_index)"
        run(
            f"INSERT INTO {STEP_KEYS} SELECT {number}, s.episode_id, step_index, e.purpose = 'eval', "
            "loss_weight > 0, "
            f"md5_number(array_to_string(hashes, '') || chr(3) || coalesce({spelled_json('tools')}, '')), "
            "md5_number(completion->>'$') AS answered, "
            f"coalesce(md5_number({spelled_json('action')}), answered) FROM {prompts} AS s "
            "JOIN (SELECT episode_id, purpose FROM episodes) AS e USING (episode_id)"
        )
        if signing is not None:
            signing.add(n_done)
        ((n_done,),) = run(f"SELECT count(*) FROM {STEP_KEYS}").fetchall()
        on_progress(n_done, n_total)
    run(f"DROP TABLE IF EXISTS {_PART}; DROP TABLE IF EXISTS {_PROMPTS}")


def _read(derivation: Derivation, steps: str, *, with_texts: bool) -> None:
    """Create the table `_PART`: steps whose messages are hashes, so that long prompts are cheap."""
    is_system = 'contains(t, \'"role":"system"\')'  # a quotation mark inside a text is another character
    hashed = f"CASE WHEN {is_system} THEN '{SYSTEM}' ELSE '{OTHER}' END || md5(t)"
    for table in (_PART, _PROMPTS):  # before: one part at a time in memory
        derivation.connection.execute(f"DROP TABLE IF EXISTS {table}")
    derivation.connection.execute(
        f"CREATE TEMP TABLE {_PART} AS SELECT * {'' if with_texts else 'EXCLUDE texts'} REPLACE ("
        "CASE WHEN messages IS NOT NULL THEN to_json(hashes[:-2]) END AS messages, "
        "to_json(hashes[-1]) AS completion) "
        f"FROM (SELECT *, list_transform(texts, lambda t: {hashed}) AS hashes FROM "
        f"(SELECT *, list_transform(list_append(CAST(messages AS JSON[]), completion), "
        f"lambda m: {normal('CAST(m AS VARCHAR)')}) AS texts FROM (SELECT episode_id, step_index, "
        f"n_prompt_kept, tools, action, loss_weight, messages, completion FROM {steps})))"
    )


def make_episode_keys(derivation: Derivation) -> None:
    """Create the table `EPISODE_KEYS`.

    The start is the initial state; if its hash does not cover the whole state, environment, task and seed;
    else the first prompt. An action is the executed one, else the one read from the answer, else the answer.
    """
    asked = spelled_json("s.action")
    act, first, joined = f"coalesce(s.action_executed, {asked})", "NULL", ""
    # whether the start of an episode, or an action, is known from texts alone
    ((needs_texts, has_keys),) = derivation.connection.execute(
        "SELECT EXISTS (FROM episodes WHERE seed IS NULL AND "
        f"coalesce(starts_with(initial_state_hash, {literal(FROM_TEXT)}), true)) "
        f"OR EXISTS (FROM steps WHERE action_executed IS NULL AND {spelled_json('action')} IS NULL), "
        f"EXISTS (FROM duckdb_tables() WHERE table_name = {literal(STEP_KEYS)})"
    ).fetchall()
    if needs_texts:
        if not has_keys:
            make_step_keys(derivation)
        act = f"coalesce(s.action_executed, {asked}, hex(k.answer))"
        first = "hex(min(k.prompt) FILTER (step_index = 0))"
        joined = f"LEFT JOIN {STEP_KEYS} AS k USING (episode_id, step_index)"
    actions = (
        f"SELECT episode_id, {first} AS first_prompt, CASE WHEN count({act}) = count(*) THEN "
        f"md5_number(CAST(to_json(list({act} ORDER BY step_index)) AS VARCHAR)) END AS actions "
        f"FROM (SELECT episode_id, step_index, action_executed, action FROM steps) AS s {joined} "
        "GROUP BY episode_id"
    )
    starts = (
        f"CASE WHEN NOT starts_with(e.initial_state_hash, {literal(FROM_TEXT)}) "
        "THEN to_json(['state', e.env_id, e.initial_state_hash]) "
        "WHEN e.seed IS NOT NULL THEN to_json(['world', e.env_id, e.task, CAST(e.seed AS VARCHAR)]) "
        "WHEN s.first_prompt IS NOT NULL THEN to_json(['prompt', s.first_prompt]) END"
    )
    derivation.connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {EPISODE_KEYS} AS SELECT e.episode_id, e.purpose = 'eval' AS is_eval, "
        f"CAST({starts} AS VARCHAR) AS start, s.actions "
        f"FROM episodes AS e JOIN ({actions}) AS s ON e.episode_id = s.episode_id"
    )


def normal(json_text: str) -> str:
    """Return SQL of the normalised text of a JSON value, as the store spells it.

    JSON text has no control characters, so they replace escaped backslashes and quotation marks: then every
    quotation mark is syntax, and every backslash begins an escape.
    """
    text = f"replace(replace({json_text}, '\\\\', chr(1)), '\\\"', chr(2))"
    text = f"regexp_replace({text}, {literal(_CHANGING)}, '', 'g')"
    others = "t"
    for escape in (r"\r", r"\t", r"\f"):
        others = f"replace({others}, '{escape}', ' ')"
    # most texts have no escape but line breaks, and each `replace` copies the text
    text = _once(f"replace({text}, '\\n', ' ')", f"CASE WHEN contains(t, '\\') THEN {others} ELSE t END")
    # a regular expression that matches every space takes ten times as long as one that rarely matches
    text = _once(text, f"CASE WHEN strlen(t) = length(t) THEN t ELSE {_spaced('t', _WIDE_SPACES)} END")
    text = _once(text, f"CASE WHEN contains(t, '  ') THEN {_spaced('t', ' {2,}')} ELSE t END")
    return f"nfc_normalize(replace(replace({text}, '\" ', '\"'), ' \"', '\"'))"


def _spaced(text: str, pattern: str) -> str:
    return f"regexp_replace({text}, {literal(pattern)}, ' ', 'g')"


def _once(value: str, expression: str) -> str:
    """Return SQL of an expression over `t` that computes the value once."""
    return f"list_transform([{value}], lambda t: {expression})[1]"
