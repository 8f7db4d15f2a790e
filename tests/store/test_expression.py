from __future__ import annotations

import itertools
import operator
import re

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import portions
from trajkit.errors import QueryError
from trajkit.store.conditions.expression import parse, parse_order, require_boolean
from trajkit.store.conditions.nameable import Names, column_name, nearest

NAMES = Names(
    {name: name for name in ("n_steps", "task", "avg", "rank", "variant_names", "started_at", "speed")}
    | {"is.ok": "metrics.is.ok"},
    patterns=(re.compile(r"pass@([0-9]+)"),),
    prefixes={
        "metrics": {"is.ok": "metrics.is.ok"},
        "tags": {"level": "tags.level", "trajkit.env": "tags.trajkit.env", "none": "tags.none"},
    },
    where="a store",
)
ROW = {
    "n_steps": 7,
    "task": "goto",
    "avg": 0.5,
    "rank": 1,
    "variant_names": ["a", "b"],
    "started_at": "2026-03-01",
    "metrics.is.ok": 0.25,
    "tags.level": "2",
    "tags.trajkit.env": "babyai",
    "pass@4": 0.75,
    "speed": None,
    "tags.none": None,
}


def value_of(text: str) -> object:
    columns = ", ".join(f'? AS "{name}"' for name in ROW)
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT {parse(text, NAMES).sql} FROM (SELECT {columns})", list(ROW.values())
        ).fetchone()
    return found[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0 < avg < 1 and rank == 1", True),
        ("0 < avg < 0.5 or rank > 1", False),
        ("not 1 < n_steps < 7", True),
        ("(1 < n_steps <= 7) = true", True),
        ("n_steps between 1 and 7 and task in ('goto', 'open')", True),
        ("task like 'go%' and TASK ilike 'GO%' and task <> 'it''s'", True),
        ("tags.level = '2' and tags.trajkit.env = 'babyai' and tags.\"trajkit.env\" = 'babyai'", True),
        ('metrics.is.ok < 0.3 and metrics."is.ok" >= .25 and "is.ok" = 2.5e-1', True),
        ("pass@4 > 0.7 and PASS@4 < 0.8", True),
        ("list_contains(variant_names, 'b') and variant_names[1] = 'a'", True),
        ("started_at::timestamp < timestamp '2026-03-01' + interval 1 day", True),
        ("case when n_steps > 5 then length(task) = 4 else false end", True),
        ("coalesce(null, n_steps) + 1 - -1 = 9", True),
        ("n_steps - - 1 = 8", True),
        ("task is not null and (avg is null) = false", True),
    ],
)
def test_a_condition_means_what_it_says(text: str, value: bool) -> None:
    assert value_of(text) is value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("speed > 1 or speed <= 1 or speed != 1 or speed = null", None),
        ("not speed > 1", True),
        ("not speed <= 1", True),
        ("not not speed > 1", False),
        ("not (speed > 1 or task = 'goto')", False),
        ("not (speed > 1 and task = 'goto')", True),
        ("speed not in (1, 2)", True),
        ("speed not between 1 and 2", True),
        ("not 1 < speed < 2", True),
        ("tags.none not like 'a%'", True),
        ("tags.none not ilike 'a%'", True),
        ("tags.none not like 'a%' escape '!'", True),
        ("speed is null and not speed is not null", True),
        ("task not like 'go%'", False),
        ("not task = 'goto' or n_steps not in (7, 8)", False),
    ],
)
def test_what_is_missing_passes_no_comparison_and_passes_a_negated_one(text: str, value: object) -> None:
    assert value_of(text) is value


def test_a_column_in_single_precision_is_compared_in_single_precision() -> None:
    names = Names({"x": "metrics.x", "y": "y"}, singles=["metrics.x"], where="a store")
    logged = {"0.7": 0.7, "1e-7": 1e-7, "0.333333333333333": 1 / 3}
    with duckdb.connect() as connection:

        def holds(text: str, value: float) -> object:
            sql = f'SELECT {parse(text, names).sql} FROM (SELECT ?::FLOAT AS "metrics.x", ?::DOUBLE AS y)'
            return connection.execute(sql, [value, value]).fetchall()[0][0]

        for text, value in logged.items():
            for condition in (
                f"x >= {text} and x <= {text} and x = {text} and x in (5, {text})",
                f"x between {text} and {text} and {text} <= x <= {text} and x is not distinct from {text}",
                f"not x > {text} and not x < {text} and not x != {text} and x = y",
            ):
                assert holds(condition, value) is True, condition
        assert holds("x > 0.7 or x < 0.7", 0.7000001) is True


