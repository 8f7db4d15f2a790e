"""Serve models of this machine as an OpenAI-compatible API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trajkit._core.console import talk
from trajkit._core.settings import secret_from_environment
from trajkit.commands.options import Count, Many, Option, RunsFolder, many
from trajkit.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from trajkit.models.serving.server import Serving

_ENVIRONMENT = "env::"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(
    models: Annotated[Many, Option(metavar="MODEL...")],
    *,
    name: Many = (),
    base: Annotated[str | None, Option(metavar="DIR|ID")] = None,
    host: str = "127.0.0.1",
    port: Annotated[int, Option(least=0, most=65535)] = 8000,
    device: str | None = None,
    threads: Count | None = None,
    max_new_tokens: Count = 1024,
    side_by_side: Count = 128,
    api_key_location: Annotated[str | None, Option(metavar="env::NAME")] = None,
    runs: RunsFolder = "runs",
) -> Serving:
    """Serve models of this machine as an OpenAI-compatible API, until Ctrl-C.

    MODEL is a job's name, a folder with an adapter or a model, an id, or sample:tiny-base. Several adapters
    are served on one base, which is served too; a request chooses by model name. The address is printed once
    requests are taken. In Python the server has `url`, and runs in a thread of the process until it is closed
    or the process ends; `wait()` waits for Ctrl-C.

    Args:
        models: Jobs, folders, ids or samples.
        name: What clients call a MODEL; one for each, in their order.
        base: What the adapters belong to, where they do not say so themselves.
        host: Where to listen.
        port: Port to listen on; 0 takes a free one.
        device: Device as torch names it. Default: the GPU where there is one, else cpu.
        threads: Threads of the CPU. Default: 1 for a small model, else torch's own.
        max_new_tokens: Most tokens of an answer where the request does not say.
        side_by_side: Most answers that are made at the same time.
        api_key_location: Ask clients for the key in this variable.
        runs: Folder where jobs are kept.

    Raises:
        RequestError: There is no such model, or the models do not share a base.
        ConfigError: The variable of the key is not set.
        StackError: The address is taken.
        MissingExtra: A package of trajkit[serve] is not installed.

    Example:
        trajkit serve goto-sft
        trajkit serve goto-sft pickup-sft --name goto --name pickup --port 0
    """
    from trajkit.commands.served import wanted_models
    from trajkit.models.serving.served_models import served_models
    from trajkit.models.serving.server import serve as serve_model

    key = _api_key(api_key_location)
    loaded = served_models(wanted_models(many(models), many(name), base, Path(runs))).open(device=device)
    talk(f"loaded {', '.join(loaded.names)} on {loaded.voice(None).device}")
    if host not in _LOOPBACK and key is None:
        talk(f"note: whoever reaches {host} can use it; --api-key-location asks for a key")
    loaded.use_threads(threads)
    return serve_model(
        loaded,
        host=host,
        port=port,
        max_new_tokens=max_new_tokens,
        side_by_side=side_by_side,
        api_key=key,
    )


def _api_key(location: str | None) -> str | None:
    """The key that clients have to bring.

    Raises:
        RequestError: The location is none.
        ConfigError: The variable is not set.
    """
    if location is None:
        return None
    if not location.startswith(_ENVIRONMENT):
        raise RequestError(
            "what --api-key-location names is not in the environment",
            hint="it is where the key is found, such as env::MY_KEY, and not the key",
        )
    key = secret_from_environment(variable := location.removeprefix(_ENVIRONMENT))
    if key is None:
        raise ConfigError(f"{variable} is not set", hint="it holds the key that clients have to bring")
    return key.get_secret_value()
