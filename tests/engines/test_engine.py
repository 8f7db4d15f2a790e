from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engines import work
from tests.matrix import daily
from trajkit.engines.engine import Engine, engine_named
from trajkit.engines.job import opened
from trajkit.engines.task import main
from trajkit.errors import DataError, RequestError, ServiceError, TrajkitError


@pytest.fixture(params=["local", "slurm"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "slurm":
        request.getfixturevalue("sbatch")
    found = engine_named(request.param, 2)
    assert found is not None
    return found


def ran(folder: Path) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("ran-*"))


def mapped(engine: Engine, function: Callable[[Any], Any], folder: Path, n: int = 3) -> dict[int, Any]:
    items = [{"number": number, "folder": str(folder)} for number in range(n)]
    return dict(engine.map(function, items, what="double", folder=folder / "job"))


def test_every_item_is_done_once_and_the_progress_is_of_the_whole(engine: Engine, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    items = [{"number": number, "folder": str(tmp_path)} for number in range(3)]
    found = engine.map(
        work.double,
        items,
        what="double",
        folder=tmp_path / "job",
        on_progress=lambda *progress: seen.append(progress),
    )
    assert dict(found) == {0: 0, 1: 2, 2: 4}
    assert seen == [("double", 1, 3), ("double", 2, 3), ("double", 3, 3)]
    assert ran(tmp_path) == [0, 1, 2]
    assert mapped(engine, work.double, tmp_path) == {0: 0, 1: 2, 2: 4}
    assert ran(tmp_path) == [0, 1, 2]  # what is done is not done again


def test_an_error_names_the_shard_and_the_row_and_the_rest_is_kept(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"double, shard 3 of 3: episode 'e2', row 7: no number") as caught:
        mapped(engine, work.refuse_two, tmp_path)
    assert caught.value.hint == "number it"
    with pytest.raises(DataError, match="shard 3 of 3"):
        mapped(engine, work.refuse_two, tmp_path)
    assert ran(tmp_path) == [0, 1]


@pytest.mark.parametrize("engine", daily(["local", "slurm"], 1), indirect=True)
def test_a_job_continues_after_a_worker_was_killed(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(TrajkitError, match=r"a worker process died|ended without shard 2 of 3"):
        mapped(engine, work.die_once, tmp_path)
    assert mapped(engine, work.die_once, tmp_path) == {0: 0, 1: 2, 2: 4}


def test_a_bug_is_no_secret(tmp_path: Path, sbatch: None) -> None:
    engine = engine_named("slurm")
    assert engine is not None
    with pytest.raises(TrajkitError, match="double, shard 1 of 1 stopped with KeyError"):
        mapped(engine, work.forget_import, tmp_path, n=1)


@pytest.mark.full
def test_a_task_that_runs_twice_does_no_harm(
    tmp_path: Path, sbatch: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SBATCH_TWICE", "1")
    engine = engine_named("slurm", 2)
    assert engine is not None
    assert mapped(engine, work.double, tmp_path) == {0: 0, 1: 2, 2: 4}


def test_without_sbatch_another_scheduler_may_start_the_tasks(tmp_path: Path) -> None:
    if shutil.which("sbatch"):
        pytest.skip("this machine has Slurm")
    engine = engine_named("slurm")
    assert engine is not None

    def other_scheduler() -> None:
        while not (scripts := list((tmp_path / "job").glob("*/job.sh"))):
            pass
        for index in range(3):
            assert main(str(scripts[0].parent), str(index)) == 0

    thread = threading.Thread(target=other_scheduler)
    thread.start()
    assert mapped(engine, work.double, tmp_path) == {0: 0, 1: 2, 2: 4}
    thread.join()


def test_sbatch_that_refuses_is_told(tmp_path: Path, sbatch: None) -> None:
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/bash\necho 'Invalid partition: big' >&2; exit 1\n")
    engine = engine_named("slurm")
    assert engine is not None
    with pytest.raises(ServiceError, match="sbatch refused the array: Invalid partition: big"):
        mapped(engine, work.double, tmp_path)


def test_engines_have_names_and_none_is_this_process(tmp_path: Path) -> None:
    assert engine_named(None) is None
    for on, workers in (("spark", None), ("local", 0)):
        with pytest.raises(RequestError):
            engine_named(on, workers)
    with pytest.raises(RequestError, match=r"has no tasks.json"):
        opened(tmp_path)
