"""The runs of words of texts as numbers, for all texts of a batch at once: there is no loop over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

# which bytes are part of a word: letters, digits, _, and everything beyond ASCII
_IS_WORD = np.array([chr(byte).isalnum() or byte >= 0x80 or byte == ord("_") for byte in range(256)])


def shingle_hashes(texts: pa.Array[Any], shingle: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The hashes of all runs of words, text after text, and where those of each text begin, and the last end.

    A text with fewer words than a run has one of them all; one without words has one, the same for all.
    """
    large = texts.cast(pa.large_string())
    # only the first buffer, which says where nulls are, may be missing
    offset_buffer, data_buffer = cast("list[pa.Buffer]", large.buffers()[1:])
    ends = np.frombuffer(memoryview(offset_buffer), np.int64)[large.offset : large.offset + len(large) + 1]
    data = np.frombuffer(memoryview(data_buffer), np.uint8)[ends[0] : ends[-1]]
    ends = ends - ends[0]
    words, n_before = _word_hashes(data, ends)
    # the end of the text of each word, so that no run goes beyond it
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
    """A hash for each word, and how many words come before each text."""
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
    """Each number as another, all bits of which depend on all of its own (Steele et al. 2014, SplitMix64)."""
    found = values + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def _odd(number: int) -> np.uint64:
    """A factor for a place."""
    return np.uint64(int(mixed(np.array([number + 1000], np.uint64))[0]) | 1)


_OF_PLACE = mixed(np.arange(64, dtype=np.uint64)) | np.uint64(1)
_OF_BYTE = mixed(np.arange(1 << 20, (1 << 20) + 256, dtype=np.uint64))
_OF_BYTE[ord("A") : ord("Z") + 1] = _OF_BYTE[ord("a") : ord("z") + 1]
