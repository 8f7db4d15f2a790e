"""Any OpenAI-compatible server as a policy: against the project's own model server and a scripted one."""

from __future__ import annotations

import asyncio
import json

import pytest
from pydantic import SecretStr

from tests.rollouts.loopback import Reply, refused, said, serve
from trajkit.environments import environment_info, make
from trajkit.environments.base import ActionRule
from trajkit.errors import RequestError, ServiceError
from trajkit.rollouts.endpoints.policy import EndpointPolicy, EndpointSettings, read_settings
from trajkit.rollouts.faults import FaultKind
from trajkit.rollouts.own_prompt import MOST_LISTED, JsonMode, read_action
from trajkit.rollouts.plan import Job, Plan
from trajkit.rollouts.policies import Choice, Past, Situation
from trajkit.rollouts.records.record import Played, to_episode
from trajkit.rollouts.running.calling import Caller
from trajkit.rollouts.running.runner import play
from trajkit.rollouts.seeds import derived_seed
from trajkit.schema import FeedbackKind, Metric, MetricLevel, Outcome
from trajkit.stack import model_server
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes

KEY = SecretStr("sk-this-is-the-secret-key")
RULE = environment_info("babyai").rule
METRICS = [
    Metric(name=name, level=MetricLevel.EPISODE, kind=FeedbackKind.FLOAT, optimize="max")
    for name in ("progression", "episode_return")
]
LEFT = '{"action": "turn left"}'


def plan(**changes) -> Plan:
    values = {"env_id": "babyai", "tasks": ("goto",), "variants": ("openai",), "seeds": "0:4"}
    return Plan(**(values | changes))


def policy(url: str, plan: Plan, *, rule=RULE, key=KEY, retries=0, **settings) -> EndpointPolicy:
    caller = Caller(concurrency=plan.concurrency, timeout_s=5, retries=retries)
    return EndpointPolicy(url, "m", key, plan, caller, rule=rule, settings=EndpointSettings(**settings))


def episodes(url: str, *, key=KEY, rule=RULE, retries=0, settings=None, **changes) -> list[Played]:
    played: list[Played] = []
    plays = plan(**changes)

    async def all_of_them() -> None:
        plays_with = policy(url, plays, key=key, rule=rule, retries=retries, **(settings or {}))
        try:
            await play(plays, {"openai": plays_with}, on_played=played.append)
        finally:
            await plays_with.close()

    asyncio.run(all_of_them())
    return sorted(played, key=lambda one: one.job.seed)


def choose(url: str, *, past=(), rule=RULE, n=1, environment=None, **settings) -> list[Choice]:
    """The choices at the first n steps that a policy makes without being told of each other."""

    async def several() -> list[Choice]:
        chooses = policy(url, plan(history=2), rule=rule, **settings)
        try:
            return [await chooses.act(situation(step, past, environment)) for step in range(n)]
        finally:
            await chooses.close()

    return asyncio.run(several())


def situation(step=0, past=(), environment=None) -> Situation:
    world = environment or make("babyai", "goto")
    return Situation(
        Job("openai", "goto", 3), "e", step, "go to the red box", "a wall 1 step left", past, world, {}
    )


class Corridor:
    """A world whose actions depend on where one is."""

    env_id, task = "corridor", "short"

    def __init__(self, *actions: str) -> None:
        self.actions = actions

    def legal_actions(self) -> tuple[str, ...]:
        return self.actions


def test_the_projects_own_model_plays_whole_episodes_through_it():
    with model_server.start(mistakes=0, invalid=0) as server:
        played = episodes(f"{server.url}/v1", key=None, settings={"thinking": True})
    assert [one.outcome for one in played] == [Outcome.SUCCESS] * 4
    for one in played:
        assert one.n_invalid == 0
        assert one.n_input_tokens > 0
        assert all(json.loads(step.choice.answer.raw)["thinking"] for step in one.steps)


