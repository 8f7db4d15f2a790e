from __future__ import annotations

import pytest

from trajkit.errors import RequestError
from trajkit.rollouts.decoding import Decoding, as_decoding
from trajkit.rollouts.options import Options
from trajkit.rollouts.plan import Job, Plan
from trajkit.rollouts.session import prepare


@pytest.mark.parametrize(
    ("typed", "parameters", "shown"),
    [
        ("greedy", {"temperature": 0.0}, "greedy"),
        ("temperature=0", {"temperature": 0.0}, "greedy"),
        ("temperature=1", {"temperature": 1.0}, "temperature=1"),
        (" top_p=0.9, temperature=0.7", {"temperature": 0.7, "top_p": 0.9}, "temperature=0.7,top_p=0.9"),
        ("config", {}, "config"),
    ],
)
def test_a_decoding_is_read_and_written_as_it_is_typed(typed, parameters, shown):
    decoding = as_decoding(typed)
    assert (decoding.parameters, str(decoding)) == (parameters, shown)
    assert as_decoding(shown) == decoding


@pytest.mark.parametrize(
    "typed", ["", "hot", "temperature", "temperature=warm", "temperature=-1", "top_p=0", "top_k=5",
              "temperature=nan", "temperature=1,temperature=2"],
)  # fmt: skip
def test_what_is_no_decoding_is_refused(typed):
    with pytest.raises(RequestError, match="is not a decoding"):
        as_decoding(typed)


def plan(**options) -> Plan:
    fields = {"env_id": "babyai", "tasks": ("goto",), "variants": ("a", "b"), "seeds": "0:3", "run": "r"}
    return Plan(**fields | options)


def test_every_variant_plays_every_world_with_every_decoding():
    made = plan(decodings=("greedy", "temperature=1"))
    jobs = list(made.jobs())
    assert sorted(jobs) == sorted(
        Job(variant, "goto", seed, decoding)
        for variant in "ab"
        for seed in range(3)
        for decoding in ("greedy", "temperature=1")
    )
    assert made.n_jobs == made.n_episodes == 12
    assert len(set(plan(tasks=("goto", "open")).jobs())) == 12
    assert sorted(map(made.position, jobs)) == list(range(12))
    assert {made.decoding(job) for job in jobs} == {Decoding(temperature=0), Decoding(temperature=1)}
    assert made.tags(jobs[0])["trajkit.decoding"] == jobs[0].decoding


def test_a_plan_that_fixes_none_is_what_it_was_before():
    made = plan()
    job = next(iter(made.jobs()))
    assert (len(job.parts), made.decoding(job)) == (3, Decoding())
    assert "trajkit.decoding" not in made.tags(job)
    assert made.model_dump(mode="json")["decodings"] == []
    shards = [plan(shard=f"{number}/3") for number in (1, 2, 3)]
    assert sorted(job for one in shards for job in one.jobs()) == sorted(plan().jobs())


def test_a_way_to_draw_is_played_once_and_by_those_who_draw():
    options = {"env_id": "babyai", "tasks": ("goto",), "seeds": "0:2"}
    local = {"policy": "local", "model": "sample:tiny-base", "decodings": ("greedy", "temperature=0")}
    assert prepare(Options.model_validate(options | local)).plan.decodings == (Decoding(temperature=0),)
    with pytest.raises(RequestError, match="the policy expert takes no decoding"):
        prepare(Options.model_validate(options | {"policy": "expert", "decodings": ("greedy",)}))
