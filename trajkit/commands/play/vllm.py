"""The vLLM of a command: start it or use a running one, give it the models, and report its load."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajkit._core.lazy import need
from trajkit._core.output.console import count, talk
from trajkit._core.output.result import Running
from trajkit.errors import RequestError, StackError
from trajkit.stack.vllm_command import ADAPTER_CONFIG, VLLM, serve_arguments

if TYPE_CHECKING:
    from pydantic import SecretStr

    from trajkit.models.serving.served_models import Wanted
    from trajkit.rollouts.options import Options
    from trajkit.rollouts.session import Run
    from trajkit.stack.vllm import Metrics, Vllm

_POLL_S = 0.5


class Use(NamedTuple):
    """How a vLLM was used, by its own counters; those that it does not report are None."""

    url: str
    """Its address."""
    max_in_flight: int
    """Maximum episodes that were in flight, each with one request at a time."""
    mean_in_flight: float | None
    """Mean number of requests in flight."""
    prefix_cache_hit_rate: float | None
    """Share of the prompts' tokens that the prefix cache had."""
    n_prompt_tokens: int | None
    """Tokens of prompts."""
    n_generated_tokens: int | None
    """Tokens of completions."""
    seconds: float
    """How long it was used."""

    def __str__(self) -> str:
        if self.mean_in_flight is None or self.n_generated_tokens is None:
            return f"vLLM  at most {count(self.max_in_flight)} episodes in flight; it reported no metrics"
        rate = self.n_generated_tokens / max(self.seconds, 1e-9)
        cache = "unused"
        if self.prefix_cache_hit_rate is not None and self.n_prompt_tokens is not None:
            cache = f"hit by {self.prefix_cache_hit_rate:.1%} of {count(self.n_prompt_tokens)} prompt tokens"
        return (
            f"vLLM  {self.mean_in_flight:,.1f} requests in flight on average, of at most "
            f"{count(self.max_in_flight)}; prefix cache {cache}; {rate:,.0f} tokens/s generated"
        )


def refuse_vllm_options(options: Options, command: str, on: str | None) -> None:
    """Refuse options of a vLLM if none is started.

    Raises:
        RequestError: There is such an option, the address is invalid, or other machines would need a vLLM
            of this one.
    """
    from trajkit.rollouts.options import PolicyKind
    from trajkit.stack.vllm import Vllm

    is_vllm, is_started = options.kind == PolicyKind.VLLM, options.model_url is None
    if is_vllm and options.model_url is not None:
        Vllm(options.model_url)  # checks the address
    if command != VLLM and not (is_vllm and is_started):
        why = "--model-url names a running vLLM" if is_vllm else "no vLLM plays"
        raise RequestError(f"--vllm-command is not used: {why}", hint="leave it out")
    if is_vllm and is_started and on not in (None, "local"):
        raise RequestError(
            f"--on {on} plays on other machines, which cannot reach a vLLM that is started here",
            hint="`trajkit serve --engine vllm --host ADDRESS`, then --model-url http://ADDRESS:PORT/v1",
        )


@contextlib.contextmanager
def vllm_of(run: Run, command: str) -> Iterator[None]:
    """The vLLM of a run, with its models, for a block; nothing if no policy uses one.

    Args:
        run: The run, with its journal open. Its session gets the address.
        command: The command that starts a vLLM.

    Raises:
        RequestError: A model does not exist, or vLLM cannot load it.
        MissingExtra: There is no program of that name.
        ServiceError: The vLLM at --model-url cannot be reached, or does not take an adapter.
        StackError: vLLM does not start.
    """
    from trajkit.models.serving.served_models import Wanted
    from trajkit.rollouts.cast import model_key
    from trajkit.rollouts.options import PolicyKind
    from trajkit.stack.vllm import Vllm

    session = run.session
    if session.options.kind != PolicyKind.VLLM or run.n_left == 0:
        yield
        return
    need("openai", extra="openai")  # before minutes are spent on a start
    # several variants may be one model with different prompts
    wanted = {one.served_as: Wanted(one.served_as, one.model, one.base) for one in session.players}
    if session.options.model_url is None:
        server = start_vllm(command, [*wanted.values()])
    else:
        server = Vllm(session.options.model_url, model_key())
        _provide(server, [*wanted.values()])
    with server:
        options = session.options.model_copy(update={"model_url": server.url})
        run.session = session._replace(options=options, server_ended=server.ended)
        run.serving = _Watch(server, run.plan.concurrency).use
        yield


