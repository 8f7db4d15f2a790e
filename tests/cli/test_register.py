"""`trajkit register`, as a user types it. The gateway that loads the configuration is the real one."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

import trajkit
from tests.cli.jobs import a_job, a_store, an_episode
from tests.matrix import daily
from trajkit.cli.main import run
from trajkit.registry.local_server import default_server

RECIPE = Path(__file__).parents[2] / "recipes" / "babyai"
FT = "ft:gpt-4.1-mini-2025-04-14:org::abc"
CONFIG = Path("tensorzero.toml")


@pytest.fixture(autouse=True)
def _recipe() -> None:
    shutil.copytree(RECIPE, ".", dirs_exist_ok=True)


def function() -> Any:
    return tomllib.loads(CONFIG.read_text())["functions"]["act"]


def test_the_last_job_is_registered_without_a_word_and_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = CONFIG.read_text()
    a_job(a_store("good", an_episode("e")), model=FT)
    assert run(["register", "--yes"]) == 0
    printed = capsys.readouterr()
    tuned = function()["variants"]["history_and_reasoning_sft"]
    assert tuned == function()["variants"]["history_and_reasoning"] | {"model": f"openai::{FT}"}
    assert function()["experimentation"] == {"type": "static", "candidate_variants": {"baseline": 1.0}}
    assert "+[functions.act.variants.history_and_reasoning_sft]\n" in printed.out
    last = f"tensorzero.toml  act/history_and_reasoning_sft  registered  openai::{FT}\n"
    assert printed.out.endswith(last)
    for words in ("the gateway loads it", "gets no traffic", "must be restarted", ".trajkit/backups/"):
        assert words in printed.err
    assert "\x1b[" not in printed.out  # no terminal, no colours

    changed = CONFIG.read_text()
    assert run(["register", "--yes"]) == 0
    assert "exists already" in capsys.readouterr().err
    assert CONFIG.read_text() == changed

    assert run(["register", "other", "--undo", "--yes"]) == 2
    assert "nothing to take back of model other" in capsys.readouterr().err
    assert run(["register", "--undo", "--traffic", "5%"]) == 2
    assert "--traffic does not go with --undo" in capsys.readouterr().err
    assert run(["register", "tiny", "--undo", "--yes"]) == 0
    assert "-[functions.act.variants.history_and_reasoning_sft]\n" in capsys.readouterr().out
    assert CONFIG.read_text() == before
    assert run(["register", "--undo", "--yes"]) == 2
    assert "nothing to take back" in capsys.readouterr().err


def test_a_model_of_this_machine_gets_a_table_and_the_command_that_serves_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    a_job(a_store("good", an_episode("e")))
    asked = ["register", "tiny", "--variant", "mine", "--traffic", "5%"]
    model = Path("runs/tiny/model").absolute()
    assert run([*asked, "--server", "vllm", "--dry-run"]) == 0
    assert run([*asked, "--server", "vllm", "--yes"]) == 0
    assert (
        f"\n  vllm serve some/base --enable-lora --max-lora-rank 16 --lora-modules tiny={model}"
        in capsys.readouterr().err
    )
    assert run(["register", "--undo", "--yes"]) == 0
    assert run([*asked, "--server", "trajkit", "--yes"]) == 0
    assert f"\n  trajkit serve {model} --base some/base --name tiny --host" in capsys.readouterr().err
    provider = tomllib.loads(CONFIG.read_text())["models"]["tiny"]["providers"]["trajkit"]
    assert provider["api_key_location"] == "none"
    assert function()["variants"]["mine"]["model"] == "tiny"
    weights = function()["experimentation"]["candidate_variants"]
    assert weights["mine"] / sum(weights.values()) == pytest.approx(0.05)


def share(variant: str) -> Any:
    weights = function()["experimentation"]["candidate_variants"]
    return pytest.approx(weights.get(variant, 0) / sum(weights.values()))


@pytest.mark.parametrize("named", daily(["tiny", "--variant mine", ""], 1))
def test_a_variant_that_is_registered_gets_its_share_without_the_options_that_made_it(
    named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a_job(a_store("good", an_episode("e")))
    made = ["register", "tiny", "--variant", "mine", "--server", "vllm", "--api-base", "http://gpu:9/v1/"]
    assert run([*made, "--name", "my-model", "--yes"]) == 0
    models = tomllib.loads(CONFIG.read_text())["models"]
    for traffic, part in (("5%", 0.05), ("20%", 0.2), ("0", 0)):
        assert run(["register", *named.split(), "--traffic", traffic, "--yes"]) == 0
        assert share("mine") == part
    assert "act/mine  registered  my-model" in capsys.readouterr().out
    assert tomllib.loads(CONFIG.read_text())["models"] == models
    assert run(["register", "--undo", "--yes"]) == 0
    assert share("mine") == 0.2


def test_an_adapter_alone_is_nothing_for_transformers(capsys: pytest.CaptureFixture[str]) -> None:
    a_job(a_store("good", an_episode("e")))
    assert run(["register", "--server", "transformers", "--dry-run"]) == 2
    assert "is an adapter" in capsys.readouterr().err
    Path("runs/tiny/merged").mkdir()
    assert run(["register", "--server", "transformers", "--dry-run"]) == 0
    assert f'+model_name = "{Path("runs/tiny/merged").absolute()}"' in capsys.readouterr().out


def test_a_dry_run_writes_nothing_and_nobody_to_ask_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    before = CONFIG.read_text()
    a_job(a_store("good", an_episode("e")), model=FT)
    assert run(["register", "--dry-run"]) == 0
    assert "dry run: nothing was written" in capsys.readouterr().err
    assert run(["register"]) == 2
    assert "--yes writes" in capsys.readouterr().err
    assert CONFIG.read_text() == before
    assert not Path("runs/ledger.jsonl").exists()


@pytest.mark.full
def test_as_json_it_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    a_job(a_store("good", an_episode("e")), model=FT)
    planned = trajkit.register(dry_run=True)
    assert run(["register", "--dry-run"]) == 0
    assert capsys.readouterr().out == f"{planned}\n"
    assert run(["register", "--yes", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert planned.to_json() | {key: said[key] for key in ("registration_id", "is_written", "backups")} == {
        **said,
        "notes": tuple(said["notes"]),
        "placeholders": tuple(said["placeholders"]),
    }
    assert (said["function"], said["variant"], said["is_written"]) == (
        "act",
        "history_and_reasoning_sft",
        True,
    )
    assert all(Path(backup).is_file() for backup in said["backups"])
    assert run(["register", "--undo", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["registration_id"] == said["registration_id"]


@pytest.mark.full
def test_what_the_steps_are_of_must_be_clear(capsys: pytest.CaptureFixture[str]) -> None:
    a_job(a_store("mixed", an_episode("a"), an_episode("b", variant="baseline")), model=FT, job_id="mixed")
    assert run(["register", "--dry-run"]) == 2
    assert "the learned steps are of baseline, history_and_reasoning" in capsys.readouterr().err
    a_job(a_store("both", an_episode("a"), an_episode("b", function="walk")), model=FT, job_id="both")
    assert run(["register", "--dry-run"]) == 2
    assert "--function NAME; the learned steps are of act, walk" in capsys.readouterr().err
    assert run(["register", "--model", FT, "--function", "act", "--dry-run"]) == 0  # it is a job's: known


def test_a_model_tuned_elsewhere_is_registered_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = ("register", "--model", "my-model", "--function", "act", "--template-variant", "baseline")
    assert run([*elsewhere, "--yes"]) == 2
    assert "the provider of 'my-model' is not clear" in capsys.readouterr().err
    assert (
        run([*elsewhere, "--api-base", "http://box:9/v1/", "--api-key-location", "env::BOX_KEY", "--yes"])
        == 0
    )
    assert "needed where the gateway runs: BOX_KEY" in capsys.readouterr().err
    provider = tomllib.loads(CONFIG.read_text())["models"]["my-model"]["providers"]["server"]
    assert (provider["api_base"], provider["api_key_location"]) == ("http://box:9/v1/", "env::BOX_KEY")
    assert "baseline_tuned" in function()["variants"]


@pytest.mark.full
def test_a_job_at_another_address_gets_a_table_with_the_place_of_its_key() -> None:
    where = "https://api.tokenfactory.nebius.com/v1"
    remote = {"where": where, "settings": {"profile": "nebius", "base_url": where}}
    a_job(a_store("good", an_episode("e")), model="me/tuned", remote=remote)
    assert run(["register", "--yes"]) == 0
    provider = tomllib.loads(CONFIG.read_text())["models"]["me/tuned"]["providers"]["server"]
    assert (provider["api_base"], provider["api_key_location"]) == (f"{where}/", "env::NEBIUS_API_KEY")


@pytest.mark.full
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"status": "failed", "error": "the disk is full"}, "it is failed: the disk is full"),
        ({"status": "cancelled"}, "trajkit jobs resume tiny"),
        ({"status": "prepared", "target": "local"}, "trajkit jobs wait tiny"),
        ({"target": "openai"}, "openai has not named the model of job tiny"),
    ],
)
def test_a_job_without_a_model_says_why(
    capsys: pytest.CaptureFixture[str], fields: dict[str, str], words: str
) -> None:
    a_job(a_store("good", an_episode("e")), **fields)
    assert run(["register", "--dry-run"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    daily(
        [
            (("--function", "acts"), "nearest: act"),
            (("--template-variant", "histo"), "nearest: history"),
            (("--variant", "baseline"), "with other settings"),
            (("--config", "nothing.toml"), "no configuration at nothing.toml"),
            (("--traffic", "200%"), "a share of 2"),
            (("--traffic", "much"), "is not a share"),
            (("--model", "x"), "exclude each other"),
            (("-o", "settings.json"), "-o is for --emit"),
            (("--server", "vllm"), "does not go with job tiny"),
        ],
        5,
    ),
)
def test_what_cannot_be_registered_is_said(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    before = CONFIG.read_text()
    a_job(a_store("good", an_episode("e")), model=FT)
    assert run(["register", "tiny", *options, "--yes"]) == 2
    assert words in capsys.readouterr().err
    assert CONFIG.read_text() == before


def test_a_configuration_that_the_gateway_refuses_stays_what_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    a_job(a_store("good", an_episode("e")), model=FT)
    broken = CONFIG.read_text().replace('optimize = "max"', 'optimize = "most"')
    CONFIG.write_text(broken)
    assert run(["register", "--yes"]) == 2
    printed = capsys.readouterr().err
    assert "the gateway refuses the configuration" in printed
    assert "most" in printed
    assert "it refuses the current one, too" in printed
    assert CONFIG.read_text() == broken
    CONFIG.write_text("[functions.act\n")
    assert run(["register", "--yes"]) == 2
    assert "line 1" in capsys.readouterr().err
    shutil.copy(RECIPE / CONFIG, CONFIG)
    CONFIG.chmod(0o444)
    assert run(["register", "--yes"]) == 2
    assert "tensorzero.toml is read-only" in capsys.readouterr().err


def test_other_clients_get_address_model_and_sampling(capsys: pytest.CaptureFixture[str]) -> None:
    a_job(a_store("good", an_episode("e")), model=FT)
    text = CONFIG.read_text()
    header = "[functions.act.variants.history_and_reasoning]\n"
    CONFIG.write_text(text.replace(header, f"{header}temperature = 0.5\nstop_sequences = ['\\n']\n"))
    assert run(["register", "--emit", "openai-compatible"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "base_url": "https://api.openai.com/v1/",
        "api_key_env": "OPENAI_API_KEY",
        "request": {"model": FT, "temperature": 0.5, "stop": ["\\n"]},
    }
    assert run(["register", "--emit", "openai-compatible", "--variant", "x"]) == 2
    assert "--variant does not go with --emit" in capsys.readouterr().err
    CONFIG.unlink()
    a_job(a_store("more", an_episode("f")), job_id="mine")
    assert run(["register", "--emit", "openai-compatible", "-o", "settings.json"]) == 0
    assert f"{default_server()} serve" in capsys.readouterr().err
    settings = json.loads(Path("settings.json").read_text())
    assert settings["api_key_env"] is None
    assert settings["request"] == {"model": "mine"}
