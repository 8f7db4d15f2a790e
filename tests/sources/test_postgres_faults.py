"""Postgres over a network that breaks, hangs, or must be trusted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from tests.sources import generated, proxy
from tests.sources import postgres_server as postgres
from tests.sources.conftest import exported
from trajkit.errors import ServiceError
from trajkit.sources.access import Access
from trajkit.sources.tensorzero.connect.database import open_database


@pytest.fixture(scope="module")
def url(postgres_of: Callable[[str, Any], str]) -> str:
    return postgres_of("faults", generated.generated(seed=5, n_episodes=120))


@pytest.fixture
def breaking(postgres_server: Any) -> Iterator[Any]:
    with proxy.Proxy(postgres_server.port) as running:
        yield running


def through(url: str, proxy: Any, postgres_server: Any) -> str:
    return url.replace(f":{postgres_server.port}/", f":{proxy.port}/")


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
    how: str, about: str, url: str, breaking: Any, postgres_server: Any, tmp_path: Path
) -> None:
    goal = tmp_path / "store"
    breaking.fail(how, after=3000, about=about)
    with pytest.raises(ServiceError, match=r"postgresql://127\.0\.0\.1:\d+/faults failed") as caught:
        exported(through(url, breaking, postgres_server), goal)
    assert breaking.n_faults == 1
    assert "only%20looks" not in str(caught.value)
    assert not goal.exists()
    assert list(tmp_path.iterdir()) == []
    again = exported(through(url, breaking, postgres_server), goal)[1]
    assert again.digest == exported(url, tmp_path / "undisturbed")[1].digest


@pytest.mark.full
@pytest.mark.parametrize(
    "about",
    daily(["tensorzero.model_inferences AS m", "json_inference_data AS d", "SELECT set_config"], 1),
)
def test_ctrl_c_is_heard_while_the_server_says_nothing(
    about: str, url: str, breaking: Any, postgres_server: Any, tmp_path: Path
) -> None:
    breaking.fail("stall", after=5 if "set_config" in about else 3000, about=about)
    said = proxy.stopped_by_ctrl_c(breaking, through(url, breaking, postgres_server), tmp_path)
    assert said.splitlines()[-1] == "error: stopped"


# -- TLS -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, postgres_server: Any) -> Iterator[tuple[str, Path]]:
    """The URL of a server with TLS, and the certificate to trust."""
    files = proxy.certificate(tmp_path_factory.mktemp("tls"), "ours")
    with postgres.running(tls=files) as running:
        url = running.make_database("secure")
        with running.connect("secure") as connection:
            generated.fill_postgres(connection, generated.generated(seed=5, n_episodes=10))
        yield url, files[0]


@pytest.mark.full
def test_a_certificate_that_is_trusted_lets_an_export_through(
    secure: tuple[str, Path], tmp_path: Path
) -> None:
    url, trusted = secure
    _, manifest = exported(url, tmp_path / "store", Access(ca_certificate=trusted))
    assert manifest.digest == exported(f"{url}?sslmode=require", tmp_path / "unchecked")[1].digest


def test_a_certificate_of_somebody_else_is_refused(secure: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = secure
    other, _ = proxy.certificate(tmp_path, "other")
    with pytest.raises(ServiceError, match="certificate verify failed"):
        open_database(url, Access(ca_certificate=other))


def test_a_server_without_tls_is_refused_when_a_certificate_is_to_be_checked(
    url: str, tmp_path: Path
) -> None:
    ours, _ = proxy.certificate(tmp_path, "ours")
    with pytest.raises(ServiceError, match="does not support SSL"):
        open_database(url, Access(ca_certificate=ours))