def test_names_that_differ_by_their_case_only_are_columns_of_their_own() -> None:
    names = Names({"x": "x", "X": "X", "Alone": "Alone"}, open_prefixes=["tags"], where="a database")
    found = parse("X = 1 and x = 2 and alone = 3 and tags.k = 'a' and tags.K = 'b' and TAGS.Ü = 'c'", names)
    assert found.names == ("Alone", "X", "tags.K", "tags.k", "tags.Ü", "x")
    values = {"X": 1, "x": 2, "Alone": 3, "tags.k": "a", "tags.K": "b", "tags.Ü": "c"}
    columns = ", ".join(f'? AS "{column_name(name)}"' for name in values)
    with duckdb.connect() as connection:
        rows = connection.execute(f"SELECT {found.sql} FROM (SELECT {columns})", list(values.values()))
        assert rows.fetchall() == [(True,)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n_steps", [("n_steps", False)]),
        ("avg desc, n_steps asc, task", [("avg", True), ("n_steps", False), ("task", False)]),
        (
            "greatest(avg, n_steps) DESC, case when avg > 1 then 1 else 2 end",
            [("greatest(avg, n_steps)", True)],
        ),
    ],
)
def test_an_order_is_expressions_with_a_direction_each(text: str, found: list[tuple[str, bool]]) -> None:
    order = parse_order(text, NAMES)
    assert [(each.expression.text, each.is_descending) for each in order][: len(found)] == found
    assert all(each.sql.endswith("NULLS LAST") for each in order)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n_steps,,task", "nothing to sort by between two commas"),
        ("n_steps,", "nothing to sort by between two commas"),
        ("n_steps desc desc", "is not a condition"),
        ("speedy desc", "no column 'speedy'"),
        ("(select 1)", "subquery is not allowed"),
        ("", "is empty"),
    ],
)
def test_what_is_no_order_is_refused(text: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        parse_order(text, NAMES)


def test_after_an_open_prefix_any_name_may_follow_as_it_is_written() -> None:
    names = Names({}, open_prefixes=["tags", "step.tags"], where="a database")
    found = parse('TAGS.a.B = \'1\' and step.tags."x y" = tags."it\'s; a""b"', names)
    assert found.names == ("step.tags.x y", "tags.a.B", "tags.it's; a\"b")
    with pytest.raises(QueryError, match=r"no column 'tag\.x'"):
        parse("tag.x = '1'", names)


_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
}


@portions(4)
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(-3, 3), min_size=2, max_size=5),
    st.lists(st.sampled_from(sorted(_COMPARE)), min_size=4, max_size=4),
)
def test_a_chain_of_comparisons_means_that_each_of_them_holds(
    portion: int, numbers: list[int], between: list[str]
) -> None:
    chain = str(numbers[0])
    for comparison, number in zip(between, numbers[1:], strict=False):
        chain += f" {comparison} {number}"
    pairs = zip(itertools.pairwise(numbers), between, strict=False)
    assert value_of(chain) is all(_COMPARE[comparison](*pair) for pair, comparison in pairs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exists(select 1 from steps)", "subquery is not allowed"),
        ("task in (select task from steps)", "subquery is not allowed"),
        ("'a' = any(variant_names)", "subquery is not allowed"),
        ("n_steps = (from steps select count(*))", "subquery is not allowed"),
        ("read_text('/etc/passwd') = 'x'", "function read_text at character 1"),
        ("task = getenv('HOME')", "function getenv at character 8"),
        ("n_steps > random()", "function random"),
        ("n_steps > nextval('s')", "function nextval"),
        ("main.lower(task) = 'goto'", "function lower"),
        ("count(*) > 1", "function count_star"),
        ("row_number() over () = 1", "window is not allowed"),
        ("n_steps = 1; drop table episodes", "';' at character 12"),
        ("n_steps = $1", "'$' at character 11"),
        ("n_steps = ?", "'?' at character 11"),
        ("*", "star is not allowed"),
        ("columns(*) > 1", "star is not allowed"),
        ("n_steps) from steps where (true", "')' at character 8"),
        ("n_steps::my.type = 1", "this type is not allowed"),
        ("episodes.task = 'x'", "no column 'episodes.task'"),
        ("current_date > '2026-01-01'", "no column 'current_date'"),
        ("task = 'open", "the text that begins at character 8"),
        ('"task = 1', "the text that begins at character 1"),
        ("(n_steps > 1", "'(' at character 1"),
        ("n_steps > 1, task = 'x'", "is not"),
        ("1 as x", "is not a condition"),
        ("1 from steps", "is not"),
        ("true union select true", "is not a condition"),
        ("", "the condition is empty"),
        ("n_steps >", "is not a condition"),
    ],
)
def test_what_is_more_than_a_condition_is_refused(text: str, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text, NAMES)
    assert said in str(caught.value)
    assert "\n" not in caught.value.message


