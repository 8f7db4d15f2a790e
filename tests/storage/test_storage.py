"""Stores and files at an address: servers of S3, Google and Azure with faults, and fsspec's memory."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import trajkit
from tests.matrix import daily
from tests.storage.server import BUCKET, SECRET, Fault, Proxy
from trajkit._core.address import Address, place_of
from trajkit._core.sending import left_unsent, publish
from trajkit.cli.main import run
from trajkit.commands.catalog import COMMANDS, load
from trajkit.engines import engine
from trajkit.errors import RequestError, StoreError, TrajkitError
from trajkit.rollouts.options import Options
from trajkit.rollouts.session import open_run, prepare
from trajkit.store.engine import connect, scan
from trajkit.store.reader import open_store

# by aiohttp, about what gcsfs sends
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
ROOT = str(Path(__file__).parents[2])
CHOSEN = ("n_steps > 2", "purpose <> 'eval'")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def memory() -> Iterator[str]:
    name = secrets.token_hex(4)
    yield f"memory://{name}"
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


def chosen(goal: str) -> str:
    made = trajkit.select("sample:babyai", where=CHOSEN, output=goal)
    return made.manifest.digest


def once(kind: str, method: str, part: str, *, times: int = 1) -> Fault:
    left = [times]

    def fault(asked: str, path: str) -> str | None:
        if asked != method or part not in path or not left[0]:
            return None
        left[0] -= 1
        return kind

    return fault


def files(address: str) -> set[str]:
    place = place_of(address)
    assert isinstance(place, Address)
    return set(place.sizes())


OUTPUTS = (
    "archive convert dedupe evaluate export import leak mask merge pairs rebuild redact replay rollout score "
    "select split validate weight"
)
WHOLE = {"manifest.json", *(f"{table}/part-00000.parquet" for table in ("episodes", "steps", "feedback"))}


@pytest.mark.full
def test_every_step_of_a_workflow_gives_at_an_address_what_it_gives_in_a_folder(memory: str) -> None:
    def workflow(root: str) -> list[object]:
        digests: list[object] = [chosen(f"{root}/chosen")]
        sides = trajkit.split(f"{root}/chosen", output=f"{root}/sides")
        digests += [str(sides).replace(root, "")]
        digests += [
            trajkit.merge([f"{root}/sides/train", f"{root}/sides/val"], output=f"{root}/all").manifest
        ]
        digests += [
            str(trajkit.convert(f"{root}/all", to="openai-sft", output=f"{root}/t.jsonl")).replace(root, "")
        ]
        digests += [trajkit.validate(f"{root}/t.jsonl", target="openai").n_errors]
        trajkit.convert(f"{root}/all", to="atif", output=f"{root}/atif")
        digests += [trajkit.import_(f"{root}/atif", output=f"{root}/back").manifest]
        assert trajkit.info(f"{root}/all", check=True).is_recomputed
        digests += [trajkit.stats(f"{root}/all").to_json() | {"stores": None}]
        return [getattr(each, "digest", each) for each in digests]

    assert workflow(memory) == workflow("here")
    assert sorted(path.name for path in Path.cwd().iterdir()) == [".trajkit", "here"]


EVERY_COMMAND = """
    dedupe {b}/good --exact -o {b}/unique
    dedupe {b}/good --near 0.9 -o {b}/near
    mask {b}/good --reason invalid -o {b}/masked
    weight {b}/good --scheme grpo -o {b}/weighted
    split {b}/good --ratio train=0.7,val=0.3 -o {b}/sides
    leak {b}/sides/train {b}/sides/val --workers 2
    merge {b}/sides/train {b}/sides/val -o {b}/whole
    redact {b}/good --no-gate -o {b}/redacted
    replay {b}/good -o {b}/replayed
    pairs {b}/good --margin 0.1 -o {b}/pairs
    convert {b}/good --to openai-sft -o {b}/train.jsonl
    validate {b}/train.jsonl --target openai
    tokens {b}/train.jsonl --model sample:tiny-base
    inspect {b}/train.jsonl
    import {b}/train.jsonl -o {b}/imported
    diff {b}/good {b}/unique
    show {b}/good 0
    info {b}/good
    stats {b}/good
    view {b}/good --html page.html
    report {b}/good -o report
    log {b}/masked
    rebuild {b}/masked -o {b}/again --from stores
    lineage {b}/masked
    tag {b}/good best
    info @best
    select @best --sample 5 --workers 2 -o few
    convert {b}/good --to openai-sft --workers 2 -o shared.jsonl
    tokens {b}/train.jsonl --model sample:tiny-base --workers 2
    sft local --train {b}/good --model sample:tiny-base --dry-run
