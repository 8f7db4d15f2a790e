"""The pages of jobs from end to end: run from the first command to the last, and printing what is shown."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import BIN, printed
from trajkit.store.reader import open_store

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    name: (DOCS / f"{name}.md").read_text(encoding="utf-8")
    for name in ("tensorzero", "local", "choosing", "cluster")
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working folder of its own, whose services are stopped at the end."""
    (tmp_path / "trajkit.toml").touch()
    yield tmp_path
    subprocess.run([BIN / "trajkit", "down", "--delete-data"], cwd=tmp_path, check=False, capture_output=True)


@pytest.mark.full
@pytest.mark.timeout(400)
def test_from_tensorzero_to_a_tuned_variant(folder: Path) -> None:
    shutil.copytree(ROOT / "recipes" / "babyai", folder, dirs_exist_ok=True)
    done = printed(PAGES["tensorzero"], folder, COLUMNS="100", OMP_NUM_THREADS="1")
    verbs = [shlex.split(each.command)[1] for each in done]
    order = ("export", "select", "split", "leak", "sft", "register", "evaluate", "report", "lineage")
    assert [verb for verb in verbs if verb in order] == list(order)
    assert open_store(folder / "stores" / "measured").manifest.counts.n_episodes == 6
    assert "goto_sft" in (folder / "report" / "report.html").read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.timeout(300)
def test_from_local_rollouts_to_a_tuned_model(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "recipes" / "babyai", tmp_path / "babyai")
    assert len(printed(PAGES["local"], tmp_path, COLUMNS="100", OMP_NUM_THREADS="1")) == 5
    assert (tmp_path / "runs" / "goto-sft" / "model").is_dir()
    assert not (tmp_path / ".trajkit" / "stack").exists(), "nothing was started"


@pytest.mark.full
def test_choosing(tmp_path: Path) -> None:
    assert len(printed(PAGES["choosing"], tmp_path, COLUMNS="100")) == 6
    assert open_store(tmp_path / "stores" / "weighted").manifest.lineage[-1].verb == "weight"


@pytest.mark.full
def test_a_cluster_makes_the_same_store(tmp_path: Path) -> None:
    assert len(printed(PAGES["cluster"], tmp_path, COLUMNS="100")) == 2
    here, two = (open_store(tmp_path / "stores" / name).manifest for name in ("here", "two"))
    assert here.digest == two.digest


def test_what_choosing_brought_is_what_the_results_say() -> None:
    results = (DOCS / "results.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:nothing|random|good|and)\b[\w :,]* \|(.*)\|$", PAGES["choosing"], re.MULTILINE)
    assert len(rows) == 4
    for row in rows:
        n, *at_1, best, less = (cell.strip() for cell in row.split("|"))
        for numbers in ([n, *at_1], [n, best, less]):
            wanted = [number for number in numbers if number]
            assert any(all(f" {number} |" in line for number in wanted) for line in results.splitlines()), row
