"""`trajkit pull` of other people's datasets, from a Hub of our own over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.publish.hub_standin import HubStandin, hub_standin
from trajkit.cli.main import run
from trajkit.store.reader import open_store

_ROW = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
_BAD = {"messages": [{"role": "nobody"}]}


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubStandin]:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    with hub_standin() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        rows = "".join(json.dumps(row) + "\n" for row in (_ROW, _BAD, _ROW)).encode()
        running.put("dataset", "org/chats", {"train.jsonl": rows}, private=False)
        yield running


def test_a_public_dataset_needs_no_token_and_becomes_the_last_store(
    standin: HubStandin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pull", "org/chats", "-o", "store", "--skip-bad"]) == 0
    shown = capsys.readouterr()
    assert "read as openai-chat" in shown.err
    assert shown.out.splitlines()[-1].startswith("store  2 episodes  2 steps  digest ")
    assert open_store("store").manifest.counts.n_episodes == 2
    assert run(["info", "--json"]) == 0


def test_what_cannot_be_read_stops_it_and_leaves_nothing(
    standin: HubStandin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pull", "org/chats", "-o", "store"]) == 1
    assert "train.jsonl" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_dataset_that_is_not_there_is_a_wrong_request(
    standin: HubStandin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pull", "org/none", "-o", "store"]) == 2
    assert "A private one needs HF_TOKEN" in capsys.readouterr().err