def test_a_run_is_repeated_by_its_run_seed():
    with model_server.start(mistakes=0.5) as server:
        runs = [
            [
                [step.choice.action for step in one.steps]
                for one in episodes(f"{server.url}/v1", run_seed=seed)
            ]
            for seed in (1, 1, 2)
        ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_the_request_holds_mission_actions_history_and_observation_and_a_derived_seed():
    past = [Past("old", "drop", True), Past("a door", "toggle", True), Past("a box", "go forward", False)]
    with serve(lambda body, n: Reply(said(LEFT))) as server:
        (choice,) = choose(server.url, past=past, temperature=0.25, max_tokens=64)
    assert choice.action == "turn left"
    body = server.asked[0].body
    system, user = body.pop("messages")
    assert system["role"] == "system"
    assert "Your mission: go to the red box" in system["content"]
    assert "The actions:\n- turn left\n- turn right\n- go forward" in system["content"]
    assert user["content"].startswith(
        "History:\nObservation: a door\nAction: toggle\n\nObservation: a box\nAction: go forward\nNote: "
    )
    assert "\n\nObservation:\na wall 1 step left\n\nAnswer with one JSON object" in user["content"]
    assert "old" not in user["content"]
    schema = body.pop("response_format")["json_schema"]
    assert (schema["strict"], schema["schema"]["required"]) == (True, ["action"])
    assert schema["schema"]["properties"]["action"]["enum"] == list(RULE.actions)
    seed = derived_seed("inference", 0, "goto", 3, 0)  # as the policy `gateway` has it
    assert body == {"model": "m", "max_tokens": 64, "temperature": 0.25, "seed": seed}


def test_actions_that_depend_on_the_state_are_listed_with_what_is_seen():
    with serve(lambda body, n: Reply(said('{"action": "north"}'))) as server:
        choose(server.url, rule=None, environment=Corridor("north", "wait"))
        choose(server.url, rule=None, environment=Corridor())
        choose(server.url, rule=None, environment=Corridor(*map(str, range(MOST_LISTED + 1))))
    listed, any_text, too_many = [asked.body for asked in server.asked]
    assert "The actions:\n- north\n- wait\n\nAnswer" in listed["messages"][1]["content"]
    assert "The actions" not in listed["messages"][0]["content"]
    for body, action in (
        (listed, {"type": "string", "enum": ["north", "wait"]}),
        (any_text, {"type": "string"}),
    ):
        assert body["response_format"]["json_schema"]["schema"]["properties"]["action"] == action
    assert "The actions" not in str(any_text["messages"]) + str(too_many["messages"])


@pytest.mark.parametrize(
    ("raw", "mode", "action"),
    [
        ('{"thinking": "…", "action": "drop"}', "schema", "drop"),
        (' ```json\n{"action": "drop"}\n``` ', "object", "drop"),
        ('Here:\n```\n{"action": "drop"}\n```', "auto", "drop"),
        ("drop", "schema", "drop"),
        ('"drop"', "schema", "drop"),
        ('{"action": "fly"}', "schema", "fly"),
        ('{"action": 7}', "object", 7),
        ('{"action": NaN}', "object", None),
        ('{"act": "drop"}', "schema", None),
        ("[]", "schema", None),
        ("I would drop it.", "schema", None),
        ("I would drop it.", "off", "I would drop it."),
        ("  drop\n", "off", "drop"),
        ("7", "off", "7"),
        ("", "off", None),
        ("", "schema", None),
        (None, "off", None),
    ],
)
def test_the_action_is_what_the_answer_names(raw, mode, action):
    assert read_action(raw, ("drop", "toggle"), JsonMode(mode)) == action


@pytest.mark.parametrize("content", ["", None, "Sure! I would turn left here.", '{"action": "fly"}'])
def test_an_answer_that_names_no_action_is_the_models_own_and_no_fault(content):
    with serve(lambda body, n: Reply(said(content))) as server:
        (one,) = episodes(server.url, seeds="1:2", max_steps=3)
    assert (one.fault, one.outcome, one.n_invalid, len(one.steps)) == (None, Outcome.TRUNCATED, 3, 3)
    assert [step.result.action_executed for step in one.steps] == ["go forward"] * 3
    assert [step.choice.answer.raw for step in one.steps] == [content] * 3


def refuses_schemas(body, n):
    kind = body.get("response_format", {}).get("type")
    if kind == "json_schema":
        return Reply(refused("'response_format.type' must be text or json_object"), 400)
    return Reply(said(LEFT))


def refuses_all_formats(body, n):
    if "response_format" in body:
        return Reply({"detail": "response_format is not supported"}, 422)
    return Reply(said("turn left"))


def wants_the_new_limit(body, n):
    if "max_tokens" in body:
        return Reply(
            refused("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."), 400
        )
    return Reply(said(LEFT))


def refuses_seeds(body, n):
    if "seed" in body:
        return Reply({"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"]}]}, 422)
    return Reply(said(LEFT))


