import asyncio
import threading
import time
import uuid
from datetime import UTC, datetime

import pytest

from trajkit.environments.base import EnvironmentInfo, Result, Start
from trajkit.errors import RequestError, RolloutError, ServiceError
from trajkit.rollouts.faults import Fault, FaultKind, Faulty
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.policies import Answer, Choice, Expert, Random, Scripted
from trajkit.rollouts.running import runner
from trajkit.rollouts.running.calling import Caller
from trajkit.rollouts.running.limits import Budget, Limits
from trajkit.rollouts.running.runner import GIVE_UP_AT_START, play
from trajkit.schema import Outcome


def plan(**changes) -> Plan:
    values = {"env_id": "babyai", "tasks": ("goto",), "variants": ("a",), "seeds": "0:4"}
    return Plan(**(values | changes))


def episodes(policy, **changes) -> list:
    played = []
    asyncio.run(play(plan(**changes), {"a": policy}, on_played=played.append))
    return sorted(played, key=lambda one: one.job.seed)


class Down(Scripted):
    """Fails at a step, for chosen seeds."""

    def __init__(self, *, at=0, seeds=range(1000), kind=FaultKind.SERVER):
        self.at, self.seeds, self.fault = at, seeds, Fault(kind, "down")
        self.n_asked = 0

    async def act(self, situation):
        self.n_asked += 1
        if situation.job.seed in self.seeds and situation.step_index == self.at:
            raise Faulty(self.fault)
        return Choice("turn left")


class Saying(Scripted):
    """Says the same thing every time."""

    def __init__(self, action):
        self.action = action

    async def act(self, situation):
        return Choice(self.action)


def test_every_episode_is_played_once_to_its_end():
    played = episodes(Expert(), tasks=("goto", "open"))
    assert sorted((one.job.task, one.job.seed) for one in played) == [
        (task, seed) for task in ("goto", "open") for seed in range(4)
    ]
    for one in played:
        assert one.outcome == Outcome.SUCCESS
        assert one.steps[-1].result.terminated
        assert one.metrics == {"progression": 1.0, "episode_return": one.steps[-1].result.reward}
        assert [step.observation for step in one.steps[1:]] == [
            step.result.observation for step in one.steps[:-1]
        ]
        assert one.feedback == ()


def test_the_same_plan_plays_the_same_whatever_the_concurrency():
    def what(one):
        return (one.job, one.mission, one.initial_state_hash, [(s.choice, s.result) for s in one.steps])

    alone = [what(one) for one in episodes(Random(0), concurrency=1)]
    assert [what(one) for one in episodes(Random(0), concurrency=50)] == alone


@pytest.mark.parametrize("nonsense", [None, "fly", "Go forward", "", ["go forward"], 7])
def test_an_answer_that_is_no_action_is_the_default_and_recorded_as_such(nonsense):
    (one,) = episodes(Saying(nonsense), seeds="0:1")
    assert one.n_invalid == len(one.steps) > 0
    assert {step.result.action_executed for step in one.steps} == {"go forward"}
    assert {step.result.action_valid for step in one.steps} == {False}
    assert all(step.choice.action == nonsense for step in one.steps)


def test_running_out_of_steps_is_neither_success_nor_failure():
    (one,) = episodes(Saying("turn left"), seeds="1:2")
    assert (len(one.steps), one.outcome) == (64, Outcome.TRUNCATED)
    assert one.metrics == {"progression": 0.0, "episode_return": 0.0}


def test_a_fault_ends_its_episode_without_metrics_and_the_others_go_on():
    played = episodes(Down(at=3, seeds=(2,)))
    assert [one.outcome for one in played] == [
        Outcome.TRUNCATED,
        Outcome.TRUNCATED,
        Outcome.ERROR,
        Outcome.TRUNCATED,
    ]
    failed = played[2]
    assert (len(failed.steps), failed.metrics, failed.feedback) == (3, {}, ())
    assert failed.fault == Fault(FaultKind.SERVER, "down")


def test_feedback_that_cannot_be_logged_makes_the_episode_an_error():
    class Unheard(Expert):
        async def conclude(self, episode_id, metrics, tags):
            raise Faulty(Fault(FaultKind.NOT_STORED, "the database is gone"))

    (one,) = episodes(Unheard(), seeds="0:1")
    assert (one.outcome, one.metrics, one.fault.kind) == (Outcome.ERROR, {}, FaultKind.NOT_STORED)


def test_a_run_whose_first_episodes_all_fail_alike_gives_up():
    policy = Down()
    with pytest.raises(ServiceError, match="5 episodes in a row ended by server error: down"):
        episodes(policy, seeds="0:200", concurrency=2)
    assert policy.n_asked <= GIVE_UP_AT_START + 1


