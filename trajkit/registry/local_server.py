"""Build the command that serves a local model, with trajkit's own or another server.

The options of `transformers serve` are those of transformers 5.
"""

from __future__ import annotations

import shlex
import shutil
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from trajkit.errors import RequestError
from trajkit.registry.served import ServedModel
from trajkit.stack.gateway_config import STAND_IN_HOST
from trajkit.stack.vllm_command import ADAPTER_CONFIG, MERGE, serve_arguments

_AMD = Path("/dev/kfd")
"""The device file that AMD's driver creates for an AMD GPU."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Server(StrEnum):
    """Program that serves a model."""

    TRAJKIT = "trajkit"
    """Runs anywhere; loads adapters, supports JSON schemas, and is made for small models."""
    VLLM = "vllm"
    """Needs a GPU; loads adapters and supports JSON schemas."""
    TRANSFORMERS = "transformers"
    """Runs anywhere; loads only whole models and does not support JSON schemas."""


def default_server() -> Server:
    """Choose the server for this machine: vLLM on a GPU, otherwise trajkit's own."""
    has_gpu = shutil.which("nvidia-smi") is not None or _AMD.exists()
    return Server.VLLM if has_gpu else Server.TRAJKIT


class LocalModel(NamedTuple):
    """A model that was trained on this machine."""

    name: str
    """Name of the model at the server."""
    base: str
    """The base model: a folder or an id."""
    folder: Path
    """The trained adapter or whole model."""
    merged: Path | None = None
    """Base model and adapter merged into one model; None if there is none."""

    @property
    def whole(self) -> Path | None:
        """A folder that can be loaded without the base model; None when there is none."""
        if self.merged is not None:
            return self.merged
        return None if (self.folder / ADAPTER_CONFIG).is_file() else self.folder


class Serving(NamedTuple):
    """A served model with its command."""

    served: ServedModel
    """The model's entry in the configuration."""
    command: str
    """Command that serves the model."""
    notes: tuple[str, ...]
    """Notes for the user, a sentence each without a full stop."""


def serving(
    model: LocalModel, server: Server, *, name: str, api_base: str, api_key_location: str = "none"
) -> Serving:
    """Build the entry and the command of a model at an address.

    Args:
        model: The model.
        server: The server; the stand-in's address always uses `trajkit up --serve`.
        name: Name of the model in the configuration.
        api_base: Address of the server.
        api_key_location: Where the gateway finds the key, if the server needs one.

    Raises:
        RequestError: The server cannot load this model.
    """
    is_behind = urlsplit(api_base).hostname == STAND_IN_HOST
    if is_behind or server == Server.TRAJKIT:
        arguments, called, server = _trajkit(model), model.name, Server.TRAJKIT
    elif server == Server.VLLM:
        arguments, called = _vllm(model), model.name
    else:
        # transformers serve accepts only the name of the model that it loaded
        if model.whole is None:
            raise RequestError(
                f"{model.folder} is an adapter, and `{server.value} serve` loads only whole models",
                hint=f"{MERGE}; or --server trajkit or vllm, which load adapters",
            )
        called = str(model.whole)
        arguments = ["transformers", "serve", called]
    served = ServedModel(
        name=name,
        model_name=called,
        api_base=api_base,
        api_key_location=api_key_location,
        provider=server.value,
    )
    if is_behind:
        return Serving(served, shlex.join(["trajkit", "up", "--serve", f"{arguments[2]}={called}"]), ())
    note = (
        "transformers serve supports no JSON schema, and samples only if generation_config.json says so:"
        " it ignores json_mode and temperature"
    )
    notes = (note,) if server == Server.TRANSFORMERS else ()
    return Serving(served, shlex.join([*arguments, *_address(api_base)]), notes)


def _address(api_base: str) -> list[str]:
    """Return the host to listen on: this machine only, unless the address is another machine's."""
    url = urlsplit(api_base)
    host = url.hostname if url.hostname in _LOOPBACK else "0.0.0.0"
    return ["--host", host, "--port", str(url.port or (443 if url.scheme == "https" else 80))]


def _trajkit(model: LocalModel) -> list[str]:
    if model.whole is not None:
        return ["trajkit", "serve", str(model.whole), "--name", model.name]
    return ["trajkit", "serve", str(model.folder), "--base", model.base, "--name", model.name]


def _vllm(model: LocalModel) -> list[str]:
    if model.whole is not None:
        return ["vllm", "serve", *serve_arguments(str(model.whole), name=model.name, adapters={})]
    return ["vllm", "serve", *serve_arguments(model.base, adapters={model.name: str(model.folder)})]
