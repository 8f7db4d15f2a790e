"""Through the real gateway onto the real ClickHouse, with the stand-in model and one that fails at will."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.matrix import daily
from tests.stack import faulty_server
from trajkit.environments import environment_info
from trajkit.errors import ConfigError, RequestError, ServiceError, StoreError
from trajkit.rollouts.faults import FaultKind
from trajkit.rollouts.options import Options
from trajkit.rollouts.records.record import Played, to_episode
from trajkit.rollouts.session import Session, open_run, prepare, run
from trajkit.schema import Outcome, message
from trajkit.sources.tensorzero.export.prompts import Sent
from trajkit.store.reader import open_store


@pytest.fixture
def failing(
    config_for: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Path]]:
    """The configuration of a model server that fails in a way, at the first of each so many requests."""
    monkeypatch.setattr("trajkit.rollouts.running.calling._FIRST_WAIT_S", 0.05)
    servers = []

    def config(mode: str, *, every: int = 1) -> Path:
        servers.append(faulty_server.start(mode, every))
        return config_for(servers[-1].url)

    yield config
    for server in servers:
        server.close()


def session(**changes: object) -> Session:
    values = {"env_id": "babyai", "tasks": ("goto",), "variants": ("history",)}
    return prepare(Options.model_validate(values | changes))


def all_are_kept(played, ask):
    assert [one.fault for one in played if one.fault] == []
    kept = ask(
        "SELECT id, episode_id, tags['trajkit.step'] FROM tensorzero.JsonInference "
        f"WHERE tags['trajkit.run'] = '{played[0].run}'"
    )
    ours = [
        [step.choice.answer.inference_id, one.episode_id, str(index)]
        for one in played
        for index, step in enumerate(one.steps)
    ]
    assert sorted(kept) == sorted(ours)


@pytest.mark.timeout(900)
def test_all_of_many_inferences_at_once_are_kept(everything, ask):
    assert len(everything.played) == 3
    assert len(everything.steps) > 70
    all_are_kept(everything.played, ask)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_two_thousand_inferences_at_once_are_all_kept(play_options, ask):
    played = play_options(tasks=("all",), seeds="0:11", purpose="eval", concurrency=50)
    assert sum(len(one.steps) for one in played) >= 2000
    all_are_kept(played, ask)


def test_inferences_and_feedback_carry_every_tag(everything, ask):
    one = next(one for one in everything.played if one.job.task == "open")
    tags = {
        "trajkit.env": "babyai",
        "trajkit.task": "open",
        "trajkit.seed": str(one.job.seed),
        "trajkit.purpose": "eval",
        "trajkit.run": everything.run,
    }
    assert one.tags == tags
    where = " AND ".join(f"tags['{name}'] = '{value}'" for name, value in tags.items())
    (inferences,) = ask(
        f"SELECT count(), uniq(tags['trajkit.step']) FROM tensorzero.JsonInference "
        f"WHERE {where} AND episode_id = '{one.episode_id}'"
    )
    assert inferences == [str(len(one.steps))] * 2
    feedback = ask(
        f"SELECT metric_name, count(), any(has(mapKeys(tags), 'trajkit.step')) "
        "FROM tensorzero.FloatMetricFeedback "
        f"WHERE {where} AND target_id = '{one.episode_id}' GROUP BY metric_name ORDER BY metric_name"
    )
    assert feedback == [["episode_return", "1", "0"], ["progression", "1", "0"]]


def test_the_feedback_is_what_the_environment_said(everything, ask):
    rows = ask(
        "SELECT id, target_id, metric_name, value FROM tensorzero.FloatMetricFeedback "
        f"WHERE tags['trajkit.run'] = '{everything.run}'"
    )
    ours = [
        [item.feedback_id, one.episode_id, item.metric_name, item.value]
        for one in everything.played
        for item in one.feedback
    ]
    assert sorted([*row[:3], float(row[3])] for row in rows) == sorted(ours)
    for one in everything.played:
        values = {item.metric_name: item.value for item in one.feedback}
        assert values["episode_return"] == pytest.approx(sum(step.result.reward for step in one.steps))
        assert values["progression"] == (one.outcome == Outcome.SUCCESS)
        assert one.feedback[-1].metric_name == "episode_return"


def test_a_run_has_successes_failures_and_invalid_answers_that_became_the_default(everything):
    assert 0 < sum(one.outcome == Outcome.SUCCESS for one in everything.played) < 3
    invalid = [step for _, step in everything.steps if not step.result.action_valid]
    assert invalid
    assert {step.result.action_executed for step in invalid} == {"go forward"}
    rule = environment_info("babyai").rule
    assert not {step.choice.action for step in invalid} & set(rule.actions)


def test_an_agent_is_told_of_its_history_and_of_its_invalid_answers(everything):
    one, index = next(
        (one, index)
        for one in everything.played
        for index, step in enumerate(one.steps[:-1])
        if index >= 8 and not step.result.action_valid
    )
    (content,) = one.steps[index + 1].choice.answer.input["messages"][0]["content"]
    blocks = content["arguments"]["history"].split("\n\n")
    assert len(blocks) == 8
    assert blocks[-1] == (
        f"Observation: {one.steps[index].observation}\nAction: go forward\n"
        "Note: your answer named no action, so this default was carried out."
    )


def test_the_input_is_the_one_that_the_gateway_keeps(everything, ask):
    _, step = everything.steps[70]
    ((kept,),) = ask(
        "SELECT base64Encode(input) FROM tensorzero.JsonInference "
        f"WHERE id = '{step.choice.answer.inference_id}'"
    )
    assert json.loads(base64.b64decode(kept)) == step.choice.answer.input


def test_a_run_repeats_answer_for_answer(everything, play_options):
    again = play_options(tasks=("open",), seeds="1:2", purpose="train", concurrency=2)
    before = {one.job: one for one in everything.played}
    for one in again:
        assert [step.choice.answer.raw for step in one.steps] == [
            step.choice.answer.raw for step in before[one.job].steps
        ]
        assert one.metrics == before[one.job].metrics


def test_several_variants_play_the_same_seeds(play_options):
    played = play_options(variants=("baseline", "history"), seeds="0:2", history=3, max_steps=2)
    assert sorted((one.job.variant, one.job.seed) for one in played) == [
        ("baseline", 0), ("baseline", 1), ("history", 0), ("history", 1)
    ]  # fmt: skip
    assert {step.choice.answer.variant_name for one in played for step in one.steps} == {
        "baseline",
        "history",
    }


@pytest.mark.parametrize(
    ("mode", "kind"),
    daily(
        [
            ("500", FaultKind.SERVER),
            ("429", FaultKind.RATE_LIMIT),
            ("garbage", FaultKind.UNREADABLE),
            ("close", FaultKind.CONNECTION),
        ],
        2,
    ),
)
def test_a_model_that_fails_ends_episodes_as_errors_without_feedback(mode, kind, failing, play_options, ask):
    config = failing(mode)
    played = play_options(config_file=config, seeds="0:2", retries=1)
    assert [(one.outcome, one.fault.kind, one.steps, one.feedback) for one in played] == [
        (Outcome.ERROR, kind, (), ())
    ] * 2
    episode = to_episode(played[0])
    assert (episode.outcome, episode.metrics, episode.total_reward, episode.n_steps) == ("error", {}, None, 0)
    assert episode.origin["error"].startswith(f"{kind}: ")
    ((n,),) = ask(
        f"SELECT count() FROM tensorzero.FloatMetricFeedback WHERE tags['trajkit.run'] = '{played[0].run}'"
    )
    assert n == "0"


def test_a_model_that_is_not_there_is_a_connection_fault(config_for, closed_address, play_options):
    (one,) = play_options(config_file=config_for(closed_address), seeds="0:1", retries=0)
    assert (one.outcome, one.fault.kind) == (Outcome.ERROR, FaultKind.CONNECTION)


@pytest.mark.parametrize("mode", daily(["500", "429", "close"], 1))
def test_a_failure_that_passes_is_tried_again(mode, failing, play_options):
    (one,) = play_options(config_file=failing(mode, every=3), seeds="0:1", retries=3)
    assert (one.outcome, one.fault) == (Outcome.SUCCESS, None)


@pytest.mark.parametrize(("mode", "raw"), [("not-json", "Sure! I would turn left here."), ("empty", "")])
def test_an_answer_that_cannot_be_read_is_the_default_action(mode, raw, failing, play_options):
    (one,) = play_options(config_file=failing(mode), seeds="1:2", max_steps=3)
    assert one.fault is None
    assert one.n_invalid == len(one.steps)
    assert {
        (step.choice.answer.raw, step.choice.action, step.result.action_executed) for step in one.steps
    } == {(raw, None, "go forward")}
    assert {item.metric_name for item in one.feedback} == {"episode_return", "progression"}


def test_an_answer_that_names_no_action_is_the_default_action(failing, play_options):
    (one,) = play_options(config_file=failing("invalid", every=2), seeds="1:2", max_steps=6)
    assert [(step.choice.action, step.result.action_valid) for step in one.steps[::2]] == [
        ("fly", False)
    ] * len(one.steps[::2])
    assert all(step.result.action_valid for step in one.steps[1::2])


def test_a_run_gives_up_when_the_model_is_down(failing, play_options):
    with pytest.raises(ServiceError, match=r"5 episodes in a row ended by server error: .*broken on purpose"):
        play_options(config_file=failing("500"), seeds="0:200", retries=0)


def test_arguments_that_the_function_does_not_take_stop_the_run(
    in_stack_folder, config_for, closed_address, play_options
):
    config = config_for(closed_address)
    schema = config.parent / "act" / "user_schema.json"
    schema.write_text(schema.read_text().replace('"history"', '"story"'))
    with pytest.raises(RequestError, match="the gateway refused the request"):
        play_options(config_file=config, seeds="0:3")


def test_a_store_holds_what_was_played(play_options, tmp_path, in_stack_folder):
    goal = tmp_path / "store"
    played: list[Played] = []
    asked: list[str] = []

    def prompts(inference_ids):
        asked.extend(inference_ids)
        return {one: Sent((message("user", one),)) for one in inference_ids[1:]}

    made = session(seeds="0:2", max_steps=4, store=goal)
    written = run(made, on_played=played.append, prompts=prompts)
    n_steps = sum(len(one.steps) for one in played)
    assert len(asked) == n_steps
    assert (written.path, written.n_without_prompt) == (goal, 1)
    assert written.manifest.counts.model_dump() == {"n_episodes": 2, "n_steps": n_steps, "n_feedback": 4}
    assert [(metric.name, metric.optimize) for metric in written.manifest.metrics] == [
        ("episode_return", "max"),
        ("progression", "max"),
    ]
    (entry,) = written.manifest.lineage
    assert (entry.verb, entry.n_episodes_out, entry.arguments["history"]) == ("rollout", 2, 8)
    assert (entry.arguments["policy"], entry.arguments["function"]) == ("gateway", "act")
    assert open_store(goal).manifest == written.manifest
    assert "trajkit:" not in written.manifest.model_dump_json()  # the user of the database, and its password
    assert str(in_stack_folder) not in written.manifest.model_dump_json()


def test_what_cannot_be_played_is_refused_before_anything_is(in_stack_folder, tmp_path):
    def refused(kind, match, **options):
        with pytest.raises(kind, match=match) as caught:
            prepare(Options.model_validate({"env_id": "babyai", "variants": ("history",)} | options))
        return caught.value.hint

    assert "babyai" in refused(RequestError, "no environment 'chess'", env_id="chess")
    assert "goto, pickup" in refused(RequestError, "no task 'fly' in babyai", tasks=("fly",))
    assert "act" in refused(RequestError, "no function 'zzz'", function="zzz")
    assert "baseline, reasoning" in refused(
        RequestError, "no variant 'zzz' in the function 'act'", variants=("zzz",)
    )
    assert "or all" in refused(RequestError, "no variant of 'act' is named", variants=())
    refused(RequestError, "would give them again", seeds="0:3", episodes=3)
    refused(RequestError, "calls no gateway", policy="random")
    refused(RequestError, "has no noise", noise=0.5)
    refused(StoreError, "exists already", store=tmp_path)
    refused(ConfigError, "there is no", config_file=tmp_path / "none.toml")


def test_a_metric_that_the_gateway_does_not_declare_names_the_lines_to_add(
    in_stack_folder, config_for, closed_address
):
    config = config_for(closed_address)
    config.write_text(config.read_text().replace("[metrics.progression]", "[metrics.other]"))
    with pytest.raises(ConfigError, match="no metric progression of type float") as caught:
        session(config_file=config)
    assert caught.value.hint.endswith(
        '[metrics.progression]\ntype = "float"\nlevel = "episode"\noptimize = "max"'
    )


def test_without_any_gateway_it_says_what_to_start(tmp_path, monkeypatch):
    for name in ("TENSORZERO_GATEWAY_URL", "TENSORZERO_CLICKHOUSE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match="no gateway to play through") as caught:
        prepare(Options(env_id="babyai"))
    assert "trajkit up" in caught.value.hint
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", "http://user:secret@127.0.0.1:1/tensorzero")
    with pytest.raises(RequestError, match="there is no configuration") as caught:
        prepare(Options(env_id="babyai"))
    assert "--config" in caught.value.hint


def test_a_database_of_ones_own_is_named_without_its_password(
    in_stack_folder, config_for, closed_address, monkeypatch
):
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", "http://user:secret@127.0.0.1:1/tensorzero")
    made = session(config_file=config_for(closed_address))
    assert made.venue.name == "127.0.0.1:1/tensorzero"
    assert "secret" not in repr(made)
    with pytest.raises(ServiceError) as caught:
        run(made, on_played=lambda played: None)
    assert "secret" not in str(caught.value)


def test_a_gateway_by_url_that_is_closed_is_a_service_error(in_stack_folder, closed_address, monkeypatch):
    monkeypatch.setenv("TENSORZERO_GATEWAY_URL", closed_address)
    with pytest.raises(ServiceError, match="no gateway answers"):
        run(session(), on_played=lambda played: None)


def test_scripted_policies_need_no_gateway_and_write_a_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = session(variants=(), policy="noisy-expert", noise=0.2, episodes=4, store=tmp_path / "store")
    played: list[Played] = []
    written = run(made, on_played=played.append)
    assert [one.job.variant for one in played] == ["noisy-expert"] * 4
    assert written.manifest.counts.n_episodes == 4
    assert written.manifest.lineage[0].arguments["noise"] == 0.2
    assert [(metric.name, metric.optimize) for metric in written.manifest.metrics] == [
        ("episode_return", "max"),
        ("progression", None),
    ]


@pytest.mark.full
def test_a_model_that_asks_for_fewer_requests_gets_fewer_and_then_as_many_as_before(failing, in_stack_folder):
    """Every eighth answer is a 429; the gateway reports it as a 500 with the provider's words."""
    session = prepare(
        Options(
            env_id="babyai",
            tasks=("goto",),
            variants=("history",),
            seeds="0:8",
            max_steps=4,
            concurrency=8,
            retries=9,
            config_file=failing("429", every=8),
        )
    )
    played: list[Played] = []
    with open_run(session) as opened:
        opened.play(on_played=played.append)
    assert [one.fault for one in played] == [None] * 8
    assert set(opened.caller.faults) == {FaultKind.RATE_LIMIT}
    assert opened.caller.throttle.lowest <= 4
    assert opened.caller.throttle.limit > opened.caller.throttle.lowest


@pytest.mark.full
def test_a_model_that_never_answers_is_a_timeout(failing, play_options):
    began = time.monotonic()
    (one,) = play_options(config_file=failing("hang"), seeds="0:1", retries=1, timeout_s=0.5)
    assert (one.outcome, one.fault) == (Outcome.ERROR, (FaultKind.TIMEOUT, "no answer in 0.5 s", False, None))
    assert time.monotonic() - began < 60
