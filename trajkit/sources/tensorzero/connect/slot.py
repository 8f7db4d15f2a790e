"""Compute an episode's slot: a number from 0 to 65,535 from its id alone, the same in every database.

Buckets and shards are cut by slot. The four 32-bit words of the id are folded with exclusive or (so that ids
which differ anywhere differ in the fold), and spread by a multiplication modulo 2^32, whose upper 16
bits are the slot. Every database here can do that exactly, without hashing text.
"""

from __future__ import annotations

from uuid import UUID

N_SLOTS = 65_536
"""Slots are below this. An episode's bucket, when there are `n` of them, is `slot * n // N_SLOTS`."""

_FACTOR = 1_640_531_527  # odd; below 2^31, so that a signed 64-bit integer holds the product


def slot_of(episode_id: str) -> int:
    """Return the slot of one id. This is the definition."""
    bits = UUID(episode_id).int
    folded = (bits ^ bits >> 32 ^ bits >> 64 ^ bits >> 96) & 0xFFFF_FFFF
    return (folded * _FACTOR & 0xFFFF_FFFF) >> 16


def slots_of(number: int, n: int) -> tuple[int, int]:
    """Return the first and the last slot of shard `number` of `n`, counted from 1."""
    return -(-(number - 1) * N_SLOTS // n), -(-number * N_SLOTS // n) - 1


def in_clickhouse(column: str) -> str:
    """The slot of a UUID as a UInt16; conversions to narrower integers keep the lower bits there."""
    halves = f"bitXor(toUInt64(toUInt128({column})), toUInt64(bitShiftRight(toUInt128({column}), 64)))"
    folded = f"toUInt32(bitXor({halves}, bitShiftRight({halves}, 32)))"
    return f"toUInt16(bitShiftRight({folded} * toUInt64({_FACTOR}), 16))"


def in_postgres(column: str) -> str:
    """The slot of a UUID as an int: single bytes are what Postgres reads fastest."""
    folded = [
        " # ".join(f"get_byte(uuid_send({column}), {place + word})" for word in (0, 4, 8, 12))
        for place in range(4)
    ]
    whole = " + ".join(
        f"({byte})::bigint * {256**power}" for byte, power in zip(folded, (3, 2, 1, 0), strict=True)
    )
    return f"((({whole}) * {_FACTOR}) >> 16 & 65535)::int"


def in_duckdb(column: str) -> str:
    """The slot of a UUID, or of its text, as a USMALLINT."""
    digits = f"replace(CAST({column} AS VARCHAR), '-', '')"
    words = [f"CAST('0x' || substr({digits}, {start}, 8) AS UBIGINT)" for start in (1, 9, 17, 25)]
    folded = f"xor(xor({words[0]}, {words[1]}), xor({words[2]}, {words[3]}))"
    return f"CAST(({folded} * {_FACTOR} >> 16) & 65535 AS USMALLINT)"