"""


@pytest.mark.full
@pytest.mark.parametrize("server", ["s3"], indirect=True)
@pytest.mark.usefixtures("server")
def test_every_command_takes_a_store_at_s3(bucket: str, tmp_path: Path) -> None:
    good = chosen(f"{bucket}/good")
    for line in EVERY_COMMAND.strip().splitlines():
        assert run(line.format(b=bucket).split()) == 0, line
        assert not [path for path in tmp_path.iterdir() if ":" in path.name], line
    for same in ("whole", "replayed"):
        assert open_store(f"{bucket}/{same}").manifest.digest == good
    again, masked = (open_store(f"{bucket}/{name}").manifest.digest for name in ("again", "masked"))
    assert again == masked


def test_a_store_at_an_address_has_the_same_digest_and_its_manifest_is_written_last_and_only_once(
    server: Proxy, bucket: str
) -> None:
    assert chosen(bucket) == chosen("here")
    puts = [each for each in server.requests if each.method == "PUT"]
    assert puts[-1].path.endswith("/manifest.json")
    assert puts[-1].is_conditional
    assert files(bucket) == WHOLE
    assert open_store(bucket).manifest.digest == open_store("here").manifest.digest
    with pytest.raises(StoreError, match="exists already"):
        chosen(bucket)


def test_of_two_writers_one_publishes_and_the_store_is_whole(server: Proxy, bucket: str) -> None:
    server.fault = lambda method, path: "slow" if method == "PUT" else None

    def write(where: str) -> str:
        try:
            made = trajkit.select("sample:babyai", where=where, output=bucket).manifest
            return "" if made is None else made.digest
        except StoreError as error:
            return error.message

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(write, ("n_steps > 2", "n_steps > 3"))
    assert (len(first) == 64) != (len(second) == 64), (first, second)
    lost = first if len(second) == 64 else second
    assert "exists already" in lost or "written by another process" in lost
    found = trajkit.info(bucket, check=True)
    assert found.digest in (first, second)
    assert files(bucket) == WHOLE


@pytest.mark.parametrize(
    ("kind", "part"), daily([("503", "steps"), ("lost answer", "manifest"), ("lost answer", ".writing")], 2)
)
def test_a_write_that_fails_once_is_tried_again_and_published_once(
    server: Proxy, bucket: str, kind: str, part: str
) -> None:
    server.fault = once(kind, "PUT", part)
    assert len(chosen(bucket)) == 64
    assert files(bucket) == WHOLE
    assert not place_of(f"{bucket}.writing").exists()


def test_credentials_that_expire_before_the_manifest_leave_nothing_and_no_secret(
    server: Proxy, bucket: str
) -> None:
    server.fault = once("403", "PUT", "manifest", times=99)
    with pytest.raises(StoreError, match=r"is refused: .*The provided token has expired") as caught:
        chosen(bucket)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert files(bucket) == set()
    assert not place_of(f"{bucket}.writing").exists()


def test_an_address_that_may_not_be_looked_at_does_not_pass_for_a_free_one(
    server: Proxy, bucket: str
) -> None:
    server.fault = lambda method, path: "403" if method in ("GET", "HEAD") else None
    with pytest.raises(StoreError, match="is refused"):
        chosen(bucket)
    assert not [each for each in server.requests if each.method in ("PUT", "POST")]


@pytest.fixture
def sending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder of this test's own, and one where senders leave word."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.usefixtures("sending")
@pytest.mark.parametrize("was_sent", daily([False, True], 1))
def test_after_a_sender_was_killed_the_next_write_wins(
    server: Proxy, bucket: str, was_sent: bool, tmp_path: Path
) -> None:
    """A reader sees nothing half. The second case: all was sent, and only the claim is left."""
    arrived, killed = threading.Event(), threading.Event()

    def fault(method: str, path: str) -> str | None:
        if (method, was_sent) == ("PUT", False) and "manifest" in path:
            arrived.set()
            assert killed.wait(60)
            return "cut request"
        if (method, was_sent) == ("DELETE", True):
            arrived.set()
            assert killed.wait(60)
            return "403"
        return None

    server.fault = fault
    words = [
        "select",
        "sample:babyai",
        *(word for each in CHOSEN for word in ("--where", each)),
        "-o",
        bucket,
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "trajkit", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])},
    ) as sender:
        assert arrived.wait(60)
        with pytest.raises(StoreError, match=r"written by another process|exists already"):
            chosen(bucket)
        sender.kill()
    killed.set()
    server.fault = lambda method, path: None
    assert files(bucket) == (WHOLE if was_sent else WHOLE - {"manifest.json"})
    assert place_of(f"{bucket}.writing").exists()
    assert left_unsent() == [bucket]
    assert f"{bucket} was being sent" in str(trajkit.doctor())
    if was_sent:
        expected = open_store(bucket).manifest.digest
        with pytest.raises(StoreError, match="exists already"):
            chosen(bucket)
    else:
        with pytest.raises(StoreError, match="is not a store"):
            open_store(bucket)
        expected = chosen(bucket)
    assert trajkit.info(bucket, check=True).digest == expected
    assert files(bucket) == WHOLE
    assert not place_of(f"{bucket}.writing").exists()
    assert left_unsent() == []


@pytest.mark.usefixtures("sending")
def test_what_a_process_of_another_machine_writes_is_left_alone(server: Proxy, bucket: str) -> None:
    system = fsspec.filesystem(server.protocol)
    system.pipe_file(f"{bucket}.writing", b"elsewhere")
    system.pipe_file(f"{bucket}/steps/part-00000.parquet", b"theirs")
    with pytest.raises(StoreError, match="exists already"):
        chosen(bucket)
    system.rm_file(f"{bucket}/steps/part-00000.parquet")
    with pytest.raises(StoreError, match="is being written by another process, or one was stopped") as caught:
        chosen(bucket)
    assert f"remove {bucket}.writing" in str(caught.value.hint)
    assert place_of(f"{bucket}.writing").read_bytes() == b"elsewhere"
    assert left_unsent() == []


@pytest.mark.full
@pytest.mark.parametrize("server", ["gs", "az"], indirect=True)
@pytest.mark.usefixtures("server")
def test_a_training_file_and_a_large_part_are_sent_and_read_back(bucket: str, tmp_path: Path) -> None:
    chosen(f"{bucket}/good")
    trajkit.convert(f"{bucket}/good", to="openai-sft", output=f"{bucket}/train.jsonl")
    assert trajkit.validate(f"{bucket}/train.jsonl", target="openai").n_errors == 0
    trajkit.import_(f"{bucket}/train.jsonl", output=f"{bucket}/imported")
    assert files(f"{bucket}/imported") == WHOLE
    part, goal = tmp_path / "part.parquet", place_of(f"{bucket}/part.parquet")
    part.write_bytes(secrets.token_bytes(12 << 20))
    publish({goal: part}, goal)
    assert goal.read_bytes() == part.read_bytes()


def multipart_uploads() -> list[object]:
    return fsspec.filesystem("s3").call_s3("list_multipart_uploads", Bucket=BUCKET).get("Uploads", [])


@pytest.mark.full
@pytest.mark.parametrize("server", ["s3"], indirect=True)
@pytest.mark.parametrize(
    "fault", [None, once("503", "PUT", "partNumber=2"), once("cut request", "PUT", "partNumber")]
)
def test_a_large_part_is_sent_in_pieces(
    fault: Fault | None, server: Proxy, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, manifest = large(tmp_path, monkeypatch)
    server.fault = fault or server.fault
    goal = place_of(bucket)
    publish({goal / "part.parquet": part, goal / "manifest.json": manifest}, goal)
    pieces = {
        each.path.partition("partNumber=")[2][0] for each in server.requests if "partNumber" in each.path
    }
    assert pieces == {"1", "2", "3"}
    assert (goal / "part.parquet").read_bytes() == part.read_bytes()
    assert files(bucket) == {"part.parquet", "manifest.json"}
    writes = [each.path for each in server.requests if each.method in ("PUT", "POST")]
    assert writes[-1].endswith("manifest.json")
    assert multipart_uploads() == []


@pytest.mark.parametrize("server", ["s3"], indirect=True)
def test_a_large_part_that_cannot_be_sent_leaves_nothing(
    server: Proxy, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, manifest = large(tmp_path, monkeypatch)
    server.fault = once("403", "PUT", "partNumber=3", times=99)
    goal = place_of(bucket)
    with pytest.raises(StoreError, match="expired"):
        publish({goal / "part.parquet": part, goal / "manifest.json": manifest}, goal)
    assert files(bucket) == set()
    assert multipart_uploads() == []


def large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A file of three pieces of 5 MB, the smallest that S3 takes, and a manifest."""
    import s3fs

    least = 5 << 20
    monkeypatch.setattr(
        s3fs.S3FileSystem, "_put_file", functools.partialmethod(s3fs.S3FileSystem._put_file, chunksize=least)
    )
    part, manifest = folder / "part.parquet", folder / "manifest.json"
    part.write_bytes(secrets.token_bytes(2 * least + 1000))
    manifest.write_text("{}")
    return part, manifest


