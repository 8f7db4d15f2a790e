"""Serve local models as an OpenAI-compatible API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from trajkit._core.output.console import talk
from trajkit._core.settings import secret_from_environment
from trajkit.commands.options.types import Count, Many, Option, RunsFolder, many
from trajkit.errors import ConfigError, RequestError
from trajkit.stack.vllm_command import VLLM

if TYPE_CHECKING:
    from pydantic import SecretStr

    from trajkit.commands.play.vllm import ServingVllm
    from trajkit.models.serving.server import Serving

_ENVIRONMENT = "env::"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(
    models: Annotated[Many, Option(metavar="MODEL...")],
    *,
    name: Many = (),
    base: Annotated[str | None, Option(metavar="DIR|ID")] = None,
    engine: Literal["trajkit", "vllm"] = "trajkit",
    vllm_command: Annotated[str, Option(metavar="COMMAND")] = VLLM,
    host: str = "127.0.0.1",
    port: Annotated[int, Option(least=0, most=65535)] = 8000,
    device: str | None = None,
    threads: Count | None = None,
    max_new_tokens: Count | None = None,
    side_by_side: Count | None = None,
    api_key_location: Annotated[str | None, Option(metavar="env::NAME")] = None,
    runs: RunsFolder = "runs",
) -> Serving | ServingVllm:
    """Serve local models as an OpenAI-compatible API, until Ctrl-C.

    MODEL is a job's name, a folder with an adapter or a model, an id, or sample:tiny-base. Several adapters
    are served on one base, which is served too; a request chooses by model name. The address is printed once
    requests are accepted. In Python the server has `url`, and runs until it is closed or the process ends;
    `wait()` waits for Ctrl-C.

    The engine of trajkit is for small models and tests. --engine vllm starts a vLLM of your environment with
    the same models, and stops it with this command.

    Args:
        models: Jobs, folders, ids or samples.
        name: Name of a MODEL for clients; one for each, in their order.
        base: Base model of the adapters, if they do not name it.
        engine: What serves: trajkit's own engine, or vLLM.
        vllm_command: Command that starts vLLM, up to `serve`; vLLM options may follow.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        device: Device as torch names it. Default: the GPU if there is one, else cpu.
        threads: Threads of the CPU. Default: 1 for a small model, else torch's own.
        max_new_tokens: Maximum tokens per answer if the request sets none. Default: 1,024.
        side_by_side: Maximum answers generated at the same time. Default: 128.
        api_key_location: Require the key in this variable from clients.
        runs: Folder where jobs are kept.

    Raises:
        RequestError: There is no such model, or the models do not share a base.
        ConfigError: The variable of the key is not set.
        StackError: The address is taken, or vLLM does not start.
        MissingExtra: A package of trajkit[serve] is not installed, or there is no vLLM.

    Example:
        trajkit serve goto-sft
        trajkit serve goto-sft pickup-sft --name goto --name pickup --port 0
        trajkit serve goto-sft --engine vllm --vllm-command "vllm serve --gpu-memory-utilization 0.8"
    """
    from trajkit.commands.play.local_model import wanted_models

    key = _api_key(api_key_location)
    wanted = wanted_models(many(models), many(name), base, Path(runs))
    if host not in _LOOPBACK and key is None:
        talk(f"note: anyone who can reach {host} can use it; --api-key-location requires a key")
    if engine == "vllm":
        from trajkit.commands.play.vllm import ServingVllm, start_vllm

        own = {
            "--device": device,
            "--threads": threads,
            "--max-new-tokens": max_new_tokens,
            "--side-by-side": side_by_side,
        }
        _refuse(own, "of trajkit's own engine", hint=f"options of vLLM's: --vllm-command {VLLM + ' ...'!r}")
        return ServingVllm(start_vllm(vllm_command, wanted, host=host, port=port, key=key))
    _refuse({"--vllm-command": vllm_command != VLLM}, "of vLLM", hint="--engine vllm")
    from trajkit.models.generation.generate import SIDE_BY_SIDE
    from trajkit.models.serving.served_models import served_models
    from trajkit.models.serving.server import NEW_TOKENS
    from trajkit.models.serving.server import serve as serve_model

    loaded = served_models(wanted).open(device=device)
    talk(f"loaded {', '.join(loaded.names)} on {loaded.voice(None).device}")
    loaded.use_threads(threads)
    return serve_model(
        loaded,
        host=host,
        port=port,
        max_new_tokens=max_new_tokens or NEW_TOKENS,
        side_by_side=side_by_side or SIDE_BY_SIDE,
        api_key=None if key is None else key.get_secret_value(),
    )


def _refuse(given: Mapping[str, object], of: str, *, hint: str) -> None:
    """Refuse options of the engine that does not serve, so that none is silently ignored.

    Raises:
        RequestError: There is one.
    """
    for option, value in given.items():
        if value:
            raise RequestError(f"{option} is {of}", hint=hint)


def _api_key(location: str | None) -> SecretStr | None:
    """The key that clients must send.

    Raises:
        RequestError: The location is invalid.
        ConfigError: The variable is not set.
    """
    if location is None:
        return None
    if not location.startswith(_ENVIRONMENT):
        raise RequestError(
            "--api-key-location does not name an environment variable",
            hint="it is where the key is found, such as env::MY_KEY, and not the key",
        )
    key = secret_from_environment(variable := location.removeprefix(_ENVIRONMENT))
    if key is None:
        raise ConfigError(f"{variable} is not set", hint="it holds the key that clients must send")
    return key
