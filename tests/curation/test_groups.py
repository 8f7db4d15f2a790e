from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.curation.conftest import make_attempt as attempt
from tests.matrix import portions
from trajkit.curation.derive import deriving
from trajkit.curation.selection.groups import Score, names_of, pass_at_k, score_of, statistics_sql
from trajkit.errors import QueryError
from trajkit.schema import Episode
from trajkit.store.reader import Store

Attempts = Callable[..., Store]
ALL = ("n", "n_success", "avg", "best", "worst", "rank", "pass@1", "pass@2", "pass@5")
Row = tuple[str, str, str, int, float | None]


def statistics(rows: list[Row], columns: tuple[str, ...] = ALL) -> dict[str, dict[str, object]]:
    """What `statistics_sql` gives for rows of (episode_id, key, outcome, n_steps, score), by episode."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE pool (episode_id TEXT, key TEXT, outcome TEXT, n_steps BIGINT, score DOUBLE)"
        )
        for row in rows:
            connection.execute("INSERT INTO pool VALUES (?, ?, ?, ?, ?)", row)
        found = connection.execute(statistics_sql(columns, Score("score", "score"), "pool"))
        names = [described[0] for described in found.description]
        return {row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in found.fetchall()}


@pytest.mark.parametrize("n", range(1, 7))
def test_pass_at_k_is_the_share_of_all_choices_of_k_attempts_that_have_a_success(n: int) -> None:
    with duckdb.connect() as connection:
        for c, k in itertools.product(range(n + 1), range(1, 8)):
            attempts = [True] * c + [False] * (n - c)
            choices = list(itertools.combinations(attempts, k))
            expected = sum(map(any, choices)) / len(choices) if choices else None
            (found,) = connection.execute(f"SELECT {pass_at_k(k, n=str(n), c=str(c))}").fetchone() or ()
            assert found == (expected if expected is None else pytest.approx(expected, abs=1e-12)), (n, c, k)


def test_pass_at_k_of_many_attempts_stays_exact() -> None:
    exact = 1 - math.comb(90_000, 10) / math.comb(100_000, 10)
    with duckdb.connect() as connection:
        (found,) = connection.execute(f"SELECT {pass_at_k(10, n='100000', c='10000')}").fetchone() or ()
    assert found == pytest.approx(exact, rel=1e-12)


def test_a_group_is_summed_up_over_its_attempts() -> None:
    rows: list[Row] = [
        ("a", "g", "success", 5, 0.9),
        ("b", "g", "failure", 9, 0.1),
        ("c", "g", "success", 4, 0.9),
        ("d", "g", "error", 1, None),
        ("e", "alone", "unknown", 3, 0.4),
    ]
    found = statistics(rows)
    assert {name: found["a"][name] for name in ("n", "n_success", "best", "worst")} == {
        "n": 4,
        "n_success": 2,
        "best": 0.9,
        "worst": 0.1,
    }
    assert found["b"]["avg"] == pytest.approx(1.9 / 3)
    # of equal scores the shorter comes first; what has no score has no rank
    assert [found[name]["rank"] for name in "abcd"] == [2, 3, 1, None]
    # an error of the service is not an attempt: 2 of 3
    assert found["a"]["pass@1"] == pytest.approx(2 / 3)
    assert found["a"]["pass@2"] == pytest.approx(1.0)
    assert found["a"]["pass@5"] is None
    assert found["e"] == {
        "n": 1,
        "n_success": None,
        "avg": 0.4,
        "best": 0.4,
        "worst": 0.4,
        "rank": 1,
        "pass@1": None,
        "pass@2": None,
        "pass@5": None,
    }


_rows = st.lists(
    st.tuples(
        st.sampled_from("gh"),
        st.sampled_from(["success", "failure", "truncated", "error", "unknown"]),
        st.integers(0, 3),
        st.none() | st.floats(-1e9, 1e9),
    ),
    max_size=12,
).map(lambda rows: [(f"e{place:02}", *row) for place, row in enumerate(rows)])


@portions(8)
@settings(max_examples=5, deadline=None)
@given(_rows, st.randoms(use_true_random=False))
def test_statistics_are_the_plain_ones_and_the_same_for_any_order_of_rows(
    portion: int, rows: list[Row], random: object
) -> None:
    found = statistics(rows)
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert statistics(shuffled) == found
    for name, key, *_ in rows:
        scores = sorted(row[4] for row in rows if row[1] == key and row[4] is not None)
        assert found[name]["n"] == sum(row[1] == key for row in rows)
        assert found[name]["best"] == (scores[-1] if scores else None)
        assert found[name]["worst"] == (scores[0] if scores else None)
        if scores:
            assert found[name]["avg"] == pytest.approx(sum(scores) / len(scores), rel=1e-9, abs=1e-3)
    for key in "gh":
        ranks = [found[row[0]]["rank"] for row in rows if row[1] == key and row[4] is not None]
        assert sorted(map(int, map(str, ranks))) == list(range(1, len(ranks) + 1))


@pytest.mark.full
def test_the_score_is_episode_return_else_the_total_reward_else_an_error(attempts: Attempts) -> None:
    def score(*episodes: Episode, name: str | None = None) -> tuple[str, bool]:
        with deriving(attempts(episodes).path) as derivation:
            found = score_of(derivation.store, derivation.connection, name)
        return found.name, found.is_less_better

    assert score(attempt("a"), attempt("b", total_reward=1.0)) == ("episode_return", False)
    assert score(attempt("a", score=None, total_reward=1.0)) == ("total_reward", False)
    assert (
        score(attempt("a", metrics={"episode_return": 1.0, "n_bumps": 2.0}), name="n_bumps")[0] == "n_bumps"
    )
    with pytest.raises(QueryError) as caught:
        score(attempt("a", score=None, metrics={"n_bumps": 2.0}))
    assert "neither a metric episode_return nor a total_reward" in caught.value.message
    assert caught.value.hint == "name a metric with --score; metrics: n_bumps"
    with pytest.raises(QueryError) as caught:
        score(attempt("a"), name="episode_retrun")
    assert caught.value.hint == "nearest: episode_return"


def test_a_bare_name_is_a_column_else_of_the_group_else_a_metric(attempts: Attempts) -> None:
    store = attempts([attempt("a", metrics={"task": 1.0, "avg": 2.0, "speed": 3.0}, tags={"who": "me"})])
    with deriving(store.path) as derivation:
        names, sql = names_of(store, derivation.connection)
    assert [names.column([name]) for name in ("task", "avg", "speed")] == ["task", "avg", "metrics.speed"]
    assert [names.column(["metrics", name]) for name in ("task", "AVG")] == ["metrics.task", "metrics.avg"]
    assert names.column(["tags", "who"]) == "tags.who"
    assert {"task", "metrics.task", "tags.who"} <= set(sql)
    assert names.column(["pass@12"]) == "pass@12"
    assert names.column(["pass@x"]) is None


@pytest.mark.parametrize("k", ["0", "1001"])
def test_pass_at_an_impossible_number_is_refused(k: str) -> None:
    with pytest.raises(QueryError, match="k is from 1 to 1,000"):
        statistics([("a", "g", "success", 1, 0.5)], (f"pass@{k}",))
