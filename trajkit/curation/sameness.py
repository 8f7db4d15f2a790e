"""When two prompts, two answers or two episodes are the same: their keys, equal when they are.

Texts are compared after normalisation: Unicode NFC; every run of white space is one space; white space at the
beginning and the end of a text does not count, nor do the ids of tool calls and the signatures of thoughts,
which are new each time. A prompt is all its messages with the tools that were offered.
"""

from __future__ import annotations

from trajkit.curation.derive import Derivation
from trajkit.curation.keys import FROM_TEXT
from trajkit.store.digest import spelled_json
from trajkit.store.engine import literal
from trajkit.store.view import full_steps

STEP_KEYS = "trajkit_step_keys"
"""Table `(episode_id, step_index, is_eval, is_learned, prompt, answer, act)`: a row per step; `prompt` is
null where it is unknown, `answer` where there is none. `act` stands for the action, else for the answer."""

EPISODE_KEYS = "trajkit_episode_keys"
"""Table `(episode_id, is_eval, start, actions)`; null where unknown."""

_WIDE_SPACES = r"[\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
_CHANGING = r'"(?:id|signature)":(?:"[^"]*"|null)'


def normal(json_text: str) -> str:
    """SQL for the normalised text of a JSON value in the store's own spelling.

    Control characters cannot stand in JSON text, so they take the place of escaped backslashes and quotation
    marks: every quotation mark that is left is one of the syntax, and every backslash begins an escape.
    """
    text = f"replace(replace({json_text}, '\\\\', chr(1)), '\\\"', chr(2))"
    text = f"regexp_replace({text}, {literal(_CHANGING)}, '', 'g')"
    for escape in (r"\n", r"\r", r"\t", r"\f"):
        text = f"replace({text}, '{escape}', ' ')"
    # a regular expression that matches every space takes ten times as long as one that matches hardly any
    text = _once(text, f"CASE WHEN strlen(t) = length(t) THEN t ELSE {_spaced('t', _WIDE_SPACES)} END")
    text = _once(text, f"CASE WHEN contains(t, '  ') THEN {_spaced('t', ' {2,}')} ELSE t END")
    return f"nfc_normalize(replace(replace({text}, '\" ', '\"'), ' \"', '\"'))"


def _spaced(text: str, pattern: str) -> str:
    return f"regexp_replace({text}, {literal(pattern)}, ' ', 'g')"


def _once(value: str, expression: str) -> str:
    """SQL of an expression over `t`, for which the value is computed once."""
    return f"list_transform([{value}], lambda t: {expression})[1]"


def make_step_keys(derivation: Derivation) -> None:
    """Leave the table `STEP_KEYS`, read a part at a time."""
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
    """Leave the table `EPISODE_KEYS`.

    The start is the initial state; where its hash was not made of the whole state, environment, task and
    seed; else the first prompt. An action is what was executed, else what was asked for, else the answer.
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
    """Whether the start of an episode, or an action, is known from the texts alone."""
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
