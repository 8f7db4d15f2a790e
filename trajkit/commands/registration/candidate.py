"""The model that `trajkit register` registers: of a job, or tuned elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from trajkit.commands.training.tuned import all_models, finished_job, tuned_model
from trajkit.errors import RequestError
from trajkit.formats.validation.target import HOSTED
from trajkit.training.job import LOCAL, TINKER

if TYPE_CHECKING:
    from trajkit.registry.ledger import TunedModel
    from trajkit.registry.served import ServedModel
    from trajkit.schema import LineageEntry
    from trajkit.training.job import TuneJob
    from trajkit.training.runs import Runs

_API_BASE = "http://127.0.0.1:8000/v1/"


class Candidate(NamedTuple):
    """A model to register."""

    model: str | ServedModel
    """As the configuration names it."""
    tuned: TunedModel
    """Its origin."""
    function: str | None = None
    """The function whose steps it learned; None when that is not clear."""
    functions: tuple[str, ...] = ()
    """The candidates, if it is not clear."""
    variants: tuple[str, ...] = ()
    """The variants whose prompts it learned."""
    command: str | None = None
    """The command that serves it; None if it is served already."""
    notes: tuple[str, ...] = ()
    """What a user should know."""


def candidate(job: str | None, runs_folder: Path, asked: Mapping[str, Any]) -> Candidate:
    """The model that the options name.

    Raises:
        RequestError: There is none, or its server is not known.
    """
    from trajkit.training.runs import Runs

    if asked["model"] is None:
        runs, found = finished_job(job, runs_folder)
        return _of_job(runs, found, asked)
    if job is not None:
        raise RequestError("JOB and --model exclude each other", hint="leave one out")
    runs = Runs(runs_folder)
    trained = next((each for each in all_models(runs) if asked["model"] in each.all_names), None)
    if trained is None or trained.job_id is None:
        return _of_name(asked)
    # a checkpoint, or a job's model by its own name: what it learned is known
    return _of_job(runs, runs.load(trained.job_id), asked, name=asked["model"])


def _of_name(asked: Mapping[str, Any]) -> Candidate:
    from trajkit.registry.ledger import TunedModel
    from trajkit.registry.served import hosted_name

    name = asked["model"]
    if asked["api_base"] is None:
        refuse_options(
            asked, ("name", "served_as", "server", "api_key_location"), "--model of a hosted service"
        )
        return Candidate(hosted_name(name), TunedModel(name=hosted_name(name), names=(name,)))
    refuse_options(asked, ("server",), "--model, which is served already")
    served = _served(asked, name)
    return Candidate(served, TunedModel(name=served.name, names=(name,)))


def _of_job(runs: Runs, job: TuneJob, asked: Mapping[str, Any], *, name: str | None = None) -> Candidate:
    if job.target == LOCAL:
        made = _local(runs, job, asked)
    else:
        made = _hosted(runs, job, asked, name or job.result.get("model"))
    functions = (job.function,) if job.function is not None else _functions(job)
    variants = (
        template_variants(made.tuned.train.history if made.tuned.train is not None else ()) or job.variants
    )
    return made._replace(function=job.function, functions=functions, variants=variants)


def _local(runs: Runs, job: TuneJob, asked: Mapping[str, Any]) -> Candidate:
    from trajkit._core.samples import model_path
    from trajkit.registry.local_server import LocalModel, Server, default_server, serving

    folder = runs.path(job.job_id).absolute()
    merged = folder / "merged"
    if not (folder / "model").is_dir():
        raise RequestError(f"{folder / 'model'}, the model of job {job.job_id}, is gone")
    server = Server(asked["server"] or default_server())
    if server == Server.TRANSFORMERS:
        refuse_options(asked, ("served_as",), "--server transformers, which names a model by its folder")
    name = asked["name"] or job.job_id
    how = serving(
        LocalModel(
            name=asked["served_as"] or name,
            base=model_path(job.base),
            folder=folder / "model",
            merged=merged if merged.is_dir() else None,
        ),
        server,
        name=name,
        api_base=asked["api_base"] or _API_BASE,
        api_key_location=asked["api_key_location"] or "none",
    )
    return Candidate(how.served, tuned_model(runs, job, name=name), command=how.command, notes=how.notes)


def _hosted(runs: Runs, job: TuneJob, asked: Mapping[str, Any], name: Any) -> Candidate:
    """The model of a service: by its prefix if the gateway supports it, else by its address."""
    refuse_options(asked, ("server",), f"job {job.job_id}, which is served at {job.target}")
    if name is None:
        raise RequestError(
            f"{job.target} has not named the model of job {job.job_id}",
            hint="its page there shows the name: --model NAME",
        )
    if job.target not in HOSTED and asked["api_base"] is None:
        raise RequestError(
            f"no server is known for {name}",
            hint="--api-base URL, of the service or yours: `tinker checkpoint download` gets the adapter",
        )
    where = str(job.remote.get("where", ""))
    if asked["api_base"] is None and HOSTED[job.target].is_at(urlsplit(where).hostname):
        refuse_options(asked, ("name", "served_as", "api_key_location"), f"a model of {job.target}")
        model = f"{job.target}::{name}"
        return Candidate(model, tuned_model(runs, job, name=model))
    location = asked["api_key_location"] or f"env::{_key_variable(job)}"
    served = _served(
        {**asked, "api_base": asked["api_base"] or f"{where.rstrip('/')}/", "api_key_location": location},
        name,
    )
    notes = (f"{where} must serve the model name {served.model_name!r}: --served-as sets another",)
    return Candidate(served, tuned_model(runs, job, name=served.name), notes=notes)


def _key_variable(job: TuneJob) -> str:
    """The environment variable with the key of the service that a job ran at."""
    if job.target == TINKER:
        return "TINKER_API_KEY"
    if job.target != "openai":
        return HOSTED[job.target].key_variable
    from trajkit.training.hosted.openai.client import address_of

    settings: Any = job.remote.get("settings") or {}
    profile, _ = address_of(settings)
    return profile.key_variable


def _served(asked: Mapping[str, Any], model: str) -> ServedModel:
    from trajkit.registry.served import ServedModel

    return ServedModel(
        name=asked["name"] or model,
        model_name=asked["served_as"] or model,
        api_base=asked["api_base"],
        api_key_location=asked["api_key_location"] or "none",
    )


def template_variants(history: tuple[LineageEntry, ...]) -> tuple[str, ...]:
    """The variant whose templates an export used for the prompts, whichever variant had answered."""
    for entry in reversed(history):
        name = entry.arguments.get("template_variant")
        if isinstance(name, str):
            return (name,)
    return ()


def _functions(job: TuneJob) -> tuple[str, ...]:
    """The functions that a job learned, if they are several; nothing when its store is gone."""
    from trajkit.errors import StoreError
    from trajkit.store.dataset import open_dataset
    from trajkit.training.origin import origin_of

    if job.train is None:
        return ()
    try:
        return origin_of(open_dataset(job.train.store)).functions
    except StoreError:
        return ()


def refuse_options(asked: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
    """Refuse options that would do nothing.

    Raises:
        RequestError: One of them was given.
    """
    for name in names:
        if asked[name] not in (None, False):
            option = f"--{name.replace('_', '-')}"
            raise RequestError(f"{option} does not go with {what}", hint=f"leave {option} out")
