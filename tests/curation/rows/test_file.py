from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.curation.rows.conftest import DatasetOf, Judged, episode, step
from tests.formats.exchange import say
from tests.matrix import examples
from trajkit.curation.rows.file import convert
from trajkit.curation.rows.tally import counted
from trajkit.errors import DataError, NothingMatched, RequestError, StoreError
from trajkit.formats.openai import OPENAI_SFT
from trajkit.schema import Episode, Message, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes

PAIRS = Path(__file__).parent / "pairs"
SFT = "openai-sft"


def thinking(text: str = "go") -> Message:
    return say("assistant", {"type": "thought", "text": "hm"}, text)


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "store")


@pytest.mark.parametrize("name", sorted(path.name.partition(".")[0] for path in PAIRS.glob("*.episode.json")))
def test_each_episode_of_the_pairs_gives_its_lines_byte_for_byte(
    name: str, tmp_path: Path, dataset_of: DatasetOf, judged: Judged
) -> None:
    goal = tmp_path / "train.jsonl"
    episode = Episode.model_validate_json((PAIRS / f"{name}.episode.json").read_bytes())
    made = convert(dataset_of(episode), goal, to=SFT)
    assert goal.read_text(encoding="utf-8") == (PAIRS / f"{name}.{SFT}.jsonl").read_text(encoding="utf-8")
    assert {"left": made.left, "losses": made.losses} == json.loads(
        (PAIRS / f"{name}.tally.json").read_text()
    )
    assert len(judged(goal)) == made.n_rows


