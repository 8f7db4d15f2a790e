"""`trajkit lineage`, as a user types it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.jobs import a_job, a_store, an_episode
from trajkit.cli.main import run
from trajkit.store.reader import open_store

RECIPE = Path(__file__).parents[2] / "recipes" / "babyai"
FT = "ft:gpt-4.1-mini-2025-04-14:org::abc"


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert run(["lineage", *arguments]) == 0
    return capsys.readouterr().out


def test_both_ends_of_a_variant_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(RECIPE, ".", dirs_exist_ok=True)
    store = a_store("good", an_episode("one"), an_episode("two"))
    a_job(store, model=FT)
    assert run(["register", "--yes"]) == 0
    told = ask(capsys, "history_and_reasoning_sft")
    assert told.startswith(f"model     {FT}  job tiny  sft on openai, from some/base\n")
    for words in (
        "variant   act/history_and_reasoning_sft  in tensorzero.toml  since",
        "recipe    seed=7  lora.r=16\n",
        "2 episodes, 4 of 4 steps in its rows",
        "          one  2 of 2\n",
    ):
        assert words in told
    assert ask(capsys) == told  # the last job
    assert "  sft on openai, from some/base\n" in ask(capsys, "--runs", "elsewhere")  # wherever it is
    assert ask(capsys, f"openai::{FT}") == told

    of_episode = ask(capsys, "two")
    assert of_episode.startswith(f"episode   two\nlearned   {FT}  job tiny  ")
    assert "  2 of 2 steps\nvariant   act/history_and_reasoning_sft" in of_episode
    (value,) = json.loads(ask(capsys, "two", "--json"))
    assert value["sights"][0]["variants"][0]["variant"] == "history_and_reasoning_sft"

    digest = open_store(store).manifest.digest
    for thing in ("good", digest[:10]):
        assert f"learned   {FT}" in ask(capsys, thing)
    shutil.rmtree("good")  # the rows of the job know it still
    assert "2 of 2 steps" in ask(capsys, "one")

    assert run(["register", "--undo", "--yes"]) == 0
    assert "variant   " not in ask(capsys, FT)


def test_a_variant_that_somebody_removed_is_said_to_be_gone(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(RECIPE, ".", dirs_exist_ok=True)
    a_job(a_store("good", an_episode("one")), model=FT)
    assert run(["register", "--yes"]) == 0
    shutil.copy(RECIPE / "tensorzero.toml", "tensorzero.toml")
    assert "it no longer exists" in ask(capsys, "act/history_and_reasoning_sft")


def test_a_folder_of_a_model_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    a_job(a_store("good", an_episode("one")))
    a_job(a_store("more", an_episode("two")), job_id="second", base=str(Path("runs/tiny/model").absolute()))
    told = ask(capsys, "runs/second/model")
    assert told.startswith("model     second  sft on local, from ")
    assert "\nfrom      tiny  sft on local, from some/base\n" in told


def test_what_is_not_known_is_an_error_with_near_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lineage"]) == 2
    assert "no THING given" in capsys.readouterr().err
    a_job(a_store("good", an_episode("one")))
    shutil.rmtree("good")
    Path("runs/tiny/train.provenance.parquet").unlink()
    assert run(["lineage", "tini"]) == 2
    printed = capsys.readouterr().err
    assert "nothing is known of 'tini'" in printed
    assert "nearest: tiny" in printed
    assert "not known of tiny: " in printed


def test_a_store_that_nothing_learned_from_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    told = ask(capsys, "sample:babyai")
    assert told.startswith("store     sample:babyai  ")
    assert "merge: " in told
    assert told.endswith("learned   by no model that is known here\n")


def test_a_deletion_request_names_the_models_that_learned_the_episode(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = a_store("stores/good", an_episode("one"), an_episode("two"))
    a_job(store, model=FT)
    assert run(["forget", "two", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["models"] == [FT]
    assert [each["path"] for each in found["held"]] == ["stores/good"]
    shutil.rmtree("stores")  # the rows of the job know it still
    assert run(["forget", "two", "--dry-run"]) == 0
    assert f"model     {FT} has learned from them" in capsys.readouterr().out
