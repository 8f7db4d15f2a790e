from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from trajkit.cli.main import run
from trajkit.errors import RequestError
from trajkit.formats.validation.prices import load_prices


def test_a_tuned_model_has_the_price_of_what_it_was_tuned_from() -> None:
    prices = load_prices()
    tuned = prices.find("ft:gpt-4.1-mini-2025-04-14:my-org:name:id")
    assert tuned == prices.find("gpt-4.1-mini")
    assert tuned.usd_per_million_tokens == 5
    assert tuned.encoding == "o200k_base"  # tiktoken 0.14 takes the prefix for gpt-4's
    assert tuned.shutdown_on == date(2027, 1, 14)


def test_an_unknown_model_has_no_price() -> None:
    assert load_prices().find("gpt-6-luna") is None


def test_every_source_is_explained() -> None:
    prices = load_prices()
    assert {source for model in prices.models for source in model.sources} <= set(prices.sources)


def test_the_users_prices_go_first(tmp_path: Path) -> None:
    own = tmp_path / "prices.yaml"
    own.write_text(
        "as_of: 2026-11-01\nmodels:\n- {name: gpt-4.1-mini, usd_per_million_tokens: 7}\n- {name: mine}\n"
    )
    prices = load_prices(own)
    assert [prices.find(name).usd_per_million_tokens for name in ("gpt-4.1-mini", "mine", "gpt-4.1")] == [
        7,
        None,
        25,
    ]
    assert prices.as_of == date(2026, 11, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: []", "as_of"),
        ("as_of: 2026-01-01\nmodels: [{name: a, price: 3}]", "models.0.price"),
        ("as_of: [", "is not valid YAML"),
    ],
)
def test_a_bad_file_of_prices_is_named(tmp_path: Path, text: str, message: str) -> None:
    own = tmp_path / "prices.yaml"
    own.write_text(text)
    with pytest.raises(RequestError, match=message):
        load_prices(own)


def test_a_broken_file_of_prices_is_an_error_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "prices.yaml"
    asked = ["tokens", "sample:babyai", "--model", "gpt-4.1-mini", "--tokenizer", "estimate"]
    for text in ("[" * 3000, "as_of: 2026-13-45", "as_of: " + "9" * 5000):
        own.write_text(text)
        assert run([*asked, "--prices", str(own)]) == 2
        assert f"error: {own} is " in capsys.readouterr().err
    own.unlink()
    os.mkfifo(own)
    assert run([*asked, "--prices", str(own)]) == 2
    assert "is a FIFO, not a regular file" in capsys.readouterr().err
