"""Find near-identical prompts: MinHash signatures of their words and locality-sensitive hashing.

Broder 1997, "On the resemblance and containment of documents"; banding as in Leskovec, Rajaraman and Ullman,
"Mining of Massive Datasets", section 3.4. Signatures and bands are DuckDB tables, which can spill to disk.

Two prompts, answers or episodes are the same if their keys are equal. Texts are compared after normalisation:
Unicode NFC; every run of white space is one space; white space at the beginning and the end of a text is
removed, and so are the ids of tool calls and the signatures of thoughts, which are unique. A prompt includes
all its messages and the tools that were offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from trajkit._core.lazy import need
from trajkit.curation.derive import Derivation
from trajkit.curation.keys import FROM_TEXT
from trajkit.curation.texts import mixed, shingle_hashes
from trajkit.store.digest import spelled_json
from trajkit.store.engine import literal
from trajkit.store.view import full_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

GROUPS = "trajkit_near"
"""Table `(is_eval, prompt, act, kept, similarity)`: each dropped prompt, the prompt kept for it, and their
estimated Jaccard similarity."""

N_VALUES = 128
"""Values of a signature. The standard error of an estimate is at most 1 / (2 * sqrt(128)) = 0.044."""

_SEED = 1
_RECALL = 0.99
_BATCH_ROWS = 512
_BATCH_BYTES = 8_000_000
_PAIRS_AT_ONCE = 20_000
_WORDS = "trajkit_near_words"
_SIGNATURES = "trajkit_near_signatures"
_BANDS = "trajkit_near_bands"
STEP_KEYS = "trajkit_step_keys"
"""Table `(episode_id, step_index, is_eval, is_learned, prompt, answer, act)`: a row per step. `prompt` is
null if unknown, `answer` if there is none. `act` is a hash of the action, else of the answer."""
EPISODE_KEYS = "trajkit_episode_keys"
"""Table `(episode_id, is_eval, start, actions)`; null where unknown."""
_WIDE_SPACES = r"[\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
_CHANGING = r'"(?:id|signature)":(?:"[^"]*"|null)'


def rows_per_band(threshold: float) -> int:
    """Return the most values of a band with which a pair at the threshold is found 99 times in 100."""
    for n_rows in (32, 16, 8, 4, 2):
        if 1 - (1 - threshold**n_rows) ** (N_VALUES // n_rows) >= _RECALL:
            return n_rows
    return 1


def find_near(
    derivation: Derivation,
    firsts: str,
    *,
    threshold: float,
    shingle: int,
    on_progress: Callable[[int, int], None] = lambda n_done, n_total: None,
) -> None:
    """Create the table `GROUPS`.

    Near-identical prompts have the same system messages and tools, and the Jaccard similarity of the word
    n-grams of their other messages is at least `threshold`. A word is letters, digits and _, ignoring the
    case of A to Z. A prompt is dropped only for an earlier one that stays.

    Args:
        derivation: The store.
        firsts: Relation `(is_eval, prompt, act, episode_id, step_index)`: a step that has each prompt.
            Only prompts with the same `act` and `is_eval` are compared.
        threshold: Lowest Jaccard similarity, from above 0 to 1.
        shingle: Words of an n-gram.
        on_progress: Gets how many prompts are signed, and how many there are.

    Raises:
        MissingExtra: rensa is not installed.
    """
    sketch = need("rensa", extra="dedupe").RMinHash
    run = derivation.connection.execute
    run(f"CREATE OR REPLACE TEMP TABLE {_SIGNATURES} (number BIGINT, frame UBIGINT, signature BLOB)")
    run(f"CREATE OR REPLACE TEMP TABLE {_BANDS} (number BIGINT, bucket UBIGINT)")
    run(
        f"CREATE OR REPLACE TEMP TABLE {_WORDS} AS SELECT *, "
        f"row_number() OVER (ORDER BY episode_id, step_index) AS number FROM {firsts}"
    )
    n_rows = rows_per_band(threshold)
    ((n_prompts,),) = run(f"SELECT count(*) FROM {_WORDS}").fetchall()
    n_signed = 0

    def signed(batch: pa.RecordBatch) -> NDArray[np.uint32]:
        hashes, offsets = shingle_hashes(batch.column("text"), shingle)
        matrix = sketch.digest_matrix_from_flat_token_hashes(hashes, offsets, N_VALUES, _SEED)
        return np.array(matrix.to_rows(), dtype=np.uint32)

    with ThreadPoolExecutor() as pool:
        for batches in _texts(derivation):
            for batch, signatures in zip(batches, pool.map(signed, batches), strict=True):
                _insert(derivation, batch, signatures, n_rows)
                n_signed += batch.num_rows
                on_progress(n_signed, n_prompts)
    derivation.connection.register("trajkit_near_found", _standing(derivation, threshold))
    run(
        f"CREATE OR REPLACE TEMP TABLE {GROUPS} AS SELECT d.is_eval, d.prompt, d.act, k.prompt AS kept, "
        f"f.similarity FROM trajkit_near_found AS f JOIN {_WORDS} AS d ON d.number = f.number "
        f"JOIN {_WORDS} AS k ON k.number = f.kept"
    )
    derivation.connection.unregister("trajkit_near_found")


def _texts(derivation: Derivation) -> Iterator[list[pa.RecordBatch]]:
    """Yield number, frame and text of each prompt, part by part. Near-identical prompts have equal frames."""
    role = "json_extract_string(m, '$.role')"
    messages = "CAST(prompt AS JSON[])"
    rest = f"to_json(list_filter({messages}, lambda m: {role} <> 'system'))"
    system = f"to_json(list_filter({messages}, lambda m: {role} = 'system'))"
    others = f"coalesce({spelled_json('tools')}, ''), CAST(is_eval AS VARCHAR), CAST(act AS VARCHAR)"
    frame = f"md5_number_lower(concat_ws(chr(3), {normal(f'CAST({system} AS VARCHAR)')}, {others}))"
    for mine in derivation.parts(f"(SELECT DISTINCT episode_id FROM {_WORDS})"):
        steps = full_steps(f"(SELECT * FROM steps {mine})")
        table = derivation.connection.sql(
            f"SELECT number, {frame} AS frame, {normal(f'CAST({rest} AS VARCHAR)')} AS text FROM "
            f"(SELECT s.prompt, s.tools, w.number, w.is_eval, w.act FROM ({steps}) AS s JOIN "
            f"{_WORDS} AS w USING (episode_id, step_index))"
        ).to_arrow_table()  # materialised: a connection with an open result cannot be written to
        yield [piece for batch in table.to_batches(_BATCH_ROWS) for piece in _slices(batch)]


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into slices with at most `_BATCH_BYTES` of text, or one row."""
    if batch.num_rows <= 1 or batch.column("text").nbytes <= _BATCH_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _slices(batch.slice(0, half))
    yield from _slices(batch.slice(half))


