"""A real gateway in this process, and a model server that keeps what it is sent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rollouts import loopback

tensorzero = pytest.importorskip("tensorzero", reason="pip install 'trajkit[tensorzero]'")

_CONFIG = """\
[gateway]
disable_pseudonymous_usage_analytics = true
observability.enabled = false
{gateway}
[models.m]
routing = ["p"]
[models.m.providers.p]
type = "openai"
model_name = "m"
api_base = "{url}/"
api_key_location = "none"
"""


class Gateway:
    """A gateway's configuration in a folder, and what its model was sent.

    Args:
        folder: Where the configuration is.
        server: The model server.
    """

    def __init__(self, folder: Path, server: Any) -> None:
        self.folder = folder
        self.url = server.url
        self._server = server

    def configure(self, functions: str, *, gateway: str = "") -> Path:
        path = self.folder / "tensorzero.toml"
        path.write_text(_CONFIG.format(url=self.url, gateway=gateway) + functions, encoding="utf-8")
        return path

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    @property
    def last_messages(self) -> list[dict[str, Any]]:
        """The messages that the model was sent last."""
        messages: list[dict[str, Any]] = self._server.asked[-1].body["messages"]
        return messages

    async def ask(self, client: Any, **call: Any) -> list[dict[str, Any]] | None:
        """The messages that went over the wire for a call; None when the gateway refused it."""
        before = len(self._server.asked)
        try:
            await client.inference(**call, dryrun=True)
        except Exception as error:
            # a panic of the engine has a class that cannot be imported
            if not isinstance(error, tensorzero.TensorZeroError) and type(error).__name__ != "RustPanic":
                raise
            assert len(self._server.asked) == before
            return None
        assert len(self._server.asked) == before + 1
        return self.last_messages


@contextlib.contextmanager
def recording_gateway(folder: Path, *, answer: str = '{"answer": "yes"}') -> Iterator[Gateway]:
    """One whose model always gives the same answer."""
    with loopback.serve(lambda body, n: loopback.Reply(loopback.said(answer))) as server:
        yield Gateway(folder, server)
