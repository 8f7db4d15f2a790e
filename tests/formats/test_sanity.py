"""What makes no sense in a conversation is named."""

from __future__ import annotations

import pytest

from tests.formats.exchange import call, conversation, result, say
from trajkit.formats.reading.sanity import problems
from trajkit.schema import Episode, Transition


def talk(*steps: tuple[list, object], kept: bool = True) -> Episode:
    made = []
    n_said = 0
    for index, (new, answer) in enumerate(steps):
        made.append(
            Transition(
                step_index=index,
                n_prompt_kept=n_said if kept else 0,
                messages=tuple(new),
                completion=answer,
            )
        )
        n_said += len(new) + 1
    return Episode(episode_id="e", source="test", steps=tuple(made))


ASK = say("user", "x")


def test_a_conversation_that_makes_sense_has_no_problem():
    assert list(problems(conversation())) == []
    assert list(problems(talk(([say("system", "r"), ASK], say("assistant", "a")), kept=False))) == []


@pytest.mark.parametrize(
    ("episode", "words"),
    [
        (talk(), "steps: no message of the assistant"),
        (talk(([ASK], say("assistant"))), "steps.0.completion: an answer that says nothing"),
        (talk(([ASK], say("assistant", ""))), "steps.0.completion: an answer that says nothing"),
        (talk(([say("user")], say("assistant", "a"))), "steps.0.messages.0: an empty message of the user"),
        (
            talk(([ASK, say("system", "r")], say("assistant", "a"))),
            "steps.0.messages.1: a message of the system in the middle 'r'",
        ),
        (
            talk(([ASK], say("assistant", call("c"), call("c")))),
            "steps.0.completion.content.1.id: a tool call id that is there twice 'c'",
        ),
        (
            talk(([ASK], say("assistant", call("c"))), ([ASK], say("assistant", call("c")))),
            "steps.1.completion.content.0.id: a tool call id that is there twice 'c'",
        ),
        (
            talk(([ASK, say("tool", result("z", "x"))], say("assistant", "a"))),
            "steps.0.messages.1.content.0.id: a tool result without its call 'z'",
        ),
    ],
)
def test_what_makes_no_sense_is_named_with_its_place(episode, words):
    assert str(next(problems(episode))) == words


def test_an_id_may_come_again_when_its_result_is_there():
    answered = [say("tool", result("c", "x"))]
    episode = talk(([ASK], say("assistant", call("c"))), (answered, say("assistant", call("c"))))
    assert list(problems(episode)) == []


def test_a_prompt_that_is_written_anew_begins_with_its_own_system_message():
    again = ([say("system", "r"), ASK], say("assistant", "a"))
    assert list(problems(talk(again, again, kept=False))) == []
    assert [one.kind for one in problems(talk(again, again))] == ["a message of the system in the middle"]


def test_the_system_may_speak_anywhere_where_a_format_allows_it():
    episode = talk(([ASK, say("system", "r")], say("assistant", "a")))
    assert list(problems(episode, allows_system_anywhere=True)) == []
