from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from trajkit._core.settings import remember
from trajkit.cli.main import run
from trajkit.schema import Episode, Message, Transition, message
from trajkit.store.writer import write_episodes


def make_episode(
    name: str, *, n_steps: int = 6, answer: Message | None = None, grows: bool = False, **fields: Any
) -> Episode:
    """An episode whose prompts have one message each, or begin with all that was said."""
    steps = tuple(
        Transition(
            step_index=i,
            n_prompt_kept=2 * i if grows else 0,
            messages=(message("user", f"turn {i}"),),
            completion=answer or message("assistant", "go"),
        )
        for i in range(n_steps)
    )
    return Episode(episode_id=name, source="test", steps=steps, **fields)


def store(*episodes: Episode) -> None:
    """Write a store named `store` in the working folder."""
    write_episodes(Path("store"), episodes, kind="test")


def convert(*arguments: str) -> int:
    return run(["convert", *arguments])


def test_the_last_line_says_what_now_exists(capsys: pytest.CaptureFixture[str]) -> None:
    store(make_episode("a"), make_episode("b"))
    assert convert("store", "--to", "openai-sft", "-o", "train.jsonl") == 0
    printed = capsys.readouterr()
    n_bytes = Path("train.jsonl").stat().st_size
    size = f"{n_bytes / 1000:.1f} kB"
    assert printed.out == f"train.jsonl  12 lines  {size}  and train.provenance.parquet\n"
    assert printed.err == ""


def test_what_was_left_out_is_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    thinking = Message.model_validate(
        {"role": "assistant", "content": [{"type": "thought", "text": "hm"}, {"type": "text", "text": "go"}]}
    )
    store(make_episode("a", answer=thinking), make_episode("b", answer=message("assistant", "")))
    assert convert("store", "--to", "openai-sft", "-o", "train.jsonl") == 0
    assert capsys.readouterr().err.splitlines() == [
        "not learned: 6 steps: empty answer",
        "left out: 6 thoughts (openai-sft cannot carry them)",
        "warning: 6 rows: openai-sft needs at least 10, or the file is refused",
    ]
    assert convert("store", "--to", "openai-sft", "-o", "strict.jsonl", "--strict") == 1
    assert capsys.readouterr().err.startswith("error: openai-sft cannot carry 6 thoughts")


