"""Steps that stand alone: the file is that which Python writes, whatever there is between plain rows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.curation.rows.conftest import episode, step
from tests.matrix import daily
from trajkit.curation.rows.file import convert
from trajkit.curation.rows.writers.part import PartSteps
from trajkit.formats.base import Unit
from trajkit.formats.openai import OPENAI_SFT
from trajkit.schema import Episode, Transition, message
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.store.writer import write_episodes

SLOW = replace(OPENAI_SFT, plain=None)
TOOLS = ({"name": "look", "parameters": {"type": "object", "properties": {}}},)
ODD = (
    {"say": "a brace at the end {"},
    {"say": 'a "quote", a \\ and {"role":"user"}'},
    {"say": "é\u2028\U0001f600\t"},
    {"say": "\x1b[0m"},
    {"tools": TOOLS},
    {"tools": ()},
    {"loss_weight": 0.0, "mask_reason": "noop"},
    {"loss_weight": 0.0},
    {"loss_weight": 0.5},
    {"completion": None},
    {"messages": None},
    {"completion": message("assistant", "")},
    {"messages": (message("user", "a"), message("assistant", "b"), message("user", "c"))},
    {"messages": (message("user", "a"), message("tool", "b"))},
    {"messages": ()},
    {"completion": message("assistant", "<|im_end|>")},
)


def steps_of(number: int) -> Iterator[Transition]:
    for index in range(10):
        odd = ODD[(number + index) % len(ODD)] if (number + index) % 3 == 0 else {}
        yield step(index, **{"say": f"turn {index} of {number}", **odd})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    episodes: Iterator[Episode] = (
        episode(f"ep-{number:03}", steps=tuple(steps_of(number)), seed=number) for number in range(450)
    )
    folder = tmp_path_factory.mktemp("alone") / "store"
    write_episodes(folder, episodes, kind="test")
    return open_dataset(folder)


@pytest.mark.parametrize(
    "condition",
    daily([None, "seed % 7 = 3", "seed > 400", "seed = 17", "seed < 5 OR seed > 445"], 2),
)
def test_columns_and_python_write_the_same_files(
    condition: str | None, dataset: Dataset, tmp_path: Path
) -> None:
    (part,) = dataset.store.parts("steps")
    assert pq.read_metadata(part).num_row_groups > 1
    chosen = dataset if condition is None else dataset.where(condition)
    made = convert(chosen, tmp_path / "fast.jsonl", to=OPENAI_SFT, skip_bad=True)
    slow = convert(chosen, tmp_path / "slow.jsonl", to=SLOW, skip_bad=True)
    assert made.path.read_bytes() == slow.path.read_bytes()
    assert pq.read_table(made.provenance).equals(pq.read_table(slow.provenance))
    names = {"path", "data", "provenance"}
    assert made.model_dump(exclude=names) == slow.model_dump(exclude=names)
    if condition is None:
        assert {"noop", "weight 0", "no answer", "prompt unknown"} <= set(made.left)
        assert made.n_learned + sum(made.left.values()) == 4500


def test_many_small_batches_give_the_lines_of_a_few_large_ones(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = dataset.store.parts("steps")
    assert OPENAI_SFT.plain is not None
    plain = OPENAI_SFT.plain(Unit.STEP)
    few = list(PartSteps(part, None).tables(plain, merges=False))
    monkeypatch.setattr("trajkit.curation.rows.writers.part._MOST_STEPS", 50)
    many = list(PartSteps(part, None).tables(plain, merges=False))
    assert (len(few), len(many)) == (3, 90)
    assert pa.concat_tables(many).equals(pa.concat_tables(few))


def test_only_row_groups_with_chosen_steps_are_read(tmp_path: Path) -> None:
    episodes = (episode(f"ep-{number:04}", n_steps=3, seed=number) for number in range(1500))
    write_episodes(tmp_path / "store", episodes, kind="test")
    last = open_dataset(tmp_path / "store").where("seed = 1499")
    ids = last.arrow().read_all().column("episode_id").combine_chunks()
    (part,) = last.store.parts("steps")
    group = pq.read_metadata(part).row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    (place,) = [each.data_page_offset for each in columns if each.path_in_schema == "messages"]
    data = bytearray(part.read_bytes())
    data[place : place + 64] = bytes(64)
    part.write_bytes(data)
    (table,) = PartSteps(part, ids).tables(None, merges=False)
    assert table.column("step_index").to_pylist() == [0, 1, 2]
    with pytest.raises(OSError, match="deserialize"):
        list(PartSteps(part, None).tables(None, merges=False))


@pytest.mark.full
def test_rows_of_plain_text_need_no_pandas(tmp_path: Path) -> None:
    # importing it takes longer than the rows of a small store
    code = (
        "import pathlib, sys\n"
        "from trajkit.curation.rows.file import convert\nfrom trajkit.store.dataset import open_dataset\n"
        "for unit in ('step', 'episode'):\n"
        "    convert(open_dataset('store'), pathlib.Path(unit), to='openai-sft', unit=unit)\n"
        "assert 'pandas' not in sys.modules\n"
    )
    write_episodes(tmp_path / "store", (episode(f"ep-{n}") for n in range(9)), kind="test")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
