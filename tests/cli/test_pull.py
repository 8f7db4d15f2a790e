"""`trajkit pull` of other people's datasets, from a Hub of our own over real HTTP."""

from __future__ import annotations

import json
import time
from hashlib import sha256
from pathlib import Path

import pytest

from tests.publishing.hub_standin import HubStandin
from tests.store import test_mutations as damaging
from trajkit.cli.main import run
from trajkit.publishing.files.contents import make_contents
from trajkit.store.reader import open_store

_ROW = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
_BAD = {"messages": [{"role": "nobody"}]}


@pytest.fixture
def standin(standin: HubStandin) -> HubStandin:
    rows = "".join(json.dumps(row) + "\n" for row in (_ROW, _BAD, _ROW)).encode()
    standin.put("dataset", "org/chats", {"train.jsonl": rows}, private=False)
    return standin


def test_a_public_dataset_needs_no_token_and_becomes_the_last_store(
    standin: HubStandin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pull", "org/chats", "-o", "store", "--skip-bad"]) == 0
    shown = capsys.readouterr()
    assert "read as openai-chat" in shown.err
    assert shown.out.splitlines()[-1].startswith("store  2 episodes  2 steps  digest ")
    assert open_store("store").manifest.counts.n_episodes == 2
    assert run(["info", "--json"]) == 0


def test_what_cannot_be_read_stops_it_and_leaves_nothing(
    standin: HubStandin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pull", "org/chats", "-o", "store"]) == 1
    assert "train.jsonl" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_dataset_that_is_not_there_is_a_wrong_request(
    standin: HubStandin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pull", "org/none", "-o", "store"]) == 2
    assert "a private dataset needs HF_TOKEN" in capsys.readouterr().err


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a repository that has the splits train and val."""
    folder = tmp_path_factory.mktemp("published")
    stores = {split: open_store(damaging.base(folder / split)) for split in ("train", "val")}
    (folder / "files").mkdir()
    make_contents(stores, folder / "files")
    return {
        path.relative_to(folder / "files").as_posix(): path.read_bytes()
        for path in (folder / "files").rglob("*")
        if path.is_file()
    }


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize(
    "name", ["../../escaped", "/{tmp}/escaped", "..", "a/b", ".hidden", "a\0b", "", "x\n"]
)
def test_a_split_of_a_record_is_a_name_and_never_a_path(
    name: str,
    published: dict[str, bytes],
    standin: HubStandin,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = json.loads(published["trajkit.json"])
    record["stores"][1]["split"] = name.format(tmp=tmp_path)
    files = {**published, "trajkit.json": json.dumps(record).encode()}
    standin.put("dataset", "org/evil", files, private=False)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    before = everything(tmp_path)
    assert run(["pull", "org/evil", "-o", "deep/er/goal"]) == 1
    assert "trajkit.json of org/evil" in capsys.readouterr().err
    assert everything(tmp_path) == before


@pytest.mark.full
def test_a_store_with_another_digest_than_published_is_not_kept(
    published: dict[str, bytes], standin: HubStandin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads(published["trajkit.json"])
    record["stores"][0]["digest"] = "0" * 64
    files = {**published, "trajkit.json": json.dumps(record).encode()}
    standin.put("dataset", "org/evil", files, private=False)
    for more in ([], ["--split", "train"]):
        assert run(["pull", "org/evil", "-o", "goal", *more]) == 1
        assert f"{'0' * 64} was published" in capsys.readouterr().err
        assert everything(tmp_path) == set()
    assert run(["pull", "org/evil", "-o", "goal", "--split", "val"]) == 0


def test_a_record_or_a_file_that_is_broken_is_an_error_in_words(
    published: dict[str, bytes], standin: HubStandin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads(published["trajkit.json"])
    part = record["stores"][0]["files"]["episodes"][0]
    outside = json.loads(published["trajkit.json"])
    outside["stores"][0]["files"]["episodes"] = ["../../../etc/passwd"]
    twice = json.loads(published["trajkit.json"])
    twice["stores"][1]["split"] = twice["stores"][0]["split"]
    broken = json.loads(published["trajkit.json"])
    next(each for each in broken["files"] if each["path"] == part)["sha256"] = sha256(b"PAR1").hexdigest()
    for files, said in (
        ({"trajkit.json": b'{"a":' * 100_000}, "is nested too deep"),
        ({"trajkit.json": b"\xff"}, "is not valid JSON"),
        ({"trajkit.json": json.dumps(outside).encode()}, "cannot be '..'"),
        ({"trajkit.json": json.dumps(twice).encode()}, "names the split 'train' 2 times"),
        ({part: b"PAR1"}, "its sha256 differs"),
        ({part: b"PAR1", "trajkit.json": json.dumps(broken).encode()}, "are not those of a store"),
    ):
        standin.put("dataset", "org/evil", {**published, **files}, private=False)
        assert run(["pull", "org/evil", "-o", "goal"]) == 1
        assert said in capsys.readouterr().err
        assert everything(tmp_path) == set()


def test_a_card_whose_aliases_have_no_end_is_read_quickly(standin: HubStandin) -> None:
    lists = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(12)
    )
    card = f"---\n{lists}configs:\n- config_name: *m\n  data_files: [*m, '*.jsonl']\n---\n".encode()
    row = json.dumps(_ROW).encode() + b"\n"
    standin.put("dataset", "org/evil", {"README.md": card, "train.jsonl": row}, private=False)
    began = time.process_time()
    assert run(["pull", "org/evil", "-o", "goal"]) == 0
    assert time.process_time() - began < 60


def test_what_was_pulled_is_pulled_again_and_its_history_is_read(
    standin: HubStandin,
    published: dict[str, bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:
    standin.put("dataset", "org/ours", published, private=False)
    assert run(["pull", "org/ours", "-o", "ours"]) == 0
    assert run(["pull", "org/chats", "-o", "theirs", "--skip-bad"]) == 0
    for store in ("ours/train", "theirs"):
        goal = f"again-{Path(store).name}"
        assert run(["rebuild", store, "-o", goal]) == 0, capsys.readouterr().err
        assert open_store(goal).manifest.digest == open_store(store).manifest.digest
    capsys.readouterr()
    assert run(["log", "ours/train"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].startswith("    trajkit pull org/ours@")
    assert shown[1].endswith(" --split train")
    del standin.repositories["dataset", "org/chats"]
    assert run(["rebuild", "theirs", "-o", "never"]) == 1
    assert "it cannot be rebuilt: the dataset org/chats: " in capsys.readouterr().err
    assert run(["rebuild", "ours/train", "--from", "again-train", "-o", "copied"]) == 0, (
        "its digest is enough"
    )
    assert Path("again-train/manifest.json").is_file()