def test_a_run_that_began_well_bears_more_failures_before_it_gives_up():
    order = [job.seed for job in plan(seeds="0:60").jobs()]
    with pytest.raises(ServiceError, match="20 episodes in a row"):
        episodes(Down(seeds=order[1:]), seeds="0:60", concurrency=10)
    played = episodes(Down(seeds=order[1:20]), seeds="0:60", concurrency=10)
    assert sum(one.fault is None for one in played) == 41


def test_as_many_episodes_are_open_as_requests_may_be_in_flight():
    class Slow(Scripted):
        now = most = 0

        async def act(self, situation):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.001)
            self.now -= 1
            return Choice("go forward")

    policy = Slow()
    episodes(policy, seeds="0:20", concurrency=7)
    assert policy.most == 7


def test_a_stopped_run_logs_whole_what_was_over_and_nothing_of_the_rest():
    class Logged(Expert):
        def __init__(self):
            self.begun, self.logged = [], []

        async def act(self, situation):
            if situation.job.seed != 0:
                await asyncio.sleep(60)
            return await super().act(situation)

        async def conclude(self, episode_id, metrics, tags):
            for name in metrics:
                self.begun.append(name)
                stop.set()
                await asyncio.sleep(0.05)
                self.logged.append(name)
            return ()

    async def interrupted():
        task = asyncio.create_task(play(plan(), {"a": policy}, on_played=played.append))
        await stop.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    policy, played, stop = Logged(), [], asyncio.Event()
    asyncio.run(interrupted())
    assert policy.logged == ["progression", "episode_return"]
    assert [(one.job.seed, one.outcome) for one in played] == [(0, Outcome.SUCCESS)]


def test_unknown_tasks_and_missing_policies_are_refused_before_anything_is_played():
    with pytest.raises(RequestError, match="no task 'fly'"):
        episodes(Expert(), tasks=("goto", "fly"))
    with pytest.raises(RequestError, match="no policy is given for variant 'b'"):
        episodes(Expert(), variants=("a", "b"))
    with pytest.raises(RequestError, match="no environment 'chess'"):
        episodes(Expert(), env_id="chess")


class World:
    """A world that fails, never ends or takes its time, as told; counts how many of it are open."""

    env_id = "world"
    n_open = most_open = n_made = 0

    def __init__(self, task):
        self.task = task
        type(self).n_open += 1
        type(self).n_made += 1
        type(self).most_open = max(World.most_open, World.n_open)
        self.is_closed = False

    def reset(self, seed):
        self.seed, self.n = seed, 0
        if self.task == "no reset":
            raise RolloutError(f"world cannot begin, seed {seed}")
        return Start("go on", "a wall", "00")

    def step(self, text):
        self.n += 1
        if self.task == "fails" and self.n == 3:
            raise RolloutError("world broke at step 3", hint="mend it")
        if self.task == "slow":
            time.sleep(0.01)
        return Result("a wall", 0.5, self.task == "ends" and self.n == 4, False, text or "", True)

    def legal_actions(self):
        return ("on",)

    def statistics(self):
        if self.task == "no statistics":
            raise RolloutError("world cannot count")
        return {"n": float(self.n)}

    def close(self):
        assert not self.is_closed
        self.is_closed = True
        type(self).n_open -= 1


@pytest.fixture
def world(monkeypatch):
    World.n_open = World.most_open = World.n_made = 0
    tasks = ("ends", "endless", "fails", "slow", "no reset", "no statistics")
    info = EnvironmentInfo("world", tasks, None, "n >= 4", World)
    monkeypatch.setattr(runner, "typed_environment", lambda env_id, settings: info)

    def play(task, policy=None, **changes):
        made = {"env_id": "world", "tasks": (task,) if isinstance(task, str) else task, **changes}
        return episodes(policy or Saying("on"), **made)

    return play


@pytest.mark.parametrize(
    ("task", "message", "n_steps"),
    [
        ("fails", "world broke at step 3 (mend it)", 2),
        ("no reset", "world cannot begin, seed 0", 0),
        ("no statistics", "world cannot count", 5),
    ],
)
def test_an_environment_that_fails_ends_its_episode_and_never_looks_like_a_bad_agent(
    task, message, n_steps, world
):
    class Logged(Saying):
        concluded = []

        async def conclude(self, episode_id, metrics, tags):
            self.concluded.append(episode_id)
            return ()

    (one,) = world(task, Logged("on"), seeds="0:1", max_steps=5)
    assert one.fault == Fault(FaultKind.ENVIRONMENT, message, is_lasting=True)
    assert (len(one.steps), one.metrics, one.outcome) == (n_steps, {}, Outcome.ERROR)
    assert Logged.concluded == []
    assert World.n_open == 0


