"""`trajkit push` and `trajkit pull` with a Hub of our own over real HTTP, and what `datasets` makes of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.jobs import a_store, an_episode
from tests.cli.test_redact import SCANNER, scanner
from tests.publishing.hub_standin import TOKEN, HubStandin
from trajkit._core.samples import model_path
from trajkit.cli.main import run
from trajkit.curation.selection.split import split
from trajkit.schema import Episode, Feedback, FeedbackKind, LineageEntry, Transition, message
from trajkit.store.reader import open_store, verify
from trajkit.store.writer import write_episodes

# huggingface_hub 2.4 sends large files in a way that httpx2 deprecates
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

_LOAD = """
import datasets, json
for name in ("sft", "episodes", "steps", "feedback"):
    for streaming in (False, True):
        made = datasets.load_dataset("tester/data", name, streaming=streaming)
        for split in made:
            row = next(iter(made[split]))
            n = sum(1 for _ in made[split])
            print(json.dumps([name, streaming, split, n, sorted(row)[:2]]))
print(json.dumps(datasets.load_dataset("tester/data", split="train")[0]["messages"][0]["role"]))
"""


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)


@pytest.mark.full
def test_a_split_goes_there_loads_with_datasets_and_comes_back(
    standin: HubStandin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split("sample:babyai", tmp_path / "data", ratio={"train": 0.8, "val": 0.2})
    asked = ["push", "data", "tester/data", "--license", "mit", "--tag", "v1", "--traces", "--yes", "--json"]
    assert run(asked) == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert standin.dataset("tester/data").tags == {"v1": told["commit"]}
    assert "seen by: its owner" in shown.err
    assert "leak: train and val: none" in shown.err
    assert TOKEN not in shown.out + shown.err
    for side in ("train", "val"):
        store = open_store(tmp_path / "data" / side)
        verify(store)
        (published,) = store.manifest.published
        assert (published.commit, published.tag) == (told["commit"], "v1")
        assert TOKEN not in (store.path / "manifest.json").read_text()
    assert run(["info", "data/train"]) == 0
    assert f"published tester/data at {told['commit'][:12]}, tag v1" in capsys.readouterr().out

    environment = {
        **os.environ,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", _LOAD],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    *rows, role = map(json.loads, done.stdout.splitlines())
    assert role == "system"
    assert len(rows) == 16
    counts = {(name, side): n for name, _, side, n, _ in rows}
    for side in ("train", "val"):
        said = open_store(tmp_path / "data" / side).manifest.counts
        assert counts["episodes", side] == said.n_episodes
        assert counts["steps", side] == said.n_steps
        assert counts["feedback", side] == said.n_feedback

    assert run(["pull", "tester/data@v1", "-o", "back"]) == 0
    for side in ("train", "val"):
        back = open_store(tmp_path / "back" / side).manifest
        assert back.digest == open_store(tmp_path / "data" / side).manifest.digest
        assert back.lineage[-1].verb == "pull"
    capsys.readouterr()
    asked[1] = "back"
    assert run(asked) == 0
    assert json.loads(capsys.readouterr().out)["is_new"] is False
    assert standin.commits("tester/data") == 1


def test_secrets_are_found_before_anything_is_sent(
    standin: HubStandin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mail = "joe.doe" + "@corp.io"
    step = Transition(
        step_index=0, messages=(message("user", f"mail {mail}"),), completion=message("assistant", "go")
    )
    write_episodes(tmp_path / "store", [Episode(episode_id="a", source="t", steps=(step,))], kind="test")
    asked = ["push", "store", "tester/data", "--yes"]
    assert run(asked) == 1
    shown = capsys.readouterr().err
    assert "secrets: train: 1 email in steps.messages" in shown
    assert "trajkit redact" in shown
    assert mail not in shown
    assert not standin.repositories
    assert run([*asked, "--allow-findings"]) == 0
    assert standin.commits("tester/data") == 1


NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN_OF_GITHUB = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
FACTS = {"env_id", "task", "source", "tags", "metrics", "episode_id", "initial_state_hash"}
FACTS_OF_STEPS = {"function_name", "variant_name", "finish_reason", "mask_reason", "agent_name", "model_name"}


def _with_secret(places: set[str], secret: str) -> tuple[Episode, LineageEntry]:
    """An episode and an entry of its lineage that hold a secret in these places."""
    values = {"tags": {secret: "x"}, "metrics": {secret: 1.0}}
    step = Transition(
        step_index=0,
        messages=(message("user", "hello"),),
        completion=message("assistant", "go"),
        loss_weight=0.0 if "mask_reason" in places else 1.0,
        **dict.fromkeys(places & FACTS_OF_STEPS, secret),
    )
    feedback = Feedback(
        feedback_id="f",
        episode_id=secret if "episode_id" in places else "a",
        kind=FeedbackKind.FLOAT,
        metric_name=secret,
        value=1.0,
        created_at=NOW,
    )
    facts = {"episode_id": "a", "source": "t"}
    facts |= {place: values.get(place, secret) for place in places & FACTS}  # type: ignore[misc]
    entry = LineageEntry(
        verb="export",
        arguments={"where": {secret: 1}} if "lineage" in places else {},
        n_episodes_in=1,
        n_episodes_out=1,
        n_steps_in=1,
        n_steps_out=1,
        done_at=NOW,
        trajkit_version="1",
    )
    return Episode(steps=(step,), feedback=(feedback,) if "metric" in places else (), **facts), entry


IN_MANIFEST = {"lineage": "manifest.lineage", "manifest": "manifest.source"}
IN_FILES = ("finish_reason", "initial_state_hash", "mask_reason", "metric", "metrics")
"""What is found only in the files that are made to be sent."""


@pytest.mark.parametrize(
    ("places", "secret"),
    [
        pytest.param((FACTS | FACTS_OF_STEPS | {*IN_MANIFEST}) - {*IN_FILES}, TOKEN_OF_GITHUB, id="stores"),
        *(
            pytest.param(
                {place},
                TOKEN_OF_GITHUB,
                id=place,
                marks=() if place == "metric" else pytest.mark.full,
            )
            for place in (*IN_FILES, "split")
        ),
        pytest.param({"variant_name"}, "mine-only-9-8-7-6", id="of the environment"),
    ],
)
def test_a_secret_in_any_name_stops_it(
    standin: HubStandin,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    places: set[str],
    secret: str,
) -> None:
    monkeypatch.setenv("SOME_SERVICE_API_KEY", "mine-only-9-8-7-6")
    episode, entry = _with_secret(places, secret)
    if places == {"split"}:
        write_episodes(tmp_path / "both" / secret, [Episode(episode_id="b", source="t")], kind="test")
    write_episodes(
        tmp_path / "both" / "train",
        [episode],
        kind="test",
        source={"kind": "t", "description": secret if "manifest" in places else "x"},
        lineage=[entry],
    )
    assert run(["push", "both", "tester/data", "--yes"]) == 1
    shown = capsys.readouterr().err
    assert "would be published" in shown
    for place in places - {*IN_FILES, "split"}:
        told = IN_MANIFEST.get(place, f"{'episodes' if place in FACTS else 'steps'}.{place}")
        assert re.search(rf"^secrets: train: \d+ [\w-]+ in {told}$", shown, re.MULTILINE), place
    assert not standin.repositories
    if places != {"split"}:
        assert secret not in shown


@pytest.mark.full
def test_nobody_is_asked_and_nothing_is_sent_without_yes(
    standin: HubStandin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["push", str(a_store("small", an_episode("a"))), "tester/data"]) == 2
    assert "--yes publishes" in capsys.readouterr().err
    assert not standin.repositories


def test_without_a_token_there_is_a_plan_and_no_more(
    standin: HubStandin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    a_store("small", an_episode("a"))
    assert run(["push", "small", "tester/data", "--yes"]) == 4
    assert "there is no token for the Hub" in capsys.readouterr().err
    asked = ["push", "small", "tester/data", "--dry-run", "--license", "mit"]
    assert run(asked) == 0
    shown = capsys.readouterr()
    for words in (
        "sft: train: 2 rows to train on",
        "dataset: tester/data (the Hub was not called)",
        "seen by: its owner",
        "licence: mit",
        "to send (",
        "  README.md  ",
    ):
        assert words in shown.err
    assert shown.out.startswith("---\n")
    assert "license: mit" in shown.out
    assert run([*asked, "--public", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["card"] == shown.out
    assert (told["is_public"], told["commit"], told["n_sent"]) == (True, None, len(told["files"]))
    assert told["files"]["README.md"] == len(told["card"].encode())
    assert not standin.requests


@pytest.mark.full
def test_a_dry_run_with_a_token_says_the_same_as_json(
    standin: HubStandin, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["push", "sample:babyai", "tester/data"]
    before = open_store("sample:babyai").manifest
    assert run([*asked, "--yes"]) == 0
    assert open_store("sample:babyai").manifest == before
    capsys.readouterr()
    assert run([*asked, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["files"], told["is_new"]) == ({}, False)
    assert told["card"].startswith("---\n")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--public"], 2, "needs a licence"),
        (["--license", "My licence"], 2, "not the identifier of a licence"),
        (["--merged"], 2, "--merged makes no sense with a store"),
    ],
)
def test_what_cannot_be_is_told_before_the_hub_is_asked_for_anything_else(
    standin: HubStandin, capsys: pytest.CaptureFixture[str], options: list[str], code: int, said: str
) -> None:
    assert run(["push", str(a_store("small", an_episode("a"))), "tester/data", "--yes", *options]) == code
    assert said in capsys.readouterr().err
    assert not standin.repositories


def test_a_model_is_sent_with_its_card_unless_there_are_secrets_in_its_files(
    standin: HubStandin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mail = "joe.doe" + "@corp.io"
    shutil.copytree(model_path("sample:tiny-base"), tmp_path / "model")
    (tmp_path / "model" / "notes.md").write_text(f"# mine\n\nWrite to {mail}.\n")
    asked = ["push", "model", "tester/tiny", "--base", "org/base", "--license", "mit", "--yes"]
    assert run(asked) == 1
    shown = capsys.readouterr().err
    assert "secrets: files: 1 email in notes.md" in shown
    assert mail not in shown
    assert not standin.repositories
    assert run([*asked, "--allow-findings"]) == 0
    assert capsys.readouterr().out.startswith(f"{standin.url}/tester/tiny  commit ")
    repository = standin.repositories["model", "tester/tiny"]
    assert repository.private
    assert "base_model: org/base" in standin.file("model", "tester/tiny", "README.md").decode()
    sent = next(path for path in repository.commits[-1].files if path.endswith(".safetensors"))
    assert standin.file("model", "tester/tiny", sent) == (tmp_path / "model" / sent).read_bytes()


@pytest.mark.full
def test_another_scanner_on_the_path_is_asked_too(
    standin: HubStandin, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = '"go forward" in line or "tiny" in line'
    scanner("betterleaks", SCANNER.replace('"left over" in line', found))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    step = Transition(
        step_index=0, messages=(message("user", "x"),), completion=message("assistant", "go forward")
    )
    write_episodes(tmp_path / "store", [Episode(episode_id="a", source="t", steps=(step,))], kind="test")
    shutil.copytree(model_path("sample:tiny-base"), tmp_path / "model")
    for what, more in (("store", ()), ("model", ("--base", "org/base"))):
        assert run(["push", what, "tester/it", "--yes", *more]) == 1
        shown = capsys.readouterr().err
        assert "betterleaks: it finds a-rule" in shown
        assert "error: betterleaks finds" in shown
    assert not standin.repositories
    assert run(["push", "store", "tester/it", "--yes", "--no-gate"]) == 0
