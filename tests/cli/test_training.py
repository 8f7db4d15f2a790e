"""What every command that trains does with the stores that it is given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from tests.matrix import daily
from trajkit.cli.main import run
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes

SFT = ("sft", "local", "--train", "sample:babyai", "--model", "sample:tiny-base", "--dry-run")


def conversation(number: int, question: str, **fields: Any) -> Episode:
    steps = tuple(
        Transition(
            step_index=index,
            messages=(message("system", "You help."), message("user", said)),
            completion=message("assistant", f"answer {number}"),
        )
        for index, said in enumerate((question, f"and what of number {number}?"))
    )
    return Episode(episode_id=f"c{number:03}", source="test", steps=steps, **fields)


def stores() -> set[str]:
    return {str(path.relative_to(".")) for path in Path().glob("**/manifest.json")}


@pytest.mark.parametrize("fraction", daily(["0.1", "0"], 1))
def test_evaluation_episodes_of_the_store_are_neither_learned_nor_measured(
    capsys: pytest.CaptureFixture[str], fraction: str
) -> None:
    assert run([*SFT, "--val-fraction", fraction]) == 0
    said = capsys.readouterr().err
    assert "without its 15 evaluation episodes" in said
    counts = [
        int(each) for each in re.findall(r"^(?:learned|measured) .*?(\d+) episodes", said, re.MULTILINE)
    ]
    assert (len(counts), sum(counts)) == (2 if fraction != "0" else 1, 40)


@pytest.mark.parametrize("asked", ["sft local --model no", "kto local --model no"])
def test_a_wrong_model_leaves_no_store(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # the library reads the variable of this name when it is imported, and asks again for 20 s where no Hub is
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    write_episodes(Path("few"), [conversation(n, f"question {n}") for n in range(3)], kind="test")
    run([*asked.split(), "--train", "few", "--dry-run"])
    assert stores() == {"few/manifest.json"}
    assert not Path("stores").exists()


@pytest.mark.full
def test_after_a_split_the_other_side_measures_whatever_few_groups_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["split", "sample:babyai"]) == 0
    capsys.readouterr()
    quick = ("--max-steps", "1", "--max-length", "512")
    assert run(["sft", "local", "--model", "sample:tiny-base", *quick, "--yes"]) == 0
    printed = capsys.readouterr()
    assert re.search(r"from stores/split-\w+/train \(last written\)", printed.err)
    assert re.search(r"measured by .*stores/split-\w+/val, of the same split", printed.err)
    assert "succeeded  1 step" in printed.out
    assert len([path for path in stores() if "sft-" in path]) == 2, "both sides without evaluation episodes"
    (job,) = (folder.name for folder in Path("runs").iterdir())
    further = ("rl", "local", "--model", job, "--env", "babyai", "--task", "goto", "--dry-run")
    assert run([*further]) == 0
    assert f"LoRA of rank 16, alpha 32, continuing runs/{job}/model" in capsys.readouterr().err
    assert run([*further, "--r", "4"]) == 2
    assert f"runs/{job}/model has r=16, not 4" in capsys.readouterr().err
    again = ("sft", "local", "--model", "sample:tiny-base", *quick, "--merge", "--yes")
    assert run([*again, "--train", next(str(path) for path in Path("stores").glob("split-*/train"))]) == 0
    assert run([*further]) == 0
    assert f"{job}/merged" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.parametrize("n_groups", daily([2, 5], 1))
def test_a_store_of_few_groups_is_cut_so_that_none_is_empty(
    capsys: pytest.CaptureFixture[str], n_groups: int
) -> None:
    write_episodes(Path("few"), [conversation(n, f"question {n}") for n in range(n_groups)], kind="test")
    local = ("sft", "local", "--model", "sample:tiny-base", "--train", "few", "--dry-run")
    assert run([*local, "--chat-template", "plain"]) == 0
    assert "measured  stores/sft-" in capsys.readouterr().err
    assert stores() == {"few/manifest.json"}
    assert not Path("stores").exists()


def test_a_store_of_one_group_cannot_be_cut_and_the_error_names_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_episodes(Path("one"), [conversation(n, "the same question") for n in range(9)], kind="test")
    assert run(["sft", "openai", "--train", "one", "--dry-run"]) == 1
    said = capsys.readouterr().err
    assert "one cannot be cut in two" in said
    assert "has 1 group by" in said
    assert "--val-fraction 0" in said


@pytest.mark.full
def test_repeated_questions_without_seeds_are_cut_without_a_leak(capsys: pytest.CaptureFixture[str]) -> None:
    """Nine in ten questions come twice, and one customer of three asked what another did."""
    words = " ".join(f"word{n}" for n in range(60))
    episodes = [conversation(n, f"question {n % 47}") for n in range(90)]
    episodes += [conversation(n, f"{words} number {n}") for n in range(90, 130)]
    write_episodes(Path("repeated"), episodes, kind="test")
    asked = ("sft", "openai", "--train", "repeated", "--val-fraction", "0.3", "--name", "mine")
    assert run([*asked, "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "leaks     none" in said
    assert re.search(r"not measured: \d+ episodes? whose prompts are nearly those of learned ones", said)


@pytest.mark.full
def test_evaluation_episodes_of_a_named_side_are_left_out_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    """The hint of a conversion, which has --where and --include-eval, was of no use here."""
    eval_only = [conversation(n, f"measure {n}", purpose="eval") for n in range(4)]
    write_episodes(Path("eval"), eval_only, kind="test")
    write_episodes(Path("both"), [*eval_only, conversation(9, "learn")], kind="test")
    write_episodes(Path("train"), [conversation(n, f"question {n}") for n in range(10, 14)], kind="test")
    local = ("sft", "openai", "--train", "train", "--dry-run", "--val")
    assert run([*local, "both"]) in (0, 1)
    assert "both without its 4 evaluation episodes" in capsys.readouterr().err
    assert run([*local, "eval"]) == 1
    said = capsys.readouterr().err
    assert "every episode of eval was played for evaluation" in said
    assert "--val-fraction" in said
    assert "--include-eval" not in said


@pytest.mark.full
def test_a_plan_says_that_answers_of_negative_weight_are_not_learned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["weight", "sample:babyai", "--scheme", "advantage", "--by", "task", "-o", "weighed"]) == 0
    capsys.readouterr()
    assert (
        run(["sft", "openai", "--train", "weighed", "--unit", "step", "--val-fraction", "0", "--dry-run"])
        == 0
    )
    said = capsys.readouterr().err
    assert re.search(
        r"not learned: [\d,]+ steps: negative weight\n +so only answers better than their group", said
    )
