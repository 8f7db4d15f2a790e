from __future__ import annotations

import stat

import pytest

from trajkit._core.settings import project, remember, remembered, secret_from_environment
from trajkit.errors import ConfigError


def test_a_folder_without_a_file_has_the_defaults(tmp_path):
    assert project(tmp_path).stores == "stores"
    assert project(tmp_path).model is None


def test_the_file_of_the_folder_is_read(tmp_path):
    (tmp_path / "trajkit.toml").write_text('model = "openai::gpt-4.1-mini"\nfunction = "act"\n')
    assert project(tmp_path).model == "openai::gpt-4.1-mini"
    assert project(tmp_path).function == "act"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "modle = 'x'",
            r"modle: Extra inputs are not permitted \(known keys: config, function, input_price, model, "
            r"output_price, reserved, source, stores\)",
        ),
        ("stores = 3", "stores: Input should be a valid string"),
        ("stores = ", "is not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_the_key(tmp_path, text, said):
    (tmp_path / "trajkit.toml").write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        project(tmp_path)
    assert caught.value.exit_code == 2


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "trajkit.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        project(tmp_path)


def test_what_is_remembered_comes_back_and_is_private(tmp_path):
    assert remembered("last_store", folder=tmp_path) is None
    remember("last_store", {"path": "stores/ü"}, folder=tmp_path)
    assert remembered("last_store", folder=tmp_path) == {"path": "stores/ü"}
    assert stat.S_IMODE((tmp_path / ".trajkit" / "last_store.json").stat().st_mode) == 0o600


def test_a_damaged_memory_is_no_memory(tmp_path):
    remember("last_store", {}, folder=tmp_path)
    (tmp_path / ".trajkit" / "last_store.json").write_text("{")
    assert remembered("last_store", folder=tmp_path) is None


def test_a_secret_is_not_in_its_repr_and_an_empty_one_is_none(monkeypatch):
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", "http://user:secret@host/db")
    found = secret_from_environment("TENSORZERO_CLICKHOUSE_URL")
    assert found is not None
    assert "secret" not in repr(found)
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", "")
    assert secret_from_environment("TENSORZERO_CLICKHOUSE_URL") is None
