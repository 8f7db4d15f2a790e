"""Completions for the values of options and arguments: fast, and silent when there are none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from trajkit._core.settings import Project, project, remembered
from trajkit.errors import TrajkitError

_RUNS = "runs"
_MANIFEST = "manifest.json"
"""As the store's layout has it, which is slow to import."""
_MOST = 500
"""Names beyond these are not offered: the list would be too long to read."""


def offered(context: click.Context, parameter: click.Parameter) -> list[str] | None:
    """The values that are known for a parameter; None if nothing is known about it.

    Args:
        context: The command with what was typed before.
        parameter: What is being typed.
    """
    offer = _OFFERS.get(str(parameter.name))
    if offer is None or isinstance(parameter.type, click.Choice):
        return None
    return list(dict.fromkeys(offer(_with_arguments(context))))[:_MOST]


def _with_arguments(context: click.Context) -> click.Context:
    """The context with its arguments: click reads none while an option waits for its value."""
    left = list(context.args)
    for parameter in context.command.params:
        if not left:
            break
        if isinstance(parameter, click.Argument) and not context.params.get(str(parameter.name)):
            n_taken = len(left) if parameter.nargs == -1 else parameter.nargs
            taken, left = left[:n_taken], left[n_taken:]
            context.params[str(parameter.name)] = taken[0] if parameter.nargs == 1 else tuple(taken)
    return context


def may_be_path(parameter: click.Parameter) -> bool:
    """Whether a path is valid as well as one of the offered names."""
    return _OFFERS.get(str(parameter.name)) in (
        _stores,
        _pairs_or_stores,
        _models,
        _models_and_stores,
        _recipes,
    )


def _stores(context: click.Context) -> Iterator[str]:
    from trajkit._core.samples import SAMPLE_PREFIX, samples

    folder = Path(_project().stores)
    for depth in ("*", "*/*"):
        yield from (str(path.parent) for path in sorted(folder.glob(f"{depth}/{_MANIFEST}")))
    yield from (f"@{name}" for name in _tags(folder))
    yield from (f"{SAMPLE_PREFIX}{name}" for name in samples(_MANIFEST))


def _tags(folder: Path) -> Iterable[str]:
    try:
        found = json.loads((folder / "catalog.json").read_text(encoding="utf-8"))
        return sorted(found["tags"])
    except (OSError, ValueError, LookupError, TypeError):
        return ()


def _pairs_or_stores(context: click.Context) -> Iterator[str]:
    folder = Path(_project().stores)
    yield from (str(path.parent) for path in sorted(folder.glob("*/pairs.json")))
    yield from _stores(context)


def _models(context: click.Context) -> Iterator[str]:
    """Jobs, and the models that come with trajkit."""
    from trajkit._core.samples import SAMPLE_PREFIX, samples

    yield from _jobs(context)
    yield from (f"{SAMPLE_PREFIX}{name}" for name in samples("config.json"))


def _jobs(context: click.Context) -> Iterator[str]:
    folder = Path(context.params.get("runs") or context.params.get("runs_folder") or _RUNS)
    yield from sorted(path.parent.name for path in folder.glob("*/job.json"))


def _models_and_stores(context: click.Context) -> Iterator[str]:
    yield from _stores(context)
    yield from _models(context)


def _things(context: click.Context) -> Iterator[str]:
    """What `trajkit lineage` accepts by name."""
    yield from _models(context)
    yield from _variants(context)
    yield from _stores(context)


def _environments(context: click.Context) -> Iterable[str]:
    from trajkit.environments import known

    return known()


def _tasks(context: click.Context) -> Iterator[str]:
    """The tasks of the named environment; those of every known one if none was named."""
    from trajkit.environments import environment_info, known

    named = context.params.get("env_id")
    for env_id in known() if named is None else (named,) if named in known() else ():
        yield from environment_info(env_id).tasks


def _functions(context: click.Context) -> Iterator[str]:
    yield from _gateway(context)["functions"]


def _variants(context: click.Context) -> Iterator[str]:
    """Those of the named function, else of all."""
    typed = context.params.get("function") or _project().function or ()
    functions = _gateway(context)["functions"]
    named = {typed} if isinstance(typed, str) else set(typed)
    for name, function in functions.items():
        if name in named or not named & functions.keys():
            yield from function.get("variants", {})


def _metrics(context: click.Context) -> Iterator[str]:
    """Those of the named stores, or of the last one, and those of the gateway's configuration."""
    given = context.params.get("stores") or context.params.get("store") or ()
    last = remembered("last_store")
    named = [given] if isinstance(given, str) else list(given)
    for store in named or ([last["path"]] if isinstance(last, dict) and "path" in last else []):
        manifest = _json(_store_path(str(store)) / _MANIFEST)
        yield from (metric["name"] for metric in manifest.get("metrics", ()))
    yield from _gateway(context)["metrics"]


def _recipes(context: click.Context) -> Iterator[str]:
    from trajkit._core.samples import recipe_folder

    yield from (path.stem for path in sorted(recipe_folder().glob("*.yaml")))
    yield from (path.name for path in sorted(Path().glob("*.yaml")))


def _written(context: click.Context) -> Iterable[str]:
    from trajkit.formats import known

    return known()


def _read(context: click.Context) -> Iterable[str]:
    from trajkit.sources.files.known import NAMES

    return NAMES


_OFFERS: dict[str, Callable[[click.Context], Iterable[str]]] = {
    **dict.fromkeys(("store", "stores", "source", "after", "trained_on", "evaluation", "a", "b"), _stores),
    **dict.fromkeys(("train", "val"), _pairs_or_stores),
    "what": _models_and_stores,
    "thing": _things,
    "job": _jobs,
    **dict.fromkeys(("model", "models", "serve", "base"), _models),
    **dict.fromkeys(("env_id", "env"), _environments),
    **dict.fromkeys(("task", "tasks"), _tasks),
    **dict.fromkeys(("function", "functions", "train_function", "train_functions"), _functions),
    **dict.fromkeys(("variant", "variants", "baseline", "baselines", "template_variant"), _variants),
    **dict.fromkeys(("metric", "metrics", "score"), _metrics),
    "recipe": _recipes,
    "to": _written,
    "from_": _read,
}
"""By the name of the parameter: the same name means the same everywhere."""


def _project() -> Project:
    try:
        return project()
    except TrajkitError:
        return Project()


def _gateway(context: click.Context) -> dict[str, dict[str, Any]]:
    """Functions and metrics of the gateway's configuration: as typed, of trajkit.toml, or the stack's."""
    import tomllib

    running = remembered("stack")
    typed = context.params.get("config_file") or context.params.get("config")
    path = typed or _project().config or (running.get("config_file") if isinstance(running, dict) else None)
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        found = {}
    return {name: found.get(name) or {} for name in ("functions", "metrics")}


def _store_path(store: str) -> Path:
    from trajkit._core.samples import SAMPLE_PREFIX, samples

    if not store.startswith(SAMPLE_PREFIX):
        return Path(store)
    return samples(_MANIFEST).get(store.removeprefix(SAMPLE_PREFIX), Path(store))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
