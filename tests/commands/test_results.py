"""What a command returns prints itself: as text, and as the JSON of `--json`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import trajkit
from trajkit.cli.main import run

SAMPLE = "sample:babyai"
SQL = "select task, seed, messages, episodes.started_at from episodes join steps using (episode_id) limit 3"


@pytest.mark.parametrize(
    ("typed", "call"),
    [
        (["mask", SAMPLE, "--dry-run"], lambda: trajkit.mask(SAMPLE, dry_run=True)),
        pytest.param(
            ["pairs", SAMPLE, "--margin", "0.1", "--no-verify", "--dry-run"],
            lambda: trajkit.pairs(SAMPLE, margin=0.1, no_verify=True, dry_run=True),
            marks=pytest.mark.full,
        ),
        (["redact", SAMPLE, "--dry-run"], lambda: trajkit.redact(SAMPLE, dry_run=True)),
        pytest.param(["leak", SAMPLE, SAMPLE], lambda: trajkit.leak(SAMPLE, SAMPLE), marks=pytest.mark.full),
        (
            ["reserve", "babyai", "--seeds", "3:5", "--task", "goto", "--no-states", "--dry-run"],
            lambda: trajkit.reserve("babyai", seeds="3:5", task="goto", no_states=True, dry_run=True),
        ),
        (["info", SAMPLE], lambda: trajkit.info(SAMPLE)),
        (["stats", SAMPLE], lambda: trajkit.stats(SAMPLE)),
        (["show", SAMPLE, "0"], lambda: trajkit.show(SAMPLE, 0)),
        (["query", SAMPLE, SQL], lambda: trajkit.query(SAMPLE, SQL)),
        (["lineage", SAMPLE], lambda: trajkit.lineage(SAMPLE)),
        (
            ["rollout", "babyai", "--task", "goto", "--policy", "random", "--seeds", "0:3", "--dry-run"],
            lambda: trajkit.rollout("babyai", task="goto", policy="random", seeds="0:3", dry_run=True),
        ),
        pytest.param(
            ["evaluate", "babyai", "--variants", "a=sample:tiny-base", "--seeds", "200:202", "--dry-run"],
            lambda: trajkit.evaluate("babyai", variants="a=sample:tiny-base", seeds="200:202", dry_run=True),
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_result_is_the_text_and_the_json_of_its_command(
    typed: list[str], call: Callable[[], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run(typed)
    printed = capsys.readouterr().out
    found = call()
    assert capsys.readouterr().out == ""
    assert str(found) == printed.removesuffix("\n")
    assert "<" in found._repr_html_()
    run([*typed, "--json"])
    text = capsys.readouterr().out
    shown = [json.loads(row) for row in text.splitlines()] if typed[0] == "query" else json.loads(text)
    value = json.loads(json.dumps(found.to_json(), default=str))
    for each in (shown, value):
        if "done_at" in each:
            del each["done_at"]
    assert value == shown


def test_csv_is_the_text_of_a_query_that_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    run(["query", SAMPLE, SQL, "--csv"])
    found = trajkit.query(SAMPLE, SQL, csv=True)
    assert f"{found}\n" == capsys.readouterr().out
    assert found[0]["messages"][0]["role"] == "system"
