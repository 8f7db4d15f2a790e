import pytest
from pydantic import ValidationError

from trajkit.errors import RequestError
from trajkit.rollout.plan import Job, Plan, chosen


def plan(**changes) -> Plan:
    return Plan(
        **(
            {
                "env_id": "babyai",
                "tasks": ("goto", "open"),
                "variants": ("a", "b"),
                "seed_start": 5,
                "seed_stop": 7,
            }
            | changes
        )
    )


def test_every_variant_plays_every_task_and_seed():
    assert plan().n_episodes == 8
    assert len(set(plan().jobs())) == 8


def test_a_run_cut_short_has_played_the_first_seeds_of_everything():
    assert list(plan().jobs())[:4] == [
        Job("a", "goto", 5),
        Job("b", "goto", 5),
        Job("a", "open", 5),
        Job("b", "open", 5),
    ]


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