@pytest.mark.full
def test_reads_that_fail_once_give_the_same_answer_and_refusals_end_in_a_line(
    server: Proxy, bucket: str
) -> None:
    chosen(bucket)
    sql = "SELECT count(*), sum(length(CAST(messages AS VARCHAR))) FROM steps"
    answer = str(trajkit.query(bucket, sql))
    for kind in ("503", "cut answer", "lost answer", "slow"):
        server.fault = once(kind, "GET", "steps")
        assert str(trajkit.query(bucket, sql)) == answer
    for part in ("steps", ""):
        server.fault = once("403", "GET", part, times=99)
        with pytest.raises(StoreError, match=r"expired|Forbidden") as caught:
            trajkit.query(bucket, sql)
        assert "Traceback" not in str(caught.value)


def test_only_the_columns_and_row_groups_that_a_query_needs_are_read(server: Proxy, bucket: str) -> None:
    n = 4096 * 24
    text = pa.array([secrets.token_hex(40) for _ in range(n)])
    table = pa.table({"episode_id": [f"e{row // 10:06}" for row in range(n)], "n": range(n), "text": text})
    raw = io.BytesIO()
    pq.write_table(table, raw, row_group_size=4096, compression="zstd", use_dictionary=["episode_id"])
    path = place_of(f"{bucket}/part.parquet")
    fsspec.filesystem(server.protocol).pipe_file(str(path), raw.getvalue())
    path.stat()
    for sql in (
        "SELECT sum(n) FROM {}",
        "SELECT max(text) FROM {} WHERE episode_id BETWEEN 'e000500' AND 'e000510'",
    ):
        server.requests.clear()
        with connect() as connection:
            connection.execute(sql.format(scan([path]))).fetchall()
        assert 0 < server.n_read < len(raw.getvalue()) / 4


