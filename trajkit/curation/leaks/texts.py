"""Hash texts, so that two stores can be compared by the prompts and not only by ids.

Two texts read the same when they are equal after normalisation: Unicode in its composed form, lower case, and
every run of spaces, punctuation and control characters as one space. Roles and the names of tools are part of
a text; a block without text (a file, an unknown block) is compared as JSON.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
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

SYSTEM, OTHER = "s", "o"
"""Prefix of the hash of a message: whether it is a system message."""
# a byte of a word in lower case, else 0: words are letters, digits, _, and everything beyond ASCII
_LETTERS = bytes(
    byte if byte >= 0x80 else ord(chr(byte).lower()) if chr(byte).isalnum() or byte == ord("_") else 0
    for byte in range(256)
)
_FIRST_BYTES = np.array([(1 << 8 * n_bytes) - 1 for n_bytes in range(9)], np.uint64)


def reads_like(text: str) -> str:
    """Return SQL of a text without case, punctuation and extra spaces."""
    return rf"trim(regexp_replace(lower(nfc_normalize({text})), '[\s\p{{P}}\p{{C}}]+', ' ', 'g'))"


def hashed_steps(where: str = "true") -> str:
    """Return a SELECT of `steps` with hashes for messages and completion, which `step_texts` needs.

    Args:
        where: A condition on `episode_id`.
    """
    return (
        "SELECT episode_id, step_index, n_prompt_kept, to_json(list_transform(CAST(messages AS JSON[]), "
        f"lambda m: {_fingerprints('m')})) AS messages, CASE WHEN completion IS NOT NULL "
        f"THEN to_json({_fingerprints('completion')}) END AS completion FROM steps WHERE {where}"
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
        f"md5_number(array_to_string(list_transform(list_filter(known, lambda h: h[1] = '{SYSTEM}'), "
        f"lambda h: h[{_HASH + 2}:]), ''))"
    )
    return (
        f"SELECT episode_id, step_index, {written} AS prompt, {read} AS near, {frame} AS frame, "
        f"CASE WHEN completion IS NOT NULL THEN md5_number(hex({read}) || "
        f"(completion->>'$')[{_HASH + 2}:]) END AS answer "
        f"FROM (SELECT *, CAST(prompt AS VARCHAR[]) AS known FROM ({full_steps(hashed)}) "
        "WHERE prompt IS NOT NULL) WHERE len(known) > 0"
    )


def first_texts(where: str = "true") -> str:
    """Return a SELECT of the text at the start of episodes, without the prompt: `episode_id, first_text`.

    It is the mission (from `origin`, or the template's arguments) with the first observation. If the
    environment hashed its first text as the state, it is that hash; and if neither a mission nor a prompt is
    known, the first observation alone.

    Args:
        where: A condition on `episode_id`.
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
        f"WHERE step_index = 0 AND {where}) USING (episode_id) WHERE {where}) "
        f"SELECT episode_id, md5_number({both}) AS first_text FROM starts "
        "WHERE mission IS NOT NULL AND observation IS NOT NULL "
        "UNION ALL SELECT episode_id, md5_number(initial_state_hash) FROM starts "
        f"WHERE starts_with(initial_state_hash, {literal(FROM_TEXT)}) "
        f"UNION ALL SELECT episode_id, md5_number({reads_like('observation')}) FROM starts "
        "WHERE mission IS NULL AND messages IS NULL AND observation IS NOT NULL"
    )


def hashes_as(kind: str, names: Iterable[str]) -> str:
    """Return SQL of hashes as another type: Parquet has UUIDs, and no integers of 128 bits."""
    return ", ".join(f"CAST({name} AS {kind}) AS {name}" for name in names)


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
    mark = f"CASE WHEN ({message}->>'role') = 'system' THEN '{SYSTEM}' ELSE '{OTHER}' END"
    return f"{mark} || md5(CAST({message} AS VARCHAR)) || md5({reads_like(message_text(message))})"


