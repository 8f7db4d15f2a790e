"""Build the command that serves a model and its adapters with vLLM. The options are those of vLLM 0.33."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trajkit.errors import MissingExtra, RequestError

ADAPTER_CONFIG = "adapter_config.json"
VLLM = "vllm serve"
"""The default command."""
MERGE = "the same `trajkit sft local` with --merge writes base and adapter as one model"

_TEMPLATE = "chat_template.jinja"
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The LoRA ranks that vLLM supports."""
_INSTEAD = (
    "--vllm-command names one of another environment, --model-url a running server; "
    "or use trajkit's own engine"
)


def program_of(command: str) -> tuple[list[str], list[str]]:
    """Split a command into the program up to `serve`, and the user's further options.

    Args:
        command: Such as `vllm serve`, or `/opt/env/bin/vllm serve --gpu-memory-utilization 0.8`.

    Raises:
        RequestError: It is not a shell command.
        MissingExtra: There is no such program.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise RequestError(f"--vllm-command {command!r}: {error}") from error
    if "serve" not in words[1:]:
        raise RequestError(f"--vllm-command {command!r} has no word `serve`", hint=f"such as {VLLM!r}")
    found = shutil.which(words[0])
    if found is None:
        raise MissingExtra(f"there is no program {words[0]!r}, which starts vLLM", hint=_INSTEAD)
    end = words.index("serve", 1) + 1
    return [str(Path(found).absolute()), *words[1:end]], words[end:]


def serve_arguments(base: str, *, name: str | None = None, adapters: Mapping[str, str]) -> list[str]:
    """Return the arguments of `vllm serve` for a model and its adapters.

    Args:
        base: Folder or id of the base model, or of a whole model.
        name: Its name for clients; None for `base`.
        adapters: Folders or ids of adapters, by their names for clients.

    Raises:
        RequestError: vLLM cannot load an adapter, or they need different chat templates.
    """
    arguments = [base] if name is None else [base, "--served-model-name", name]
    if not adapters:
        return arguments
    arguments.append("--enable-lora")
    folders = [Path(each) for each in adapters.values() if Path(each).is_dir()]
    if folders:
        arguments += ["--max-lora-rank", str(max(map(_rank, folders)))]
    if len(adapters) > 1:  # else a batch has requests of one adapter only
        arguments += ["--max-loras", str(len(adapters))]
    arguments += ["--lora-modules", *(_module(*each) for each in adapters.items())]
    return [*arguments, *_template(folders)]


def _module(name: str, folder: str) -> str:
    """Return an adapter as `name=path`, or as JSON where a character would be read as a separator."""
    if "=" in name or "," in name + folder:
        return json.dumps({"name": name, "path": folder})
    return f"{name}={folder}"


def _rank(folder: Path) -> int:
    """Return the smallest rank of vLLM that fits an adapter."""
    adapter = _settings(folder)
    if adapter.get("use_dora"):
        raise RequestError("vLLM does not load DoRA adapters", hint=MERGE)
    rank = int(adapter.get("r", _RANKS[0]))
    if rank > _RANKS[-1]:
        raise RequestError(
            f"vLLM loads adapters up to rank {_RANKS[-1]}; this one has rank {rank}", hint=MERGE
        )
    return next(each for each in _RANKS if each >= rank)


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / ADAPTER_CONFIG
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} cannot be read: {error}", hint="train the model again") from error
    return found


def _template(folders: Sequence[Path]) -> Iterator[str]:
    """Yield the option with the adapters' chat template: a server has one for all prompts."""
    paths = [path for folder in folders if (path := folder / _TEMPLATE).is_file()]
    if len({path.read_text(encoding="utf-8") for path in paths}) > 1:
        raise RequestError(
            f"one vLLM has one chat template, and these differ: {', '.join(map(str, paths))}",
            hint="serve the adapters one by one",
        )
    if paths:
        yield from ("--chat-template", str(paths[0]))
