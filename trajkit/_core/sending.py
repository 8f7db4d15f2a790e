"""Send files to addresses: nothing is replaced, and of two writers one publishes.

A small file beside the goal, the claim, tells other machines that it is being written. A record in the user's
state tells later processes on this machine what a killed one had sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from trajkit._core.address import failures, filesystem, reaching
from trajkit._core.lock import locked
from trajkit._core.user_state import make_writable, user_state
from trajkit.errors import StoreError

_WRITING = ".writing"
_SENDING = "sending"
_AT_ONCE = 8
"""Number of files that are sent in parallel."""


def publish(files: Mapping[Path, Path], goal: Path) -> None:
    """Copy local files to their addresses: the JSON files, which make a store one, after all others.

    Nothing is replaced. A small file beside `goal` (its name and `.writing`) marks that it is being written,
    so that two writers never mix. After a failure nothing is left, if the service can be reached. The next
    process on the same machine that writes there removes the files of a killed one.

    Args:
        files: Local files by address.
        goal: The file or folder that they form.

    Raises:
        StoreError: Something has the name of `goal`, another process writes it, or the service failed.
    """
    system = filesystem(goal)
    refuse_taken(goal)
    last = sorted(address for address in files if address == goal or address.suffix == ".json")
    first = [address for address in files if address not in last]
    with _claimed(goal, [*first, *last]):
        _refuse(goal)  # a writer whose claim is gone by now may have finished
        sent: list[Path] = []
        try:
            sent += first
            if first:
                with reaching(goal):
                    system.put(
                        [str(files[each]) for each in first],
                        [str(each) for each in first],
                        batch_size=_AT_ONCE,
                    )
            for address in last:
                _create(address, files[address])
                sent.append(address)
        except BaseException:  # also Ctrl-C: nothing incomplete stays
            for each in sent:
                with contextlib.suppress(*failures()):
                    system.rm_file(str(each))
            raise


@contextlib.contextmanager
def changing(folder: Path, whole: Path) -> Iterator[None]:
    """Keep other writers away from a folder at an address while files are added to it.

    Args:
        folder: The folder; it need not exist.
        whole: The file that completes it, which is written last.

    Raises:
        StoreError: Another process writes there, or the service failed.
    """
    _remove_left(folder)
    with _claimed(folder, [whole]):
        yield


def send_file(built: Path, address: Path) -> None:
    """Send a complete local file, and remove it here. The caller keeps others away (`changing`)."""
    with reaching(address):
        filesystem(address).put_file(str(built), str(address))
    built.unlink()


def overwrite(address: Path, content: bytes) -> None:
    """Write a small file, replacing the one with its name. The caller keeps others away (`changing`)."""
    with reaching(address):
        filesystem(address).pipe_file(str(address), content)


def refuse_taken(address: Path) -> None:
    """Refuse an address that is in use; remove what a killed process on this machine left there.

    Raises:
        StoreError: It is in use.
    """
    _remove_left(address)
    _refuse(address)


def _refuse(address: Path) -> None:
    if address.exists():
        raise StoreError(f"{address} exists already", hint="choose another path, or remove it first")


@contextlib.contextmanager
def _claimed(goal: Path, files: Sequence[Path]) -> Iterator[None]:
    """Keep other writers away from a goal during a block.

    A lock and a record on this machine tell a later process that the owner of the claim was killed.
    """
    claim, record = _claim_of(goal), _record_of(goal)
    text = f"{secrets.token_hex(16)} since {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n"
    make_writable(record.parent)
    with locked(record.with_suffix(".lock")) as other:
        if other is not None:
            raise StoreError(
                f"{goal} is being written by another process on this machine",
                hint=f"choose another path, or wait for {other}",
            )
        fresh = record.with_suffix(".new")
        fresh.write_text(json.dumps({"goal": str(goal), "claim": text, "files": list(map(str, files))}))
        fresh.replace(record)
        try:
            _create(claim, text.encode())
        except BaseException:
            record.unlink()
            raise
        try:
            yield
        finally:
            # a claim that cannot be removed keeps its record, by which the next process here recognises it
            with contextlib.suppress(*failures(), StoreError):
                claim.unlink(missing_ok=True)
                record.unlink()


def _remove_left(goal: Path) -> None:
    """Remove what a killed process on this machine had sent, unless that was everything."""
    record = _record_of(goal)
    if not record.exists():
        return
    with locked(record.with_suffix(".lock")) as other:
        if other is not None or not record.exists():
            return
        left, claim, system = json.loads(record.read_text()), _claim_of(goal), filesystem(goal)
        with reaching(goal):
            if system.exists(str(claim)) and claim.read_text() == left["claim"]:
                *_, last = left["files"]
                for each in left["files"] if not system.exists(last) else ():
                    with contextlib.suppress(FileNotFoundError):
                        system.rm_file(each)
                system.rm_file(str(claim))
        record.unlink()


def left_unsent() -> list[str]:
    """Return the addresses to which a process on this machine was sending when it was killed."""
    goals = []
    for record in sorted(user_state(_SENDING).glob("*.json")):
        with locked(record.with_suffix(".lock")) as other:
            if other is None and record.exists():
                goals.append(json.loads(record.read_text())["goal"])
    return goals


def _claim_of(goal: Path) -> Path:
    return goal.with_name(goal.name + _WRITING)


def _record_of(goal: Path) -> Path:
    return records_of(goal, _SENDING).with_suffix(".json")


def records_of(address: Path, kind: str) -> Path:
    """Return the path of this user's records of one kind about an address."""
    return user_state(kind) / hashlib.sha256(str(address).encode()).hexdigest()[:16]


def _create(address: Path, content: bytes | Path) -> None:
    """Write a file only if nothing has its name, in one request if the service has conditional writes."""
    system = filesystem(address)
    try:
        with reaching(address):
            try:
                if isinstance(content, bytes):
                    system.pipe_file(str(address), content, mode="create")
                else:
                    system.put_file(str(content), str(address), mode="create")
            except FileExistsError:
                # the answer to an earlier try may have been lost
                if not _is(address, content):
                    raise
    except StoreError as error:
        if not isinstance(error.__cause__, FileExistsError):
            raise
        if address.name.endswith(_WRITING):
            goal = address.with_name(address.name.removesuffix(_WRITING))
            raise StoreError(
                f"{goal} is being written by another process, or one was stopped there",
                hint=f"remove {address} if no process writes there any more",
            ) from error
        raise StoreError(
            f"{address} exists already", hint="choose another path, or remove it first"
        ) from error


def _is(address: Path, content: bytes | Path) -> bool:
    """Whether a file at an address has this content."""
    if isinstance(content, bytes):
        return address.read_bytes() == content
    with content.open("rb") as ours, address.open("rb") as theirs:
        while piece := ours.read(1 << 22):
            if theirs.read(len(piece)) != piece:
                return False
        return not theirs.read(1)


def send(built: Path, goal: Path) -> None:
    """Copy a complete local file or folder to its address, and remove it here. See `publish`."""
    if built.is_dir():
        found = [path for path in built.rglob("*") if path.is_file()]
        publish({goal.joinpath(*path.relative_to(built).parts): path for path in found}, goal)
        shutil.rmtree(built, ignore_errors=True)
    else:
        publish({goal: built}, goal)
        built.unlink()