def start_vllm(
    command: str,
    wanted: Sequence[Wanted],
    *,
    host: str | None = None,
    port: int = 0,
    key: SecretStr | None = None,
) -> Vllm:
    """Start a vLLM with some models.

    Args:
        command: The command that starts it.
        wanted: Its models: at most one whole model, and adapters of one base model.
        host: Where it listens; None for this machine alone.
        port: Its port; 0 chooses a free one.
        key: Key that clients must send; None for none.

    Raises:
        RequestError: The models cannot be served together, or vLLM cannot load one.
        MissingExtra: There is no such program.
        StackError: The port is taken, or vLLM does not start.
    """
    from trajkit._core.samples import model_path
    from trajkit.models.serving.served_models import served_models
    from trajkit.stack.vllm import HOST, Vllm

    served = served_models(wanted)
    base = _absolute(model_path(served.base))
    arguments = serve_arguments(
        base,
        name=None if served.name == base else served.name,
        adapters={name: _absolute(model) for name, model in served.adapters.items()},
    )
    # without it vLLM samples by the model's generation_config.json if a request does not set how
    arguments += ["--generation-config", "vllm"]
    server = Vllm.start(command, arguments, say=talk, host=host or HOST, port=port, key=key)
    try:
        talk(f"vLLM serves {', '.join(server.models())} at {server.url}")
    except BaseException:
        server.close()
        raise
    return server


def _provide(server: Vllm, wanted: Sequence[Wanted]) -> None:
    """Load the adapters that a running server does not have yet.

    Raises:
        RequestError: It does not serve a model that is not an adapter.
        ServiceError: It cannot be reached, or does not take an adapter.
    """
    served = server.models()
    for one in wanted:
        folder = Path(one.model)
        if one.name in served:
            root = served[one.name]
            if folder.is_dir() and root is not None and root != str(folder.absolute()):
                talk(f"note: {server.url} serves {one.name} from {root}")
        elif (folder / ADAPTER_CONFIG).is_file():
            server.serve_adapter(one.name, folder)
            talk(f"{server.url} has loaded the adapter {one.name}")
        else:
            raise RequestError(
                f"{server.url} serves no model {one.name!r}", hint=f"it serves {', '.join(served) or 'none'}"
            )


class _Watch:
    """Compares the counters of a server with those at the beginning."""

    def __init__(self, server: Vllm, concurrency: int) -> None:
        self._server, self._concurrency = server, concurrency
        self._before, self._began = server.metrics(), time.monotonic()

    def use(self) -> Use:
        """Return how the server was used since the beginning, by all of its clients."""
        before, after = self._before, self._server.metrics()
        seconds = time.monotonic() - self._began
        if before is None or after is None:
            return Use(self._server.url, self._concurrency, None, None, None, None, seconds)
        new: Metrics = type(after)(*(now - then for now, then in zip(after, before, strict=True)))
        return Use(
            url=self._server.url,
            max_in_flight=self._concurrency,
            mean_in_flight=new.busy_s / max(seconds, 1e-9),
            prefix_cache_hit_rate=new.n_cached_tokens / new.n_prompt_tokens if new.n_prompt_tokens else None,
            n_prompt_tokens=int(new.n_prompt_tokens),
            n_generated_tokens=int(new.n_generated_tokens),
            seconds=seconds,
        )


class ServingVllm(Running):
    """A vLLM that was started, as the result of a command."""

    def __init__(self, server: Vllm) -> None:
        self._server = server
        self.url = server.url
        """The address, which ends with `/v1`."""
        self.models = list(server.models())
        """Model names for requests."""

    def wait(self) -> None:
        """Serve until the process is told to end (SIGTERM or Ctrl-C), or vLLM ends.

        Raises:
            StackError: vLLM has ended by itself.
        """
        from trajkit._core.process.loop import told_to_end

        is_told: list[bool] = []
        with self, told_to_end(lambda: is_told.append(True)):
            while not is_told:
                if (words := self._server.ended()) is not None:
                    raise StackError(words, hint=f"its log: {self._server.log}")
                time.sleep(_POLL_S)
        talk("ended")

    def close(self) -> None:
        """End vLLM. A second call does nothing."""
        self._server.close()

    def to_json(self) -> dict[str, Any]:
        """Return the address, the names of the models, and the id of the process that keeps vLLM."""
        return {"url": self.url, "models": self.models, "pid": os.getpid()}

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"<vLLM with {', '.join(self.models)} at {self.url}>"


def _absolute(name: str) -> str:
    return str(Path(name).absolute()) if Path(name).is_dir() else name
