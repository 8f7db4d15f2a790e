"""Checksum of the rows of a table, which every database here can compute itself.

A row becomes a text: its columns in order with commas between, each as the MD5 of its bytes or as a number,
`-` for null. The first 64 bits of that text's MD5 are the row's number, and rows add up modulo 2^64: the sum
does not depend on their order, and shows duplicate rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from trajkit.sources.tensorzero.archive.layout import NOT_UTF8, Kind, Table

MODULUS = 1 << 64


class Sums(NamedTuple):
    """The SQL of one database."""

    pieces: Mapping[Kind, str]
    """The piece of a column, null for null; `{0}` is the column and `{1}` its name."""
    joined: Callable[[list[str]], str]
    """The text of a row from the pieces of its columns."""
    number: str
    """The first 64 bits of the MD5 of the text in the braces."""
    total: str
    """The sum of the numbers in the braces modulo 2^64."""
    unsigned: str = "toString({})"
    """The text of the number in the braces, without a sign."""


def _pieces(md5: str, texts: str, tags: str, **others: str) -> dict[Kind, str]:
    """Texts as the MD5 of their bytes; each list item has its length before it."""
    found = dict.fromkeys((Kind.NAME, Kind.TEXT, Kind.HASH), md5.format("{0}"))
    found |= {Kind.TEXTS: md5.format(texts), Kind.TAGS: md5.format(tags)}
    return found | {Kind(name): piece for name, piece in others.items()}


CLICKHOUSE = Sums(
    _pieces(
        "lower(hex(MD5({})))",
        "arrayStringConcat(arrayMap(x -> concat(toString(length(x)), ':', x), {0}))",
        "arrayStringConcat(arrayMap((k, x) -> concat(toString(length(k)), ':', k,"
        " toString(length(x)), ':', x), mapKeys({0}), mapValues({0})))",
        id="toString({0})",
        integer="toString({0})",
        decimal="toString({0})",
        number="toString(reinterpretAsInt64(toFloat64({0})))",
        flag="toString(toUInt8({0}))",
        time="toString(toUnixTimestamp64Micro({0}))",
    ),
    joined=lambda pieces: "concat(" + ", ',', ".join(f"ifNull({piece}, '-')" for piece in pieces) + ")",
    number="reinterpretAsUInt64(reverse(substring(MD5({}), 1, 8)))",
    total="sum({})",  # of UInt64: it overflows in ClickHouse
)

POSTGRES = Sums(
    _pieces(
        "md5({})",
        # `string_agg` is null both for an empty value and for null; only the latter must stay null
        "CASE WHEN {0} IS NOT NULL THEN (SELECT coalesce(string_agg(octet_length(x)::text || ':' || x, ''"
        " ORDER BY n), '') FROM unnest({0}) WITH ORDINALITY AS items(x, n)) END",
        "CASE WHEN {0} IS NOT NULL THEN (SELECT coalesce(string_agg(octet_length(k)::text || ':' || k"
        " || octet_length(x)::text || ':' || x, '' ORDER BY k COLLATE \"C\"), '')"
        " FROM jsonb_each_text({0}) AS pairs(k, x)) END",
        id="{0}::text",
        integer="{0}::text",
        decimal="rtrim(rtrim({0}::numeric(18, 9)::text, '0'), '.')",
        number="('x' || encode(float8send({0}), 'hex'))::bit(64)::bigint::text",
        flag="{0}::int::text",
        time="((extract(epoch FROM {0}) * 1000000)::bigint)::text",
    ),
    joined=lambda pieces: "concat_ws(',', " + ", ".join(f"coalesce({piece}, '-')" for piece in pieces) + ")",
    number="('x' || left(md5({}), 16))::bit(64)::bigint::numeric",
    total=f"((sum({{}}) % {MODULUS} + {MODULUS}) % {MODULUS})::text",  # a bigint has a sign
    unsigned=f"(({{}} + {MODULUS}) % {MODULUS})::text",
)


# of the original text: bytes that are not UTF-8 are stored beside it
_DUCKDB_MD5 = (
    f"CASE WHEN {NOT_UTF8} IS NULL THEN md5({{0}}) ELSE md5(coalesce(list_extract(list_filter({NOT_UTF8},"
    " lambda p: p.name = '{{1}}'), 1).bytes, encode({0}))) END"
)
DUCKDB = Sums(
    _pieces(
        _DUCKDB_MD5,
        "array_to_string(list_transform({0}, lambda x: strlen(x) || ':' || x), '')",
        "array_to_string(list_transform({0}, lambda x: strlen(x.key) || ':' || x.key"
        " || strlen(x.value) || ':' || x.value), '')",
        id="{0}",
        integer="CAST({0} AS VARCHAR)",
        decimal="rtrim(rtrim(CAST({0} AS VARCHAR), '0'), '.')",
        number="CAST(CAST(CAST({0} AS BIT) AS BIGINT) AS VARCHAR)",
        flag="CAST(CAST({0} AS INT) AS VARCHAR)",
        time="CAST(epoch_us({0}) AS VARCHAR)",
    ),
    joined=POSTGRES.joined,
    number="CAST('0x' || left(md5({}), 16) AS UBIGINT)",
    total=f"CAST(sum({{}}) % {MODULUS} AS UBIGINT)",
)


def row_number(table: Table, sums: Sums, columns: Mapping[str, str]) -> str:
    """Return SQL for the number of a row.

    Args:
        table: The table of the row.
        sums: The SQL of the database.
        columns: SQL by column for those that the database has; the others count as null.
    """
    pieces = [
        sums.pieces[column.kind].format(columns[column.name], column.name)
        if column.name in columns
        else "'-'"
        for column in table.columns
    ]
    return sums.number.format(sums.joined(pieces))
