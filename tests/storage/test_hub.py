"""Stores in a repository of a Hub, by its address."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import trajkit
from tests.publishing.hub_standin import TOKEN, Fault, HubStandin, hub_standin
from trajkit._core import address
from trajkit.errors import StoreError
from trajkit.store.reader import open_store

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub
ROOT = "hf://datasets/team/data"
CHOSEN = ("n_steps > 2", "purpose <> 'eval'")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStandin]:
    """A Hub with an empty repository, which its file system of fsspec talks to."""
    from huggingface_hub import HfFileSystem, constants

    address._filesystem.cache_clear()
    HfFileSystem.clear_instance_cache()
    with hub_standin() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        where = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", where)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        running.put("dataset", "team/data", {"README.md": b"theirs"})
        yield running
    address._filesystem.cache_clear()
    HfFileSystem.clear_instance_cache()


def test_a_store_in_a_repository_is_written_once_and_read(hub: HubStandin) -> None:
    made = trajkit.select("sample:babyai", where=CHOSEN, output=f"{ROOT}/good").manifest
    titles = [each.title.split()[1] for each in hub.dataset("team/data").commits[1:]]
    assert (titles[0], titles[-2:]) == ("good.writing", ["good/manifest.json", "good.writing"])
    for place in (f"{ROOT}/good", f"{ROOT}@main/good"):
        assert trajkit.info(place, check=True).digest == made.digest
    trajkit.convert(f"{ROOT}@main/good", to="openai-sft", output=f"{ROOT}/train.jsonl")
    assert trajkit.validate(f"{ROOT}/train.jsonl", target="openai").n_errors == 0
    with pytest.raises(StoreError, match="exists already"):
        trajkit.select("sample:babyai", where=CHOSEN, output=f"{ROOT}/good")
    with pytest.raises(StoreError, match="there is no store"):
        open_store("hf://datasets/team/none/good")


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_refused_commit_or_upload_leaves_nothing_in_a_repository(hub: HubStandin, method: str) -> None:
    def refuse() -> None:
        hub.faults.append(Fault("POST", "/commit/", status=403))

    at_end = Fault("PUT", "/_lfs/", do=refuse)  # before the commit of the first part
    hub.faults.append(at_end if method == "POST" else Fault("PUT", "/_lfs/", status=403))
    with pytest.raises(StoreError, match="is refused: 403 Forbidden"):
        trajkit.select("sample:babyai", where=CHOSEN, output=f"{ROOT}/good")
    assert set(hub.dataset("team/data").commits[-1].files) == {"README.md"}
