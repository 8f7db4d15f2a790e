from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.formats.validation.rows import ENDLESS, MARKED, PLAIN, Check, called, chat
from trajkit.errors import RequestError

Make = Callable[[str | None], str]
# In bytes: "<|im_start|>user\n" is 1 + 5, "hi" 2, "<|im_end|>" 1; "<|im_start|>assistant\n" is 1 + 10.
PROMPT, ASK = 1 + 5 + 2 + 1, 1 + 10


def test_what_the_assistant_says_and_its_end_carry_loss(check: Check, make_tokenizer: Make) -> None:
    loss = check(chat("hi", "yo"), tokenizer=make_tokenizer(MARKED)).loss
    assert (loss.n_tokens, loss.n_learned, loss.n_endless) == (PROMPT + ASK + 3, 3, 0)
    assert loss.is_exact


def test_a_template_without_marks_is_told_by_what_it_writes_more(check: Check, make_tokenizer: Make) -> None:
    found = check(chat("hi", "yo", "hi", "yes"), tokenizer=make_tokenizer(PLAIN)).loss
    marked = check(chat("hi", "yo", "hi", "yes"), tokenizer=make_tokenizer(MARKED)).loss
    assert (found.n_tokens, found.n_learned) == (marked.n_tokens, marked.n_learned)
    assert found.n_learned == 3 + 4
    assert "no generation marks" in found.notes[0]


def test_an_answer_of_weight_0_carries_no_loss(check: Check, make_tokenizer: Make) -> None:
    row = chat("hi", "yo", "hi", "yes")
    row["messages"][1]["weight"] = 0
    loss = check(row, target="together", tokenizer=make_tokenizer(MARKED)).loss
    assert loss.n_learned == 4


def test_an_end_outside_the_mark_is_found(check: Check, make_tokenizer: Make) -> None:
    found = check(chat(), tokenizer=make_tokenizer(ENDLESS))
    assert found.counts == {"the end of the answer is not learned": 1}
    assert found.loss.n_endless == 1


@pytest.mark.parametrize(
    ("limit", "kind", "n_kept"),
    [
        (PROMPT + ASK + 3, None, 3),
        (PROMPT + ASK + 1, "the answer is cut off", 1),
        (PROMPT + ASK, "the whole answer is cut off", 0),
    ],
)
def test_a_limit_never_takes_the_answer_in_silence(
    check: Check, make_tokenizer: Make, limit: int, kind: str | None, n_kept: int
) -> None:
    found = check(chat("hi", "yo"), tokenizer=make_tokenizer(MARKED), max_length=limit)
    assert set(found.counts) == ({kind} if kind else set())
    assert found.loss.n_kept == n_kept
    assert found.loss.n_answers_gone == (kind == "the whole answer is cut off")


@pytest.mark.parametrize(
    ("row", "n_learned"),
    [
        (
            {
                "prompt": [{"role": "user", "content": "hi"}],
                "completion": [{"role": "assistant", "content": "yo"}],
            },
            3,
        ),
        ({"prompt": "hi", "completion": " yo"}, 4),
        ({"text": "hi yo"}, 6),
        ({"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}, 2),
        ({"input_ids": [1, 2, 3], "completion_mask": [0, 1, 1], "assistant_masks": [1, 1, 0]}, 1),
        (
            {
                "prompt": [{"role": "user", "content": "hi"}],
                "chosen": [{"role": "assistant", "content": "yo"}],
                "rejected": [{"role": "assistant", "content": "nope"}],
            },
            3 + 5,
        ),
    ],
)
def test_the_tokens_of_every_kind_of_row(
    check: Check, make_tokenizer: Make, row: dict[str, Any], n_learned: int
) -> None:
    loss = check(row, tokenizer=make_tokenizer(MARKED)).loss
    assert loss.n_learned == n_learned


def test_a_tokenizer_without_a_template_refuses_conversations(check: Check, make_tokenizer: Make) -> None:
    found = check(chat(), tokenizer=make_tokenizer(None))
    assert found.counts == {"the row cannot be written": 1}
    assert check({"text": "hi"}, tokenizer=make_tokenizer(None)).counts == {}


def test_a_row_that_the_template_refuses_is_named(check: Check, make_tokenizer: Make) -> None:
    found = check(called(arguments={}), tokenizer=make_tokenizer("{{ raise_exception('no tools') }}"))
    (finding,) = found.findings
    assert (finding.line, finding.kind) == (1, "the row cannot be written")
    assert "no tools" in finding.value


def test_an_estimate_says_that_it_is_one(check: Check) -> None:
    loss = check(*[chat("four", "eight---")] * 10, target="openai", tokenizer="estimate").loss
    assert not loss.is_exact
    # 3 before the reply, 3 for each message, a token for four characters
    assert (loss.n_tokens, loss.n_learned) == (10 * (3 + 3 + 1 + 3 + 2), 10 * 2)
    assert "estimate" in loss.notes[0]


def test_a_tokenizer_that_is_not_there_says_what_may_be_named(check: Check, tmp_path: Any) -> None:
    with pytest.raises(RequestError) as caught:
        check(chat(), tokenizer=str(tmp_path))
    assert "tokenizer.json" in (caught.value.hint or "")
