"""`trajkit mask`, `weight` and `pairs` as they are typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from trajkit._core.settings import remembered
from trajkit.cli.main import cli
from trajkit.curation.masks.mask import MaskReason
from trajkit.curation.pair_file import open_pairs
from trajkit.curation.preferences.pairs import Level, Match
from trajkit.curation.weights.weight import Baseline, Normalization, Scheme
from trajkit.errors import NothingMatched, RequestError
from trajkit.store.dataset import open_dataset

Typed = Callable[..., tuple[str, str]]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Run a command in an empty folder; what it printed on stdout and on stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[str, str]:
        capsys.readouterr()
        cli.main(list(arguments), standalone_mode=False)
        printed = capsys.readouterr()
        return printed.out, printed.err

    return run


def test_mask_then_weight_go_on_from_the_last_store(typed: Typed, tmp_path: Path) -> None:
    out, _ = typed("mask", "sample:babyai", "--reason", "loop", "--reason", "invalid", "-o", "masked")
    n_loops = next(line for line in out.splitlines() if line.startswith("loop")).split()
    assert out.splitlines()[-1].startswith("masked  55 episodes  1,892 steps  digest ")
    assert remembered("last_store") == {"path": str(tmp_path / "masked")}
    found = [step.mask_reason for one in open_dataset("masked") for step in one.steps]
    assert found.count("loop") == int(n_loops[1])
    assert found.count("invalid action") == 11
    out, _ = typed("weight", "--scheme", "exponential", "--temperature", "0.1", "--normalize", "task")
    assert out.splitlines()[-1].startswith("stores/weight-")
    assert "effective episodes" in out.splitlines()[0]
    newest = open_dataset(remembered("last_store")["path"])
    assert [entry.verb for entry in newest.store.manifest.lineage] == ["merge", "mask", "weight"]
    assert newest.store.manifest.lineage[-1].arguments == {
        "scheme": "exponential",
        "score": "episode_return",
        "baseline": "group",
        "by": [],
        "temperature": 0.1,
        "clip": 20.0,
        "normalize": "task",
    }


def test_a_dry_run_of_mask_counts_every_reason_and_writes_nothing(typed: Typed, tmp_path: Path) -> None:
    out, err = typed("mask", "sample:babyai", "--dry-run")
    assert [line.split()[0] for line in out.splitlines()[2 : 2 + len(MaskReason)]] == list(MaskReason)
    assert "dry run: nothing was written" in err
    assert list(tmp_path.iterdir()) == []


def test_json_is_one_document(typed: Typed) -> None:
    out, _ = typed("mask", "sample:babyai", "--reason", "invalid", "--dry-run", "--json")
    document = json.loads(out)
    assert document["store"] is None
    assert document["report"]["reasons"][0] == {
        "reason": "invalid",
        "n_masked": 11,
        "n_matched": 11,
        "n_unjudged": 0,
    }
    out, _ = typed("weight", "sample:babyai", "--scheme", "uniform", "--json", "-o", "even")
    document = json.loads(out)
    assert document["report"]["all"]["n_effective_steps"] == 1892
    assert document["digest"] == open_dataset("even").store.manifest.digest
    out, _ = typed("pairs", "sample:babyai", "--margin", "0.1", "--no-verify", "--json", "-o", "out")
    document = json.loads(out)
    assert document["pairs"] == "out"
    assert (document["report"]["n_pairs"], document["report"]["n_verified"]) == (len(open_pairs("out")), 0)


def test_pairs_are_written_and_the_last_store_stays_what_it_was(typed: Typed) -> None:
    out, err = typed("pairs", "sample:babyai", "--margin", "0.1")
    line = out.splitlines()[-1]
    assert line.startswith("stores/pairs-")
    assert "  8 pairs  digest " in line
    assert "verified by replay: 8 of 8 pairs" in err
    assert "--same-prompt leaves them out" in err
    assert remembered("last_store") is None
    assert len(open_pairs(line.split()[0])) == 8


def test_requests_that_make_no_sense_are_told(typed: Typed) -> None:
    with pytest.raises(RequestError, match="no reason to mask steps is given"):
        typed("mask", "sample:babyai")
    with pytest.raises(RequestError, match="needs --gamma"):
        typed("weight", "sample:babyai", "--scheme", "return-to-go")
    with pytest.raises(RequestError, match="--margin is missing"):
        typed("pairs", "sample:babyai")
    with pytest.raises(NothingMatched):
        typed("pairs", "sample:babyai", "--match", "demonstration")
    with pytest.raises(RequestError, match="no STORE given"):
        typed("mask", "--reason", "loop")


@pytest.mark.parametrize(
    ("command", "name", "known"),
    [
        ("mask", "reason", MaskReason),
        ("weight", "scheme", Scheme),
        ("weight", "baseline", Baseline),
        ("weight", "normalize", Normalization),
        ("pairs", "match", Match),
        ("pairs", "level", Level),
    ],
)
def test_the_words_of_a_command_are_those_of_the_library(command: str, name: str, known: Any) -> None:
    found = cli.get_command(click.Context(cli), command)
    (option,) = [each for each in found.params if each.name == name]
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == [each.value for each in known]
