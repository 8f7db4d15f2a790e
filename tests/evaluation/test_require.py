from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evaluation.conftest import make_played
from trajkit.errors import QueryError
from trajkit.evaluation.report import report
from trajkit.evaluation.reports.object import Report
from trajkit.evaluation.require import NotHeld, require, requirement


@pytest.mark.parametrize(
    "text",
    [
        "success.low > 0",
        "success.difference >= 0.45",
        "success[goto].low>0",
        "success[task=world/pickup, candidate=tuned, baseline=base].n_pairs >= 20",
        "episode_return.low > 1e-3",
        "success.p_value < .05",
        "n_steps.high < 0",
    ],
)
def test_what_holds_passes(found: Report, text: str) -> None:
    require(found, [requirement(text)])


def test_a_variant_is_meant_in_every_decoding_or_in_one(evaluated: Callable[..., Path]) -> None:
    ways = ("greedy", "temperature=0.7,top_p=0.9")
    drawn = [(name, way) for way in ways for name in ("base", "tuned")]
    wins = {("tuned", "greedy")}
    found = report(
        evaluated(
            make_played(name, seed, decoding=way, is_success=(name, way) in wins)
            for name, way in drawn
            for seed in range(12)
        ),
        resamples=500,
    )
    both, first, second = (
        requirement(f"success[{where}].low > 0")
        for where in (
            "candidate=tuned, baseline=base",
            "candidate=tuned, decoding=greedy",
            "decoding=temperature=0.7,top_p=0.9, candidate=tuned",
        )
    )
    assert [len(each.of(found)) for each in (both, first, second)] == [2, 1, 1]
    require(found, [first])
    for each in (both, second):
        with pytest.raises(NotHeld, match=r"tuned, temperature=0\.7,top_p=0\.9 against base"):
            require(found, [each])
    with pytest.raises(QueryError, match="matches no comparison") as error:
        require(found, [requirement("success[decoding=hot].low > 0")])
    assert "decoding: greedy, temperature=0.7,top_p=0.9" in (error.value.hint or "")


def test_what_does_not_hold_is_told_with_its_value(found: Report) -> None:
    with pytest.raises(
        NotHeld, match=r"difference is 0\.45 for success, tuned against base, 40 pairs"
    ) as error:
        require(found, [requirement("success.difference > 0.45")])
    assert error.value.exit_code == 1
    with pytest.raises(NotHeld, match="low is unknown") as error:
        require(report_of_few(found), [requirement("success.low > 0")])
    assert "too few pairs" in (error.value.hint or "")


def report_of_few(found: Report) -> Report:
    few = [each.model_copy(update={"low": None, "note": "too few pairs"}) for each in found.comparisons]
    return found.model_copy(update={"comparisons": tuple(few)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("success > 0", "is not a requirement"),
        ("success.low == 0", "is not a requirement"),
        ("success.low > zero", "is not a requirement"),
        ("success.lower > 0", "has no field 'lower'"),
        ("success[seed=3].low > 0", "'seed=3' is not a condition"),
    ],
)
def test_a_bad_expression_is_refused_before_anything_is_read(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message) as error:
        requirement(text)
    assert error.value.exit_code == 2


def test_an_expression_about_nothing_lists_what_there_is(found: Report) -> None:
    with pytest.raises(QueryError, match="matches no comparison") as error:
        require(found, [requirement("progress.low > 0")])
    assert "success" in (error.value.hint or "")
    with pytest.raises(QueryError, match="matches no comparison"):
        require(found, [requirement("success[open].low > 0")])
    alone = found.model_copy(update={"comparisons": ()})
    with pytest.raises(QueryError, match="only one variant"):
        require(alone, [requirement("success.low > 0")])
