"""What answers over the network: databases, the local stack, a gateway elsewhere, the Hugging Face Hub.

Each is called with a short time limit, and its address is shown without secrets.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from trajkit._core.outside import json_from_outside
from trajkit._core.secrets import hidden
from trajkit._core.settings import PROJECT_FILE, project, secret_from_environment
from trajkit.commands.checkup.check import Check, broken, note, well
from trajkit.commands.checkup.setting import DATABASES
from trajkit.errors import ConfigError, MissingExtra, TrajkitError

if TYPE_CHECKING:
    from trajkit.stack.state import LocalStack, ModelServer

GATEWAY_VARIABLE = "TENSORZERO_GATEWAY_URL"
"""Where TensorZero's own clients look for a gateway."""

_CONNECT_S, _ANSWER_S = 3.0, 5.0
_LONGEST_ANSWER = 65_536
_MOST_SAID = 200
_UNREACHABLE = (OSError, ValueError, http.client.HTTPException)
"""The errors of `_ask` if nothing answers, or the address is not valid."""
_SOURCE, _STACK = "source", "local stack"
_UP, _AGAIN = "trajkit up", "trajkit down, then trajkit up"
_HUB = "https://huggingface.co"
_LOG_IN = "hf auth login, or export HF_TOKEN=…"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Returns a redirect as an answer: a request with a key goes to no other address."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


class _Answer(NamedTuple):
    status: int
    body: bytes
    """As much of it as is read."""


def _ask(url: str, headers: Mapping[str, str] | None = None) -> _Answer:
    """GET an address, whatever the status."""
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with _OPENER.open(request, timeout=_ANSWER_S) as answer:
            return _Answer(answer.status, answer.read(_LONGEST_ANSWER))
    except urllib.error.HTTPError as error:
        with error:
            return _Answer(error.code, error.read(_LONGEST_ANSWER))


def _shown(url: str) -> str:
    """An address without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an invalid address"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def _why(error: Exception) -> str:
    """Why nothing answered, in a few words; the text of the error may hold the address."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return "it took too long"
    if isinstance(reason, OSError):
        return reason.strerror or type(reason).__name__
    return (
        "invalid address" if isinstance(error, ValueError | http.client.InvalidURL) else type(error).__name__
    )


# -- databases -----------------------------------------------------------------------------------------------


def databases() -> dict[str, SecretStr]:
    """The databases that trajkit.toml and the environment name, by `source` or the variable."""
    found = {}
    with contextlib.suppress(ConfigError):  # what is wrong with the file is reported as a setting
        source = project().source
        if source is not None and "://" in source:
            found[_SOURCE] = SecretStr(source)
    for variable in DATABASES:
        with contextlib.suppress(ConfigError):
            if (url := secret_from_environment(variable)) is not None:
                found[variable] = url
    return found


def database(name: str, secret_url: SecretStr) -> Check:
    """Whether a database answers, lets this user in, and has TensorZero's tables."""
    from trajkit.sources.access import Access
    from trajkit.sources.tensorzero.connect.database import connect
    from trajkit.sources.tensorzero.connect.url import parse_url

    url = secret_url.get_secret_value()
    try:
        address = parse_url(url)
        if not address.host.startswith("/"):  # a socket is here or not: nothing is waited for
            _reach(address.host, address.port, address.shown)
        access = Access(max_seconds=int(_ANSWER_S)) if address.is_postgres else Access()
        dialect = connect(url, access)
        with contextlib.closing(dialect.connection):
            required, missing = dialect.required, dialect.missing()
    except TrajkitError as error:
        correct = f"correct `source` in {PROJECT_FILE}" if name == _SOURCE else f"correct it: export {name}=…"
        return broken(name, error.message, error.hint or f"start the database, or {correct}")
    shown = address.shown
    if not missing:
        return well(name, f"{shown} answers and has TensorZero's tables", url=shown)
    if len(missing) == len(required):
        said = f"{shown} answers but has no table of TensorZero that this user may read"
        todo = "the database is the last part of the URL; in an empty one a gateway makes the tables"
        return note(name, said, todo, url=shown)
    todo = "open a gateway of TensorZero 2026.6.0 on it once, and let this user read all of them"
    return broken(name, f"{shown} lacks tables of TensorZero: {', '.join(missing)}", todo, url=shown)


