"""Serve a model at a local address until it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

from trajkit._core.lazy import need
from trajkit._core.output.console import talk
from trajkit._core.output.result import Running
from trajkit._core.process.loop import told_to_end
from trajkit.errors import StackError
from trajkit.models.generation.batcher import Batcher
from trajkit.models.generation.generate import SIDE_BY_SIDE
from trajkit.models.generation.model import LocalModel
from trajkit.models.serving.app import Chat

LOOPBACK = "127.0.0.1"
NEW_TOKENS = 1024
"""Maximum tokens per answer, unless the request sets its own limit."""

_BACKLOG = 2048
_MOST_CONNECTIONS = 512
"""Further connections get 503. The limit is four times the number of parallel answers if that is more."""
_HEAD_S = 20
"""Seconds that the head of a request may take."""
_IDLE_S = 600
"""Seconds that a connection may be idle. A gateway keeps connections, and loses a request on a closed one."""


class Serving(Running):
    """A model that is served until it is closed. Also a context manager. Created by `serve`."""

    def __init__(self, model: LocalModel, server: Any, listening: socket.socket, batcher: Batcher) -> None:
        self._model, self._server, self._listening, self._batcher = model, server, listening, batcher
        self.url = f"http://{_shown(server.config.host)}:{listening.getsockname()[1]}/v1"
        """The address, which ends with `/v1`."""
        self._error: BaseException | None = None
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._work, name="serving", daemon=True)

    @property
    def models(self) -> list[str]:
        """Model names for requests."""
        return list(self._model.names)

    def start(self) -> Self:
        """Start to answer requests."""
        self._thread.start()
        self._is_ready.wait()
        if self._error is not None:
            raise self._error
        return self

    def wait(self) -> None:
        """Serve until the process gets a signal to end (SIGTERM or Ctrl-C), or another thread calls `close`.

        Current requests are finished first; a second signal does not wait for them.
        """
        with told_to_end(self._end):
            # wait in slices: Windows delivers no signal to a thread that waits without a limit
            while self._thread.is_alive():
                self._thread.join(1.0)
        if self._error is not None:
            raise self._error
        talk("ended")

    def close(self) -> None:
        """Finish the current requests, and end. A second call does nothing."""
        self._end()
        self._thread.join()

    def _end(self) -> None:
        self._server.should_exit = True

    def to_json(self) -> dict[str, Any]:
        """Return the address, the names of the models, and the id of the serving process."""
        return {"url": self.url, "models": self.models, "pid": os.getpid()}

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"<Serving {', '.join(self.models)} at {self.url}>"

    def _work(self) -> None:
        try:
            asyncio.run(_run(self._server, self._listening, self._is_ready.set))
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            self._error = error
        finally:
            self._is_ready.set()
            self._batcher.close()
            self._listening.close()
            self._model.close()


def serve(
    model: LocalModel,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    max_new_tokens: int = NEW_TOKENS,
    side_by_side: int = SIDE_BY_SIDE,
    api_key: str | None = None,
) -> Serving:
    """Serve in a thread of this process, until it is closed or the process ends.

    Args:
        model: The model. It is closed at the end.
        host: Host to listen on.
        port: Port; 0 chooses a free one.
        max_new_tokens: Maximum tokens per answer, unless the request sets its own limit.
        side_by_side: Maximum number of concurrent answers; memory grows with it.
        api_key: Bearer token that a request must have; None for no key.

    Raises:
        StackError: The address is taken, or does not belong to this machine.
        MissingExtra: starlette or uvicorn is not installed.
    """
    with contextlib.ExitStack() as undo:
        undo.callback(model.close)
        uvicorn = need("uvicorn", extra="serve")
        listening = undo.enter_context(_listen(host, port))
        batcher = Batcher(model, side_by_side=side_by_side)
        undo.callback(batcher.close)
        app = Chat(batcher, max_new_tokens=max_new_tokens, api_key=api_key, host=host).app()
        config = uvicorn.Config(
            app,
            host=host,
            http=_protocol(),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=_IDLE_S,
            limit_concurrency=max(_MOST_CONNECTIONS, 4 * side_by_side),
        )
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext  # uvicorn would raise the signals again at the end
        serving = Serving(model, server, listening, batcher)
        undo.pop_all()
    return serving.start()


def _protocol() -> type[Any]:
    """Return uvicorn's protocol with a time limit for the head of a request."""
    h11 = need("h11", extra="serve")
    made: Any = need("uvicorn.protocols.http.h11_impl", extra="serve").H11Protocol

    class Protocol(made):  # type: ignore[misc]
        late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self.unwatch()
            super().connection_lost(exc)

        def watch(self) -> None:
            """Start the timer while the head of a request is incomplete."""
            if self.conn.their_state is not h11.IDLE:
                self.unwatch()
            elif self.late is None:
                self.late = self.loop.call_later(_HEAD_S, self.transport.close)

        def unwatch(self) -> None:
            if self.late is not None:
                self.late.cancel()
                self.late = None

    return Protocol


async def _run(server: Any, listening: socket.socket, say: Callable[[], object]) -> None:
    serving = asyncio.create_task(server.serve([listening]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    if not serving.done():
        say()
    await serving


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only for sockets with a protocol; else each answer waits 40 ms
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        made.close()
        raise StackError(
            f"nothing can listen on {host}:{port}: {error}", hint="--port 0 takes a free one"
        ) from error
    return made


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
