"""`trajkit rl tinker` through the official client, against a stand-in that speaks its protocol and trains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from tests.cli.test_rl import WORLD, events, job
from tests.training.rl.tinker_standin import KEY, TinkerStandIn
from tests.training.rl.worlds import LETTERS
from trajkit.cli.main import run
from trajkit.store.dataset import open_dataset
from trajkit.training.runs import Runs

RESERVED = '[[reserved]]\nenv = "letters"\ntasks = ["default"]\nseeds = "100:108"\nstates = []\n'
QUICK = (
    "--seeds-per-iteration 4 --num-generations 6 --max-new-tokens 1 --history 0 --learning-rate 0.01"
    " --loss-fn ppo --minibatches 2"
)


@pytest.fixture
def service(base: str) -> Iterator[TinkerStandIn]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with TinkerStandIn(base) as stand_in:
        yield stand_in
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    Path("trajkit.toml").write_text(RESERVED)


def rl(service: TinkerStandIn, base: str, *options: str) -> int:
    command = ["rl", "tinker", "--model", base, "--env", WORLD, "--base-url", service.url]
    return run([*command, *QUICK.split(), *options])


def chance_of_a_letter(network: Any, base: str, prompt: Sequence[int]) -> float:
    """The probability that a model answers with what the world rewards."""
    letters = AutoTokenizer.from_pretrained(base).convert_tokens_to_ids(list(LETTERS))
    with torch.no_grad():
        return float(network(torch.tensor([prompt])).logits[0, -1].softmax(-1)[letters].sum())


def key_is_nowhere(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said, which has no key in it, as no file of the working folder has."""
    said = "".join(capsys.readouterr())
    files = [path for path in Path().rglob("*") if path.is_file()]
    assert KEY not in said
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    return said


@pytest.mark.full
def test_nothing_is_called_before_a_yes_and_a_key(
    service: TinkerStandIn, base: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rl(service, base, "--iterations", "3", "--dry-run") == 0
    said = capsys.readouterr().err
    assert f"model     {base} at {service.url}: an adapter of rank 32" in said
    assert "tokens    88 episodes; a step reads" in said  # 3 x 4 x 6, and 8 held-out ones before and after
    assert "price     not known here" in said
    assert rl(service, base) == 2
    assert "--yes trains" in capsys.readouterr().err
    assert rl(service, base, "--yes", "--seeds", "99:101") == 2
    assert "reserved" in capsys.readouterr().err
    assert rl(service, base, "--yes", "--set", "play.temperature=0.5") == 2
    assert "at temperature 1" in capsys.readouterr().err
    monkeypatch.delenv("TINKER_API_KEY")
    assert rl(service, base, "--yes") == 2
    assert "TINKER_API_KEY is not set" in capsys.readouterr().err
    assert not list(Runs(Path("runs")).all())
    assert not service.keys


def test_it_learns_at_the_service_and_goes_on_after_a_failure(
    service: TinkerStandIn, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--iterations", "4", "--eval-every", "2", "--keep-rollouts", "--num-generations", "4", "--yes")
    service.fails_after = 2
    assert rl(service, base, *options) == 1
    assert "the model is out of order" in key_is_nowhere(capsys)
    assert job().status == "failed"
    assert job().remote["n_done"] == 2
    assert list(service.saved)[-1] == job().remote["state"]
    service.fails_after = None
    assert run(["jobs", "resume"]) == 0
    key_is_nowhere(capsys)
    made = job()
    assert made.status == "succeeded"
    assert [event["iteration"] for event in events("iteration")] == [1, 2, 3, 4]
    assert [event["iteration"] for event in events("evaluation")] == [0, 2, 4]
    assert {name for name, _ in service.losses} == {"ppo"}
    assert len(service.losses) == 8
    # what the service computes for the tokens is what it said when it drew them
    assert max(event["drift"] for event in events("iteration")) < 1e-5
    assert made.result["success"] == max(event["success"] for event in events("evaluation")[1:])
    assert made.result["model"] in service.samplers
    page = (Path("runs") / made.job_id / "rl.html").read_text()
    assert "Held-out seeds" in page
    assert "Entropy" in page
    stores = [open_dataset(path) for path in sorted((Path("runs") / made.job_id / "rollouts").iterdir())]
    assert [store.store.manifest.counts.n_episodes for store in stores] == [16] * 4
    prompt = next(iter(stores[0])).steps[0].prompt_token_ids
    assert prompt is not None
    trained, _ = list(service.models.values())[-1]
    before, after = (chance_of_a_letter(each, base, prompt) for each in (service.network, trained))
    assert after > 1.2 * before
    (entry,) = stores[0].store.manifest.lineage
    assert entry.verb == "rl tinker"
    assert run(["jobs", "show", made.job_id]) == 0
    assert rl(service, base, *options) == 0  # the same job: nothing is trained and paid twice
    assert len(service.losses) == 8


def test_a_service_that_does_not_know_the_key_says_so_without_it(
    service: TinkerStandIn, base: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "tml-another-key-of-a-test"
    monkeypatch.setenv("TINKER_API_KEY", other)
    assert rl(service, base, "--yes") == 1
    said = "".join(capsys.readouterr())
    assert f"{service.url} failed to begin: Error code: 401" in said
    assert "check that TINKER_API_KEY is a key of this service" in said
    files = [path for path in Path().rglob("*") if path.is_file()]
    assert not [path for path in files if other.encode() in path.read_bytes()]
    assert other not in said
