from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

import trajkit
from tests.evaluation.conftest import FEW, make_played
from trajkit.errors import NothingMatched, QueryError, RequestError, StoreError
from trajkit.evaluation.report import report
from trajkit.evaluation.reports.charts import charts
from trajkit.evaluation.reports.model import Training
from trajkit.evaluation.reports.object import Report
from trajkit.evaluation.reports.text import group_table, notes, number

Evaluated = Callable[..., Path]


def test_each_variant_is_a_group_with_its_means(found: Report) -> None:
    base, tuned = found.groups
    assert (base.name, base.n_episodes, base.n_worlds, base.models) == ("base", 40, 40, ("base-model",))
    assert (base.outcomes, tuned.outcomes) == (
        {"truncated": 28, "success": 12},
        {"success": 30, "truncated": 10},
    )
    success = base.estimate("success")
    assert (success.value, success.n) == (0.3, 40)
    # seeds 0 to 5 take 2 to 6 and 2 steps, the other 14 take 12
    length = base.estimate("n_steps", "world/goto")
    assert length.value == pytest.approx((2 + 3 + 4 + 5 + 6 + 2 + 14 * 12) / 20)
    assert found.tasks == ("world/goto", "world/pickup")
    assert found.measures == (
        "success", "episode_return", "n_steps", "n_output_tokens", "n_input_tokens", "invalid", "cost_usd",
    )  # fmt: skip


def test_differences_are_of_the_pairs(found: Report) -> None:
    whole = next(each for each in found.comparisons if each.metric == "success" and each.task is None)
    assert (whole.baseline, whole.candidate) == ("base", "tuned")
    assert (whole.difference, whole.n_pairs) == (pytest.approx(0.45), 40)
    # seeds 0 to 2 were won by the base alone, 6 to 17 by the other, in both tasks
    assert (whole.n_baseline_only, whole.n_candidate_only) == (6, 24)
    assert whole.low > 0
    assert {each.task for each in found.comparisons} == {None, "world/goto", "world/pickup"}


def test_what_got_worse_is_named_with_its_episodes(found: Report) -> None:
    assert found.n_improved == {"tuned against base": 24}
    assert [(each.task, each.seed) for each in found.regressions] == [
        (task, seed) for task in ("world/goto", "world/pickup") for seed in range(3)
    ]
    before, after = found.regressions[1].episodes
    assert (before.group, before.outcome, before.n_steps) == ("base", "success", 3)
    assert (after.group, after.outcome, after.n_steps) == ("tuned", "truncated", 12)
    assert [moment.observation for moment in before.moments] == [f"goto 1 turn {n}" for n in range(3)]


def test_a_success_costs_what_failures_cost_too(found: Report) -> None:
    tokens, cost = found.groups[0].per_success
    n_steps = 2 * ((2 + 3 + 4 + 5 + 6 + 2) + 14 * 12)
    assert (tokens.of, tokens.n_successes) == ("tokens", 12)
    assert tokens.value == pytest.approx(n_steps * 8 * 4 / 12)
    assert cost.value == pytest.approx(n_steps * 0.001 / 12)
    assert cost.low < (cost.value or 0) < cost.high


def test_without_a_success_nothing_is_divided(evaluated: Evaluated) -> None:
    store = evaluated([make_played("worst", seed, is_success=False, n_tokens=5) for seed in range(12)])
    (group,) = report(store, resamples=FEW).groups
    (tokens,) = group.per_success
    assert (tokens.value, tokens.low, tokens.high, tokens.n_successes) == (None, None, None, 0)
    success = group.estimate("success")
    assert (success.value, success.low) == (0, 0)
    assert success.high == pytest.approx(0.2425, abs=5e-5)  # 3.8415 / (12 + 3.8415)