def test_an_environment_that_fails_every_time_stops_the_run(world):
    with pytest.raises(RolloutError, match="5 episodes in a row ended by environment error") as caught:
        world("no reset", seeds="0:100", concurrency=2)
    assert "check-env" in caught.value.hint
    assert World.n_made < 10


def test_an_episode_that_never_ends_is_cut_off_by_the_steps_allowed(world):
    (one,) = world("endless", seeds="0:1", max_steps=7)
    assert (len(one.steps), one.steps[-1].result.truncated, one.metrics["n"]) == (7, True, 7.0)
    assert one.outcome == Outcome.SUCCESS  # by its metric
    (one,) = world("ends", seeds="0:1", max_steps=4)
    assert (one.steps[-1].result.terminated, one.steps[-1].result.truncated) == (True, False)


def test_an_episode_that_takes_too_long_is_an_error_whoever_takes_the_time(world):
    class Slow(Saying):
        async def act(self, situation):
            await asyncio.sleep(0.01)
            return await super().act(situation)

    for task, policy in (("slow", None), ("endless", Slow("on"))):
        began = time.monotonic()
        (one,) = world(task, policy, seeds="0:1", episode_timeout_s=0.5)
        assert one.fault == Fault(FaultKind.EPISODE_TIMEOUT, "not finished after 0.5 s")
        assert (one.metrics, 2 < len(one.steps) < 60) == ({}, True)  # of 50; few on a busy machine
        assert time.monotonic() - began < 30


def test_no_more_environments_are_open_than_episodes_are_played(world):
    class Yielding(Saying):
        async def act(self, situation):
            await asyncio.sleep(0)
            return await super().act(situation)

    played = world(("ends", "endless", "fails"), Yielding("on"), seeds="0:40", concurrency=6, max_steps=5)
    assert len(played) == 120
    assert World.most_open == 6
    assert World.n_open == 0
    assert World.n_made < 120 - 20  # most were used again


def test_steps_that_a_clock_put_out_of_order_end_the_episode():
    """The clock of the gateway's machine is set back by an hour before the fourth step."""

    class SetBack(Saying):
        async def act(self, situation):
            moment = (
                1_800_000_000_000 + situation.step_index - (3_600_000 if situation.step_index >= 3 else 0)
            )
            inference_id = str(uuid.UUID(int=moment << 80 | 0x7 << 76 | 0b10 << 62))
            answer = Answer(
                inference_id=inference_id,
                function_name="act",
                variant_name="a",
                input=None,
                raw="",
                n_input_tokens=1,
                n_output_tokens=1,
                finish_reason=None,
                latency_s=0.0,
                started_at=datetime.fromtimestamp(moment / 1000, tz=UTC),
            )
            return Choice("turn left", answer)

    (one,) = episodes(SetBack(None), seeds="1:2")
    assert (one.fault.kind, len(one.steps), one.metrics) == (FaultKind.CLOCK, 3, {})
    assert one.fault.message.startswith("the clock was set back: inference 01a31825-6183-")


def test_a_limit_ends_the_run_cleanly_and_what_was_over_is_logged(world):
    class Paid(Saying):
        def __init__(self):
            super().__init__("on")
            self.caller = Caller(concurrency=4, timeout_s=5, retries=0, budget=Budget(Limits(max_calls=30)))
            self.concluded = []

        async def act(self, situation):
            async def attempt():
                await asyncio.sleep(0.001)
                return await super(Paid, self).act(situation)

            return await self.caller.call(attempt)

        async def conclude(self, episode_id, metrics, tags):
            self.concluded.append(episode_id)
            return ()

    async def run():
        return await play(
            plan(env_id="world", tasks=("ends",), seeds="0:100", concurrency=4),
            {"a": policy},
            on_played=played.append,
            on_begun=lambda job, episode_id: begun.append(episode_id),
            budget=policy.caller.budget,
        )

    policy, played, begun = Paid(), [], []
    reached = asyncio.run(run())
    assert str(reached) == "--max-calls is reached: 30 calls"
    assert policy.caller.budget.n_calls == 30
    assert {one.fault for one in played} == {None}
    assert sorted(one.episode_id for one in played) == sorted(policy.concluded)
    assert 4 <= len(played) <= 7  # 30 calls are 7 episodes of 4 steps at most; 4 at a time share them
    assert len(begun) - len(played) <= 4


def test_what_was_played_before_is_left_out():
    before = {job for job in plan(seeds="0:8").jobs() if job.seed % 2}
    played = []
    asyncio.run(
        play(plan(seeds="0:8"), {"a": Expert()}, on_played=played.append, is_done=lambda job: job in before)
    )
    assert sorted(one.job.seed for one in played) == [0, 2, 4, 6]


def test_a_run_leaves_no_thread_behind():
    before = threading.active_count()
    episodes(Expert())
    assert threading.active_count() == before
