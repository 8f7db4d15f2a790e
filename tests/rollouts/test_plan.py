import pytest
from pydantic import ValidationError

from trajkit.errors import RequestError
from trajkit.rollouts.plan import Job, Plan, as_shard, chosen


def plan(**changes) -> Plan:
    values = {"env_id": "babyai", "tasks": ("goto", "open"), "variants": ("a", "b"), "seeds": "5:7"}
    return Plan(**(values | changes))


def test_the_order_is_random_and_follows_from_the_run_seed():
    def order(run_seed):
        return list(plan(seeds="0:50", run_seed=run_seed).jobs())

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2))
    assert [job.seed for job in order(1)] != sorted(job.seed for job in order(1))


def test_a_run_cut_short_has_played_the_same_worlds_with_every_variant():
    jobs = list(plan(seeds="0:100", variants=("a", "b", "c")).jobs())
    for start in range(0, len(jobs), 3):
        worlds = {(job.task, job.seed) for job in jobs[start : start + 3]}
        assert len(worlds) == 1
    # each variant goes first in about a third of the 200 worlds (66.7 ± 6.7)
    first = [job.variant for job in jobs[::3]]
    assert all(45 <= first.count(variant) <= 90 for variant in "abc")
    # and the tasks take turns: goto in the first half of the worlds about as often as open (50 ± 3.5 of 100)
    assert 35 <= sum(job.task == "goto" for job in jobs[:300:3]) <= 65


def test_the_place_of_a_job_does_not_depend_on_the_order():
    made = plan(seeds="0:20:3,100")
    places = [made.position(job) for job in made.jobs()]
    assert sorted(places) == list(range(made.n_jobs))
    assert places == [made.model_copy(update={"run": "other"}).position(job) for job in made.jobs()]
    with pytest.raises(ValueError, match="is not in"):
        made.position(Job("a", "goto", 1))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16])
def test_the_union_of_all_shards_is_the_whole_and_no_job_is_in_two(n):
    whole = list(plan(seeds="0:60").jobs())
    shards = [plan(seeds="0:60", shard=f"{i}/{n}") for i in range(1, n + 1)]
    parts = [list(shard.jobs()) for shard in shards]
    assert sorted(job for part in parts for job in part) == sorted(whole)
    assert [len(part) for part in parts] == [shard.n_episodes for shard in shards]
    assert all(part == [job for job in whole if job in set(part)] for part in parts)
    assert min(len(part) for part in parts) > len(whole) / n / 3


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "3", "1/0", "-1/3", "a/b", "1/3/5"])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(RequestError, match="is not a shard"):
        as_shard(text)


def test_a_plan_is_json_and_back():
    made = plan(seeds="0:1000:7", shard="2/3", decodings=("greedy", "config"))
    assert made.model_dump(mode="json")["seeds"] == "0:1000:7"
    assert made.model_dump(mode="json")["shard"] == "2/3"
    assert Plan.model_validate_json(made.model_dump_json()) == made


def test_a_long_plan_takes_no_room():
    long = plan(seeds="0:1000000000")
    assert long.n_episodes == 4_000_000_000
    jobs = long.jobs()
    assert len({next(jobs) for _ in range(100)}) == 100


def test_episodes_carry_tags_that_name_them():
    a = plan(purpose="eval", run="r1")
    assert a.tags(Job("a", "open", 6)) == {
        "trajkit.env": "babyai",
        "trajkit.task": "open",
        "trajkit.seed": "6",
        "trajkit.purpose": "eval",
        "trajkit.run": "r1",
    }


def test_every_run_has_an_identity_of_its_own():
    assert plan().run != plan().run


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"episode_timeout_s": 0},
        {"max_steps": 0},
        {"tasks": ()},
        {"history": -1},
        {"purpose": "test"},
    ],
)
def test_impossible_choices_are_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        plan(**wrong)


def test_names_are_chosen_once_and_in_the_order_asked():
    known = ("goto", "open", "pickup")
    assert chosen(("open", "goto", "open"), known, noun="task", of="babyai") == ("open", "goto")
    assert chosen(("all",), known, noun="task", of="babyai") == known
    assert chosen(("pickup", "all"), known, noun="task", of="babyai") == ("pickup", "goto", "open")


def test_a_name_that_is_not_known_lists_those_that_are():
    with pytest.raises(RequestError, match="no task 'fly' in babyai") as caught:
        chosen(("fly",), ("goto", "open"), noun="task", of="babyai")
    assert caught.value.hint == "known: goto, open, or all"
