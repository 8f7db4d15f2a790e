"""SQL of the lines of steps whose prompts keep messages of the previous step."""

from __future__ import annotations

from trajkit.curation.rows.part import RAW
from trajkit.curation.rows.plain import answer_text, fragment
from trajkit.formats.base import PlainText
from trajkit.store.engine import literal

_REASON = """CASE
    WHEN loss_weight <= 0 THEN coalesce(mask_reason,
        CASE WHEN loss_weight < 0 THEN 'negative weight' ELSE 'weight 0' END)
    WHEN completion IS NULL OR completion = 'null' THEN 'no answer'
    WHEN messages IS NULL OR messages = 'null' THEN 'prompt unknown'
    END"""
_HAS_TOOLS = "coalesce(tools, '[]') NOT IN ('[]', 'null')"

_STEPS = """
    SELECT episode_id, step_index, inference_id, loss_weight, {reason} AS reason, NULL::VARCHAR AS line,
        true AS is_raw, NULL::BIGINT AS n_characters, {raw}
    FROM {steps}
"""

# A run of steps is a conversation: each prompt is the previous one with its answer and more. A step adds a
# piece (the previous answer, then the new messages), and the prompt of a step is the pieces up to it.
_RUNS = """
    WITH given AS MATERIALIZED (
        SELECT *, {reason} AS reason, {has_tools} AS has_tools,
            completion IS NOT NULL AND completion <> 'null' AS has_answer,
            n_prompt_kept + json_array_length(messages) + CAST(completion IS NOT NULL AND completion <> 'null'
                AS BIGINT) AS n_after
        FROM {steps}
    ), placed AS (
        SELECT *, coalesce(n_prompt_kept > 0 AND n_prompt_kept = lag(n_after) OVER e, false) AS goes_on
        FROM given WINDOW e AS (PARTITION BY episode_id ORDER BY step_index)
    ), told AS (
        SELECT *, CASE WHEN goes_on THEN {later} ELSE {first} END AS new_text,
            CASE WHEN has_answer THEN {answer} END AS answer_text
        FROM placed
    ), plain AS (
        SELECT *, bool_and(coalesce(new_text IS NOT NULL AND NOT has_tools AND (goes_on OR n_prompt_kept = 0)
                AND (new_text <> '' OR goes_on) AND (answer_text IS NOT NULL OR NOT has_answer)
                AND (reason IS NOT NULL OR loss_weight = 1) AND {fits}, false))
                OVER (PARTITION BY episode_id) AS is_plain,
            sum(CAST(NOT goes_on AS BIGINT)) OVER (PARTITION BY episode_id ORDER BY step_index) AS run,
            concat_ws({between}, CASE WHEN goes_on THEN lag({marked} || answer_text || {after}) OVER e END,
                nullif(new_text, '')) AS piece
        FROM told WINDOW e AS (PARTITION BY episode_id ORDER BY step_index)
    ), sized AS (
        SELECT *, CAST(sum(length(messages) + coalesce(length(completion), 0)) OVER (
            PARTITION BY episode_id, run ORDER BY step_index) AS BIGINT) AS n_characters
        FROM plain
    ), prompts AS ({prompts}), lines AS (
        SELECT episode_id, step_index,
            text || {last} || answer_text || {tail} || chr(10) AS line
        FROM prompts JOIN plain USING (episode_id, step_index)
    )
    SELECT episode_id, step_index, inference_id, loss_weight, reason, line, NOT is_plain AS is_raw,
        n_characters, {raw}
    FROM sized LEFT JOIN lines USING (episode_id, step_index)
    ORDER BY episode_id, step_index
"""
_EACH_PROMPT = """
    SELECT episode_id, step_index, text FROM (
        SELECT episode_id, step_index, reason, string_agg(piece, {between}) OVER (
            PARTITION BY episode_id, run ORDER BY step_index ROWS UNBOUNDED PRECEDING) AS text
        FROM plain WHERE is_plain
    ) WHERE reason IS NULL
"""
_LAST_PROMPT = """
    SELECT episode_id, last_step AS step_index, string_agg(piece, {between} ORDER BY step_index) AS text
    FROM (
        SELECT *, max(step_index) FILTER (reason IS NULL) OVER (PARTITION BY episode_id, run) AS last_step
        FROM plain WHERE is_plain
    ) WHERE step_index <= last_step GROUP BY episode_id, run, last_step
"""


def raw_steps(steps: str) -> str:
    """Return SQL of steps without lines: Python writes all of them."""
    return _STEPS.format(reason=_REASON, steps=steps, raw=", ".join(RAW))


def conversations(plain: PlainText, steps: str, *, merges: bool) -> str:
    """Return SQL of the steps with their lines, where they are plain text.

    Args:
        plain: How the format writes messages of one text.
        steps: SQL of the steps of whole episodes.
        merges: Whether a row has all learned answers of a conversation, or one.
    """
    has_context = "assistant" in plain.before
    context, learned = literal(plain.before.get("assistant", "")), literal(plain.learned)
    fits = ["true"]
    if not has_context:  # the format would learn an answer that is only context
        fits.append("(reason IS NULL OR NOT has_answer)" if merges else "NOT goes_on")
    if plain.alternates:
        fits.append("has_answer AND new_text <> ''")
    between = literal(plain.between)
    return _RUNS.format(
        steps=steps,
        reason=_REASON,
        has_tools=_HAS_TOOLS,
        first=fragment(plain, "messages", is_first=True),
        later=fragment(plain, "messages", is_first=False),
        answer=answer_text(plain, "completion"),
        fits=" AND ".join(fits),
        between=between,
        marked=f"CASE WHEN reason IS NULL THEN {learned} ELSE {context} END" if merges else context,
        after=literal(plain.after),
        prompts=(_LAST_PROMPT if merges else _EACH_PROMPT).format(between=between),
        last=literal(plain.last),
        tail=literal(plain.tail),
        raw=_raw("NOT is_plain"),
    )


def _raw(condition: str) -> str:
    return ", ".join(f"CASE WHEN {condition} THEN {name} END AS {name}" for name in RAW)