def test_decodings_are_groups_of_their_own(evaluated: Evaluated) -> None:
    store = evaluated(
        [
            make_played("a", seed, decoding=way, is_success=way == "greedy")
            for way in ("greedy", "temperature=1")
            for seed in range(12)
        ]
    )
    found = report(store, resamples=FEW)
    assert [(group.name, group.decoding) for group in found.groups] == [
        ("a, greedy", "greedy"),
        ("a, temperature=1", "temperature=1"),
    ]
    # nothing else could be compared
    assert found.comparisons[0].difference == -1


@pytest.fixture(scope="module")
def four(evaluated: Evaluated) -> Path:
    """`a` and `b`, each greedy and at temperature 1; `c` is greedy alone."""
    drawn = [(variant, way) for way in ("greedy", "temperature=1") for variant in ("a", "b")]
    return evaluated(
        make_played(variant, seed, decoding=way, is_success=variant == "b")
        for variant, way in [*drawn, ("c", "top_p=0.5")]
        for seed in range(12)
    )


def pairs(found: Report) -> list[tuple[str, str]]:
    return list(dict.fromkeys((each.baseline, each.candidate) for each in found.comparisons))


def test_variants_are_compared_with_those_of_the_same_decoding(four: Path) -> None:
    within = [("a, greedy", "b, greedy"), ("a, temperature=1", "b, temperature=1")]
    found = report(four, resamples=FEW)
    assert pairs(found) == within
    assert any("c, top_p=0.5 is compared with nothing" in note for note in found.notes)
    assert set(found.n_improved) == {f"{candidate} against {one}" for one, candidate in within}
    # the name of a variant stands for its groups of all decodings
    assert pairs(report(four, baseline="a", resamples=FEW)) == within
    assert pairs(report(four, baseline="b, greedy", resamples=FEW)) == [("b, greedy", "a, greedy")]


def test_decodings_are_compared_when_somebody_asks(four: Path) -> None:
    names = ["a, greedy", "a, temperature=1", "b, greedy", "b, temperature=1", "c, top_p=0.5"]
    found = report(four, across_decodings=True, resamples=FEW)
    assert sorted(pairs(found)) == [(names[0], other) for other in names[1:]]
    assert not any("compared with nothing" in note for note in found.notes)
    # a side that is named and alone with its decoding has no other side to be compared with
    assert sorted(pairs(report(four, baseline="c", resamples=FEW))) == [(names[4], one) for one in names[:4]]


def test_stores_can_be_named(evaluated: Evaluated) -> None:
    one = evaluated([make_played("model", seed, is_success=False) for seed in range(12)])
    other = evaluated([make_played("model", seed) for seed in range(12)])
    found = report(f"before={one}", f"after={other}", resamples=FEW)
    assert [group.name for group in found.groups] == ["before", "after"]
    assert [side.name for side in found.stores] == ["before", "after"]
    assert found.comparisons[0].difference == 1
    # without names they are attempts of one variant, and the report says so
    merged = report(one, other, resamples=FEW)
    assert [(group.n_episodes, group.n_worlds) for group in merged.groups] == [(24, 12)]
    assert any("NAME=STORE" in note for note in merged.notes)


def test_several_attempts_at_a_world_count_once(evaluated: Evaluated) -> None:
    store = evaluated(
        [make_played("a", seed, is_success=attempt == 0) for seed in range(12) for attempt in range(4)]
        + [make_played("b", seed) for seed in range(12)]
    )
    found = report(store, resamples=FEW)
    success = found.groups[0].estimate("success")
    assert (success.value, success.n, found.groups[0].n_episodes) == (0.25, 12, 48)
    whole = found.comparisons[0]
    assert (whole.difference, whole.n_pairs, whole.p_value) == (0.75, 12, None)


def test_episodes_that_were_not_played_for_evaluation_are_left_out(evaluated: Evaluated) -> None:
    store = evaluated(
        [make_played("a", seed) for seed in range(10)]
        + [make_played("a", seed, purpose="train", is_success=False) for seed in range(10, 15)]
    )
    found = report(store, resamples=FEW)
    assert found.n_episodes == 10
    assert "5 episodes that are not marked as evaluation are left out" in found.notes