@pytest.mark.parametrize(
    ("answer", "refusals", "has"),
    [
        (refuses_schemas, 1, {"response_format": {"type": "json_object"}}),
        (refuses_all_formats, 2, {"response_format": None}),
        (wants_the_new_limit, 1, {"max_tokens": None, "max_completion_tokens": 1024}),
        (refuses_seeds, 1, {"seed": None}),
    ],
)
def test_what_a_server_refuses_is_left_out_from_then_on(answer, refusals, has):
    with serve(answer) as server:
        choices = choose(server.url, n=3)
    assert [choice.action for choice in choices] == ["turn left"] * 3
    assert len(server.asked) == refusals + 3
    for asked in server.asked[refusals:]:
        assert {name: asked.body.get(name) for name in has} == has


def test_without_a_format_the_prompt_asks_for_the_action_alone():
    with serve(refuses_all_formats) as server:
        choose(server.url)
    assert (
        server.asked[-1]
        .body["messages"][1]["content"]
        .endswith("Answer with exactly one of the actions listed, and nothing else.")
    )


def test_a_format_that_was_asked_for_by_name_is_not_given_up():
    with serve(refuses_schemas) as server, pytest.raises(ServiceError, match="must be text or json_object"):
        episodes(server.url, seeds="0:9", settings={"json_mode": "schema"})


def test_many_episodes_that_begin_together_learn_it_once_each_at_most():
    with serve(refuses_schemas) as server:
        played = episodes(server.url, seeds="0:8", concurrency=8, max_steps=2)
    assert {one.fault for one in played} == {None}
    refusals = [asked for asked in server.asked if asked.body["response_format"]["type"] == "json_schema"]
    assert 1 <= len(refusals) <= 8


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(refused("no"), 401), FaultKind.REFUSED),
        (Reply(None), FaultKind.CONNECTION),
    ],
)
def test_a_failure_of_the_server_ends_the_episode_as_its_kind(reply, kind):
    with serve(lambda body, n: reply if n == 2 else Reply(said(LEFT))) as server:
        (one,) = episodes(server.url, seeds="1:2")
    assert (one.outcome, one.fault.kind, len(one.steps), one.metrics) == (Outcome.ERROR, kind, 2, {})


def test_every_third_request_fails_and_nothing_is_lost():
    with serve(lambda body, n: Reply(refused("busy"), 429) if n % 3 == 0 else Reply(said(LEFT))) as server:
        played = episodes(server.url, seeds="0:3", max_steps=4, retries=5)
    assert [(one.fault, len(one.steps)) for one in played] == [(None, 4)] * 3
    assert len(server.asked) == 18  # 12 answers, and every third request one more


def test_an_episode_keeps_its_exact_prompts_through_the_store(tmp_path):
    with model_server.start() as server:
        played = episodes(f"{server.url}/v1", seeds="0:2")
    recorded = [to_episode(one) for one in played]
    write_episodes(
        tmp_path / "s", recorded, kind="rollout", source={"kind": "rollout"}, lineage=[], metrics=METRICS
    )
    stored = {episode.episode_id: episode for episode in open_dataset(tmp_path / "s")}
    for one, episode in zip(played, recorded, strict=True):
        back = stored[one.episode_id]
        assert list(back.prompts()) == [step.choice.answer.messages for step in one.steps]
        assert [step.completion for step in back.steps] == [
            step.choice.answer.completion for step in one.steps
        ]
        assert [(step.model_name, step.variant_name) for step in back.steps] == [("m", "openai")] * len(
            one.steps
        )
        assert [step.n_output_tokens for step in back.steps] == [s.n_output_tokens for s in episode.steps]
        assert [step.finish_reason for step in back.steps] == ["stop"] * len(one.steps)
    content = b"".join(path.read_bytes() for path in (tmp_path / "s").rglob("*") if path.is_file())
    assert KEY.get_secret_value().encode() not in content


def test_settings_come_as_texts():
    assert read_settings({}) == EndpointSettings()
    read = read_settings({"temperature": "0.5", "max_tokens": "9", "json_mode": "off", "thinking": "true"})
    assert read == EndpointSettings(temperature=0.5, max_tokens=9, json_mode=JsonMode.OFF, thinking=True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"heat": "1"}, "no setting 'heat'"),
        ({"temperature": "hot"}, "temperature='hot'"),
        ({"max_tokens": "0"}, "max_tokens='0'"),
        ({"json_mode": "xml"}, "json_mode='xml'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings, words):
    with pytest.raises(RequestError, match=words):
        read_settings(settings)


def test_a_rule_with_many_actions_lists_none():
    rule = ActionRule(actions=tuple(map(str, range(MOST_LISTED + 1))), default="0")
    with serve(lambda body, n: Reply(said('{"action": "7"}'))) as server:
        (choice,) = choose(server.url, rule=rule)
    assert choice.action == "7"
    assert "enum" not in str(server.asked[0].body["response_format"])
