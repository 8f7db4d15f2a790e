import asyncio

import pytest

from trajkit.environments import make
from trajkit.errors import RequestError
from trajkit.rollouts.plan import Job
from trajkit.rollouts.policies import Expert, NoisyExpert, Policy, Random, Situation


def situation(task="goto", seed=3, step_index=0) -> Situation:
    environment = make("babyai", task)
    start = environment.reset(seed)
    job = Job("a", task, seed)
    return Situation(job, "episode", step_index, start.mission, start.observation, (), environment, {})


def actions(policy: Policy, *, task="goto", seed=3, n=12) -> list:
    """What a policy does in an episode of at most `n` steps."""
    now, chosen = situation(task, seed), []
    for step in range(n):
        choice = asyncio.run(policy.act(now._replace(step_index=step)))
        assert choice.answer is None
        chosen.append(choice.action)
        result = now.environment.step(choice.action)
        if result.terminated or result.truncated:
            break
    return chosen


@pytest.mark.parametrize("policy", [lambda seed: Random(seed), lambda seed: NoisyExpert(seed, 0.5)])
def test_what_is_sampled_follows_from_run_seed_task_seed_and_step(policy):
    assert actions(policy(0)) == actions(policy(0))
    assert actions(policy(0), n=12) != actions(policy(1), n=12)
    assert actions(policy(0), seed=3) != actions(policy(0), seed=4)


def test_random_actions_are_fixed_for_ever():
    # sha256("str:random\\x1fint:0\\x1fstr:goto\\x1fint:3\\x1fint:STEP"), first 8 bytes, modulo 2^31, modulo 6
    assert actions(Random(0), n=6) == [*["go forward"] * 4, "turn left", "pick up"]


def test_a_random_policy_takes_every_action():
    now = situation()
    taken = {asyncio.run(Random(0).act(now._replace(step_index=step))).action for step in range(100)}
    assert taken == set(now.environment.legal_actions())


def test_the_expert_solves_what_it_is_given():
    for seed in range(5):
        now = situation("open", seed)
        while True:
            result = now.environment.step(asyncio.run(Expert().act(now)).action)
            if result.terminated or result.truncated:
                break
        assert now.environment.statistics() == {"progression": 1.0}


def test_an_expert_without_noise_is_the_expert_and_with_all_noise_random():
    assert actions(NoisyExpert(0, 0.0), task="open") == actions(Expert(), task="open")
    assert actions(NoisyExpert(0, 1.0)) == actions(Random(0))


def test_an_environment_without_an_expert_says_so():
    class Mute:
        env_id, task = "mute", "none"

    with pytest.raises(RequestError, match="mute has no expert"):
        asyncio.run(Expert().act(situation()._replace(environment=Mute())))
