from __future__ import annotations

import pytest

from trajkit._core.lazy import need
from trajkit.errors import MissingExtra


def test_a_package_that_is_there_is_imported():
    assert need("json.decoder", extra="any").JSONDecoder


def test_a_missing_package_says_what_to_install():
    with pytest.raises(
        MissingExtra, match=r"the package no_such_package.*pip install 'trajkit\[local\]'"
    ) as caught:
        need("no_such_package.inside", extra="local")
    assert caught.value.exit_code == 3


def test_a_package_that_misses_one_of_its_own_is_another_problem(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        need("half_installed", extra="local")
