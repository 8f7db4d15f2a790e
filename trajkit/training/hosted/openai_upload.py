"""Send a file over OpenAI's API: at once, or in parts where it is large."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajkit.training.hosted.service import Sent

if TYPE_CHECKING:
    from openai import OpenAI

PART_BYTES = 64 * 1024 * 1024
TAKING_IN = ("pending", "running")
"""Azure's words for a file that is there and that no job can use yet."""
POLL_S, LONGEST_S = 2.0, 900.0


def upload(client: OpenAI, path: Path, *, parts_from: int, on_sent: Sent) -> Any:
    """Send it.

    Args:
        client: Sends.
        path: The file.
        parts_from: Files of this size and above go in parts.
        on_sent: Told how many bytes are sent, and of how many.

    Returns:
        The file, as the client gives it, once the service has taken it in; None where it finished an upload
        without one.
    """
    sent = _sent(client, path, parts_from=parts_from, on_sent=on_sent)
    deadline = time.monotonic() + LONGEST_S
    while getattr(sent, "status", None) in TAKING_IN and time.monotonic() < deadline:
        time.sleep(POLL_S)
        sent = client.files.retrieve(sent.id)
    return sent


def _sent(client: OpenAI, path: Path, *, parts_from: int, on_sent: Sent) -> Any:
    n_bytes = path.stat().st_size
    if n_bytes < parts_from:
        with path.open("rb") as file:
            sent = client.files.create(file=(path.name, file), purpose="fine-tune")
        on_sent(n_bytes, n_bytes)
        return sent
    begun = client.uploads.create(
        bytes=n_bytes, filename=path.name, mime_type="application/jsonl", purpose="fine-tune"
    )
    parts, n_done = [], 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(PART_BYTES):
                parts.append(client.uploads.parts.create(begun.id, data=chunk).id)
                n_done += len(chunk)
                on_sent(n_done, n_bytes)
        return client.uploads.complete(begun.id, part_ids=parts).file
    except BaseException:
        with contextlib.suppress(Exception):  # it expires by itself within an hour
            client.uploads.cancel(begun.id)
        raise
