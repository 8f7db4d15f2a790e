"""Training files, and a small tokenizer with a chat template of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.formats.validation.rows import Check
from tests.tiny import byte_tokenizer
from trajkit.formats.validation.file import Validation, validate


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Write rows (or bytes) into a file and validate it."""

    def run(*rows: Any, target: str = "trl", raw: bytes | None = None, **options: Any) -> Validation:
        path = tmp_path / "rows.jsonl"
        text = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_bytes(text.encode() if raw is None else raw)
        return validate(path, target=target, **options)

    return run


@pytest.fixture(scope="session")
def make_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str | None], str]:
    """A folder with a tokenizer of bytes and the given chat template."""

    def make(template: str | None) -> str:
        folder = tmp_path_factory.mktemp("tokenizer")
        return byte_tokenizer(folder, template, special=("<|im_start|>", "<|im_end|>"))

    return make
