"""Publishing over real HTTP: once, whole, and never half, whatever goes wrong on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.matrix import daily
from tests.publishing.hub_standin import READ_TOKEN, TOKEN, Fault, HubStandin, hub_standin
from trajkit.errors import RequestError, ServiceError, TrajkitError
from trajkit.publishing.hub import Hub, HubFault
from trajkit.publishing.push import Pushed, plan_push, push
from trajkit.publishing.record import PublishedFile, Record, record_text

# huggingface_hub 2.4 sends large files in a way that httpx2 deprecates
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

NAME = "tester/data"
CARD = "---\nlicense: mit\n---\n# data\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    write(made, {"sft/train-00000-of-00001.parquet": "rows", "steps/train-00000-of-00001.parquet": "steps"})
    return made


def write(folder: Path, files: dict[str, str]) -> None:
    """The files of a repository, as `make_contents` leaves them."""
    for name, text in {**files, "README.md": CARD}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    told = tuple(PublishedFile(path=name, sha256="0" * 64, n_bytes=len(text)) for name, text in files.items())
    (folder / "trajkit.json").write_text(record_text(Record(files=told)))


def publish(hub: Hub, folder: Path, name: str = NAME, **options: object) -> Pushed:
    large = {"large_bytes": options.pop("large_bytes")} if "large_bytes" in options else {}
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    record = Record.model_validate_json((folder / "trajkit.json").read_text())
    asked = {"is_public": False, "licence": "mit", **options}
    return push(hub, plan_push(hub, name, "dataset", files, record, **asked), **large)  # type: ignore[arg-type]


def test_a_new_repository_is_private_and_has_everything_in_one_commit_and_no_other_when_nothing_changed(
    standin: HubStandin, hub: Hub, folder: Path
) -> None:
    done = publish(hub, folder, tag="v1")
    repository = standin.dataset(NAME)
    assert repository.private
    assert standin.commits(NAME) == 1
    assert repository.tags == {"v1": done.commit}
    assert standin.file("dataset", NAME, "sft/train-00000-of-00001.parquet") == b"rows"
    assert done.address == f"{standin.url}/datasets/{NAME}"
    again = publish(hub, folder)
    assert (again.commit, again.is_new) == (done.commit, False)
    assert standin.commits(NAME) == 1


def test_an_update_sends_what_is_new_and_removes_what_was_ours(
    standin: HubStandin, hub: Hub, folder: Path
) -> None:
    publish(hub, folder)
    standin.commit_of_somebody_else(NAME)
    (folder / "steps" / "train-00000-of-00001.parquet").unlink()
    write(folder, {"sft/train-00000-of-00001.parquet": "rows", "sft/val-00000-of-00001.parquet": "more"})
    sent = len(standin.uploads)
    publish(hub, folder)
    files = standin.dataset(NAME).commits[-1].files
    assert set(files) == {
        ".gitattributes",
        "README.md",
        "trajkit.json",
        "theirs.txt",
        "sft/train-00000-of-00001.parquet",
        "sft/val-00000-of-00001.parquet",
    }
    assert len(standin.uploads) == sent + 1


def test_what_is_public_is_private_until_it_was_verified_and_not_written_to_by_chance(
    standin: HubStandin, hub: Hub, folder: Path
) -> None:
    seen = []
    at_commit = Fault("POST", "/commit/", do=lambda: seen.append(standin.dataset(NAME).private))
    standin.faults.append(at_commit)
    publish(hub, folder, is_public=True)
    assert seen == [True]
    assert not standin.dataset(NAME).private
    with pytest.raises(RequestError, match="is public"):
        publish(hub, folder)


@pytest.mark.parametrize("status", daily([409, None, 500, 502, 503], 2))
def test_a_commit_that_fails_in_passing_is_made_once(
    standin: HubStandin, hub: Hub, folder: Path, status: int | None
) -> None:
    standin.faults.append(Fault("POST", "/commit/", status))
    publish(hub, folder)
    assert standin.commits(NAME) == 1


@pytest.mark.parametrize("status", daily([None, 504], 1))
def test_a_commit_whose_answer_is_lost_is_not_made_twice(
    standin: HubStandin, hub: Hub, folder: Path, status: int | None
) -> None:
    standin.faults.append(Fault("POST", "/commit/", status, is_after=True))
    done = publish(hub, folder)
    assert standin.commits(NAME) == 1
    assert done.commit == standin.dataset(NAME).commits[-1].oid


def test_somebody_elses_commit_in_between_stops_it(standin: HubStandin, hub: Hub, folder: Path) -> None:
    publish(hub, folder)
    write(folder, {"sft/train-00000-of-00001.parquet": "other rows"})
    standin.faults.append(Fault("POST", "/commit/", do=lambda: standin.commit_of_somebody_else(NAME)))
    with pytest.raises(ServiceError, match="got another commit"):
        publish(hub, folder)
    assert standin.file("dataset", NAME, "sft/train-00000-of-00001.parquet") == b"rows"


def test_the_hub_is_asked_again_when_it_says_it_wants_to_be(
    standin: HubStandin, hub: Hub, folder: Path, waits: list[float]
) -> None:
    standin.faults.append(Fault("POST", "/commit/", 429, headers={"RateLimit": '"api";r=0;t=7'}))
    standin.faults.append(Fault("POST", "/repos/create", 429, headers={"Retry-After": "3"}))
    publish(hub, folder)
    assert waits == [3.0, 7.0]
    assert standin.commits(NAME) == 1


def test_a_limit_that_does_not_end_is_told(standin: HubStandin, hub: Hub, folder: Path) -> None:
    standin.faults.append(Fault("POST", "/commit/", 429, times=99))
    with pytest.raises(HubFault, match="429"):
        publish(hub, folder)
    assert standin.commits(NAME) == 0


def test_a_connection_lost_while_sending_goes_on(standin: HubStandin, hub: Hub, folder: Path) -> None:
    standin.faults.append(Fault("PUT", "/_lfs/", None))
    publish(hub, folder)
    assert standin.commits(NAME) == 1
    assert len(standin.uploads) == 2


def test_what_was_sent_before_it_broke_is_not_sent_again(standin: HubStandin, hub: Hub, folder: Path) -> None:
    standin.faults.append(Fault("POST", "/commit/", 403))
    with pytest.raises(HubFault, match="403"):
        publish(hub, folder)
    assert (standin.commits(NAME), len(standin.uploads)) == (0, 2)
    publish(hub, folder)
    assert (standin.commits(NAME), len(standin.uploads)) == (1, 2)


def test_a_large_upload_becomes_visible_at_once(standin: HubStandin, hub: Hub, folder: Path) -> None:
    many = {f"steps/train-{i:05}-of-00025.parquet": f"part {i}" for i in range(25)}
    write(folder, many)
    seen = []
    standin.faults += [
        Fault("POST", "/commit/trajkit-upload", do=lambda: seen.append(standin.commits(NAME)), times=9)
    ]
    publish(hub, folder, large_bytes=1)
    assert seen == [0, 0]
    assert standin.commits(NAME) == 1
    assert set(standin.dataset(NAME).heads) == {"main"}


def test_a_large_upload_goes_on_where_it_broke(standin: HubStandin, hub: Hub, folder: Path) -> None:
    write(folder, {f"steps/train-{i:05}-of-00025.parquet": f"part {i}" for i in range(25)})
    pieces: list[int] = []

    def expire_at_the_second() -> None:
        pieces.append(1)
        standin.is_expired = len(pieces) == 2

    standin.faults.append(Fault("POST", "/commit/trajkit-upload", do=expire_at_the_second, times=2))
    with pytest.raises(HubFault, match="401"):
        publish(hub, folder, large_bytes=1)
    assert standin.commits(NAME) == 0
    standin.is_expired = False
    sent = len(standin.uploads)
    publish(Hub(SecretStr(TOKEN), endpoint=standin.url), folder, large_bytes=1)
    assert standin.commits(NAME) == 1
    assert len(standin.uploads) == len(set(standin.uploads))
    assert len(standin.uploads) - sent < 26
    assert set(standin.dataset(NAME).heads) == {"main"}


def test_what_the_hub_keeps_is_compared_with_what_was_sent(
    standin: HubStandin, hub: Hub, folder: Path
) -> None:
    def spoil() -> None:
        entry = standin.dataset(NAME).commits[-1].files["README.md"]
        entry["data"] = b"other"
        standin.faults.clear()

    # the first look after the commit is the one that verifies it
    standin.faults.append(
        Fault("POST", "/commit/", do=lambda: standin.faults.append(Fault("GET", "/revision/", do=spoil)))
    )
    with pytest.raises(ServiceError, match=r"README\.md has other bytes"):
        publish(hub, folder)
    assert not standin.dataset(NAME).tags


def test_an_organisation_without_rights_is_told_with_those_there_are(hub: Hub, folder: Path) -> None:
    for owner in ("strangers", "readers"):
        with pytest.raises(ServiceError, match=f"may not write for {owner}") as raised:
            publish(hub, folder, f"{owner}/data")
        assert raised.value.hint == "owners that the token may write for: team, tester"


def test_a_token_that_only_reads_or_has_expired_is_told_without_the_token(
    standin: HubStandin, hub: Hub, folder: Path
) -> None:
    with pytest.raises(ServiceError, match="is read-only"):
        publish(Hub(SecretStr(READ_TOKEN), endpoint=standin.url), folder)
    assert not standin.repositories
    standin.is_expired = True  # the stand-in names the token in its answer
    with pytest.raises(HubFault, match="401") as raised:
        publish(hub, folder)
    assert TOKEN not in str(raised.value)
    assert raised.value.__cause__ is None
    assert TOKEN not in repr(hub)


def test_a_name_that_is_taken_is_left_alone(standin: HubStandin, hub: Hub, folder: Path) -> None:
    standin.put("dataset", NAME, {"data.csv": b"1"})
    with pytest.raises(RequestError, match="is taken"):
        publish(hub, folder)
    assert standin.commits(NAME) == 0


def test_a_repository_of_a_newer_trajkit_is_left_alone(standin: HubStandin, hub: Hub, folder: Path) -> None:
    standin.put("dataset", NAME, {"trajkit.json": json.dumps({"record_version": 99}).encode()})
    with pytest.raises(TrajkitError, match="is of version 99"):
        publish(hub, folder)


def test_no_licence_and_a_card_that_the_hub_refuses_stop_it_before_anything_is_there(
    standin: HubStandin, hub: Hub, folder: Path
) -> None:
    with pytest.raises(RequestError, match="needs a licence"):
        publish(hub, folder, is_public=True, licence=None)
    (folder / "README.md").write_text("---\nlicense: nonsense\n---\n")
    with pytest.raises(RequestError, match='"license" must be one of'):
        publish(hub, folder)
    assert not standin.repositories


def test_a_tag_of_another_commit_is_refused(standin: HubStandin, hub: Hub, folder: Path) -> None:
    publish(hub, folder, tag="v1")
    write(folder, {"sft/train-00000-of-00001.parquet": "other rows"})
    with pytest.raises(RequestError, match="already has a tag v1"):
        publish(hub, folder, tag="v1")
    publish(hub, folder, tag="v2")
    assert set(standin.dataset(NAME).tags) == {"v1", "v2"}


def test_a_name_that_cannot_be_is_told_without_asking(standin: HubStandin, hub: Hub, folder: Path) -> None:
    for name in ("data", "a/b/c", "a/b c", "a/../b", "a/b--c"):
        with pytest.raises(RequestError, match=f"'{name}' is not a repository name"):
            publish(hub, folder, name)
    assert not standin.requests


@pytest.mark.parametrize("path", ["/api/repos/create", "/preupload/", "/commit/"])
def test_a_redirect_takes_no_data_to_another_host(
    standin: HubStandin, hub: Hub, folder: Path, path: str
) -> None:
    with hub_standin() as stranger:
        moved = {"Location": f"{stranger.url}/api/datasets/{NAME}{path}"}
        standin.faults.append(Fault("POST", path, status=307, times=99, headers=moved))
        with pytest.raises(ServiceError, match="data is sent to no other host"):
            publish(hub, folder)
        assert stranger.requests == []
