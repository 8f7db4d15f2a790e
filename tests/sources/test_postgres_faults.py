"""Postgres over a network that breaks, hangs, or must be trusted."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from trajkit.errors import ServiceError
from trajkit.schema import Manifest
from trajkit.sources.access import Access
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.database import open_database
from trajkit.sources.tensorzero.export.export import export


@pytest.fixture(scope="module")
def url(postgres_of: Callable[[str, Any], str], generated: Any) -> str:
    return postgres_of("faults", generated.generated(seed=5, n_episodes=120))


@pytest.fixture
def proxy(beside: Callable[[str], Any], postgres_server: Any) -> Iterator[Any]:
    with beside("proxy").Proxy(postgres_server.address.port) as running:
        yield running


def through(url: str, proxy: Any, postgres_server: Any) -> str:
    return url.replace(f":{postgres_server.address.port}/", f":{proxy.port}/")


def exported(url: str, goal: Path, access: Access | None = None) -> Manifest:
    database = open_database(url, access or Access())
    try:
        _, manifest = export(database, ExportRequest(), goal)
    finally:
        database.close()
    assert manifest is not None
    return manifest


@pytest.mark.parametrize(
    ("how", "about"),
    daily(
        itertools.product(
            ("reset", "close"),
            (
                "tensorzero.model_inferences AS m",
                "json_inference_data AS d",
                "tensorzero.float_metric_feedback WHERE target_id",
            ),
        ),
        [("close", "tensorzero.model_inferences AS m")],
    ),
)
def test_a_connection_that_breaks_in_the_middle_of_a_stream_is_an_error_and_the_next_run_is_whole(
    how: str, about: str, url: str, proxy: Any, postgres_server: Any, tmp_path: Path
) -> None:
    goal = tmp_path / "store"
    proxy.fail(how, after=3000, about=about)
    with pytest.raises(ServiceError, match=r"postgresql://127\.0\.0\.1:\d+/faults failed") as caught:
        exported(through(url, proxy, postgres_server), goal)
    assert proxy.n_faults == 1
    assert "only%20looks" not in str(caught.value)
    assert not goal.exists()
    assert list(tmp_path.iterdir()) == []
    again = exported(through(url, proxy, postgres_server), goal)
    assert again.digest == exported(url, tmp_path / "undisturbed").digest


@pytest.mark.full
@pytest.mark.parametrize(
    "about",
    daily(["tensorzero.model_inferences AS m", "json_inference_data AS d", "SELECT set_config"], 1),
)
def test_ctrl_c_is_heard_while_the_server_says_nothing(
    about: str, url: str, proxy: Any, postgres_server: Any, tmp_path: Path
) -> None:
    proxy.fail("stall", after=5 if "set_config" in about else 3000, about=about)
    command = [sys.executable, "-m", "trajkit", "export", "--source", through(url, proxy, postgres_server)]
    running = subprocess.Popen(
        [*command, "-o", "store"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    until = time.monotonic() + 60
    while proxy.n_faults == 0 and running.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.3)
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert time.monotonic() - began < 90
    assert running.returncode == 130
    assert said.splitlines()[-1] == "error: stopped"
    assert list(tmp_path.iterdir()) == []


# -- TLS -----------------------------------------------------------------------------------------------------


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for loopback that signs itself, and its key."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("there is no openssl to make a certificate with: apt install openssl")
    files = folder / f"{name}.pem", folder / f"{name}.key"
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    options += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:TRUE"]
    made = [program, "req", *options, "-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run(made, check=True, capture_output=True)
    return files


@pytest.fixture(scope="module")
def secure(
    beside: Callable[[str], Any],
    generated: Any,
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: Any,
) -> Iterator[tuple[str, Path]]:
    """The URL of a server with TLS, and the certificate to trust."""
    files = certificate(tmp_path_factory.mktemp("tls"), "ours")
    with beside("postgres_server").running(tls=files) as running:
        url = running.make_database("secure")
        with running.connect("secure") as connection:
            generated.fill_postgres(connection, generated.generated(seed=5, n_episodes=10))
        yield url, files[0]


@pytest.mark.full
def test_a_certificate_that_is_trusted_lets_an_export_through(
    secure: tuple[str, Path], tmp_path: Path
) -> None:
    url, trusted = secure
    manifest = exported(url, tmp_path / "store", Access(ca_certificate=trusted))
    assert manifest.digest == exported(f"{url}?sslmode=require", tmp_path / "unchecked").digest


def test_a_certificate_of_somebody_else_is_refused(secure: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = secure
    other, _ = certificate(tmp_path, "other")
    with pytest.raises(ServiceError, match="certificate verify failed"):
        open_database(url, Access(ca_certificate=other))


def test_a_server_without_tls_is_refused_when_a_certificate_is_to_be_checked(
    url: str, tmp_path: Path
) -> None:
    ours, _ = certificate(tmp_path, "ours")
    with pytest.raises(ServiceError, match="does not support SSL"):
        open_database(url, Access(ca_certificate=ours))
