"""Rows of steps and rows of conversations: what is merged, what is learned, and where each row is from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.curation.rows.conftest import DatasetOf, episode
from tests.formats.exchange import say
from tests.matrix import daily
from trajkit.curation.rows.file import convert
from trajkit.curation.rows.provenance import read_facts
from trajkit.errors import DataError, RequestError
from trajkit.formats import format_named
from trajkit.formats.base import SftFormat
from trajkit.schema import Episode, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes

TOOL = {"name": "look", "description": "See", "parameters": {"type": "object", "properties": {}}}


def talk(n_steps: int, **changes: dict[str, Any]) -> tuple[Transition, ...]:
    """A conversation that only grows; `changes` by step, as `s2={"loss_weight": 0}`."""
    steps: list[Transition] = []
    for index in range(n_steps):
        first = (message("system", "Play."), message("user", "turn 0"))
        fields: dict[str, Any] = {
            "step_index": index,
            "n_prompt_kept": 2 * index + 1 if index else 0,
            "messages": (message("user", f"turn {index}"),) if index else first,
            "completion": message("assistant", f"answer {index}"),
            **changes.get(f"s{index}", {}),
        }
        steps.append(Transition(**fields))
    return tuple(steps)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def said_of(row: dict[str, Any]) -> list[tuple[str, Any]]:
    """Each message as its text, and whether it is learned."""
    return [
        (each["content"], each.get("weight", 1) if each["role"] == "assistant" else None)
        for each in row["messages"]
    ]


@pytest.fixture(params=["columns", "python"])
def form(request: pytest.FixtureRequest) -> SftFormat:
    """`openai-sft`, written from columns and by Python."""
    found = format_named("openai-sft")
    return found if request.param == "columns" else replace(found, plain=None)


def test_a_conversation_is_one_row_whose_answers_are_all_learned_once(
    form: SftFormat, tmp_path: Path, dataset_of: DatasetOf
) -> None:
    made = convert(dataset_of(episode(steps=talk(3))), tmp_path / "t.jsonl", to=form, unit="episode")
    (row,) = rows_of(made.path)
    assert said_of(row) == [
        ("Play.", None),
        *(pair for i in range(3) for pair in ((f"turn {i}", None), (f"answer {i}", 1))),
    ]
    assert (made.n_rows, made.n_learned, made.left) == (1, 3, {})


def test_merging_says_what_it_saves(form: SftFormat, tmp_path: Path, dataset_of: DatasetOf) -> None:
    steps = talk(3)
    made = convert(dataset_of(episode(steps=steps)), tmp_path / "t.jsonl", to=form, unit="episode")
    size = [_size(step) for step in steps]
    assert made.saving.n == sum(size)
    assert made.saving.n_by_step == size[0] + (size[0] + size[1]) + sum(size)


def _size(step: Transition) -> int:
    from trajkit.store.arrow import message_value

    texts = ([message_value(each) for each in step.messages], message_value(step.completion))
    return sum(len(json.dumps(text, separators=(",", ":"))) for text in texts)


def test_a_step_that_is_not_learned_is_context_in_the_conversation(
    form: SftFormat, tmp_path: Path, dataset_of: DatasetOf
) -> None:
    steps = talk(4, s1={"loss_weight": 0, "mask_reason": "bad"}, s3={"loss_weight": 0, "mask_reason": "bad"})
    made = convert(dataset_of(episode(steps=steps)), tmp_path / "t.jsonl", to=form, unit="episode")
    (row,) = rows_of(made.path)
    assert [weight for _, weight in said_of(row) if weight is not None] == [1, 0, 1]
    assert row["messages"][-1]["content"] == "answer 2"
    assert (made.n_learned, made.left) == (2, {"bad": 2})


@pytest.mark.parametrize(
    "break_",
    [
        {"n_prompt_kept": 0, "messages": (message("system", "Play."), message("user", "turn 2"))},
        {"n_prompt_kept": 4, "messages": (message("assistant", "I said so"), message("user", "turn 2"))},
        {"n_prompt_kept": 1, "messages": (message("user", "short"),)},
        {"tools": (TOOL,)},
    ],
    ids=["new prompt", "other answer", "cut", "other tools"],
)
def test_a_prompt_that_does_not_go_on_begins_a_new_row_and_teaches_nothing_twice(
    break_: dict[str, Any], form: SftFormat, tmp_path: Path, dataset_of: DatasetOf
) -> None:
    steps = talk(3, s2=break_)
    made = convert(dataset_of(episode(steps=steps)), tmp_path / "t.jsonl", to=form, unit="episode")
    rows = rows_of(made.path)
    assert [[text for text, weight in said_of(row) if weight == 1] for row in rows] == [
        ["answer 0", "answer 1"],
        ["answer 2"],
    ]
    provenance = pq.read_table(made.provenance).to_pylist()
    assert [row["row"] for row in provenance] == [0, 0, 1]


def test_thoughts_that_leave_the_history_begin_a_new_row_unless_they_are_stripped(
    tmp_path: Path, dataset_of: DatasetOf
) -> None:
    thinking = say("assistant", {"type": "thought", "text": "hm"}, "answer 0")
    history = (message("assistant", "answer 0"), message("user", "turn 1"))
    steps = talk(2, s0={"completion": thinking}, s1={"n_prompt_kept": 2, "messages": history})
    dataset = dataset_of(episode(steps=steps))
    kept = convert(dataset, tmp_path / "kept.jsonl", to="together", unit="episode")
    assert kept.n_rows == 2
    stripped = convert(dataset, tmp_path / "out.jsonl", to="together", unit="episode", thoughts="strip")
    assert (stripped.n_rows, stripped.n_learned, stripped.n_stripped) == (1, 2, 1)
    assert stripped.losses == {}


def test_a_format_that_learns_one_answer_gets_a_row_for_each(tmp_path: Path, dataset_of: DatasetOf) -> None:
    dataset = dataset_of(episode(steps=talk(3)))
    made = convert(dataset, tmp_path / "e.jsonl", to="trl-prompt-completion", unit="episode")
    by_step = convert(dataset, tmp_path / "s.jsonl", to="trl-prompt-completion")
    assert made.sha256 == by_step.sha256
    assert made.n_rows == 3
    assert "the rows of --unit episode are those of --unit step" in made.warnings[0]


def test_a_format_that_learns_every_answer_takes_no_row_in_which_one_is_context(
    tmp_path: Path, dataset_of: DatasetOf
) -> None:
    dataset = dataset_of(episode(steps=talk(3, s1={"loss_weight": 0, "mask_reason": "bad"})))
    with pytest.raises(
        DataError, match=r"step 2: messages\.4: an answer that is only context would be learned"
    ):
        convert(dataset, tmp_path / "t.jsonl", to="trl-messages", unit="episode")
    whole = convert(
        dataset_of(episode(steps=talk(3)), name="w"), tmp_path / "t.jsonl", to="trl-messages", unit="episode"
    )
    assert whole.n_rows == 1


@pytest.mark.full
@pytest.mark.parametrize("unit", ["step", "episode"])
@pytest.mark.parametrize(
    "name", daily(["openai-sft", "sharegpt", "trl-messages", "together", "axolotl", "vertex"], 2)
)
def test_columns_and_python_agree_on_conversations(
    name: str, unit: str, tmp_path: Path, dataset_of: DatasetOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = format_named(name)
    monkeypatch.setattr("trajkit.curation.rows.writers.part._MOST_STEPS", 4)  # episodes lie across batches
    whole = (*talk(1)[0].messages, message("assistant", "answer 0"), message("user", "turn 1"))
    dataset = dataset_of(
        episode("a", steps=talk(4)),
        episode("b", steps=talk(3, s1={"loss_weight": 0})),
        episode("c", steps=talk(3, s1={"completion": None}, s2={"n_prompt_kept": 4})),
        episode("d", steps=talk(2, s1={"completion": message("assistant", 'say "}]} and \\u0041')})),
        episode("e", steps=talk(2, s1={"messages": None, "n_prompt_kept": 0})),
        episode("f", steps=talk(2, s1={"messages": whole, "n_prompt_kept": 0})),
        episode("g", steps=talk(2, s1={"messages": whole[:2], "n_prompt_kept": 0})),
        episode("h", steps=talk(3, s1={"messages": ()}, s2={"n_prompt_kept": 4})),
        *(episode(f"i{number}", steps=talk(3)) for number in range(9)),
    )
    fast = convert(dataset, tmp_path / "f.jsonl", to=form, unit=unit, skip_bad=True)
    slow = convert(dataset, tmp_path / "s.jsonl", to=replace(form, plain=None), unit=unit, skip_bad=True)
    assert fast.path.read_text() == slow.path.read_text()
    names = {"path", "data", "provenance"}
    assert fast.model_dump(exclude=names) == slow.model_dump(exclude=names)


def test_the_provenance_says_of_every_step_which_row_learns_it_or_why_none(
    tmp_path: Path, dataset_of: DatasetOf
) -> None:
    dataset = dataset_of(
        episode("b", steps=talk(2, s1={"loss_weight": 0.5, "inference_id": "i-9"})),
        episode("a", steps=talk(2, s0={"loss_weight": 0, "mask_reason": "not selected"})),
    )
    made = convert(dataset, tmp_path / "train.jsonl", to="openai-sft")
    assert made.provenance == tmp_path / "train.provenance.parquet"
    assert pq.read_table(made.provenance).to_pylist() == [
        {
            "row": None,
            "episode_id": "a",
            "step_index": 0,
            "inference_id": None,
            "weight": 0.0,
            "reason": "not selected",
        },
        {"row": 0, "episode_id": "a", "step_index": 1, "inference_id": None, "weight": 1.0, "reason": None},
        {"row": 1, "episode_id": "b", "step_index": 0, "inference_id": None, "weight": 1.0, "reason": None},
        {"row": 2, "episode_id": "b", "step_index": 1, "inference_id": "i-9", "weight": 0.5, "reason": None},
    ]
    facts = read_facts(made.provenance)
    assert facts["conversion"]["sha256"] == made.sha256
    assert facts["options"]["unit"] == "step"


def test_the_file_does_not_depend_on_how_many_parts_the_store_has(
    tmp_path: Path, dataset_of: DatasetOf
) -> None:
    from trajkit.store.engine import connect
    from trajkit.store.view import create_views
    from trajkit.store.writer import StoreWriter

    names = [f"e{i:02}" for i in range(12)]
    whole = dataset_of(*(episode(name, steps=talk(3)) for name in names), name="whole")
    with connect() as connection, StoreWriter(tmp_path / "parts", kind="test") as writer:
        create_views(connection, whole.store)
        for rest in (2, 0, 1):  # ids interleave between the parts
            mine = f"WHERE CAST(episode_id[2:] AS BIGINT) % 3 = {rest}"
            writer.add(
                connection,
                episodes=f"(SELECT * FROM episodes {mine})",
                steps=f"(SELECT * FROM steps {mine})",
                feedback=f"(SELECT * FROM feedback {mine})",
            )
        writer.finish()
    for unit in ("step", "episode"):
        one = convert(whole, tmp_path / f"one-{unit}.jsonl", to="openai-sft", unit=unit)
        many = convert(
            open_dataset(tmp_path / "parts"), tmp_path / f"many-{unit}.jsonl", to="openai-sft", unit=unit
        )
        assert one.sha256 == many.sha256
        assert pq.read_table(one.provenance).equals(pq.read_table(many.provenance))


def test_an_option_that_makes_no_sense_is_refused(tmp_path: Path, dataset_of: DatasetOf) -> None:
    dataset = dataset_of(episode())
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("transitions", {"unit": "episode"}, "--unit makes no sense with transitions"),
        ("openai-sft", {"good": "true"}, "--good makes no sense with openai-sft"),
        ("openai-sft", {"max_length": 10}, "a length in tokens needs a tokenizer"),
        ("openai-sft", {"overlong": "drop"}, "--overlong drop needs --max-length"),
        ("openai-sft", {"unit": "token"}, "unit: Input should be 'step' or 'episode'"),
    ]
    for name, options, told in cases:
        with pytest.raises(RequestError, match=told):
            convert(dataset, tmp_path / "t.jsonl", to=name, **options)


@pytest.mark.full
def test_memory_is_bounded_by_chunks_of_episodes(tmp_path: Path) -> None:
    from trajkit.curation.rows.steps import Steps

    steps = tuple(
        Transition(
            step_index=i, messages=(message("user", "x" * 500_000),), completion=message("assistant", "go")
        )
        for i in range(20)
    )
    episodes = (Episode(episode_id=f"e{i}", source="test", purpose="train", steps=steps) for i in range(9))
    write_episodes(tmp_path / "store", episodes, kind="test")
    with Steps(open_dataset(tmp_path / "store")) as found:
        assert len(list(found.chunks())) >= 3  # 90 MB of text, at most 24 MB and an episode each