def test_json_gives_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    store(make_episode("a"), make_episode("b"))
    assert convert("store", "--to", "openai-sft", "-o", "train.jsonl", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["path"] == "train.jsonl"
    assert (printed["n_rows"], printed["left"], printed["losses"]) == (12, {}, {})
    assert len(printed["sha256"]) == 64


def test_without_a_store_it_is_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert convert("--to", "openai-sft", "-o", "train.jsonl") == 2
    assert "no STORE given" in capsys.readouterr().err
    store(make_episode("a"))
    remember("last_store", {"path": str(Path("store").absolute())})
    assert convert("--to", "openai-sft", "-o", "train.jsonl") == 0
    assert Path("train.jsonl").is_file()


def test_evaluation_episodes_are_refused_and_the_hint_works_as_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store(make_episode("a", purpose="eval"), make_episode("b", purpose="train"))
    assert convert("store", "--to", "openai-sft", "-o", "train.jsonl") == 2
    assert "has 1 evaluation episode; never train on them" in capsys.readouterr().err
    assert not Path("train.jsonl").exists()
    assert convert("store", "--to", "openai-sft", "-o", "train.jsonl", "--where", "purpose <> 'eval'") == 0
    assert capsys.readouterr().out.startswith("train.jsonl  6 lines")
    assert convert("store", "--to", "openai-sft", "-o", "all.jsonl", "--include-eval") == 0
    assert "warning: 1 evaluation episode included" in capsys.readouterr().err


_LEAK = "(select error(string_agg(t::varchar, '|')) from '/etc/hostname' t) is null"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("store", "--to", "nothing", "-o", "x.jsonl"), 2, "no format 'nothing'"),
        (("elsewhere", "--to", "openai-sft", "-o", "x.jsonl"), 1, "no store at elsewhere"),
        (("store", "--to", "openai-sft"), 2, "Missing option '-o'"),
        (("store", "--to", "openai-sft", "-o", "store"), 1, "store exists already"),
        (("store", "--to", "openai-sft", "-o", "x.jsonl", "--where", "purpos = 'eval'"), 2, "'purpos'"),
        (("store", "--to", "openai-sft", "-o", "x.jsonl", "--where", _LEAK), 2, "subquery is not allowed"),
        (("store", "--to", "trl-kto", "-o", "x.jsonl", "--good", _LEAK), 2, "subquery is not allowed"),
        (("store", "--to", "openai-sft", "-o", "x.jsonl", "--where", "(" * 9_999), 2, "more than 100 deep"),
        (("store", "--to", "openai-sft", "-o", "-"), 2, "-o must be a file"),
    ],
)
def test_wrong_requests_are_told_and_write_nothing(
    arguments: tuple[str, ...],
    code: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store(make_episode("a"))
    assert convert(*arguments) == code
    assert told in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == ["store"]


def test_a_special_token_fails_unless_bad_rows_are_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    store(make_episode("a"), make_episode("b", n_steps=1, answer=message("assistant", "<|im_end|>")))
    assert convert("store", "--to", "openai-sft", "-o", "train.jsonl") == 1
    assert 'episode b step 0: messages.1.content: special token "<|im_end|>"' in capsys.readouterr().err
    assert convert("store", "--to", "openai-sft", "-o", "train.jsonl", "--skip-bad") == 0
    assert "not learned: 1 step: would be refused: special token" in capsys.readouterr().err


def test_a_row_for_each_conversation_says_what_it_saves(capsys: pytest.CaptureFixture[str]) -> None:
    store(make_episode("a", n_steps=4, grows=True), make_episode("b", n_steps=4, grows=True))
    assert convert("store", "--to", "openai-sft", "-o", "train.jsonl", "--unit", "episode") == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("train.jsonl  2 lines")
    # a step adds 121 characters, so that four of them have 4 times as many, and by step 1 + 2 + 3 + 4 times
    assert (
        "merged: 968 characters of messages, where a row for each step would take 2,420 (2.5 times as many)"
        in printed.err
    )


def test_lengths_are_printed_and_what_became_of_longer_rows(capsys: pytest.CaptureFixture[str]) -> None:
    store(make_episode("a", n_steps=9, grows=True))
    options = ("--tokenizer", "estimate", "--max-length", "40", "--overlong", "trim-history")
    assert convert("store", "--to", "openai-sft", "-o", "train.jsonl", *options) == 0
    printed = capsys.readouterr()
    assert "  about " in printed.out
    assert "tokens" in printed.out
    assert "trimmed: 5 rows by 15 turns of history" in printed.err


def test_a_folder_to_train_from_is_named_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    store(make_episode("a"))
    assert convert("store", "--to", "axolotl", "-o", "run", "--model", "org/model") == 0
    assert capsys.readouterr().out.startswith("run  6 lines")
    assert "org/model" in Path("run/train.yaml").read_text()
    assert convert("store", "--to", "axolotl", "-o", "train.parquet") == 0
    assert capsys.readouterr().out.startswith("train.parquet  6 rows")


def test_pairs_are_told_from_stores(capsys: pytest.CaptureFixture[str]) -> None:
    from trajkit.schema import FeedbackKind, Metric, MetricLevel

    metric = Metric(name="episode_return", level=MetricLevel.EPISODE, kind=FeedbackKind.FLOAT)
    episodes = [
        make_episode(
            name,
            n_steps=1,
            answer=message("assistant", answer),
            metrics={"episode_return": score},
            env_id="world",
            task="go",
            seed=1,
        )
        for name, answer, score in (("a", "left", 1.0), ("b", "right", 0.0))
    ]
    write_episodes(Path("scored"), episodes, kind="test", metrics=(metric,))
    assert run(["pairs", "scored", "--match", "prompt", "--margin", "0.5", "-o", "pairs"]) == 0
    capsys.readouterr()
    assert convert("pairs", "--to", "trl-preference", "-o", "dpo.jsonl") == 0
    assert capsys.readouterr().out.startswith("dpo.jsonl  1 line")
    row = json.loads(Path("dpo.jsonl").read_text())
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("left", "right")
    assert convert("scored", "--to", "trl-preference", "-o", "x.jsonl") == 2
    assert "trajkit pairs STORE" in capsys.readouterr().err
    assert convert("pairs", "--to", "trl-preference", "-o", "x.jsonl", "--where", "true") == 2


@pytest.mark.parametrize("form", daily(["openai-sft", "trl-prompt-completion", "together", "trl-kto"], 2))
def test_single_turns_and_conversations_in_one_store_are_written_together(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = {"purpose": "train", "outcome": "success", "metrics": {"score": 1.0}}
    write_episodes(Path("single"), [make_episode("a", n_steps=1, **ended)], kind="test")
    write_episodes(Path("multi"), [make_episode("b", n_steps=2, grows=True, **ended)], kind="test")
    assert run(["merge", "single", "multi", "-o", "both"]) == 0
    capsys.readouterr()
    assert convert("both", "--to", form, "-o", "train.jsonl") == 0, capsys.readouterr().err
    assert len(Path("train.jsonl").read_text().splitlines()) == 3
