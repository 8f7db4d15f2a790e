"""Links, devices and FIFOs in what is imported: nothing outside of the folder is read, and nothing blocks."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.formats.test_atif import ASKS, DONE, USER, document
from tests.matrix import daily
from tests.sources.files.test_jobs import trial
from trajkit.cli.main import run

SECRET = "hunter2-is-the-password"
TALK = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
STOLEN = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": SECRET}]}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "p.json").write_text(json.dumps(STOLEN))
    (folder / "p.jsonl").write_text(json.dumps(STOLEN) + "\n")
    (folder / "reward.txt").write_text(SECRET)
    (folder / "trajectory.json").write_text(json.dumps(document(USER, {**DONE, "message": SECRET})))
    return folder


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is imported, with one good document."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps(TALK))
    return folder


def imported(folder: Path, capfd: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    shutil.rmtree("store", ignore_errors=True)
    code = run(["import", str(folder), "-o", "store", *options])
    printed = capfd.readouterr()
    shown = printed.out + printed.err
    if code == 0:
        assert run(["query", "store", "select * from steps", "--json"]) == 0
        shown += capfd.readouterr().out
    assert SECRET not in shown
    return code, shown


def test_links_out_of_a_plain_folder_are_refused_and_counted_and_one_that_stays_is_read(
    outside: Path, given: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (given / "b.json").symlink_to(given / "a.json")
    (given / "more").symlink_to(outside)
    code, shown = imported(given, capfd)
    assert code == 0
    assert "read given as" not in shown
    assert "3 documents" in shown
    assert "left: a link to a folder: not followed" in shown
    for name in ("p.json", "p.jsonl"):
        (given / name).symlink_to(outside / name)
    code, shown = imported(given, capfd)
    assert code == 1
    for name in ("p.json", "p.jsonl"):
        assert f"{name}: the document: a link to a file outside" in shown
    code, shown = imported(given, capfd, "--skip-bad")
    assert code == 0
    assert "left: cannot be read: a link to a file outside" in shown


@pytest.mark.parametrize(
    "place", daily(["agent/trajectory.json", "agent", "verifier/reward.txt", "verifier", "result.json"], 3)
)
def test_a_link_out_of_a_job_of_harbor_is_refused(
    place: str, outside: Path, given: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (given / "a.json").unlink()
    trial(given / "good", document(USER, ASKS, DONE))
    trial(given / "trial", document(USER, ASKS, DONE))
    path = given / "trial" / place
    if path.is_dir():
        path.rename(outside / "moved")
    else:
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
    (outside / "result.json").write_text(f'{{"trial_name": "{SECRET}"}}')
    path.symlink_to(outside / path.name if "." in path.name else outside)
    code, shown = imported(given, capfd)
    assert code == 1
    assert "a link to a file outside" in shown
    code, shown = imported(given, capfd, "--skip-bad")
    assert code == 0
    assert "1 episode" in shown


NAMES = ("a.jsonl", "a.json", "a.parquet", "a.eval", "a_run_00.csv", "a.tar")
TARGETS = ("/dev/zero", "/dev/tty", "fifo", "missing")


@pytest.mark.parametrize(
    ("name", "target"),
    daily(itertools.product(NAMES, TARGETS), [*zip(NAMES, itertools.cycle(TARGETS), strict=False)]),
)
def test_devices_fifos_and_dangling_links_are_refused_and_not_opened(
    name: str, target: str, given: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = given / name
    path.unlink(missing_ok=True)
    if target == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    for options in (
        [],
        ["--from", "openai-chat"],
        ["--from", "inspect"],
        ["--from", "sts"],
        ["--from", "harbor"],
    ):
        code, shown = imported(path, capfd, *options)
        assert code == 2
        assert "not a regular file" in shown or "there is no file" in shown
    (given / "good.json").write_text(json.dumps(TALK))
    code, _ = imported(given, capfd, "--from", "openai-chat", "--skip-bad")
    assert code == 0
