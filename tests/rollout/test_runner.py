import asyncio
import threading

import pytest

from trajkit.errors import RequestError, ServiceError
from trajkit.rollout.faults import Fault, FaultKind, Faulty
from trajkit.rollout.plan import Plan
from trajkit.rollout.policies import Choice, Expert, Random, Scripted
from trajkit.rollout.runner import GIVE_UP_AT_START, play
from trajkit.schema import Outcome


def plan(**changes) -> Plan:
    values = {"env_id": "babyai", "tasks": ("goto",), "variants": ("a",), "seed_start": 0, "seed_stop": 4}
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
    (one,) = episodes(Saying(nonsense), seed_stop=1)
    assert one.n_invalid == len(one.steps) > 0
    assert {step.result.action_executed for step in one.steps} == {"go forward"}
    assert {step.result.action_valid for step in one.steps} == {False}
    assert all(step.choice.action == nonsense for step in one.steps)


def test_running_out_of_steps_is_neither_success_nor_failure():
    (one,) = episodes(Saying("turn left"), seed_start=1, seed_stop=2)
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

    (one,) = episodes(Unheard(), seed_stop=1)
    assert (one.outcome, one.metrics, one.fault.kind) == (Outcome.ERROR, {}, FaultKind.NOT_STORED)


def test_a_run_whose_first_episodes_all_fail_alike_gives_up():
    policy = Down()
    with pytest.raises(ServiceError, match="5 episodes in a row ended by server error: down"):
        episodes(policy, seed_stop=200, concurrency=2)
    assert policy.n_asked <= GIVE_UP_AT_START + 1


def test_a_run_that_began_well_bears_more_failures_before_it_gives_up():
    policy = Down(seeds=range(1, 1000))
    with pytest.raises(ServiceError, match="20 episodes in a row"):
        episodes(policy, seed_stop=200, concurrency=10)
    assert episodes(Down(seeds=range(1, 20)), seed_stop=40, concurrency=10)[39].fault is None


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
    episodes(policy, seed_stop=20, concurrency=7)
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


def test_a_run_leaves_no_thread_behind():
    before = threading.active_count()
    episodes(Expert())
    assert threading.active_count() == before