def test_a_rollout_goes_to_an_address_when_it_is_whole(memory: str) -> None:
    played = trajkit.rollout("babyai", policy="expert", task="goto", episodes=2, output=f"{memory}/expert")
    assert played.n_done == open_store(f"{memory}/expert").manifest.counts.n_episodes == 2
    assert str(played.path) == f"{memory}/expert"
    again = trajkit.rollout("babyai", policy="expert", task="goto", episodes=2, output=f"{memory}/expert")
    assert again.path == played.path, "the same run has written it"
    with pytest.raises(StoreError, match="exists already"):
        trajkit.rollout("babyai", policy="expert", task="goto", episodes=3, output=f"{memory}/expert")
    assert sorted(path.name for path in Path.cwd().iterdir()) == [".trajkit"]


def test_fewer_episodes_of_the_same_run_are_not_replaced_at_an_address(memory: str) -> None:
    def stop(_: object) -> None:
        raise TrajkitError("stopped")

    options = {"env_id": "babyai", "tasks": ("goto",), "policy": "expert", "seeds": "0:3", "concurrency": 1}
    session = prepare(Options.model_validate({**options, "store": f"{memory}/expert"}))
    with open_run(session) as run:
        with pytest.raises(TrajkitError, match="stopped"):
            run.play(on_played=stop)
        run.write()
        assert run.journal.n_done == 1
    with open_run(session) as run:
        run.play(on_played=lambda _: None)
        with pytest.raises(StoreError, match="has 1 of the 3 episodes of this run") as caught:
            run.write()
    assert "plays none of them again" in str(caught.value.hint)
    again = trajkit.rollout("babyai", policy="expert", task="goto", seeds="0:3", output=f"{memory}/whole")
    assert again.n_done == open_store(f"{memory}/whole").manifest.counts.n_episodes == 3


# -- with --on -----------------------------------------------------------------------------------------------

SHARED: dict[str, Callable[..., object]] = {
    "select": functools.partial(trajkit.select, where=CHOSEN),
    "split": trajkit.split,
    "dedupe": functools.partial(trajkit.dedupe, exact=True),
    "redact": trajkit.redact,
    "replay": trajkit.replay,
    "convert": functools.partial(trajkit.convert, to="openai-sft", where="purpose <> 'eval'"),
}


