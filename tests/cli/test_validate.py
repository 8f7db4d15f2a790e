from __future__ import annotations

import json
from pathlib import Path

import pytest

from trajkit.cli.main import run

ROW = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}


@pytest.fixture(autouse=True)
def _files() -> None:
    Path("good.jsonl").write_text((json.dumps(ROW) + "\n") * 10)
    Path("bad.jsonl").write_text((json.dumps(ROW | {"id": 1}) + "\n") * 10)


def test_a_good_file_would_be_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "good.jsonl", "--target", "openai"]) == 0
    assert capsys.readouterr().out == (
        "good.jsonl  10 rows  900 B  0 errors, 0 warnings: would be accepted by openai\n"
    )


def test_a_bad_file_is_exit_1_with_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "bad.jsonl", "--target", "openai"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "error: line 1 $.id: extra key: 1"
    assert lines[1] == "    openai takes messages, parallel_tool_calls, tools"
    assert lines[-2:] == [
        "and 5 more: extra key",
        "bad.jsonl  10 rows  990 B  10 errors, 0 warnings: would be refused by openai",
    ]


def test_a_repair_goes_into_a_copy(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("bad.jsonl").read_bytes()
    assert run(["validate", "bad.jsonl", "--target", "openai", "--fix", "-o", "copy.jsonl"]) == 0
    assert "repaired: extra key 'id' removed: 10" in capsys.readouterr().err
    assert Path("bad.jsonl").read_bytes() == before
    assert run(["validate", "copy.jsonl", "--target", "openai"]) == 0


def test_a_repair_needs_a_copy() -> None:
    assert run(["validate", "bad.jsonl", "--target", "openai", "--fix"]) == 2
    assert run(["validate", "bad.jsonl", "--target", "openai", "-o", "copy.jsonl"]) == 2
    assert run(["validate", "bad.jsonl", "--target", "openai", "--max-length", "3"]) == 2


def test_the_findings_come_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "bad.jsonl", "--target", "openai", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["n_errors"] == 10
    assert found["findings"][0]["path"] == "$.id"


def test_tokens_are_priced(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokens", "good.jsonl", "--model", "gpt-4.1-mini", "--tokenizer", "estimate"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0].startswith("by estimate (an estimate)")
    assert printed.out.splitlines()[-1] == (
        "gpt-4.1-mini-2025-04-14: 330 tokens in 3 epochs  less than 0.01 USD (prices of 2026-11-21)"
    )
    assert "end on 2027-01-14" in printed.err


def test_an_unknown_price_stays_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["tokens", "good.jsonl", "--model", "gpt-6-luna", "--tokenizer", "estimate", "--epochs", "1"]
    assert run(arguments) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "gpt-6-luna: 110 tokens in 1 epoch  price unknown"
    assert "--prices" in printed.err


def test_what_is_measured_must_be_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokens", "good.jsonl", "--model", "gpt-4.1-mini", "--measure"]) == 2
    assert "folder" in capsys.readouterr().err
