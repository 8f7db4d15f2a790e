from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.formats.validation.rows import MARKED, chat
from trajkit.errors import RequestError
from trajkit.formats.validation.prices import load_prices
from trajkit.formats.validation.tokens import TokenCount, count_tokens

TODAY = date(2026, 11, 21)


@pytest.fixture
def count(tmp_path: Path) -> Callable[..., TokenCount]:
    """Count ten rows of 3 + (3 + 1) + (3 + 2) tokens by the estimate."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(chat("four", "eight---")) + "\n" for _ in range(10)))

    def run(model: str = "gpt-4.1-mini", **options: Any) -> TokenCount:
        given = {"target": "openai", "tokenizer": "estimate", "n_epochs": 3, "today": TODAY, **options}
        return count_tokens(path, model=model, prices=load_prices(), **given)

    return run


def test_the_price_is_tokens_times_epochs(count: Callable[..., TokenCount]) -> None:
    found = count()
    assert found.n_trained_tokens == 10 * 12 * 3
    assert found.n_learned_tokens == 10 * 2 * 3
    assert found.cost_usd == pytest.approx(360 / 1e6 * 5)
    assert found.price_as_of == TODAY
    assert found.shutdown_on == date(2027, 1, 14)


def test_what_is_beyond_the_limit_is_not_billed(count: Callable[..., TokenCount]) -> None:
    found = count(max_length=11)
    assert found.n_trained_tokens == 10 * 11 * 3
    assert found.n_learned_tokens == 10 * 1 * 3
    assert any("10 errors" in note for note in found.notes)


def test_an_unknown_model_has_no_made_up_price(count: Callable[..., TokenCount]) -> None:
    found = count("gpt-6-luna", target="openai")
    assert found.cost_usd is None
    assert any("no price of 'gpt-6-luna'" in note for note in found.notes)


@pytest.mark.parametrize(
    ("model", "today", "words"),
    [
        ("gpt-4.1-nano", TODAY, "was shut down on 2026-10-23"),
        ("gpt-4.1-mini", TODAY, "end on 2027-01-14"),
        (
            "gpt-4.1-mini",
            date(2027, 1, 7),
            "no job on gpt-4.1-mini-2025-04-14 can be created since",
        ),
        ("gpt-3.5-turbo", date(2026, 1, 1), "no price of gpt-3.5-turbo is known"),
    ],
)
def test_the_end_of_a_model_is_said(
    count: Callable[..., TokenCount], model: str, today: date, words: str
) -> None:
    assert any(words in note for note in count(model, today=today).notes)


def test_without_the_vocabulary_the_count_is_a_marked_estimate(
    count: Callable[..., TokenCount], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # a proxy that refuses at once: this must not depend on what the machine can reach
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    found = count(tokenizer=None)
    assert found.loss.tokenizer == "estimate"
    assert not found.loss.is_exact
    assert any("vocabulary of o200k_base is not on this machine" in note for note in found.notes)


def test_a_model_on_this_machine_costs_nothing_and_counts_for_itself(
    count: Callable[..., TokenCount], make_tokenizer: Callable[[str | None], str]
) -> None:
    folder = make_tokenizer(MARKED)
    found = count(folder, target="trl", tokenizer=None, measure=lambda model: 100.0)
    assert found.cost_usd == 0
    assert found.loss.is_exact
    assert found.seconds == found.n_trained_tokens / 100


def test_a_model_that_is_neither_known_nor_here_says_so(count: Callable[..., TokenCount]) -> None:
    with pytest.raises(RequestError, match="no tokenizer in"):
        count("./nothing-here", tokenizer=None)
