"""`trajkit sft` and `trajkit dpo` at Together and Fireworks, as a user types them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.walks import write_walks
from tests.matrix import daily
from tests.training.hosted import fireworks_standin, together_standin
from tests.training.hosted.fireworks_standin import FireworksStandIn
from tests.training.hosted.life import quickly
from tests.training.hosted.together_standin import TogetherStandIn
from trajkit.cli.main import run

SERVICES = ("together", "fireworks")


@pytest.fixture
def standins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    write_walks("episodes", loss_weight=0.5)
    quickly(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TOGETHER_API_KEY", together_standin.KEY)
    monkeypatch.setenv("FIREWORKS_API_KEY", fireworks_standin.KEY)
    with TogetherStandIn() as together, FireworksStandIn() as fireworks:
        monkeypatch.setenv("TOGETHER_BASE_URL", together.url)
        monkeypatch.setenv("FIREWORKS_BASE_URL", fireworks.url)
        yield {"together": together_standin.MODEL, "fireworks": "qwen3-8b"}


@pytest.mark.parametrize("service", daily(SERVICES, {"fireworks"}))
def test_a_store_becomes_a_tuned_model(
    standins: dict[str, str], service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["sft", service, "--train", "episodes", "--model", standins[service], "--name", "tuned"]
    assert run([*asked, "--dry-run"]) == 0
    assert "dry run: nothing was sent" in capsys.readouterr().err
    assert run([*asked, "--yes"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("runs/tuned  succeeded  ")
    for words in (
        "learned   ",
        "leaks     none",
        f"model     {standins[service]} at http",
        "price     unknown",
    ):
        assert words in printed.err
    assert "the service's price of the job: " in printed.err

    assert run(["jobs", "list", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)
    assert (job["target"], job["status"]) == (service, "succeeded")
    assert run([*asked, "--yes"]) == 0
    assert "job tuned is the same: succeeded" in capsys.readouterr().err
    hears_weights = service == "fireworks"
    assert ("partial weight" in printed.err) != hears_weights
    rows = map(json.loads, Path("runs/tuned/training.jsonl").read_text().splitlines())
    assert {row.get("weight") for row in rows} == {0.5 if hears_weights else None}


@pytest.mark.parametrize("service", daily(SERVICES, {"fireworks"}))
def test_pairs_become_a_tuned_model(
    standins: dict[str, str], service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pairs", "episodes", "--margin", "0.5"]) == 0
    assert run(["dpo", service, "--model", standins[service], "--name", "better", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("runs/better  succeeded  ")
    row = json.loads(Path("runs/better/training.jsonl").read_text().splitlines()[0])
    assert set(row) == {"input", "preferred_output", "non_preferred_output"}


@pytest.mark.parametrize("service", daily(SERVICES, {"together"}))
def test_nothing_is_sent_without_a_model_a_key_or_a_yes(
    standins: dict[str, str],
    service: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = ["sft", service, "--train", "episodes"]
    assert run(asked) == 2
    assert f'model = "{service}::NAME" in trajkit.toml' in capsys.readouterr().err
    Path("trajkit.toml").write_text(f'model = "{service}::{standins[service]}"\n')
    assert run(asked) == 2
    assert "there is no terminal to ask on" in capsys.readouterr().err
    assert not list(Path("runs").glob("*"))
    monkeypatch.delenv(f"{service.upper()}_API_KEY")
    assert run([*asked, "--yes"]) == 2
    assert f"{service.upper()}_API_KEY is not set" in capsys.readouterr().err
    assert run([*asked, "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "the service could not be called" in said
    assert ("partial weight" in said) == (service == "together")