def _insert(
    derivation: Derivation, batch: pa.RecordBatch, signatures: NDArray[np.uint32], n_rows: int
) -> None:
    """Insert the signatures and the bucket of each of their bands."""
    n_bands = N_VALUES // n_rows
    numbers = batch.column("number")
    frames = batch.column("frame").to_numpy(zero_copy_only=False).astype(np.uint64)
    values = signatures.reshape(len(signatures), n_bands, n_rows).astype(np.uint64)
    buckets = np.zeros((len(signatures), n_bands), np.uint64)
    for place in range(n_rows):
        buckets = mixed(buckets ^ values[:, :, place])
    buckets = mixed(buckets ^ mixed(np.arange(n_bands, dtype=np.uint64))[None, :] ^ frames[:, None])
    width = pa.binary(4 * N_VALUES)
    blobs = pa.Array.from_buffers(width, len(signatures), [None, pa.py_buffer(signatures.tobytes())])
    connection = derivation.connection
    rows = {
        _SIGNATURES: pa.table({"number": numbers, "frame": frames, "signature": blobs}),
        _BANDS: pa.table(
            {
                "number": np.repeat(numbers.to_numpy(zero_copy_only=False), n_bands),
                "bucket": buckets.reshape(-1),
            }
        ),
    }
    for table, made in rows.items():
        connection.register("trajkit_near_rows", made)
        connection.execute(f"INSERT INTO {table} SELECT * FROM trajkit_near_rows")
    connection.unregister("trajkit_near_rows")


def _standing(derivation: Derivation, threshold: float) -> pa.Table:
    """Return which prompt is kept for each dropped one, as columns `number`, `kept`, `similarity`.

    Each round compares the prompts of a bucket with its first. Dropped prompts are deleted from the buckets,
    which may then have another first, until no more is dropped.
    """
    kept_for: dict[int, tuple[int, float]] = {}
    standing: set[int] = set()
    bands = _BANDS
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
        derivation.connection.execute(
            f"DELETE FROM {bands} WHERE number IN (SELECT number FROM trajkit_near_gone)"
        )
        derivation.connection.unregister("trajkit_near_gone")
    return pa.table(
        {
            "number": pa.array(kept_for, pa.int64()),
            "kept": pa.array([first for first, _ in kept_for.values()], pa.int64()),
            "similarity": pa.array([similarity for _, similarity in kept_for.values()], pa.float64()),
        }
    )


