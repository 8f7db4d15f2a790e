"""Compute the keys of steps and episodes: two are the same if their keys are equal.

Texts are compared after normalisation: Unicode NFC; every run of white space is one space; white space at
the beginning and the end of a text is removed, and so are the ids of tool calls and the signatures of
thoughts, which are unique. A prompt includes all its messages and the tools that were offered.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trajkit._core.division import own_folder
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.keys import FROM_TEXT
from trajkit.curation.leaks.near import BANDS, OTHER, PART, PROMPTS, SIGNATURES, STEP_KEYS, SYSTEM, Signing
from trajkit.curation.leaks.texts import hashes_as
from trajkit.schema.base import JsonObject
from trajkit.store.digest import spelled_json
from trajkit.store.engine import file_literal, literal
from trajkit.store.view import full_steps

EPISODE_KEYS = "trajkit_episode_keys"
"""Table `(episode_id, is_eval, start, actions)`; null where unknown."""
_WIDE_SPACES = r"[\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
_CHANGING = r'"(?:id|signature)":(?:"[^"]*"|null)'
_HASHES = ("prompt", "answer", "act")
"""The columns of hashes in `STEP_KEYS`."""


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
    between = f"episode_id BETWEEN {literal(item['lowest'])} AND {literal(item['highest'])}"
    with deriving(item["store"], threads=1, is_verified=True) as derivation:
        signing = None if item["signing"] is None else Signing(derivation, **item["signing"], threads=1)
        _make_step_keys(derivation, f"(SELECT episode_id FROM episodes WHERE {between})", signing)
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
            f"CAST(prompt AS VARCHAR[]) AS hashes FROM ({full_steps(PART)}))"
        )
        if signing is not None:  # which reads them, too
            run(f"CREATE TEMP TABLE {PROMPTS} AS {prompts}")
            prompts = PROMPTS
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
    run(f"DROP TABLE IF EXISTS {PART}; DROP TABLE IF EXISTS {PROMPTS}")


def _read(derivation: Derivation, steps: str, *, with_texts: bool) -> None:
    """Create the table `PART`: steps whose messages are hashes, so that long prompts are cheap."""
    is_system = 'contains(t, \'"role":"system"\')'  # a quotation mark inside a text is another character
    hashed = f"CASE WHEN {is_system} THEN '{SYSTEM}' ELSE '{OTHER}' END || md5(t)"
    for table in (PART, PROMPTS):  # before: one part at a time in memory
        derivation.connection.execute(f"DROP TABLE IF EXISTS {table}")
    derivation.connection.execute(
        f"CREATE TEMP TABLE {PART} AS SELECT * {'' if with_texts else 'EXCLUDE texts'} REPLACE ("
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
    if _needs_texts(derivation):
        if not _exists(derivation, STEP_KEYS):
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
