"""A working folder of its own, with nothing in the environment that points elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import constants


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty at first."""
    for name in ("HF_TOKEN", "OPENAI_API_KEY", "TOGETHER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.chdir(tmp_path)
    return tmp_path