def nested(begin: str, end: str, n: int, middle: str = "n_steps") -> str:
    return begin * n + middle + end * n


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (nested("(", ")", 2_000), "nested more than 100 deep"),
        (nested("not ", "", 2_000), "nested more than 100 deep"),
        (nested("[", "]", 2_000), "nested more than 100 deep"),
        (nested("abs(", ")", 90, middle=nested("abs(", ")", 90)), "nested more than 100 deep"),
        (nested("case when true then ", " end", 2_000), "nested more than 100 deep"),
        (nested("", "::int", 5_000), "nested more than 100 deep"),
        (nested("", "[1]", 5_000, "variant_names"), "nested more than 100 deep"),
        ("+".join(["n_steps"] * 5_000), "nested more than 100 deep"),
        ("-" * 40_000 + "n_steps", "nested more than 100 deep"),
        (nested("(0 < ", " < 1)", 60), "chained too deep"),
        (" or ".join(["n_steps = 1"] * 50_000), "at most 100,000 are read"),
        (nested("replace(", ", 'o', 'ooooo')", 5, "task") + " = 'x'", "makes more than 64 times"),
        (f"replace(task, 'o', '{'o' * 5_000}') = 'x'", "makes more than 64 times"),
        (nested("replace(", f", 'o', '{'o' * 90}')", 5, "'oooooo'") + " = 'x'", "makes more than 64 times"),
        ("replace(task, 'o', task) = 'x'", "is not a text in quotes"),
        (nested("regexp_replace(", ", '', 'xxxx', 'g')", 4, "task") + " = 'x'", "makes more than 64 times"),
        (f"concat({', '.join(['task'] * 500)}) = 'x'", "makes more than 64 times"),
        (f"concat_ws(task, {', '.join(['avg'] * 50)}) = 'x'", "makes more than 64 times"),
        (" || ".join(["task"] * 20) + " = 'x'", "makes more than 64 times"),
        (nested("string_split(", ", '')::varchar", 4, "task") + " = 'x'", "makes more than 64 times"),
        (nested("[", "]::json::varchar", 4, "task") + " = 'x'", "makes more than 64 times"),
        ("regexp_matches(task, '(a?){1000}a{1000}b')", "the pattern of regexp_matches at character 1 "),
        ("task similar to '((a{0,30}){0,30}b){30}'", "is too large: it may take very long"),
        (f"regexp_extract(task, '{'a?' * 900}') = 'x'", "is too large: it may take very long"),
        ("regexp_matches(task, task)", "is not a text in quotes"),
        ("error('x')", "function error"),
        ("sleep_ms(1000) = 1", "function sleep_ms"),
        ("repeat(task, 1000000) = 'x'", "function repeat"),
        ("lpad(task, 1000000, 'x') = 'x'", "function lpad"),
        ("list_contains(range(1000000000), n_steps)", "function range"),
    ],
)
def test_what_could_take_all_memory_or_time_is_refused_before_it_runs(text: str, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text, NAMES)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("replace(replace(replace(task, 'g', 'G'), 'o', '0'), 't', '') = 'G00'", True),
        ("regexp_replace(task, '[aeiou]', '_', 'g') = 'g_t_'", True),
        ("concat_ws('/', task, n_steps, tags.level, avg::varchar) like 'goto/7/2/%'", True),
        ("regexp_full_match(task, '([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})|go.*')", True),
        (nested("(", ")", 90) + " in (" + ", ".join(map(str, range(10_000))) + ")", True),
        (" or ".join(f"lower(task) like '{i}%'" for i in range(40)), False),
    ],
)
def test_ordinary_texts_patterns_and_lists_are_within_the_bounds(text: str, value: object) -> None:
    assert value_of(text) is value


def test_a_misspelt_column_is_pointed_at_with_what_is_near() -> None:
    with pytest.raises(QueryError) as caught:
        parse("n_steps > 3 and rnak = 1", NAMES)
    assert caught.value.message == (
        "no column 'rnak' in a store (character 17 of 'n_steps > 3 and rnak = 1')"
    )
    assert caught.value.hint == "nearest: rank"


def test_an_aggregate_is_answered_with_the_statistics_of_groups() -> None:
    with pytest.raises(QueryError) as caught:
        parse("avg(n_steps) > 3", NAMES)
    assert "and n, n_success, avg, best, worst and rank of its group" in str(caught.value.hint)


def test_a_condition_names_the_columns_that_it_needs() -> None:
    assert parse("tags.level = '1' and pass@2 > AVG", NAMES).names == ("avg", "pass@2", "tags.level")


def test_what_gives_no_yes_or_no_is_refused() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (n_steps BIGINT, task VARCHAR)")
        require_boolean(parse("n_steps > 1 or null", NAMES), connection, "t")
        with pytest.raises(QueryError, match="gives a BIGINT, not a boolean"):
            require_boolean(parse("n_steps + 1", NAMES), connection, "t")
        with pytest.raises(QueryError, match="Cannot compare"):
            require_boolean(parse("task > 3", NAMES), connection, "t")


def test_when_nothing_is_near_all_names_are_given() -> None:
    assert nearest("zzz", ["a", "b"]) == "there are: a, b"
    assert nearest("zzz", []) == "there is none"