def _alike(derivation: Derivation, bands: str, threshold: float) -> Iterator[tuple[int, int, float]]:
    """Yield each prompt with the first of one of its buckets and their similarity, ordered by prompt."""
    reader = derivation.connection.sql(
        f"SELECT p.number, p.first, a.signature AS one, b.signature AS other FROM (SELECT DISTINCT number, "
        f"first FROM {bands} JOIN (SELECT bucket, min(number) AS first FROM {bands} GROUP BY bucket "
        f"HAVING count(*) > 1) USING (bucket) WHERE number > first) AS p "
        f"JOIN {_SIGNATURES} AS a ON a.number = p.number JOIN {_SIGNATURES} AS b ON b.number = p.first "
        "WHERE a.frame = b.frame"
    ).to_arrow_reader(_PAIRS_AT_ONCE)
    found: list[pa.RecordBatch] = []
    for batch in reader:
        one, other = (_matrix(batch.column(name)) for name in ("one", "other"))
        similarity = (one == other).mean(axis=1) if batch.num_rows else np.zeros(0)
        pairs = pa.record_batch([batch.column(0), batch.column(1), pa.array(similarity)], ["n", "first", "s"])
        found.append(pairs.filter(pa.array(similarity >= threshold)))
    reader.close()
    if not found:
        return
    table = pa.Table.from_batches(found).sort_by(
        [("n", "ascending"), ("s", "descending"), ("first", "ascending")]
    )
    for batch in table.to_batches(_PAIRS_AT_ONCE):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _matrix(blobs: pa.Array[Any]) -> NDArray[np.uint32]:
    return np.frombuffer(b"".join(cast("list[bytes]", blobs.to_pylist())), np.uint32).reshape(
        len(blobs), N_VALUES
    )


def normal(json_text: str) -> str:
    """Return SQL of the normalised text of a JSON value, as the store spells it.

    JSON text has no control characters, so they replace escaped backslashes and quotation marks: then every
    quotation mark is syntax, and every backslash begins an escape.
    """
    text = f"replace(replace({json_text}, '\\\\', chr(1)), '\\\"', chr(2))"
    text = f"regexp_replace({text}, {literal(_CHANGING)}, '', 'g')"
    for escape in (r"\n", r"\r", r"\t", r"\f"):
        text = f"replace({text}, '{escape}', ' ')"
    # a regular expression that matches every space takes ten times as long as one that rarely matches
    text = _once(text, f"CASE WHEN strlen(t) = length(t) THEN t ELSE {_spaced('t', _WIDE_SPACES)} END")
    text = _once(text, f"CASE WHEN contains(t, '  ') THEN {_spaced('t', ' {2,}')} ELSE t END")
    return f"nfc_normalize(replace(replace({text}, '\" ', '\"'), ' \"', '\"'))"


def _spaced(text: str, pattern: str) -> str:
    return f"regexp_replace({text}, {literal(pattern)}, ' ', 'g')"


def _once(value: str, expression: str) -> str:
    """Return SQL of an expression over `t` that computes the value once."""
    return f"list_transform([{value}], lambda t: {expression})[1]"


def make_step_keys(derivation: Derivation) -> None:
    """Create the table `STEP_KEYS`, reading one part at a time."""
    run = derivation.connection.execute
    run(
        f"CREATE OR REPLACE TEMP TABLE {STEP_KEYS} (episode_id VARCHAR, step_index BIGINT, is_eval BOOLEAN, "
        "is_learned BOOLEAN, prompt UHUGEINT, answer UHUGEINT, act UHUGEINT)"
    )
    prompt = (
        f"md5_number({normal('CAST(prompt AS VARCHAR)')} || chr(3) || coalesce({spelled_json('tools')}, ''))"
    )
    answer = f"md5_number({normal('CAST(completion AS VARCHAR)')})"
    for mine in derivation.parts():
        steps = full_steps(f"(SELECT * FROM steps {mine})")
        run(
            f"INSERT INTO {STEP_KEYS} SELECT s.episode_id, step_index, e.purpose = 'eval', loss_weight > 0, "
            f"{prompt}, {answer} AS answered, coalesce(md5_number({spelled_json('action')}), answered) "
            f"FROM ({steps}) AS s JOIN (SELECT episode_id, purpose FROM episodes) AS e USING (episode_id)"
        )


def make_episode_keys(derivation: Derivation) -> None:
    """Create the table `EPISODE_KEYS`.

    The start is the initial state; if its hash does not cover the whole state, environment, task and seed;
    else the first prompt. An action is the executed one, else the one read from the answer, else the answer.
    """
    asked = spelled_json("s.action")
    act, first, joined = f"coalesce(s.action_executed, {asked})", "NULL", ""
    if _needs_texts(derivation):
        if not _exists(derivation, STEP_KEYS):
            make_step_keys(derivation)
        act = f"coalesce(s.action_executed, {asked}, CAST(k.answer AS VARCHAR))"
        first = "CAST(min(k.prompt) FILTER (step_index = 0) AS VARCHAR)"
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


def _needs_texts(derivation: Derivation) -> bool:
    """Whether the start of an episode, or an action, is known from texts alone."""
    found = derivation.connection.execute(
        "SELECT EXISTS (FROM episodes WHERE seed IS NULL AND "
        f"coalesce(starts_with(initial_state_hash, {literal(FROM_TEXT)}), true)) "
        f"OR EXISTS (FROM steps WHERE action_executed IS NULL AND {spelled_json('action')} IS NULL)"
    ).fetchone()
    return bool(found and found[0])


def _exists(derivation: Derivation, table: str) -> bool:
    found = derivation.connection.execute(
        f"SELECT count(*) FROM duckdb_tables() WHERE table_name = {literal(table)}"
    ).fetchone()
    return bool(found and found[0])
