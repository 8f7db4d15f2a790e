"""TLS, on a real socket with a certificate that was made for it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources import proxy
from trajkit.cli.main import run as trajkit
from trajkit.sources.tensorzero.connect.url import parse_url
from trajkit.store.reader import open_store


def speaking(files: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return proxy.certificate(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture
def secure(server: Any, trusted: tuple[Path, Path]) -> Iterator[Any]:
    with proxy.Proxy(server.port, tls=speaking(trusted)) as running:
        yield running


@pytest.fixture
def folder(rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows.episode(0.5)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def over_tls(url: str, port: int) -> str:
    return url.replace("http://", "https://").replace(f":{parse_url(url).port}/", f":{port}/")


def test_an_export_over_tls_is_the_same_and_its_manifest_says_https(
    folder: Path, url: str, secure: Any, trusted: tuple[Path, Path]
) -> None:
    assert trajkit(["export", "--source", url, "-o", "plain"]) == 0
    secured = over_tls(url, secure.port)
    assert trajkit(["export", "--source", secured, "--ca-cert", str(trusted[0]), "-o", "tls"]) == 0
    plain, tls = (open_store(folder / name).manifest for name in ("plain", "tls"))
    assert tls.digest == plain.digest
    assert tls.source["url"] == f"https://127.0.0.1:{secure.port}/tensorzero"


def test_a_look_over_tls_trusts_whom_an_option_or_the_environment_names(
    folder: Path,
    url: str,
    secure: Any,
    trusted: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert trajkit(["info", over_tls(url, secure.port), "--ca-cert", str(trusted[0])]) == 0
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted[0]))
    assert trajkit(["info", over_tls(url, secure.port)]) == 0
    assert capsys.readouterr().out.count("2 inferences  1 episode") == 2


def test_a_certificate_that_nobody_signed_is_refused_with_the_way_out(
    folder: Path, url: str, secure: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trajkit(["export", "--source", over_tls(url, secure.port), "-o", "tls"]) == 4
    printed = capsys.readouterr().err
    assert f"the certificate of 127.0.0.1:{secure.port} is not trusted: self-signed certificate" in printed
    assert "hint: --ca-cert FILE" in printed
    assert list(folder.iterdir()) == []


def test_a_certificate_of_somebody_else_is_refused(
    folder: Path, url: str, server: Any, tmp_path_factory: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    files = proxy.certificate(tmp_path_factory.mktemp("tls"), "other", "DNS:somewhere.example")
    with proxy.Proxy(server.port, tls=speaking(files)) as other:
        secured = over_tls(url, other.port)
        assert trajkit(["export", "--source", secured, "--ca-cert", str(files[0]), "-o", "tls"]) == 4
    printed = capsys.readouterr().err
    assert "is not trusted" in printed
    assert "127.0.0.1" in printed
    assert "mismatch" in printed


def test_tls_to_a_port_without_it_says_so(folder: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert trajkit(["export", "--source", url.replace("http://", "https://")]) == 4
    printed = capsys.readouterr().err
    assert "does not speak TLS" in printed
    assert "http://" in printed


def test_plain_text_to_a_port_with_tls_says_so(
    folder: Path, url: str, secure: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = url.replace(f":{parse_url(url).port}/", f":{secure.port}/")
    assert trajkit(["export", "--source", plain]) == 4
    assert "https://" in capsys.readouterr().err


def test_a_file_without_a_certificate_is_a_wrong_request(
    folder: Path, url: str, secure: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty.pem").write_text("nothing\n")
    assert trajkit(["export", "--source", over_tls(url, secure.port), "--ca-cert", "empty.pem"]) == 2
    assert "holds no certificate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "shown", "is_tls"),
    [
        ("https://abc.aws.clickhouse.cloud/tensorzero", "https://abc.aws.clickhouse.cloud:8443", True),
        ("https://u:p@abc.clickhouse.cloud:8443/tensorzero", "https://abc.clickhouse.cloud:8443", True),
        ("clickhouses://u:p@host/tensorzero", "https://host:8443", True),
        ("clickhouse://u:p@host:8443/tensorzero", "https://host:8443", True),
        ("clickhouse://u:p@host/tensorzero", "http://host:8123", False),
        ("http://host:8443/tensorzero", "http://host:8443", False),
        ("https://[::1]:9/tensorzero", "https://[::1]:9", True),
        ("https://host/?database=tensorzero&user=u&password=p", "https://host:8443", True),
    ],
)  # fmt: skip
def test_the_url_says_whether_it_is_tls(url: str, shown: str, is_tls: bool) -> None:
    address = parse_url(url)
    assert (address.shown, address.is_tls) == (f"{shown}/tensorzero", is_tls)


def test_user_and_password_are_unquoted_wherever_they_stand() -> None:
    for url in ("http://a%40b:p%3Aq%2F@h/db", "http://h/db?user=a%40b&password=p%3Aq%2F"):
        address = parse_url(url)
        assert (address.user, address.password, address.settings) == ("a@b", "p:q/", ())
        assert "p:q" not in repr(address) + address.shown