def shingle_hashes(texts: pa.Array[Any], shingle: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the hashes of all word n-grams, text after text, and the offsets of each text's hashes.

    A text with fewer words has one hash of all its words; texts without words have the same single hash. Some
    hundred kilobytes of text at a time stay in a processor's cache, and take half the time.
    """
    large = texts.cast(pa.large_string())
    # only the first buffer, the validity bitmap, may be missing
    offset_buffer, data_buffer = cast("list[pa.Buffer]", large.buffers()[1:])
    ends = np.frombuffer(memoryview(offset_buffer), np.int64)[large.offset : large.offset + len(large) + 1]
    words, n_before = _word_hashes(bytes(memoryview(data_buffer)[ends[0] : ends[-1]]), ends - ends[0])
    n_words = np.diff(n_before)
    runs = np.zeros(len(words), np.uint64)
    padded = np.concatenate((words, np.zeros(shingle, np.uint64)))
    for ahead in range(shingle):
        runs += padded[ahead : ahead + len(words)] * _odd(ahead)
    # an n-gram never has words of two texts
    is_run = np.ones(len(words), bool)
    for left in range(1, shingle):
        is_run[n_before[1:][n_words >= left] - left] = False
    offsets = np.concatenate(([0], np.cumsum(np.maximum(n_words - shingle + 1, 1))))
    hashes = np.zeros(offsets[-1], np.uint64)
    is_short = n_words < shingle
    of_short = offsets[:-1][is_short]
    is_long = np.ones(len(hashes), bool)
    is_long[of_short] = False
    hashes[is_long] = runs[is_run]
    for ahead in range(shingle - 1):
        has_word = n_words[is_short] > ahead
        hashes[of_short[has_word]] += words[n_before[:-1][is_short][has_word] + ahead] * _odd(ahead)
    return mixed(hashes), offsets.astype(np.uint64)


def _word_hashes(data: bytes, ends: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return a hash for each word, and how many words come before each text."""
    letters = data.translate(_LETTERS) + bytes(8)
    is_word = np.frombuffer(letters, np.uint8) != 0
    begins, stops = is_word.copy(), is_word.copy()
    begins[1:] &= ~is_word[:-1]
    stops[:-1] &= ~is_word[1:]
    begins[ends[:-1]] = is_word[ends[:-1]]
    stops[ends[1:] - 1] = is_word[ends[1:] - 1]
    starts = np.flatnonzero(begins)
    lengths = np.flatnonzero(stops) + 1 - starts
    n_before = np.searchsorted(starts, ends).astype(np.int64)
    # eight bytes at a time; what comes after the word is cut off
    eights = np.ndarray(len(data) + 1, "<u8", letters, strides=(1,))
    words = mixed(eights[starts] & _FIRST_BYTES[np.minimum(lengths, 8)])
    (longer,) = np.nonzero(lengths > 8)
    if len(longer):
        n_more = (lengths[longer] - 1) // 8
        first = np.cumsum(n_more) - n_more
        place = 8 * (np.arange(1, n_more.sum() + 1) - np.repeat(first, n_more))
        more = eights[np.repeat(starts[longer], n_more) + place]
        more &= _FIRST_BYTES[np.minimum(np.repeat(lengths[longer], n_more) - place, 8)]
        words[longer] += np.add.reduceat(mixed(more + place.astype(np.uint64) * _odd(0)), first)
    return mixed(words), n_before


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash each number so that every bit depends on all its bits (Steele et al. 2014, SplitMix64)."""
    found = values + np.uint64(0x9E3779B97F4A7C15)
    found ^= found >> np.uint64(30)
    found *= np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(27)
    found *= np.uint64(0x94D049BB133111EB)
    found ^= found >> np.uint64(31)
    return found


@functools.cache
def _odd(number: int) -> np.uint64:
    """Return an odd factor for a position."""
    return np.uint64(int(mixed(np.array([number + 1000], np.uint64))[0]) | 1)