def test_errors_say_nothing_of_success(evaluated: Evaluated) -> None:
    ends = [True] * 6 + [False] * 6 + [None] * 3
    store = evaluated([make_played("a", seed, is_success=end) for seed, end in enumerate(ends)])
    found = report(store, resamples=FEW)
    success = found.groups[0].estimate("success")
    assert (success.value, success.n) == (0.5, 12)
    assert found.groups[0].outcomes["error"] == 3
    assert any("3 of 15" in note for note in found.notes)


def test_worlds_that_only_one_side_played_are_counted_and_left_out(evaluated: Evaluated) -> None:
    store = evaluated(
        [make_played("a", seed) for seed in range(20)] + [make_played("b", seed) for seed in range(5, 25)]
    )
    found = report(store, resamples=FEW)
    assert found.comparisons[0].n_pairs == 15
    assert any("15 of 25 worlds" in note for note in found.notes)


def test_invalid_answers_are_counted(evaluated: Evaluated) -> None:
    said = {"action": None, "action_valid": False}
    store = evaluated(
        [make_played("garbage", seed, is_success=False, step=said) for seed in range(12)]
        + [make_played("good", seed) for seed in range(12)]
    )
    group = report(store, resamples=FEW).groups[0]
    share = group.estimate("invalid")
    assert (group.n_invalid, group.n_judged, share.value, share.high) == (24, 24, 1, 1)


def test_several_baselines_are_each_compared_once(evaluated: Evaluated) -> None:
    store = evaluated(
        [make_played(name, seed) for name in ("base", "control", "tuned") for seed in range(12)]
    )
    found = report(store, baseline=["base", "control"], resamples=FEW)
    assert pairs(found) == [("base", "control"), ("base", "tuned"), ("control", "tuned")]


def test_text_that_was_learned_is_reported_apart(evaluated: Evaluated) -> None:
    learned = evaluated(
        [make_played("expert", seed, prompt=f"same {seed}", purpose="train") for seed in range(1000, 1005)]
    )
    store = evaluated(
        [
            make_played("a", seed, prompt=f"same {1000 + seed}" if seed < 5 else None, is_success=seed < 5)
            for seed in range(20)
        ]
    )
    found = report(store, trained_on=learned, resamples=FEW)
    rest = found.unaliased
    assert (rest.n_worlds, rest.n_aliased, rest.leaks) == (20, 5, ())
    (group,) = rest.groups
    assert (group.n_episodes, group.outcomes) == (15, {"truncated": 15})
    assert found.groups[0].n_episodes == 20


def test_a_world_that_was_learned_is_called_a_leak(evaluated: Evaluated) -> None:
    store = evaluated([make_played("a", seed) for seed in range(12)])
    learned = evaluated([make_played("expert", seed, purpose="train") for seed in range(3)])
    rest = report(store, trained_on=learned, resamples=FEW).unaliased
    assert any("3 of 12 worlds" in leak for leak in rest.leaks)


@pytest.mark.full
def test_sizes_of_trainings_make_a_learning_curve(evaluated: Evaluated) -> None:
    store = evaluated(
        [
            make_played(name, seed, is_success=seed < won)
            for name, won in (("base", 4), ("small", 8), ("large", 16))
            for seed in range(20)
        ]
    )
    trainings = {
        "small": Training(model="small-job", n_episodes=50, n_learned=400),
        "large": Training(model="large-job", n_episodes=200, n_learned=1600),
    }
    found = report(store, trainings=trainings, resamples=FEW)
    learned = {group.name: group.training and group.training.n_episodes for group in found.groups}
    assert learned == {"base": None, "small": 50, "large": 200}
    assert "learning-curve" in {each.name for each in charts(found)}
    assert "learning-curve" not in {each.name for each in charts(report(store, resamples=FEW))}
    assert "| large | large-job | 200 | 1,600 |" in found.markdown()


