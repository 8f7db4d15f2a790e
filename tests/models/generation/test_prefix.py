"""What prompts begin with is computed once."""

from __future__ import annotations

from typing import Any

import pytest

from trajkit.models.generation.ask import Ask
from trajkit.models.generation.generate import generate
from trajkit.models.generation.model import LocalModel, Voice


def ask(text: str, **how: Any) -> Ask:
    messages = [{"role": "system", "content": "You play a game. " * 20}, {"role": "user", "content": text}]
    return Ask(**{"messages": messages, "temperature": 0.0, "max_new_tokens": 3, **how})


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens a row the model reads at a time."""
    seen: list[int] = []
    call = Voice.__call__

    def noted(self: Voice, tokens: Any, *rest: Any) -> Any:
        seen.append(tokens.shape[1])
        return call(self, tokens, *rest)

    monkeypatch.setattr(Voice, "__call__", noted)
    return seen


def test_a_beginning_that_was_read_is_not_read_again(fresh: LocalModel, widths: list[int]) -> None:
    first = generate(fresh, [ask("a ball"), ask("a key and a door")])
    whole = widths[0]
    assert whole == max(each.n_input_tokens for each in first)
    widths.clear()
    again = generate(fresh, [ask("a ball"), ask("a key and a door")])
    assert widths[0] < whole / 3
    assert [each.tokens for each in again] == [each.tokens for each in first]


def test_equal_prompts_of_a_batch_are_read_once(fresh: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = [ask("Go to the red ball.", temperature=1.0, seed=seed) for seed in (1, 2)]
    asks.append(ask("Open the door.", temperature=1.0, seed=3))
    alone = [generate(fresh, [each])[0] for each in asks]
    n_rows: list[int] = []
    call = Voice.__call__

    def counted(voice: Voice, tokens: Any, *more: Any) -> Any:
        n_rows.append(tokens.shape[0])
        return call(voice, tokens, *more)

    monkeypatch.setattr(Voice, "__call__", counted)
    together = generate(fresh, asks)
    assert n_rows[:2] == [2, 3]
    assert [each.tokens for each in together] == [each.tokens for each in alone]


def test_each_adapter_has_its_own(fresh: LocalModel, widths: list[int]) -> None:
    generate(fresh, [ask("a ball", model="one")])
    whole = widths[0]
    widths.clear()
    generate(fresh, [ask("a ball", model="two")])
    assert widths[0] == whole
    fresh.forget()
    widths.clear()
    generate(fresh, [ask("a ball", model="one")])
    assert widths[0] == whole


def test_a_conversation_that_goes_on_reads_only_what_is_new(fresh: LocalModel, widths: list[int]) -> None:
    messages = list(ask("a ball").messages)
    for turn in range(3):
        said = generate(fresh, [Ask(messages, temperature=0, max_new_tokens=8)])[0]
        assert turn == 0 or widths[0] < said.n_input_tokens / 2
        messages += [
            {"role": "assistant", "content": said.text},
            {"role": "user", "content": "go on " * turn},
        ]
        widths.clear()


def test_old_beginnings_make_room(fresh: LocalModel) -> None:
    for number in range(40):
        generate(
            fresh, [Ask([{"role": "user", "content": f"{number} {number * 7} " * 20}], max_new_tokens=1)]
        )
    assert len(fresh.voice(None).prefixes._kept) == 16
