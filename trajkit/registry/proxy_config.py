"""Add a model to the configuration of the LiteLLM proxy, as text; every edit is verified.

The new entry is inserted into the text, so that comments and order stay. The text is taken only if it parses
to exactly the old document plus the entry.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from trajkit.errors import ConfigError, RequestError
from trajkit.formats.validation.target import HOSTED
from trajkit.registry.change import read_text
from trajkit.registry.served import ServedModel

SUFFIXES = (".yaml", ".yml")
"""Suffixes by which a configuration is one of LiteLLM's."""
_MODELS = "model_list"
_PARAMETERS = "litellm_params"
_PREFIXES = {
    "together": "together_ai",
    "fireworks": "fireworks_ai",
    "google_ai_studio_gemini": "gemini",
    "gcp_vertex_gemini": "vertex_ai",
    "gcp_vertex_anthropic": "vertex_ai",
}
"""LiteLLM's names of providers, where they differ."""


class YamlFile(NamedTuple):
    """A YAML file."""

    path: Path
    text: str


class ProxyConfig:
    """The configuration of a LiteLLM proxy.

    Args:
        path: Its file.
        text: Content of the file.

    Raises:
        ConfigError: It is not YAML, or not a LiteLLM configuration.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.files = (YamlFile(path, text),)
        self.data = _parsed(path, text)

    @classmethod
    def read(cls, path: str | Path) -> ProxyConfig:
        """Read a file.

        Raises:
            ConfigError: It cannot be read, or is not a LiteLLM configuration.
        """
        return cls(Path(path), read_text(Path(path)))

    @property
    def path(self) -> Path:
        """Its file."""
        return self.files[0].path

    @property
    def models(self) -> list[dict[str, Any]]:
        """The entries of the model list, those of included files last."""
        found = [*(self.data.get(_MODELS) or ())]
        for name in self.data.get("include") or ():
            found += ProxyConfig.read(self.path.parent / str(name)).models
        return found

    def with_model(self, entry: Mapping[str, Any]) -> ProxyConfig:
        """Return the configuration with another entry in the model list.

        Raises:
            ConfigError: No edit of the text gives that.
        """
        wanted = copy.deepcopy(self.data)
        wanted[_MODELS] = [*(wanted.get(_MODELS) or ()), dict(entry)]
        for text in _edits(self.files[0].text, entry):
            try:
                made = ProxyConfig(self.path, text)
            except ConfigError:
                continue
            if made.data == wanted and list(made.data)[: len(self.data)] == list(self.data):
                return made
        raise ConfigError(
            f"{self.path}: no model can be added to {_MODELS} in the file's current form",
            hint=f"add it by hand: {json.dumps(entry)}",
        )


class Added(NamedTuple):
    """A configuration with a model."""

    configuration: ProxyConfig
    notes: tuple[str, ...]


def add_model(configuration: ProxyConfig, model: str | ServedModel, alias: str) -> Added:
    """Add a model under a name that the configuration does not use yet. Repeating it changes nothing.

    Args:
        configuration: The configuration to extend.
        model: A hosted model, such as `openai::ft:…`, or a model at a server.
        alias: The name by which clients call it.

    Raises:
        RequestError: The name is used already, or LiteLLM cannot reach the model.
        ConfigError: The text cannot be edited.
    """
    entry = {"model_name": alias, _PARAMETERS: _parameters(model)}
    if entry in configuration.models:
        return Added(configuration, (f"{alias!r} exists already",))
    if alias in set(_names(configuration)):
        raise RequestError(
            f"{configuration.path} uses the name {alias!r} already: traffic of it would reach the new model",
            hint="choose another with --variant",
        )
    notes = [f"it gets no traffic: only a call that names {alias!r} reaches it"]
    patterns = [str(each.get("model_name")) for each in configuration.models]
    wild = sorted({each for each in patterns if "*" in each and fnmatchcase(alias, each)})
    if wild:
        notes.append(f"{', '.join(wild)} answered to {alias!r} before: an exact name takes precedence")
    return Added(configuration.with_model(entry), tuple(notes))


def _parameters(model: str | ServedModel) -> dict[str, Any]:
    """Return how LiteLLM reaches a model."""
    if isinstance(model, str):
        prefix, _, name = model.partition("::")
        found = {"model": f"{_PREFIXES.get(prefix, prefix)}/{name}"}
        return found | ({"api_key": f"os.environ/{HOSTED[prefix].key_variable}"} if prefix in HOSTED else {})
    model.check()
    location = model.api_key_location
    if location == "none":  # hosted_vllm is any server that speaks OpenAI's API and needs no key
        return {"model": f"hosted_vllm/{model.model_name}", "api_base": model.api_base}
    kind, _, variable = location.partition("::")
    if kind != "env":
        raise RequestError(
            f"LiteLLM takes a key from an environment variable, not from {location!r}",
            hint="--api-key-location env::MY_KEY",
        )
    return {
        "model": f"openai/{model.model_name}",
        "api_base": model.api_base,
        "api_key": f"os.environ/{variable}",
    }


def _names(configuration: ProxyConfig) -> Iterator[str]:
    """Yield every text and key of a configuration, except for how its models are reached.

    Among them are the names of models, aliases, fallbacks, access groups and router groups.
    """
    waiting: list[Any] = [
        {name: value for name, value in configuration.data.items() if name != _MODELS},
        [
            {name: value for name, value in each.items() if name != _PARAMETERS}
            for each in configuration.models
        ],
    ]
    while waiting:
        match waiting.pop():
            case dict() as table:
                yield from map(str, table)
                waiting += table.values()
            case list() as items:
                waiting += items
            case str() as text:
                yield text


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" at line {mark.line + 1}"
        raise ConfigError(
            f"{path} is not YAML{where}: {getattr(error, 'problem', None) or 'invalid'}"
        ) from error
    data = {} if data is None else data
    models = data.get(_MODELS) if isinstance(data, dict) else None
    is_list = isinstance(models, list | None) and all(isinstance(each, dict) for each in models or ())
    if not isinstance(data, dict) or not is_list:
        raise ConfigError(
            f"{path} is not a LiteLLM configuration: it must be a mapping, and {_MODELS} a list of mappings"
        )
    return data


def _edits(text: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield texts that may be the text with the entry; the caller checks which one is."""
    ending = "\r\n" if text.count("\n") == text.count("\r\n") > 0 else "\n"
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    key, value = next(((key, value) for key, value in pairs if key.value == _MODELS), (None, None))
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += ending
    if key is None or value is None:
        yield "".join([*lines, f"{_MODELS}:{ending}", *_block(entry, 2, ending)])
        return
    if isinstance(value, yaml.SequenceNode) and value.flow_style:
        at = value.end_mark.index - 1
        for comma in ("", ", "):
            yield f"{text[:at]}{comma}{json.dumps(entry)}{text[at:]}"
        return
    indent = value.start_mark.column if isinstance(value, yaml.SequenceNode) else key.start_mark.column + 2
    end = value.end_mark.line if isinstance(value, yaml.SequenceNode) else key.end_mark.line + 1
    if isinstance(value, yaml.SequenceNode) and value.end_mark.index >= len(text.rstrip()):
        end = len(lines)
    last = end
    while last > 0 and (not lines[last - 1].strip() or lines[last - 1].lstrip().startswith("#")):
        last -= 1
    for place in (
        last,
        end,
    ):  # before the comments of the next entry; after them if they are part of a text
        yield "".join([*lines[:place], *_block(entry, indent, ending), *lines[place:]])


def _block(entry: Mapping[str, Any], indent: int, ending: str) -> list[str]:
    text = yaml.safe_dump([dict(entry)], sort_keys=False, allow_unicode=True, width=10_000)
    return [f"{' ' * indent}{line}{ending}" for line in text.splitlines()]