@pytest.mark.full
@pytest.mark.parametrize("verb", daily(SHARED, {"split", "convert"}))
def test_shards_become_at_an_address_what_they_become_in_a_folder(verb: str, memory: str) -> None:
    for root in ("here", memory):
        SHARED[verb]("sample:babyai", output=f"{root}/made", workers=1)
    here = {
        str(path.relative_to("here")): path.read_bytes() for path in Path("here").rglob("*") if path.is_file()
    }
    there = {name: (place_of(memory) / name).read_bytes() for name in files(memory)}
    assert here.keys() == there.keys()
    for name, content in here.items():
        assert there[name] == content or name.endswith("manifest.json"), name
        if name.endswith("manifest.json"):
            one, other = (json.loads(each)["digest"] for each in (content, there[name]))
            assert one == other
    assert not list(Path(".trajkit").glob("shards/*"))


@pytest.mark.full
def test_shards_that_were_made_are_sent_again_after_the_service_failed(
    server: Proxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fault = once("403", "PUT", "manifest", times=99)
    with pytest.raises(StoreError, match="is refused"):
        trajkit.select("sample:babyai", where=CHOSEN, output=bucket, workers=2)
    assert files(bucket) == set()
    (kept,) = Path(".trajkit/shards").iterdir()
    server.fault = lambda method, path: None
    monkeypatch.setattr(engine, "run_here", lambda *_: pytest.fail("a shard ran again"))
    made = trajkit.select("sample:babyai", where=CHOSEN, output=bucket, workers=2)
    assert made.manifest.digest == chosen("here")
    assert not kept.exists()


def test_a_damaged_part_at_an_address_is_found_when_it_is_read_whole(memory: str) -> None:
    chosen(f"{memory}/one")
    system, part = fsspec.filesystem("memory"), f"{memory}/one/steps/part-00000.parquet"
    raw = bytearray(system.cat_file(part))
    raw[100] ^= 1
    system.pipe_file(part, bytes(raw))
    with pytest.raises(StoreError, match="sha256 differs"):
        trajkit.info(f"{memory}/one", check=True)
    system.pipe_file(part, bytes(raw[:-1]))
    with pytest.raises(StoreError, match="the manifest says"):
        open_store(f"{memory}/one")


def test_an_address_with_a_password_is_refused_without_showing_it() -> None:
    for address in ("s3://key:hush@bucket/x", "az://c/x?sig=hush"):
        with pytest.raises(RequestError, match="no user, password or query") as caught:
            trajkit.select("sample:babyai", where=CHOSEN, output=address)
        assert "hush" not in str(caught.value)


def test_a_service_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(TrajkitError, match=r"gcsfs.*") as caught:
        open_store("gcs://bucket/x")
    assert caught.value.hint == "pip install 'trajkit[gcs]'"


def _commands() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        found = load(name)
        if isinstance(found, click.Group):
            yield name, found
            yield from ((f"{name} {part}", each) for part, each in found.commands.items())
        elif found is not None:
            yield name, found


def test_every_option_takes_an_address_or_refuses_it() -> None:
    takes = set()
    for name, found in _commands():
        for each in found.params:
            with contextlib.suppress(RequestError):
                if isinstance(each.type, click.Path):
                    if each.callback is not None:
                        each.callback(click.Context(found), each, "s3://b/x")
                    takes.add(f"{name} {each.name}")
    assert {each for each in takes if each.endswith((" file", " path"))} == {
        "import path",
        "tokens file",
        "validate file",
    }
    outputs = {each.removesuffix(" output") for each in takes if each.endswith(" output")}
    assert " ".join(sorted(outputs)) == OUTPUTS
    # stores are read by `open_store`, whose only door is an address or a folder
    stores = ("store", "stores", "train", "val", "a", "b", "source", "from_", "prompts", "what", "evaluation")
    others = {each.rpartition(" ")[2] for each in takes} - {"output", "file", "path", *stores}
    assert others == {"against", "folder", "place"}
    assert "export source" in takes


def test_an_address_that_is_refused_leaves_no_folder() -> None:
    for typed, hint in (
        ("run x.yaml -o s3://b/x", "`trajkit select PATH/STORE -o ADDRESS` copies"),
        ("stats sample:babyai --html s3://b/x.html", "docs/storage.md"),
    ):
        words = typed.split()
        found = load(words[0])
        result = CliRunner().invoke(found, words[1:])
        assert isinstance(result.exception, RequestError)
        assert hint in str(result.exception.hint)
    assert not list(Path.cwd().iterdir())
