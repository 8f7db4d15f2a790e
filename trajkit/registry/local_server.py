"""Build the command that serves a model of this machine, with trajkit's own or another server.

The options of `vllm serve` are those of vLLM 0.11; those of `transformers serve`, of transformers 5.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from trajkit.errors import RequestError
from trajkit.registry.served import ServedModel
from trajkit.stack.gateway_config import STAND_IN_HOST

ADAPTER_CONFIG = "adapter_config.json"
_TEMPLATE = "chat_template.jinja"

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The LoRA ranks that vLLM supports."""

_AMD = Path("/dev/kfd")
"""The device file that AMD's driver creates for an AMD GPU."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MERGE = "the same `trajkit sft local` with --merge writes base and adapter as one model"


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
    """Base model and adapter merged into one model; None where there is none."""

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
        called = str(_whole(model, server))
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
    return Serving(served, shlex.join([*arguments, *_address(api_base)]), tuple(_notes(server)))


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
        return ["vllm", "serve", str(model.whole), "--served-model-name", model.name]
    adapter = _adapter(model.folder)
    if adapter.get("use_dora"):
        raise RequestError("vLLM does not load DoRA adapters", hint=_MERGE)
    rank = int(adapter.get("r", _RANKS[0]))
    if rank > _RANKS[-1]:
        raise RequestError(
            f"vLLM loads adapters up to rank {_RANKS[-1]}, and this has rank {rank}", hint=_MERGE
        )
    arguments = ["vllm", "serve", model.base, "--enable-lora"]
    arguments += ["--max-lora-rank", str(next(each for each in _RANKS if each >= rank))]
    arguments += ["--lora-modules", f"{model.name}={model.folder}"]
    template = model.folder / _TEMPLATE
    return [*arguments, "--chat-template", str(template)] if template.is_file() else arguments


def _whole(model: LocalModel, server: Server) -> Path:
    if model.whole is None:
        raise RequestError(
            f"{model.folder} is an adapter, and `{server.value} serve` loads only whole models",
            hint=f"{_MERGE}; or --server trajkit or vllm, which load adapters",
        )
    return model.whole


def _adapter(folder: Path) -> dict[str, Any]:
    path = folder / ADAPTER_CONFIG
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} cannot be read: {error}", hint="train the model again") from error
    return found


def _notes(server: Server) -> Iterator[str]:
    if server == Server.TRANSFORMERS:
        yield (
            "transformers serve supports no JSON schema, and samples only if generation_config.json says so:"
            " it ignores json_mode and temperature"
        )
