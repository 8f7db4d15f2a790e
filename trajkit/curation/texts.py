"""Hash texts, so that two stores can be compared by the prompts and not only by ids.

Two texts read the same when they are equal after normalisation: Unicode in its composed form, lower case, and
every run of spaces, punctuation and control characters as one space. Roles and the names of tools are part of
a text; a block without text (a file, an unknown block) is compared as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from trajkit.curation.keys import FROM_TEXT
from trajkit.store.engine import literal
from trajkit.store.view import full_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HASH = 32
"""Hex digits of a hash. A message has two in a row: of its exact JSON, and of its normalised text."""

_SYSTEM, _OTHER = "s", "o"
"""Prefix of the hashes of a message: whether it is a system message."""
# whether a byte is part of a word: letters, digits, _, and everything beyond ASCII
_IS_WORD = np.array([chr(byte).isalnum() or byte >= 0x80 or byte == ord("_") for byte in range(256)])


def reads_like(text: str) -> str:
    """Return SQL of a text without case, punctuation and extra spaces."""
    return rf"trim(regexp_replace(lower(nfc_normalize({text})), '[\s\p{{P}}\p{{C}}]+', ' ', 'g'))"


def hashed_steps() -> str:
    """Return a SELECT of `steps` with hashes for messages and completion, which `step_texts` needs."""
    return (
        "SELECT episode_id, step_index, n_prompt_kept, to_json(list_transform(CAST(messages AS JSON[]), "
        f"lambda m: {_fingerprints('m')})) AS messages, CASE WHEN completion IS NOT NULL "
        f"THEN to_json({_fingerprints('completion')}) END AS completion FROM steps"
    )


def step_texts(hashed: str) -> str:
    """Return a SELECT of a row per step with a known prompt, as hashes.

    The columns are `episode_id, step_index, prompt, near, frame, answer`. `prompt` is the hash of the exact
    prompt, `near` of its normalised text and `frame` of its system messages' normalised text. `answer` is the
    hash of `near` with the answer's normalised text, null if there is none. Prompts are built from the hashes
    of their messages and never as text, so that a long conversation is cheap.

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
    """Return a SELECT of the text at the start of episodes, without the prompt: `episode_id, first_text`.

    It is the mission (from `origin`, or the template's arguments) with the first observation. If the
    environment hashed its first text as the state, it is that hash; and if neither a mission nor a prompt is
    known, the first observation alone.
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
    """Return SQL of a message's text, its role first."""
    block = (
        "concat_ws(' ', b->>'name', coalesce(b->>'text', b->>'arguments', b->>'result', CAST(b AS VARCHAR)))"
    )
    return (
        f"({message}->>'role') || ' ' || array_to_string("
        f"list_transform(CAST({message}->'content' AS JSON[]), lambda b: {block}), ' ')"
    )


def _fingerprints(message: str) -> str:
    """Return SQL of a message's prefix and its two hashes."""
    mark = f"CASE WHEN ({message}->>'role') = 'system' THEN '{_SYSTEM}' ELSE '{_OTHER}' END"
    return f"{mark} || md5(CAST({message} AS VARCHAR)) || md5({reads_like(message_text(message))})"


def shingle_hashes(texts: pa.Array[Any], shingle: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the hashes of all word n-grams, text after text, and the offsets of each text's hashes.

    A text with fewer words has one hash of all its words; texts without words have the same single hash.
    """
    large = texts.cast(pa.large_string())
    # only the first buffer, the validity bitmap, may be missing
    offset_buffer, data_buffer = cast("list[pa.Buffer]", large.buffers()[1:])
    ends = np.frombuffer(memoryview(offset_buffer), np.int64)[large.offset : large.offset + len(large) + 1]
    data = np.frombuffer(memoryview(data_buffer), np.uint8)[ends[0] : ends[-1]]
    ends = ends - ends[0]
    words, n_before = _word_hashes(data, ends)
    # the end of each word's text, so that no n-gram crosses it
    n_words = np.diff(n_before)
    end = np.repeat(n_before[1:], n_words)
    place = np.arange(len(words))
    runs = np.zeros(len(words), np.uint64)
    for ahead in range(shingle):
        there = place + ahead < end
        runs[there] += words[place[there] + ahead] * _odd(ahead)
    is_run = (place + shingle <= end) | (place == np.repeat(n_before[:-1], n_words))
    n_runs = np.where(n_words > 0, np.maximum(n_words - shingle + 1, 1), 1)
    offsets = np.concatenate([[0], np.cumsum(n_runs)]).astype(np.uint64)
    hashes = np.zeros(int(offsets[-1]), np.uint64)
    has_words = np.repeat(n_words > 0, n_runs)
    hashes[has_words] = mixed(runs[is_run])
    return hashes, offsets


def _word_hashes(
    data: NDArray[np.uint8], ends: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return a hash for each word, and how many words come before each text."""
    is_word = _IS_WORD[data]
    goes_on = np.zeros(len(data), dtype=bool)
    goes_on[1:] = is_word[:-1]
    goes_on[ends[:-1][ends[:-1] < len(data)]] = False
    begins = is_word & ~goes_on
    starts = np.flatnonzero(begins)
    n_before = np.searchsorted(starts, ends).astype(np.int64)
    if not len(starts):
        return np.zeros(0, np.uint64), n_before
    letters = np.flatnonzero(is_word)
    first_letter = np.searchsorted(letters, starts)
    lengths = np.diff(np.append(first_letter, len(letters)))
    in_word = np.arange(len(letters)) - np.repeat(first_letter, lengths)
    values = _OF_BYTE[data[letters]] * _OF_PLACE[in_word % len(_OF_PLACE)]
    return mixed(np.add.reduceat(values, first_letter)), n_before


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash each number so that every bit depends on all its bits (Steele et al. 2014, SplitMix64)."""
    found = values + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def _odd(number: int) -> np.uint64:
    """Return an odd factor for a position."""
    return np.uint64(int(mixed(np.array([number + 1000], np.uint64))[0]) | 1)


_OF_PLACE = mixed(np.arange(64, dtype=np.uint64)) | np.uint64(1)
_OF_BYTE = mixed(np.arange(1 << 20, (1 << 20) + 256, dtype=np.uint64))
_OF_BYTE[ord("A") : ord("Z") + 1] = _OF_BYTE[ord("a") : ord("z") + 1]