def test_the_summary_says_what_the_file_is(tmp_path: Path, dataset_of: DatasetOf) -> None:
    dataset = dataset_of(*(episode(f"ep-{i}", n_steps=3) for i in range(5)))
    made = convert(dataset, tmp_path / "train.jsonl", to=SFT)
    data = made.path.read_bytes()
    assert (made.n_rows, made.n_episodes, made.n_steps) == (15, 5, 15)
    assert (made.n_bytes, made.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert (made.store, made.store_digest) == (dataset.store.path, dataset.store.manifest.digest)
    assert made.warnings == ()


def test_lines_come_by_episode_id_and_step_whatever_the_parts(
    tmp_path: Path, dataset_of: DatasetOf, judged: Judged
) -> None:
    names = [f"ep-{(i * 37) % 31:03}" for i in range(31)]
    episodes = [
        episode(name, steps=tuple(step(i, say=f"{name} {i}") for i in range(12)), metrics={"n": float(i)})
        for i, name in enumerate(names)
    ]
    dataset = dataset_of(*episodes).order_by("n", descending=True)
    made = convert(dataset, tmp_path / "train.jsonl", to=SFT)
    assert [row["messages"][1]["content"] for row in judged(made.path)] == [
        f"{name} {i}" for name in sorted(names) for i in range(12)
    ]


def test_prompts_of_a_long_conversation_are_whole(
    tmp_path: Path, dataset_of: DatasetOf, judged: Judged
) -> None:
    steps = [step(0)]
    for i in range(1, 40):
        kept = 2 * i + 1
        steps.append(step(i, n_prompt_kept=kept, messages=(message("user", f"turn {i}"),)))
    made = convert(dataset_of(episode(steps=tuple(steps))), tmp_path / "train.jsonl", to=SFT)
    last = judged(made.path)[-1]["messages"]
    assert [each["content"] for each in last[:3]] == ["Play.", "turn 0", "answer 0"]
    assert [each["content"] for each in last[-2:]] == ["turn 39", "answer 39"]
    assert len(last) == 1 + 2 * 40


def test_a_filter_chooses_the_episodes(tmp_path: Path, dataset_of: DatasetOf) -> None:
    dataset = dataset_of(*(episode(f"ep-{i}", metrics={"episode_return": i / 10}) for i in range(10)))
    made = convert(dataset.where("episode_return >= 0.7"), tmp_path / "train.jsonl", to=SFT)
    assert (made.n_episodes, made.n_rows) == (3, 6)


def test_steps_with_no_weight_are_counted_by_reason(tmp_path: Path, dataset_of: DatasetOf) -> None:
    steps = (
        step(0),
        step(1, loss_weight=0, mask_reason="not selected"),
        step(2, loss_weight=0, mask_reason="not selected"),
        step(3, loss_weight=0),
        step(4, loss_weight=-1.5),
        step(5, completion=say("assistant", {"type": "thought", "text": "hm"})),
    )
    made = convert(dataset_of(episode(steps=steps)), tmp_path / "train.jsonl", to=SFT)
    assert made.left == {"empty answer": 1, "negative weight": 1, "not selected": 2, "weight 0": 1}
    assert made.n_rows + sum(made.left.values()) == made.n_steps


def test_evaluation_episodes_are_refused_with_the_way_out(tmp_path: Path, dataset_of: DatasetOf) -> None:
    dataset = dataset_of(
        *(episode(f"ep-{i}", purpose="eval" if i < 3 else ("train", "unknown")[i % 2]) for i in range(9))
    )
    goal = tmp_path / "train.jsonl"
    with pytest.raises(RequestError, match="has 3 evaluation episodes; never train on them") as caught:
        convert(dataset, goal, to=SFT)
    assert left_over(tmp_path) == []
    assert """--where "purpose <> 'eval'\"""" in (caught.value.hint or "")
    assert convert(dataset.where("purpose <> 'eval'"), goal, to=SFT).n_episodes == 6


def test_evaluation_episodes_train_only_when_asked_and_that_is_say(
    tmp_path: Path, dataset_of: DatasetOf
) -> None:
    dataset = dataset_of(*(episode(f"ep-{i}", purpose="eval") for i in range(6)))
    made = convert(dataset, tmp_path / "train.jsonl", to=SFT, include_eval=True)
    assert made.n_evaluation_episodes == 6
    assert made.warnings == ("6 evaluation episodes included: evaluating on them is then void",)


def test_what_the_format_cannot_carry_is_counted(tmp_path: Path, dataset_of: DatasetOf) -> None:
    steps = (step(0, completion=thinking()), step(1), step(2, completion=thinking(), loss_weight=0.25))
    made = convert(dataset_of(episode(steps=steps)), tmp_path / "train.jsonl", to=SFT)
    assert made.losses == {"partial weight": 1, "thought": 2}
    assert made.n_rows == 3


def test_strict_fails_on_a_loss_and_names_the_first(tmp_path: Path, dataset_of: DatasetOf) -> None:
    dataset = dataset_of(episode("ep-0"), episode("ep-1", steps=(step(0), step(1, completion=thinking()))))
    with pytest.raises(
        DataError, match=r"cannot carry 1 thought; .* episode ep-1 step 1: messages.2.content.0"
    ):
        convert(dataset, tmp_path / "train.jsonl", to=SFT, strict=True)
    assert left_over(tmp_path) == []


def test_rows_that_would_be_refused_are_named_with_episode_and_step(
    tmp_path: Path, dataset_of: DatasetOf
) -> None:
    bad = (step(0), step(1, say="<|im_start|>"), *(step(i, say="<|endoftext|>") for i in range(2, 6)))
    dataset = dataset_of(episode("ep-good"), episode("ep-bad", steps=bad))
    goal = tmp_path / "train.jsonl"
    with pytest.raises(DataError, match="5 rows would be refused as openai-sft") as caught:
        convert(dataset, goal, to=SFT)
    assert 'episode ep-bad step 1: messages.1.content: special token "<|im_start|>"' in caught.value.message
    assert caught.value.message.endswith("; and 2 more")
    assert left_over(tmp_path) == []
    made = convert(dataset, goal, to=SFT, skip_bad=True)
    assert (made.n_rows, made.left) == (3, {"would be refused: special token": 5})


def test_too_few_rows_are_written_with_a_warning(tmp_path: Path, dataset_of: DatasetOf) -> None:
    made = convert(dataset_of(episode(n_steps=1)), tmp_path / "train.jsonl", to=SFT)
    assert made.warnings == ("1 row: openai-sft needs at least 10, or the file is refused",)


def test_nothing_to_learn_is_an_error_and_leaves_no_file(tmp_path: Path, dataset_of: DatasetOf) -> None:
    dataset = dataset_of(episode(steps=(step(0, loss_weight=0, mask_reason="not selected"),)))
    goal = tmp_path / "train.jsonl"
    with pytest.raises(NothingMatched, match=r"no step of .* gives a training row") as caught:
        convert(dataset, goal, to=SFT)
    assert caught.value.hint == "steps left out: 1 not selected"
    with pytest.raises(NothingMatched) as caught:
        convert(dataset.where("task = 'none such'"), goal, to=SFT)
    assert caught.value.hint == "no episode with a step was chosen"
    assert left_over(tmp_path) == []


def test_a_file_that_exists_stays_as_it_is(tmp_path: Path, dataset_of: DatasetOf) -> None:
    goal = tmp_path / "train.jsonl"
    goal.write_text("mine")
    with pytest.raises(StoreError, match=r"train\.jsonl exists already") as caught:
        convert(dataset_of(episode()), goal, to=SFT)
    assert "another path" in (caught.value.hint or "")
    assert goal.read_text() == "mine"


def test_an_unknown_format_is_refused_before_anything_is_read(tmp_path: Path, dataset_of: DatasetOf) -> None:
    with pytest.raises(RequestError, match="no format 'alpaca'"):
        convert(dataset_of(episode()), tmp_path / "train.jsonl", to="alpaca")


def test_a_damaged_store_gives_no_file(tmp_path: Path, dataset_of: DatasetOf) -> None:
    dataset = dataset_of(episode())
    (part,) = dataset.store.parts("steps")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(StoreError, match="is not the file that was written"):
        convert(dataset, tmp_path / "train.jsonl", to=SFT)
    assert left_over(tmp_path) == []


def test_messages_that_are_not_messages_are_named(tmp_path: Path, dataset_of: DatasetOf) -> None:
    from trajkit.store.engine import connect
    from trajkit.store.view import create_views
    from trajkit.store.writer import StoreWriter

    dataset = dataset_of(episode("ep-7"), name="good")
    with connect() as connection, StoreWriter(tmp_path / "odd", kind="test") as writer:
        create_views(connection, dataset.store)
        odd = """(SELECT * REPLACE ('[{"role": "oracle", "content": []}]' AS messages) FROM steps)"""
        writer.add(connection, episodes="episodes", steps=odd, feedback="feedback")
        writer.finish()
    with pytest.raises(DataError, match=r"episode ep-7 step 0: 0\.role: .*'system', 'user'"):
        convert(open_dataset(tmp_path / "odd"), tmp_path / "train.jsonl", to=SFT)


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are Unix's")
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, dataset_of: DatasetOf) -> None:
    dataset_of(episode(steps=tuple(step(i, say="x" * 9000) for i in range(9))))
    # a file-size limit makes the operating system refuse the write as a full disk does
    code = (
        "import resource, pathlib\n"
        "from trajkit.curation.rows.file import convert\nfrom trajkit.store.dataset import open_dataset\n"
        "dataset = open_dataset('store')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "convert(dataset, pathlib.Path('train.jsonl'), to='openai-sft')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "StoreError: train.jsonl cannot be written: File too large" in done.stderr
    assert left_over(tmp_path) == []


SLOW = replace(OPENAI_SFT, plain=None)
"""The same format with no SQL."""


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
_block = st.one_of(
    st.builds(dict, type=st.just("text"), text=_text),
    st.builds(dict, type=st.just("thought"), text=_text),
    st.builds(dict, type=st.just("tool_call"), id=st.sampled_from("ab"), name=st.just("f"), arguments=_text),
    st.builds(dict, type=st.just("tool_result"), id=st.sampled_from("ab"), name=st.just("f"), result=_text),
    st.builds(dict, type=st.just("file"), filename=_text),
    st.builds(dict, type=st.just("unknown"), data=_text),
)
_plain = st.builds(dict, type=st.just("text"), text=_text)
_message = st.builds(
    lambda role, blocks: say(role, *blocks),
    st.sampled_from(["system", "user", "assistant", "assistant", "tool"]),
    st.lists(_plain, min_size=1, max_size=1) | st.lists(_block, max_size=3),
)


@st.composite
def _episode(draw: st.DrawFn, name: str) -> Episode:
    steps: list[Transition] = []
    n_available = 0
    for index in range(draw(st.integers(0, 4))):
        messages = draw(st.none() | st.lists(_message, max_size=3).map(tuple))
        kept = draw(st.integers(0, n_available)) if messages is not None else 0
        completion = draw(st.none() | _message)
        n_available = 0 if messages is None else kept + len(messages) + (completion is not None)
        steps.append(
            Transition(
                step_index=index,
                messages=messages,
                n_prompt_kept=kept,
                completion=completion,
                loss_weight=draw(st.sampled_from([1.0, 1.0, 0.0, 0.5])),
                tools=draw(st.none() | st.just(({"name": "f"},)) | st.just(())),
            )
        )
    return Episode(episode_id=name, source="test", steps=tuple(steps))


_episodes = st.sets(st.text("ab0é", min_size=1, max_size=3), min_size=1, max_size=6).flatmap(
    lambda names: st.tuples(*map(_episode, sorted(names)))
)


@examples(3, 20)
@pytest.mark.parametrize("unit", ["step", "episode"])
def test_whatever_the_episodes_the_rows_would_be_taken_and_nothing_goes_uncounted(
    n_examples: int, unit: str, tmp_path_factory: pytest.TempPathFactory, judged: Judged
) -> None:
    @settings(max_examples=n_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(_episodes)
    def check(episodes: tuple[Episode, ...]) -> None:
        folder = tmp_path_factory.mktemp("any")
        write_episodes(folder / "store", episodes, kind="test")
        dataset = open_dataset(folder / "store")
        try:
            made = convert(dataset, folder / "train.jsonl", to=SFT, skip_bad=True, unit=unit)
        except NothingMatched:
            assert left_over(folder) == []
            return
        rows = judged(made.path)
        assert len(rows) == made.n_rows
        assert made.n_learned + sum(made.left.values()) == sum(each.n_steps for each in episodes)
        n_taught = sum(
            each.get("weight", 1) for row in rows for each in row["messages"] if each["role"] == "assistant"
        )
        assert n_taught == made.n_learned
        slow = convert(dataset, folder / "slow.jsonl", to=SLOW, skip_bad=True, unit=unit)
        names = {"path", "data", "provenance"}
        assert slow.model_dump(exclude=names) == made.model_dump(exclude=names)

    check()


def test_losses_are_counted_in_words() -> None:
    assert counted({"thought": 3, "file": 1}) == "1 file, 3 thoughts"
    assert counted({"thought": 12_345}) == "12,345 thoughts"