def _reach(host: str, port: int, shown: str) -> None:
    """Raise quickly if nothing listens; the drivers of databases wait longer."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError as error:
        raise TrajkitError(f"nothing answers at {shown}: {_why(error)}") from None


# -- what `trajkit up` started -------------------------------------------------------------------------------


def local_stack() -> Iterator[Check]:
    """Its database and its model server, by the file that `trajkit up` wrote."""
    from trajkit.stack.state import read_state

    try:
        state = read_state()
    except TrajkitError as error:
        yield broken(_STACK, error.message, error.hint)
        return
    if state is None:
        yield note(_STACK, "nothing is running in this folder", _UP)
        return
    yield _clickhouse(state)
    if state.model_server is not None:
        yield _model_server(state.model_server)
    for variable in (DATABASES[0], GATEWAY_VARIABLE):
        if state.clickhouse.is_running and os.environ.get(variable):
            yield note(_STACK, f"{variable} is set, and is used instead of it", f"unset {variable}")


def _clickhouse(state: LocalStack) -> Check:
    from trajkit.stack.local import row_counts

    if not state.clickhouse.is_running:
        said = f"ClickHouse (process {state.clickhouse.pid}) has ended; its data is in {state.data_folder}"
        return broken(_STACK, said, f"{_UP} starts it on the same data, trajkit down forgets it")
    try:
        n_rows = sum(row_counts(state).values())
    except TrajkitError as error:
        return broken(_STACK, error.message, _AGAIN)
    return well(_STACK, f"ClickHouse answers, {n_rows:,} rows", pid=state.clickhouse.pid, n_rows=n_rows)


def _model_server(server: ModelServer) -> Check:
    if not server.process.is_running:
        return broken("model server", f"process {server.process.pid} has ended", _UP)
    try:
        status = _ask(f"{server.url}/health").status
    except _UNREACHABLE as error:
        return broken("model server", f"nothing answers at {server.url}: {_why(error)}", _AGAIN)
    if status != HTTPStatus.OK:
        return broken("model server", f"{server.url} answers {status}", _AGAIN)
    what = ", ".join(server.models) or "the stand-in, a rule player"
    return well("model server", f"{server.url} answers: {what}", url=server.url)


# -- elsewhere -----------------------------------------------------------------------------------------------


def gateway() -> Check | None:
    """Whether the gateway that the environment names answers and is well; None if it names none."""
    if (url := secret_from_environment(GATEWAY_VARIABLE)) is None:
        return None
    text = url.get_secret_value()
    where, todo = _shown(text), f"start the gateway, or correct it: export {GATEWAY_VARIABLE}=…"
    try:
        answer = _ask(f"{text.rstrip('/')}/health")
    except _UNREACHABLE as error:
        return broken(GATEWAY_VARIABLE, f"no gateway answers at {where}: {_why(error)}", todo)
    if answer.status == HTTPStatus.OK:
        return well(GATEWAY_VARIABLE, f"{where} answers", url=where)
    if answer.status == HTTPStatus.NOT_FOUND:
        return broken(GATEWAY_VARIABLE, f"{where} answers but is not a TensorZero gateway", todo, url=where)
    said = " ".join(hidden(answer.body.decode("utf-8", "replace"), url).split())[:_MOST_SAID]
    return broken(GATEWAY_VARIABLE, f"{where} is not well ({answer.status}): {said}", todo, url=where)


def hub() -> Check:
    """Whether the Hub answers, and whose token this is."""
    address = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    where, token = _shown(address), _token()
    headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
    try:
        answer = _ask(f"{address}/api/whoami-v2", headers)
    except _UNREACHABLE as error:
        todo = "check the network and HF_ENDPOINT"
        return broken("Hub", f"nothing answers at {where}: {_why(error)}", todo)
    if answer.status == HTTPStatus.OK:
        who = hidden(answer.body.decode("utf-8", "replace"), token)
        return _known(where, json_from_outside(who, where=f"the answer of {where}"))
    if token is None:
        said = f"{where} answers; there is no token, so nothing private can be read or pushed"
        return note("Hub", said, _LOG_IN)
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return broken("Hub", f"{where} refuses the token: it has expired, or is invalid", _LOG_IN)
    return broken("Hub", f"{where} answers {answer.status}", "try again later")


def _known(where: str, who: Any) -> Check:
    if not isinstance(who, dict):
        return broken("Hub", f"{where} does not answer as the Hub does", "check HF_ENDPOINT")
    role = ((who.get("auth") or {}).get("accessToken") or {}).get("role")
    said = f"{where} accepts the token of {who.get('name')}{f', which may {role}' if role else ''}"
    if role == "read":
        return note("Hub", said, f"`trajkit push` needs a token that may write: {where}/settings/tokens")
    return well("Hub", said, url=where)


def _token() -> SecretStr | None:
    from trajkit.publishing.hub import found_token

    try:
        return found_token()
    except MissingExtra:  # only that package knows where `hf auth login` left one
        return secret_from_environment("HF_TOKEN")