def test_the_same_question_has_the_same_answer_from_the_public_verb_too(
    two_sides: Path, found: Report
) -> None:
    assert report(two_sides, resamples=FEW, threads=1) == found == trajkit.report(two_sides, resamples=FEW)
    assert trajkit.Report is Report


def test_a_further_metric_is_a_measure(two_sides: Path) -> None:
    assert "total_reward" not in report(two_sides, metrics=["total_reward"], resamples=FEW).measures
    with pytest.raises(QueryError, match="no metric 'speed'"):
        report(two_sides, metrics=["speed"])


def test_what_cannot_be_reported_says_why(two_sides: Path, evaluated: Evaluated, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no variant 'bass'") as error:
        report(two_sides, baseline="bass")
    assert error.value.hint == "nearest: base"
    with pytest.raises(StoreError):
        report(tmp_path / "nowhere")
    with pytest.raises(NothingMatched, match="no episodes"):
        report(evaluated([]))
    with pytest.raises(RequestError, match="is not between 0 and 1"):
        report(two_sides, confidence=95)
    with pytest.raises(RequestError, match=r"is in .* and in"):
        report(two_sides, f"again={two_sides}")
    with pytest.raises(RequestError, match="no store is named"):
        report()


def test_files_are_whole_and_hold_the_numbers(found: Report, tmp_path: Path) -> None:
    files = found.save(tmp_path / "report")
    assert all(file.stat().st_size > 500 for file in files)
    assert {"success", "return", "length", "generated-tokens", "input-tokens"} <= {
        file.stem for file in files
    }
    written = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert Report.model_validate_json(json.dumps(written)) == found
    schema = Report.model_json_schema()
    jsonschema.Draft202012Validator(schema).validate(written)
    assert schema["additionalProperties"] is False
    whole = [each for each in written["comparisons"] if each["metric"] == "success" and each["task"] is None]
    fields = {"baseline", "candidate", "metric", "task", "difference", "low", "high", "n_pairs"}
    assert [fields <= set(each) for each in whole] == [True]
    with pytest.raises(StoreError, match="exists already"):
        found.save(tmp_path / "report")
    markdown = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "| base | 40 | 0.300 [" in markdown
    for link in ("charts/success.svg", "charts/ends.svg"):
        assert f"]({link})" in markdown
        assert (tmp_path / "report" / link).read_text(encoding="utf-8").startswith("<svg")


def test_a_notebook_shows_tables_and_charts_without_a_program(found: Report) -> None:
    html = found._repr_html_()
    assert html.count("<table>") == 2
    assert html.count("data:image/svg+xml") >= 8
    assert "<script" not in html
    assert found._repr_markdown_().startswith("# base, tuned\n")


def test_names_from_elsewhere_cannot_break_the_page_or_the_table(evaluated: Evaluated) -> None:
    name = "</script><b>|x\u202e"
    found = report(evaluated([make_played(name, seed) for seed in range(12)]), resamples=FEW)
    page = found.page()
    assert "</script><b>" not in page
    assert "\u202e" not in page.partition("<script>")[0]
    assert "\\|x\ufffd" in found.markdown()
    assert "<b>" not in found.markdown()


def test_what_could_not_be_said_of_several_measures_is_said_once(evaluated: Evaluated) -> None:
    few = report(evaluated([make_played(name, seed) for name in "ab" for seed in range(3)]), resamples=FEW)
    assert list(notes(few.comparisons)) == [
        "b against a, success, return, length, invalid answers: too few pairs for an interval: 3, not 10",
        "b against a, success: too few pairs for a test: 0 of 3 pairs differ, and fewer than 6 prove nothing",
    ]


def test_numbers_have_the_decimals_that_they_need(found: Report) -> None:
    assert [number(each, "success") for each in (0.2, 0.00012, 0, None)] == ["0.200", "0.00012", "0.000", "-"]
    assert [number(each) for each in (57.25, 5.1, 12345.6)] == ["57.2", "5.100", "12,346"]
    assert number(2.53, like=57.2) == "2.5"
    assert group_table(found).rows[0][:2] == ("base", "40")
