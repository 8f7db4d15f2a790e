"""Start the vLLM of the user's environment, or use a running one: its models, adapters and metrics."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import SecretStr

from trajkit._core.process.closing import Closing
from trajkit._core.secrets import hidden
from trajkit._core.settings import STATE_FOLDER
from trajkit.errors import RequestError, ServiceError, StackError
from trajkit.stack import process as processes
from trajkit.stack.process import Process
from trajkit.stack.vllm_command import program_of

HOST = "127.0.0.1"
START_S = 3600.0
"""Maximum seconds for a start: loading a large model takes many minutes."""

_KEY_VARIABLE = "VLLM_API_KEY"
_UPDATING = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
_ANSWER_S = 30.0
_LOADING_S = 600.0
_PROBE_S = 0.2
_NEWS_S = 10.0
_GRACE_S = 30.0
"""Maximum seconds for vLLM to end by itself."""


class Vllm(Closing):
    """A server of vLLM. Closing it ends one that was started here, and leaves any other alone.

    Args:
        url: Its address, which ends with `/v1`.
        key: Its key; None for a server without keys.
        process: The process that was started here; None for a server that ran before.
        log: The output of that process.
        leash: File descriptor whose end ends that process.

    Raises:
        RequestError: The address is invalid.
    """

    def __init__(
        self,
        url: str,
        key: SecretStr | None = None,
        *,
        process: Process | None = None,
        log: Path | None = None,
        leash: int | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestError(
                f"{hidden(url)!r} is not the address of a vLLM", hint="such as http://127.0.0.1:8000/v1"
            )
        self.url = url.rstrip("/")
        self.process, self.log = process, log
        self._key, self._leash = key, leash
        self._name = f"vLLM at {parts.netloc.rpartition('@')[2]}"
        by_proxy = [] if parts.hostname in (HOST, "localhost", "::1") else [urllib.request.ProxyHandler()]
        self._http = urllib.request.OpenerDirector()
        for handler in (
            *by_proxy,
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPErrorProcessor(),
            urllib.request.HTTPDefaultErrorHandler(),  # and none for redirects: the key stays here
        ):
            self._http.add_handler(handler)

    @classmethod
    def start(
        cls,
        command: str,
        arguments: Sequence[str],
        *,
        say: Callable[[str], object],
        host: str = HOST,
        port: int = 0,
        key: SecretStr | None = None,
    ) -> Self:
        """Start a server and wait until it answers. It ends with this process, also if that is killed.

        Args:
            command: The command up to `serve`, and further options, which go last.
            arguments: Model, adapters and their options.
            say: Called with a line about the start from time to time.
            host: Where it listens.
            port: Its port; 0 chooses a free one.
            key: Key that clients must send; None for none.

        Raises:
            MissingExtra: There is no such program.
            StackError: The port is taken, or the server did not start; the message has the end of its log.
        """
        program, further = program_of(command)
        port = _free_port(host, port)
        log = (STATE_FOLDER / "vllm" / f"{port}.log").absolute()
        log.parent.mkdir(parents=True, exist_ok=True)
        reached = HOST if host == "0.0.0.0" else host
        url = f"http://{f'[{reached}]' if ':' in reached else reached}:{port}/v1"
        probe, news = cls(url, key), _News(log, say)
        say(f"starting vLLM on port {port}; its log: {log}")
        reading, leash = os.pipe()
        try:
            process, _ = processes.start_module(
                "trajkit.stack.leash",
                [str(Path.cwd()), *program, *arguments, "--host", host, "--port", str(port), *further],
                log=log,
                is_ready=lambda _: probe._is_ready(news),
                what="vLLM",
                timeout_s=START_S,
                environment={_KEY_VARIABLE: key.get_secret_value() if key else ""},
                stdin=reading,
            )
        except BaseException:
            os.close(leash)
            raise
        finally:
            os.close(reading)
        return cls(url, key, process=process, log=log, leash=leash)

    @property
    def is_ours(self) -> bool:
        """Whether it was started here."""
        return self.process is not None

    def ended(self) -> str | None:
        """Return the end of the log of a server that was started here and has ended; else None."""
        if self.process is None or self.log is None or self.process.is_running:
            return None
        return f"vLLM has ended{processes.last_lines(self.log)}"

    def close(self) -> None:
        """End the server if it was started here."""
        if self.process is None or self._leash is None:
            return
        processes.end(self.process, grace_s=_GRACE_S)
        with contextlib.suppress(ProcessLookupError):  # if the leash was killed, or vLLM left a worker
            os.killpg(self.process.pid, signal.SIGKILL)
        os.close(self._leash)
        self._leash = None

    def models(self) -> dict[str, str | None]:
        """Return the names of its models, with the folder or id that each was loaded from.

        Raises:
            ServiceError: It cannot be reached, or refuses.
        """
        try:
            cards = json.loads(self._answer(f"{self.url}/models"))["data"]
            return {str(card["id"]): card.get("root") for card in cards}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ServiceError(f"{self._name}: /v1/models did not answer in vLLM's format") from error

    def serve_adapter(self, name: str, folder: Path) -> None:
        """Load an adapter under a name.

        Args:
            name: Its name for clients.
            folder: Where it is, for the server.

        Raises:
            ServiceError: The server takes no adapters while it runs, or refuses this one.
        """
        wanted = {"lora_name": name, "lora_path": str(folder.absolute())}
        try:
            self._answer(f"{self.url}/load_lora_adapter", wanted, timeout_s=_LOADING_S)
        except _Refused as refusal:
            if refusal.status in (404, 405) and refusal.said is None:  # it has no such path
                raise ServiceError(
                    f"{self._name} has no model {name!r}, and takes no adapters while it runs",
                    hint=f"start it with --enable-lora and {_UPDATING}=True, or with "
                    f"--lora-modules {name}={folder.absolute()}",
                ) from None
            raise ServiceError(f"{self._name} does not load the adapter {name!r}: {refusal.said}") from None

    def metrics(self) -> Metrics | None:
        """Return its counters; None if it does not report them."""
        try:
            return read_metrics(self._answer(f"{self.url.removesuffix('/v1')}/metrics").decode())
        except (ServiceError, UnicodeDecodeError):
            return None

    def _is_ready(self, news: _News) -> bool | None:
        time.sleep(_PROBE_S)
        news.tell()
        try:
            self._answer(f"{self.url.removesuffix('/v1')}/health", timeout_s=5.0)
        except ServiceError:
            return None
        return True

    def _answer(
        self, url: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = _ANSWER_S
    ) -> bytes:
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key.get_secret_value()}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers)
        try:
            with contextlib.closing(self._http.open(request, timeout=timeout_s)) as response:
                answered: bytes = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise _Refused(self._name, error.code, _said_in(error.read()), self._key) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ServiceError(
                f"{self._name} cannot be reached: {hidden(str(reason), self._key)}",
                hint="--model-url names a running server, with /v1; without it, trajkit starts one",
            ) from None
        return answered


class _Refused(ServiceError):
    """The server answered with an HTTP error status."""

    def __init__(self, name: str, status: int, said: str | None, key: SecretStr | None) -> None:
        self.status, self.said = status, None if said is None else hidden(said, key)
        super().__init__(f"{name} answered {status}: {self.said or 'without a reason'}")


class _News:
    """Reports the progress of a start from time to time."""

    def __init__(self, log: Path, say: Callable[[str], object]) -> None:
        self._log, self._say = log, say
        self._began = self._told = time.monotonic()

    def tell(self) -> None:
        now = time.monotonic()
        if now - self._told < _NEWS_S:
            return
        self._told = now
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = f": {lines[-1].strip()[-120:]}" if lines else ""
        self._say(f"vLLM is starting, {now - self._began:,.0f} s{said}")


class Metrics(NamedTuple):
    """Counters of a server, since its start."""

    n_prompt_tokens: float
    """Tokens of prompts that were looked up in the prefix cache."""
    n_cached_tokens: float
    """Those found there."""
    n_generated_tokens: float
    """Tokens of completions."""
    busy_s: float
    """Seconds of all finished requests together."""


_COUNTERS = (
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:generation_tokens_total",
    "vllm:e2e_request_latency_seconds_sum",
)
"""Their names in the text of vLLM 0.33: Prometheus adds `_total` to counters and `_sum` to histograms."""
_SAMPLE = re.compile(r"^(\S+?)(?:\{.*\})? (\S+)(?: \d+)?$", re.MULTILINE)


def read_metrics(text: str) -> Metrics | None:
    """Read the counters, summed over all engines; None if there are no vLLM counters."""
    found: dict[str, float] = {}
    for name, value in _SAMPLE.findall(text):
        if name in _COUNTERS:
            with contextlib.suppress(ValueError):
                found[name] = found.get(name, 0.0) + float(value)
    return Metrics(*(found.get(name, 0.0) for name in _COUNTERS)) if found else None


def _said_in(body: bytes) -> str | None:
    """Return the message of an error in vLLM's form; None for the plain error of an unknown path."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return None


def _free_port(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
        except OSError as error:
            raise StackError(
                f"nothing can listen on {host}:{port}: {error}", hint="--port 0 takes a free one"
            ) from error
        return int(probe.getsockname()[1])
