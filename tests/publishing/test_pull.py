"""Reading datasets of the Hub: ours with their digests, other people's by import."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pages import printed
from tests.publishing.hub_standin import TOKEN, Fault, HubStandin
from trajkit.curation.selection.split import split
from trajkit.errors import RequestError, StoreError, TrajkitError
from trajkit.publishing.hub import Hub
from trajkit.publishing.pull import data_files, pull
from trajkit.sources.files.importing import Wish
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store

NAME = "org/chats"
CHAT = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}


def parquet(*rows: dict[str, object]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), file)
    return file.getvalue()


def lines(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_parquet_with_messages_is_imported(standin: HubStandin, hub: Hub, tmp_path: Path) -> None:
    standin.put("dataset", NAME, {"data/train-00000-of-00001.parquet": parquet(CHAT, CHAT)})
    pulled = pull(hub, NAME, tmp_path / "store")
    assert (pulled.stores[0].n_episodes, pulled.stores[0].split) == (2, None)
    assert pulled.imported.format == "hf-messages"
    first, _ = open_dataset(tmp_path / "store")
    assert first.steps[0].completion.text == "ho"
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_session_traces_are_imported(standin: HubStandin, hub: Hub, tmp_path: Path) -> None:
    session = lines(
        {"type": "session", "harness": "my-agent", "id": "s1"},
        {"type": "message", "message": {"role": "user", "content": "hi"}},
        {"type": "message", "message": {"role": "assistant", "content": "ho"}},
    )
    standin.put("dataset", NAME, {"sessions/a.jsonl": session, "README.md": b"# mine\n"})
    assert pull(hub, NAME, tmp_path / "store").stores[0].n_episodes == 1
    (episode,) = open_dataset(tmp_path / "store")
    assert episode.episode_id == "s1"


def test_the_default_configuration_of_the_card_is_read(standin: HubStandin, hub: Hub, tmp_path: Path) -> None:
    card = (
        "---\nconfigs:\n- config_name: raw\n  data_files: raw/*.jsonl\n"
        "- config_name: chats\n  default: true\n  data_files:\n  - split: train\n    path: chats/train*\n"
        "  - split: test\n    path:\n    - chats/test.jsonl\n---\n"
    )
    files = {
        "README.md": card.encode(),
        "raw/x.jsonl": b"{}\n",
        "chats/train-0.jsonl": lines(CHAT),
        "chats/test.jsonl": lines(CHAT, CHAT),
    }
    standin.put("dataset", NAME, files)
    assert pull(hub, NAME, tmp_path / "all").stores[0].n_episodes == 3
    assert pull(hub, NAME, tmp_path / "test", splits=["test"]).stores[0].n_episodes == 2
    with pytest.raises(RequestError, match="chats has no split 'val'") as raised:
        pull(hub, NAME, tmp_path / "val", splits=["val"])
    assert raised.value.hint == "there are: train, test"
    with pytest.raises(RequestError, match="no configuration 'other'"):
        pull(hub, NAME, tmp_path / "other", configuration="other")


def test_a_broken_card_does_not_hide_the_files(standin: HubStandin, hub: Hub, tmp_path: Path) -> None:
    standin.put("dataset", NAME, {"README.md": b"---\na: [\n---\n", "a.jsonl": lines(CHAT)})
    assert pull(hub, NAME, tmp_path / "store").stores[0].n_episodes == 1


def test_what_is_in_other_files_is_read_as_the_hub_converted_it(
    standin: HubStandin, hub: Hub, tmp_path: Path
) -> None:
    standin.put("dataset", NAME, {"chats.csv": b"a,b\n", "chats.py": b"# a script\n"})
    with pytest.raises(RequestError, match="no files that trajkit reads"):
        pull(hub, NAME, tmp_path / "none")
    branch = {
        "default/train/0000.parquet": parquet(CHAT),
        "default/train/0001.parquet": parquet(CHAT),
        "default/test/0000.parquet": parquet(CHAT),
        "other/partial-train/0000.parquet": parquet(CHAT),
    }
    standin.branch("dataset", NAME, "refs/convert/parquet", branch)
    assert pull(hub, NAME, tmp_path / "all").stores[0].n_episodes == 3
    assert pull(hub, NAME, tmp_path / "train", splits=["train"]).stores[0].n_episodes == 2
    with pytest.raises(RequestError, match="no split 'val'"):
        pull(hub, NAME, tmp_path / "val", splits=["val"])
    with pytest.raises(RequestError, match="to Parquet: partial-train"):
        pull(hub, NAME, tmp_path / "other", configuration="other")
    part = pull(hub, NAME, tmp_path / "other", configuration="other", splits=["partial-train"])
    assert part.stores[0].n_episodes == 1


def test_files_are_of_a_split_by_their_names() -> None:
    files = ["train.jsonl", "data/test-00000-of-00001.parquet", "dataset_info.json", "notes.txt"]
    assert data_files(files, {}, None, ["test"]) == ["data/test-00000-of-00001.parquet"]
    assert data_files(files, {}, None, []) == ["data/test-00000-of-00001.parquet", "train.jsonl"]


def test_what_cannot_be_read_is_counted_where_that_was_asked(
    standin: HubStandin, hub: Hub, tmp_path: Path
) -> None:
    standin.put("dataset", NAME, {"a.jsonl": lines(CHAT, {"messages": [{"role": "nobody"}]})})
    with pytest.raises(TrajkitError):
        pull(hub, NAME, tmp_path / "store")
    pulled = pull(hub, NAME, tmp_path / "store", wish=Wish(skip_bad=True))
    assert pulled.stores[0].n_episodes == 1


def test_a_dataset_or_a_revision_that_is_not_there_is_told(
    standin: HubStandin, hub: Hub, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match="no dataset org/none"):
        pull(hub, "org/none", tmp_path / "store")
    standin.put("dataset", NAME, {"a.jsonl": lines(CHAT)})
    with pytest.raises(TrajkitError, match="Invalid rev id: v9"):
        pull(hub, NAME, tmp_path / "store", revision="v9")


def test_a_private_dataset_is_not_there_for_strangers(standin: HubStandin, tmp_path: Path) -> None:
    standin.put("dataset", NAME, {"a.jsonl": lines(CHAT)})
    with pytest.raises(RequestError, match="may not see it"):
        pull(Hub(None, endpoint=standin.url), NAME, tmp_path / "store")
    standin.dataset(NAME).private = False
    assert pull(Hub(None, endpoint=standin.url), NAME, tmp_path / "store").stores[0].n_episodes == 1


def test_a_download_that_breaks_goes_on(
    standin: HubStandin, hub: Hub, tmp_path: Path, waits: list[float]
) -> None:
    standin.put("dataset", NAME, {"a.jsonl": lines(CHAT)})
    standin.faults.append(Fault("GET", "/resolve/", 503))
    assert pull(hub, NAME, tmp_path / "store").stores[0].n_episodes == 1


def test_a_store_that_is_there_is_not_touched(standin: HubStandin, hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with pytest.raises(StoreError, match="exists already"):
        pull(hub, NAME, tmp_path / "store")
    assert not standin.requests


@pytest.mark.full
def test_the_page_about_publishing_prints_what_is_shown(standin: HubStandin, tmp_path: Path) -> None:
    standin.user = "me"
    split("sample:babyai", tmp_path / "stores" / "split", ratio={"train": 0.8, "val": 0.2})
    environment = {
        "HF_ENDPOINT": standin.url,
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    page = (Path(__file__).parents[2] / "docs" / "publish.md").read_text(encoding="utf-8")
    assert len(printed(page, tmp_path, COLUMNS="100", **environment)) == 3
    stores = tmp_path / "stores"
    for side in ("train", "val"):
        digests = {open_store(stores / name / side).manifest.digest for name in ("split", "again")}
        assert len(digests) == 1
    assert standin.dataset("me/goto").private
