"""Texts as fingerprints, so that two stores are compared by what the model read and not only by ids.

Two texts read alike when they are equal after this: Unicode in its composed form, lower case, and every run
of spaces, punctuation and control characters as one space. Roles and the names of tools are part of a text;
what is not text (a file, a block that trajkit does not know) stands for itself, as its JSON.
"""

from __future__ import annotations

from trajkit.curation.keys import FROM_TEXT
from trajkit.store.engine import literal
from trajkit.store.view import full_steps

_HASH = 32
"""Hex digits of a fingerprint. A message has two side by side: as it is written, and as it reads."""

_SYSTEM, _OTHER = "s", "o"
"""Stands before the fingerprints of a message: whether it is a system message."""


def reads_like(text: str) -> str:
    """SQL of a text as it reads, whatever its case, spaces and punctuation."""
    return rf"trim(regexp_replace(lower(nfc_normalize({text})), '[\s\p{{P}}\p{{C}}]+', ' ', 'g'))"


def hashed_steps() -> str:
    """A SELECT of `steps` whose messages and completion are fingerprints: what `step_texts` is made of."""
    return (
        "SELECT episode_id, step_index, n_prompt_kept, to_json(list_transform(CAST(messages AS JSON[]), "
        f"lambda m: {_fingerprints('m')})) AS messages, CASE WHEN completion IS NOT NULL "
        f"THEN to_json({_fingerprints('completion')}) END AS completion FROM steps"
    )


def step_texts(hashed: str) -> str:
    """A SELECT of a row per step with a known prompt: `episode_id, step_index, prompt, near, frame, answer`.

    `prompt` is the fingerprint of the whole prompt as it is written, `near` of how it reads and `frame` of
    how its system messages read; `answer` is that of `near` with how the answer reads, null where there is
    none. Prompts are put together from fingerprints of their messages and never as text, so that a long
    conversation costs little.

    Args:
        hashed: A table with the rows of `hashed_steps`; it is read several times.
    """
    written, read = (
        f"md5_number(array_to_string(list_transform(known, lambda h: h[{first}:{last}]), ''))"
        for first, last in ((2, _HASH + 1), (_HASH + 2, 2 * _HASH + 1))
    )
    frame = (
        f"md5_number(array_to_string(list_transform(list_filter(known, lambda h: h[1] = '{_SYSTEM}'), "
        f"lambda h: h[{_HASH + 2}:]), ''))"
    )
    return (
        f"SELECT episode_id, step_index, {written} AS prompt, {read} AS near, {frame} AS frame, "
        f"CASE WHEN completion IS NOT NULL THEN md5_number(CAST({read} AS VARCHAR) || "
        f"(completion->>'$')[{_HASH + 2}:]) END AS answer "
        f"FROM (SELECT *, CAST(prompt AS VARCHAR[]) AS known FROM ({full_steps(hashed)}) "
        "WHERE prompt IS NOT NULL) WHERE len(known) > 0"
    )


def first_texts() -> str:
    """A SELECT of what an episode reads like at its start, without the prompt: `episode_id, first_text`.

    It is the mission (from `origin`, or the template's arguments) with the first observation; where the
    environment hashed its first text as the state, that; and the first observation alone where neither a
    mission nor a prompt is known.
    """
    mission = (
        "coalesce(nullif(origin->>'$.mission', ''), nullif(input->>'$.system.mission', ''), "
        "nullif(input->>'$.messages[0].content[0].arguments.mission', ''))"
    )
    both = f"{reads_like('mission')} || chr(31) || {reads_like('observation')}"
    return (
        "WITH starts AS ("
        f"SELECT episode_id, initial_state_hash, observation, messages, {mission} AS mission "
        "FROM episodes LEFT JOIN (SELECT episode_id, observation, messages, input FROM steps "
        "WHERE step_index = 0) USING (episode_id)) "
        f"SELECT episode_id, md5_number({both}) AS first_text FROM starts "
        "WHERE mission IS NOT NULL AND observation IS NOT NULL "
        "UNION ALL SELECT episode_id, md5_number(initial_state_hash) FROM starts "
        f"WHERE starts_with(initial_state_hash, {literal(FROM_TEXT)}) "
        f"UNION ALL SELECT episode_id, md5_number({reads_like('observation')}) FROM starts "
        "WHERE mission IS NULL AND messages IS NULL AND observation IS NOT NULL"
    )


def message_text(message: str) -> str:
    """SQL of what a message says, its role first."""
    block = (
        "concat_ws(' ', b->>'name', coalesce(b->>'text', b->>'arguments', b->>'result', CAST(b AS VARCHAR)))"
    )
    return (
        f"({message}->>'role') || ' ' || array_to_string("
        f"list_transform(CAST({message}->'content' AS JSON[]), lambda b: {block}), ' ')"
    )


def _fingerprints(message: str) -> str:
    """SQL of what stands for a message: whether it is a system message, and its two fingerprints."""
    mark = f"CASE WHEN ({message}->>'role') = 'system' THEN '{_SYSTEM}' ELSE '{_OTHER}' END"
    return f"{mark} || md5(CAST({message} AS VARCHAR)) || md5({reads_like(message_text(message))})"
