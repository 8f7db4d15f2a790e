"""For every test: no database or gateway of the user is touched, and in CI every skip is a failure."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling

from tests import warm

for _name in ("TENSORZERO_CLICKHOUSE_URL", "TENSORZERO_GATEWAY_URL", "TENSORZERO_POSTGRES_URL"):
    os.environ.pop(_name, None)
_state = tempfile.TemporaryDirectory()
os.environ["XDG_STATE_HOME"] = _state.name  # where the jobs are remembered that services were asked for

_TOGETHER = {
    "tests/rollouts/test_round_trip.py": "tests/rollouts/test_session.py",  # one long run of a gateway
    "tests/honest/test_wheel.py": "tests/honest/test_light.py",  # an environment with the wheel alone
}
"""Files whose session fixture is too dear to be made by two workers."""

_MUST_RUN = os.environ.get("TRAJKIT_REQUIRE_ALL") == "1"


@pytest.fixture(scope="session", autouse=True)
def _services_are_forked() -> Iterator[None]:
    """What commands start (model servers, trainings, checks): importing what they need takes up to 5 s."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("stack.process", "registry.check"):
            patch.setattr(f"trajkit.{name}.subprocess", warm.forking())
        patch.setattr("trajkit.stack.local.ClickHouse", warm.with_tables())
        patch.setattr("trajkit.store.writing.spool.connect", warm.spool_connection)
        yield


@pytest.fixture(scope="session")
def stack_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose local stack is up: ClickHouse with TensorZero's tables, and the stand-in model."""
    from trajkit.stack.local import recipe_config, start_stack, stop_stack

    folder = tmp_path_factory.mktemp("stack")
    start_stack(recipe_config(), folder=folder)
    try:
        yield folder
    finally:
        stop_stack(folder=folder)


@pytest.fixture
def in_stack_folder(stack_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test runs in a folder of its own with that stack."""
    from trajkit.stack.state import state_path

    state_path(tmp_path).parent.mkdir()
    shutil.copy(state_path(stack_folder), state_path(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_configure(config: pytest.Config) -> None:
    """All workers of `-n` fork from one process."""
    if getattr(config.option, "numprocesses", None):
        warm.share()


gc.disable()  # until all tests are collected: none of what that makes is garbage, and looking takes seconds


def pytest_collection_finish() -> None:
    gc.freeze()  # every training collects all there is
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


class _ByFile(LoadFileScheduling):
    """A file at a time to each worker, and those together that share what takes long to make."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return _TOGETHER.get(file, file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """How `-n` hands out tests with `--dist loadfile`."""
    return _ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under TRAJKIT_REQUIRE_ALL=1 a skip of anything but a GPU test is a failure.

    A test that needs OpenAI's specification may skip where that file was not named: it is not ours to bring.
    """
    report = yield
    is_excused = item.get_closest_marker("gpu") is not None or "TRAJKIT_OPENAI_SPEC" in str(report.longrepr)
    if _MUST_RUN and report.skipped and not is_excused:
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a file that skips itself while it is read."""
    report = yield
    if _MUST_RUN and report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid}: TRAJKIT_REQUIRE_ALL=1 allows no skip but a GPU test's: {reason}"
