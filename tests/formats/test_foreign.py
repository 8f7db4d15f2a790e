"""What trajkit writes, checked by the models of other projects."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from bench.harbor_wheel import PRELUDE, unpacked_wheel
from tests.formats.exchange import conversation, conversations, whole
from tests.matrix import examples
from tests.schema.conftest import episodes
from trajkit.formats import format_named, known
from trajkit.formats.atif import ATIF
from trajkit.formats.base import EpisodeFormat, json_line
from trajkit.formats.reading.atif import read_atif
from trajkit.store.dataset import open_dataset

DATASETS = [
    one for name in known() if isinstance(one := format_named(name), EpisodeFormat) and not one.is_file
]
"""Formats whose documents are rows of one file; the others are for looking at, or for their own tools."""

JUDGE = (
    PRELUDE
    + """
import json
for line in open(sys.argv[2], encoding="utf-8"):
    trajectory = Trajectory.model_validate(json.loads(line))
    print(json.dumps(trajectory.model_dump(mode="json", exclude_none=True)))
"""
)


@pytest.fixture(scope="module")
def wheel(request: pytest.FixtureRequest) -> Path:
    """Harbor's wheel, unpacked; kept between runs in pytest's cache."""
    try:
        return unpacked_wheel(request.config.cache.mkdir("harbor"))
    except OSError as error:
        pytest.skip(f"harbor's wheel cannot be fetched: {error}")


def judged(wheel: Path, path: Path) -> list[dict]:
    """The documents of a file as Harbor's models give them back."""
    done = subprocess.run(
        [sys.executable, "-c", JUDGE, str(wheel), str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.full
@examples(40, 150)
def test_harbors_own_models_take_every_document_and_give_it_back(wheel, tmp_path, n_examples):
    found = [whole(), conversation(), *open_dataset("sample:babyai").limit(20)]

    @settings(
        max_examples=n_examples,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(episodes() | conversations())
    def collect(episode):
        found.append(episode)

    collect()
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(f"{json_line(ATIF.write(one).values[0])}\n" for one in found), encoding="utf-8")
    back = judged(wheel, path)
    assert len(back) == len(found) > 22
    assert [read_atif(value).episodes[0] for value in back[:22]] == found[:22]
    value = json.loads(json_line(ATIF.write(conversation()).values[0]))
    value["steps"][0]["step_id"] = 7
    path.write_text(json.dumps(value) + "\n")
    with pytest.raises(AssertionError, match="step_id"):
        judged(wheel, path)


@pytest.mark.parametrize("form", DATASETS, ids=lambda form: form.name)
def test_datasets_loads_every_file_of_rows(form, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    import datasets

    given = [whole(), conversation(episode_id="e2"), *open_dataset("sample:babyai").limit(3)]
    lines = [json_line(value) for episode in given for value in form.write(episode).values]
    path = tmp_path / "all.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    cache = str(tmp_path / "cache")
    rows = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=cache)
    assert len(rows) == len(lines)
    if form.name == "hf-messages":
        assert rows.column_names == ["episode_id", "messages", "tools", "metadata"]
        assert rows["episode_id"][:2] == ["e1", "e2"]
        roles = [message["role"] for message in rows[0]["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "assistant"]
