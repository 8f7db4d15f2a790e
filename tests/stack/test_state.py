from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import SecretStr

from trajkit.errors import StackError
from trajkit.stack.process import Process, birth_of
from trajkit.stack.state import LocalStack, ModelServer, local_stack, read_state, state_path, write_state

URL = "http://trajkit:s3cret@127.0.0.1:1/tensorzero"


def me() -> Process:
    return Process(pid=os.getpid(), birth=birth_of(os.getpid()) or "", started_at=datetime.now(UTC))


def gone() -> Process:
    return Process(pid=os.getpid(), birth="long ago", started_at=datetime.now(UTC))


def stack(folder: Path, *, clickhouse: Process, server: Process | None = None) -> LocalStack:
    return LocalStack(
        clickhouse_url=SecretStr(URL),
        clickhouse=clickhouse,
        data_folder=folder / "data",
        config_file=folder / "config" / "tensorzero.toml",
        config_source=folder / "tensorzero.toml",
        model=None,
        model_server=ModelServer(url="http://127.0.0.1:2", mistakes=0.2, process=server) if server else None,
    )


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    state = stack(tmp_path, clickhouse=me(), server=me())
    write_state(state, tmp_path)
    assert read_state(tmp_path) == state
    found = local_stack(tmp_path)
    assert found.clickhouse_url.get_secret_value() == URL
    assert found.model_url == "http://127.0.0.1:2"
    assert [process.pid for process in found.processes] == [os.getpid()] * 2
    assert found.is_running


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    write_state(stack(tmp_path, clickhouse=me()), tmp_path)
    assert state_path(tmp_path) == tmp_path / ".trajkit" / "stack.json"
    assert stat.S_IMODE(state_path(tmp_path).stat().st_mode) == 0o600


def test_the_password_is_in_nothing_that_is_shown(tmp_path: Path) -> None:
    state = stack(tmp_path, clickhouse=me(), server=me())
    for shown in (str(state), json.dumps(state.to_json()), state._repr_html_()):
        assert "http://trajkit:***@127.0.0.1:1/tensorzero" in shown
        assert "s3cret" not in shown
    assert "s3cret" not in repr(state)


def test_a_folder_where_nothing_was_started_has_no_stack(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    assert local_stack(tmp_path) is None


def test_a_stack_whose_database_died_is_none_but_is_remembered(tmp_path: Path) -> None:
    write_state(stack(tmp_path, clickhouse=gone(), server=me()), tmp_path)
    assert local_stack(tmp_path) is None
    state = read_state(tmp_path)
    assert not state.is_running


def test_a_file_of_another_shape_is_an_error_that_shows_no_password(tmp_path: Path) -> None:
    write_state(stack(tmp_path, clickhouse=me()), tmp_path)
    path = state_path(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"later": URL}))
    with pytest.raises(StackError, match="is not a state file of this trajkit") as caught:
        read_state(tmp_path)
    assert "s3cret" not in str(caught.value)
    path.write_text("{")
    with pytest.raises(StackError, match="is not a state file of this trajkit"):
        read_state(tmp_path)
