"""Inspect's logs as files: zip and JSON, samples that failed, and headers old and new."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from trajkit.errors import DataError
from trajkit.sources.files import logs
from trajkit.sources.files.importing import Wish, import_files
from trajkit.store.dataset import open_dataset

LOG = {"version": 2, "status": "success", "eval": {"task": "maze", "eval_id": "ev1", "model": "m"}}
TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
FAILED = {"message": "TimeoutError('slow')", "traceback": "…", "traceback_ansi": "…"}


def sample(number: int, **fields: object) -> dict[str, object]:
    return {"id": number, "epoch": 1, "messages": TALK, "scores": {"match": {"value": "C"}}, **fields}


def zipped(path: Path, header: str, *samples: dict[str, object], **members: bytes) -> Path:
    """A log of samples, and of members as they are."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in {header: json.dumps(LOG), **members, "summaries.json": "[]"}.items():
            file.writestr(name, data)
        for one in samples:
            file.writestr(f"samples/{one['id']}_epoch_1.json", json.dumps(one))
    return path


def read(path: Path) -> list[Any]:
    return list(logs.logs(path, include_errored=False))


@pytest.mark.parametrize("header", ["header.json", "_journal/start.json", "start.json"])
def test_a_zip_file_has_a_member_per_sample(tmp_path, header):
    zipped(tmp_path / "a.eval", header, sample(1), sample(2))
    imported, _ = import_files(tmp_path / "a.eval", tmp_path / "store", Wish())
    assert (imported.format, imported.n_episodes) == ("inspect", 2)
    assert [episode.task for episode in open_dataset(tmp_path / "store")] == ["1", "2"]


def test_a_json_file_has_them_all(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps({**LOG, "samples": [sample(1), sample(2)]}))
    imported, _ = import_files(path, tmp_path / "store", Wish())
    assert (imported.format, imported.n_episodes) == ("inspect", 2)
    (first, _) = open_dataset(tmp_path / "store")
    assert first.origin["file"] == "log.json:1"
    assert first.metrics == {"match": 1.0}


def test_samples_that_failed_are_set_aside_and_counted(tmp_path):
    zipped(tmp_path / "a.eval", "header.json", sample(1), sample(2, error=FAILED))
    imported, entry = import_files(tmp_path / "a.eval", tmp_path / "store", Wish())
    assert imported.left == {"ended in an error: TimeoutError": 1}
    assert entry.n_episodes_in == entry.n_episodes_out + 1
    everything = Wish(include_errored=True)
    imported, _ = import_files(tmp_path / "a.eval", tmp_path / "both", everything)
    assert sorted(str(episode.outcome) for episode in open_dataset(tmp_path / "both")) == ["error", "success"]


def test_the_same_log_twice_is_named(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    zipped(folder / "a.eval", "header.json", sample(1))
    zipped(folder / "b.eval", "header.json", sample(1))
    imported, _ = import_files(folder, tmp_path / "store", Wish(skip_bad=True))
    assert imported.left == {"cannot be read: an episode id that occurs twice": 1}


def test_a_way_of_packing_that_python_does_not_read_is_named_with_the_way_out(tmp_path):
    path = zipped(tmp_path / "a.eval", "header.json", sample(1))
    data = bytearray(path.read_bytes())
    # the method is 8 in the header of every member, local and central; 93 is zstandard
    for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = data.find(signature)
        while at >= 0:
            data[at + offset : at + offset + 2] = (93).to_bytes(2, "little")
            at = data.find(signature, at + 1)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"method 93.*inspect log convert --to json"):
        import_files(path, tmp_path / "store", Wish())


def test_a_member_that_unpacks_to_too_much_is_named_and_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MOST_BYTES", 1000)
    bomb = {"samples/0.json": b"[" + b" " * 1_000_000 + b"]"}
    path = zipped(tmp_path / "a.eval", "header.json", sample(1), **bomb)
    assert path.stat().st_size < 3000
    first, second = read(path)
    assert (first.place, first.problem.kind) == ("a.eval:samples/0.json", "unpacks to more than 0 MB")
    assert second.reading is not None
    (only,) = read(zipped(tmp_path / "b.eval", "x", **{"header.json": b" " * 1_000_000}))
    assert only.problem.kind == "unpacks to more than 0 MB"


@pytest.mark.parametrize("data", [b"", b"PK nonsense", b"hello"])
def test_a_zip_file_that_is_none_is_named(data, tmp_path):
    (tmp_path / "a.eval").write_bytes(data)
    (only,) = read(tmp_path / "a.eval")
    assert only.problem.kind == "not a readable zip file"


def test_a_member_that_was_damaged_is_named_and_the_others_are_read(tmp_path):
    path = zipped(tmp_path / "a.eval", "header.json", sample(1), sample(2))
    with zipfile.ZipFile(path) as file:
        start = file.getinfo("samples/1_epoch_1.json").header_offset
    data = bytearray(path.read_bytes())
    for position in range(start + 60, start + 70):
        data[position] ^= 0xFF
    path.write_bytes(data)
    first, second = read(path)
    assert first.problem is not None
    assert second.reading is not None
