"""A TCP proxy on loopback that breaks off, stalls or speaks TLS, as a test tells it."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

import pytest

HOST = "127.0.0.1"
_BLOCK = 16_384


def certificate(folder: Path, name: str, alternative: str = "IP:127.0.0.1") -> tuple[Path, Path]:
    """A certificate that signs itself, by default for loopback, and its key."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("there is no openssl to make a certificate with: apt install openssl")
    files = folder / f"{name}.pem", folder / f"{name}.key"
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    options += ["-addext", f"subjectAltName={alternative}", "-addext", "basicConstraints=critical,CA:TRUE"]
    made = [program, "req", *options, "-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run(made, check=True, capture_output=True)
    return files


def stopped_by_ctrl_c(proxy: Proxy, url: str, folder: Path) -> str:
    """Begin an export into a folder, and send it Ctrl-C once the proxy has stalled; gives what it said."""
    command = [sys.executable, "-m", "trajkit", "export", "--source", url, "-o", "s"]
    process = subprocess.Popen(
        [*command, "--metric", "episode_return"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        until = time.monotonic() + 60
        while not proxy.n_faults and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        assert proxy.n_faults == 1
        time.sleep(1)  # what comes before the silence is read
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert list(folder.iterdir()) == []
    return said


class Fault(NamedTuple):
    """What goes wrong with an answer."""

    how: str
    """`reset` (the connection is gone), `close` (it ends as if all were said), `stall` (nothing comes), or
    `change` (what is sent is what `changed` makes of the whole answer)"""
    after: int
    """Bytes of the answer that still come through."""
    about: bytes
    """Something that the request must say; empty for any request."""
    changed: Callable[[bytes], bytes]
    """What makes another body of an answer's body."""


class Proxy:
    """Passes on what is said to a port of this machine, and what it answers.

    Args:
        port: Where to.
        tls: Speak TLS with those who connect; None for plain text.
    """

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._goal = port
        self._tls = tls
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.said = threading.Event()
        """Whether a request came through."""
        self.n_faults = 0
        self._faults: list[Fault] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._stalled = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def fail(
        self,
        how: str,
        *,
        after: int = 0,
        about: str = "",
        times: int = 1,
        changed: Callable[[bytes], bytes] = bytes,
    ) -> None:
        """Break the next answers to requests that say this."""
        self._faults = [Fault(how, after, about.encode(), changed)] * times

    def mend(self) -> None:
        """Let everything through from now on."""
        self._faults = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._listener.close()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        while not self._is_over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._kept(client):
            try:
                if self._tls is not None:
                    client = self._tls.wrap_socket(client, server_side=True)
            except OSError:  # no TLS, or they do not trust us
                return
            with (
                self._kept(client),
                contextlib.suppress(OSError),
                self._kept(socket.create_connection((HOST, self._goal))) as server,
            ):
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _Link(self, client, server).run()

    @contextlib.contextmanager
    def _kept(self, one: socket.socket) -> Iterator[socket.socket]:
        with self._lock:
            self._open.add(one)
        try:
            yield one
        finally:
            with self._lock:
                self._open.discard(one)
            one.close()

    def take(self, request: bytes) -> Fault | None:
        """The fault that this request is to meet."""
        with self._lock:
            if not self._faults or self._faults[0].about not in request:
                return None
            self.n_faults += 1
            return self._faults.pop()

    def stall(self) -> None:
        """Wait until the proxy ends."""
        self._is_over.wait()


class _Link:
    """One connection: the request is read along, and the answer passed on as far as it may come."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._fault: Fault | None = None
        self._left = 0
        self._is_broken = False

    def run(self) -> None:
        answers = threading.Thread(target=self._pass_answers, daemon=True)
        answers.start()
        with contextlib.suppress(OSError, ValueError):  # select: a socket that is closed has no number
            self._pass_requests()
        if not self._is_broken:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_WR)
        answers.join()

    def _pass_requests(self) -> None:
        said = b""
        while self._is_asked() and (block := self._client.recv(_BLOCK)):
            said = (said + block)[-200_000:]
            if self._fault is None and (fault := self._proxy.take(said)) is not None:
                self._left = fault.after
                self._fault = fault
                said = b""
            self._server.sendall(block)
            self._proxy.said.set()

    def _is_asked(self) -> bool:
        """Wait for a request without sitting in a call on the socket: that would hold up a reset of it."""
        while not self._is_broken:
            if isinstance(self._client, ssl.SSLSocket) and self._client.pending():
                return True
            if select.select([self._client], [], [], 0.05)[0]:
                return True
        return False

    def _pass_answers(self) -> None:
        with contextlib.suppress(OSError):
            while block := self._server.recv(_BLOCK):
                if self._fault is not None and self._fault.how == "change":
                    self._send_changed(block, self._fault.changed)
                    return
                if self._fault is not None:
                    block, self._left = block[: self._left], self._left - len(block)
                    if self._left <= 0:
                        self._client.sendall(block)
                        self._break(self._fault.how)
                        return
                self._client.sendall(block)
            self._client.shutdown(socket.SHUT_WR)

    def _send_changed(self, answer: bytes, changed: Callable[[bytes], bytes]) -> None:
        """Take in the whole of an answer in chunks, and send another in good order."""
        blocks = [answer]
        while not (b"".join(blocks[-2:])).endswith(b"\r\n0\r\n\r\n"):
            blocks.append(self._server.recv(_BLOCK))
        answer = b"".join(blocks)
        head = answer[: answer.index(b"\r\n\r\n")]
        place = len(head) + 4
        chunks = []
        while True:
            start = answer.index(b"\r\n", place) + 2
            size = int(answer[place : start - 2], 16)
            if size == 0:
                break
            chunks.append(answer[start : start + size])
            place = start + size + 2
        body = b"".join(chunks)
        body = changed(body)
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"transfer-encoding")]
        self._client.sendall(b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body]))
        self._client.shutdown(socket.SHUT_WR)

    def _break(self, how: str) -> None:
        self._is_broken = True
        if how == "stall":
            self._proxy.stall()
        elif how == "reset":
            time.sleep(0.2)  # until the client no longer reads the socket
            # closed with this option the system sends a reset, and nothing that still waits
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._client.close()
        else:
            assert how == "close"
            self._client.shutdown(socket.SHUT_RDWR)
