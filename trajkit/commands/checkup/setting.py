"""What is configured: every `trajkit.toml` that holds here, and the variables of the environment by name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from trajkit._core.secrets import names_a_secret
from trajkit._core.settings import PROJECT_FILE, Project, checked_secret, project, project_files
from trajkit.commands.checkup.check import Check, broken, note, well
from trajkit.errors import ConfigError, TrajkitError
from trajkit.formats.validation.target import HOSTED

DATABASES = ("TENSORZERO_CLICKHOUSE_URL", "TENSORZERO_POSTGRES_URL")
"""The variables that name a database: if both are set, the first is read."""
_VARIABLES = {
    "TENSORZERO_CLICKHOUSE_URL": "the database that is read and played on",
    "TENSORZERO_POSTGRES_URL": "the database that is read",
    "TENSORZERO_GATEWAY_URL": "the gateway that is played through",
    "TENSORZERO_API_KEY": "that gateway's key",
    **{service.key_variable: f"the key of {service.name}" for service in HOSTED.values()},
    **{
        service.url_variable: f"another address of {service.name}"
        for service in HOSTED.values()
        if service.url_variable is not None
    },
    "OPENAI_API_KEY": "OpenAI, and models behind its API",
    "OPENAI_BASE_URL": "another address of OpenAI's API",
    "AZURE_OPENAI_ENDPOINT": "OpenAI's API on Azure",
    "FIREWORKS_ACCOUNT_ID": "the account at Fireworks",
    "HF_TOKEN": "the Hugging Face Hub",
    "HF_ENDPOINT": "another address of the Hub",
    "HF_HOME": "where models from the Hub are kept",
    "HF_HUB_OFFLINE": "the Hub is never called",
    "WANDB_API_KEY": "curves in Weights & Biases",
    "JAVA_HOME": "the Java of TextWorldExpress",
    "CUDA_VISIBLE_DEVICES": "the GPUs that torch sees",
}
"""Variables that trajkit, or what it uses, reads: what each is for."""

_KEYS = {
    name: f"{name.upper()}_API_KEY"
    for name in (
        "anthropic",
        "deepseek",
        "fireworks",
        "groq",
        "mistral",
        "openai",
        "openrouter",
        "together",
        "xai",
    )
}
"""The variable that the gateway takes a provider's key from, for a model written `openai::gpt-4.1-mini`."""


def settings() -> Iterator[Check]:
    """The project files, the values in the one that holds here, and the environment."""
    files = project_files()
    if not files:
        yield note(PROJECT_FILE, "none here: every default is trajkit's own", None)
    here = Path(PROJECT_FILE).absolute()
    for path in files:
        try:
            found = project(path.parent)
        except TrajkitError as error:
            yield broken(
                PROJECT_FILE, error.message, f"edit {path}; {error.hint}" if error.hint else f"edit {path}"
            )
            continue
        if path == here:
            # of `source`, which may hold a password, no more than the name
            names = [name for name in type(found).model_fields if name in found.model_fields_set]
            yield well(PROJECT_FILE, f"{path}: {', '.join(names) or 'nothing is set'}", path=str(path))
            yield from _values(found)
        else:
            yield _above(path, found)
    yield from _environment()


def _above(path: Path, found: Project) -> Check:
    """A file further up: only what it reserves applies here."""
    unheard = sorted(found.model_fields_set - {"reserved"})
    said = f"{path}: {len(found.reserved)} reserved for evaluation"
    if unheard:
        return note(
            PROJECT_FILE,
            f"{said}; {', '.join(unheard)} hold in that folder only",
            f"work in {path.parent}, or write them into {PROJECT_FILE} here",
            path=str(path),
        )
    return well(PROJECT_FILE, said, path=str(path))


def _values(found: Project) -> Iterator[Check]:
    if found.source is not None and "://" in found.source and _has_password(found.source):
        todo = f"put the URL into {DATABASES[0]} or {DATABASES[1]}, and take it out of {PROJECT_FILE}"
        yield note("source", "the URL in the file holds a password", todo)
    if found.config is not None:
        yield _config(Path(found.config), found.function)
    if found.model is not None:
        yield _model(found.model)
    if found.reserved:
        yield well("reserved", "; ".join(map(str, found.reserved)))


def _config(path: Path, function: str | None) -> Check:
    from trajkit.stack.gateway_config import read_config

    try:
        config = read_config(path)
    except TrajkitError as error:
        return broken(
            "config", error.message, f"config in {PROJECT_FILE} names the gateway's tensorzero.toml"
        )
    if function is not None and function not in config.functions:
        return broken(
            "function",
            f"{path} has no function {function!r}",
            f"functions: {', '.join(config.functions) or 'none'}",
        )
    n_variants = sum(map(len, config.functions.values()))
    said = f"{path}: functions {', '.join(config.functions) or 'none'}; {n_variants} variants; metrics"
    return well(
        "config",
        f"{said} {', '.join(config.metrics) or 'none'}",
        path=str(path),
        functions={name: list(variants) for name, variants in config.functions.items()},
        metrics=list(config.metrics),
    )


def _model(model: str) -> Check:
    provider, separator, _ = model.partition("::")
    variable = _KEYS.get(provider) if separator else None
    if variable is not None and not os.environ.get(variable):
        return broken("model", f"{model} needs {variable}, which is not set", f"export {variable}=…")
    return well("model", model)


def _environment() -> Iterator[Check]:
    given = [name for name in _VARIABLES if name in os.environ]
    for name in given:
        yield _variable(name, os.environ[name])
    if not given:
        yield note("environment", "no variable that trajkit reads is set", None)
    if all(os.environ.get(name) for name in DATABASES):
        yield note("environment", "both databases are named; ClickHouse is read", f"unset {DATABASES[1]}")
    for name in sorted(os.environ):
        if name.startswith("TENSORZERO_") and name.endswith("_URL") and name not in _VARIABLES:
            yield note(name, "is set, but trajkit does not read it", _near(name))


def _variable(name: str, value: str) -> Check:
    if not value:
        return note(name, "is set but empty, which counts as not set", f"unset {name}")
    if value != value.strip() or not value.isprintable():
        todo = f"set it again, without blanks and line breaks: export {name}=…"
        return broken(name, "begins or ends with a blank or holds a control character", todo)
    if names_a_secret(name) or "://" in value:
        try:
            checked_secret(value, name)
        except ConfigError as error:
            return broken(name, error.message.removeprefix(f"{name} "), error.hint)
    return well(name, f"is set: {_VARIABLES[name]}")


def source_folder() -> Iterator[Check]:
    """The store or archive that trajkit.toml has exports read, if it names no database."""
    with contextlib.suppress(ConfigError):  # reported above
        source = project().source
        if source is not None and "://" not in source:
            yield _source(source)


def _source(source: str) -> Check:
    from trajkit.sources.tensorzero.archive.manifest import is_archive
    from trajkit.store.reader import open_store

    if is_archive(Path(source)):
        return well("source", f"{source} is an archive of a TensorZero database", path=source)
    try:
        counts = open_store(source).manifest.counts
    except TrajkitError as error:
        return broken("source", error.message, f"correct `source` in {PROJECT_FILE}")
    return well("source", f"{source} is a store of {counts.n_episodes:,} episodes", path=source)


def _near(name: str) -> str:
    from trajkit.store.conditions.nameable import nearest

    return nearest(name, _VARIABLES)


def _has_password(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.password) or "password=" in parts.query
