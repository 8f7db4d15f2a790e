-- Macros for the tables of archive/layout.py.

CREATE MACRO ms_of(id) AS CAST('0x' || replace(left(id, 13), '-', '') AS UBIGINT);

CREATE MACRO tag_of(tags, name) AS list_extract(list_filter(tags, lambda e: e.key = name), 1).value;

-- The columns of a row whose texts were not UTF-8; null for none.
CREATE MACRO marks_of(not_utf8) AS
    CASE WHEN not_utf8 IS NOT NULL THEN list_transform(not_utf8, lambda p: p.name) END;

-- A list of JSON texts as the text of one JSON list; null when it is empty.
CREATE MACRO as_list(texts) AS CASE WHEN len(texts) > 0 THEN '[' || array_to_string(texts, ',') || ']' END;

-- Tags as a JSON object with sorted keys, without the one that differs from step to step.
CREATE MACRO as_object(tags) AS '{' || array_to_string(list_transform(
    list_sort(list_filter(tags, lambda e: e.key <> 'trajkit.step')),
    lambda e: CAST(to_json(e.key) AS VARCHAR) || ':' || CAST(to_json(e.value) AS VARCHAR)), ',') || '}';

-- What is only digits; DuckDB by itself would round.
CREATE MACRO whole_number(text) AS
    CASE WHEN regexp_full_match(text, '[-+]?[0-9]+') THEN TRY_CAST(text AS BIGINT) END;

-- A double in single precision; what is halfway beyond the largest 32-bit float does not fit, and a cast would fail.
CREATE MACRO single(number) AS CASE
    WHEN isfinite(number) AND abs(number) >= 3.4028235677973366e38
        THEN CASE WHEN number > 0 THEN 'Infinity'::FLOAT ELSE '-Infinity'::FLOAT END
    ELSE CAST(number AS FLOAT) END;

-- The same as the shortest decimal that names it, spelled as ClickHouse spells it: without exponent up to 1e21.
CREATE MACRO shortest(number) AS CASE
    WHEN single(number) = 0 THEN replace(CAST(single(number) AS VARCHAR), '.0', '')
    WHEN isfinite(single(number)) AND abs(single(number)) < 1e21 AND single(number) = trunc(single(number))
        THEN CAST(CAST(CAST(single(number) AS VARCHAR) AS DECIMAL(38, 0)) AS VARCHAR)
    ELSE regexp_replace(replace(CAST(single(number) AS VARCHAR), 'e+', 'e'), 'e-0+', 'e-') END;
