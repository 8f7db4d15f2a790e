"""docs/evaluate.md, report.md and production.md: what is typed prints what is shown, the Python runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.pages import blocks, printed
from trajkit.evaluation.report import report
from trajkit.evaluation.require import requirement
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store

ROOT = Path(__file__).parents[2]
EVALUATE = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")
REPORT = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
PRODUCTION = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")


def run_python(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = blocks(page, "python")
    monkeypatch.chdir(folder)
    exec(code, {})


@pytest.mark.full
def test_the_page_about_evaluations_prints_what_is_shown(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "recipes" / "babyai", tmp_path / "babyai")
    assert len(printed(EVALUATE, tmp_path, OMP_NUM_THREADS="1")) == 1
    assert len(list(open_dataset(tmp_path / "stores" / "prompts"))) == 20


def test_the_python_about_evaluations_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_python(EVALUATE, tmp_path, monkeypatch)
    assert re.match(
        r"metric='success' task=None value=1\.0 .* low=0\.5\d+ high=1\.0 n=4 n_rooms=None n_models=1\n",
        capsys.readouterr().out,
    )


@pytest.mark.full
def test_the_page_about_reports_prints_what_is_shown(tmp_path: Path) -> None:
    assert len(printed(REPORT, tmp_path, OMP_NUM_THREADS="1")) == 3
    found = {path.name for path in (tmp_path / "report").iterdir()}
    assert found == set(re.findall(r"`(report\.(?:html|md|json))`", REPORT)) | {"charts"}


@pytest.mark.full
def test_the_python_about_reports_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_python(REPORT, tmp_path, monkeypatch)
    assert "metric='success'" in capsys.readouterr().out
    assert (tmp_path / "report" / "report.html").is_file()


def test_the_expressions_of_the_page_about_reports_can_be_read() -> None:
    rows = re.findall(r"^\| `([^`]+[<>][^`]+)` \|", REPORT, flags=re.MULTILINE)
    assert len([requirement(row) for row in rows]) == 6


@pytest.mark.full
def test_from_production_traffic_to_a_tuned_model(tmp_path: Path) -> None:
    """Conversations without an environment, as the page types it."""
    (tmp_path / "trajkit.toml").touch()
    shutil.copy(ROOT / "bench" / "conversations.py", tmp_path)
    (checks,) = blocks(PRODUCTION, "python")
    (tmp_path / "checks.py").write_text(checks)
    printed(PRODUCTION, tmp_path, COLUMNS="120", OMP_NUM_THREADS="1")
    found = report(tmp_path / "stores" / "scored", metrics=["names_state"])
    by_metric = {each.metric: each for each in found.comparisons}
    # the form is learned; whether the content is depends on the machine's arithmetic
    assert by_metric["success"].low > 0.5
    assert by_metric["names_state"].difference < by_metric["success"].difference
    train, test = (open_store(tmp_path / "stores" / "sides" / side) for side in ("train", "test"))
    assert train.manifest.counts.n_episodes + test.manifest.counts.n_episodes >= 240
