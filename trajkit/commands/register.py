"""Add a tuned model to a gateway's configuration as a variant, or say how any client reaches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import trajkit
from trajkit._core.settings import STATE_FOLDER, project
from trajkit.commands.place import Place, path_or_none
from trajkit.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from trajkit.commands.candidate import Candidate
    from trajkit.registry.ledger import Ledger, Registration
    from trajkit.registry.served import ClientSettings
    from trajkit.registry.toml_file import Configuration

CONFIG = "tensorzero.toml"
_OF_A_SERVER = ("server", "api_base", "api_key_location", "name", "served_as")
_NOT_TO_UNDO = (*_OF_A_SERVER, "template_variant", "traffic", "emit")
_NOT_TO_EMIT = ("variant", "traffic", "dry_run")


@dataclass(frozen=True)
class Registered:
    """A change of a configuration: what was written, or would be."""

    diff: tuple[str, ...] = ()
    """The change, line by line; nothing where the configuration says it already."""
    registration: Registration | None = None
    """What the ledger says of it; None where nothing was written."""
    notes: tuple[str, ...] = ()
    """What a user should know."""
    placeholders: tuple[str, ...] = ()
    """Variables that are not set here, and needed where the gateway runs."""
    serve: str | None = None
    """The command that serves the model; None for one that somebody serves already."""
    settings: ClientSettings | None = None
    """With `emit`: address, model and sampling for any client."""


def register(
    job: str | None = None,
    *,
    model: str | None = None,
    config: str | None = None,
    function: str | None = None,
    template_variant: str | None = None,
    variant: str | None = None,
    traffic: float | None = None,
    server: Literal["trajkit", "vllm", "transformers"] | None = None,
    api_base: str | None = None,
    api_key_location: str | None = None,
    name: str | None = None,
    served_as: str | None = None,
    emit: Literal["openai-compatible"] | None = None,
    output: Place | None = None,
    undo: bool = False,
    runs: Place = "runs",
    dry_run: bool = False,
    yes: bool = False,
) -> Registered:
    """Add the model of a job to a gateway's configuration as a new variant.

    Every comment and the order of the file stay, and the gateway itself loads the edited configuration before
    the old one is replaced. A running gateway must be restarted.

    Args:
        job: Its name; None for the last that was started here.
        model: A model instead of a job's, such as `openai::ft:…`.
        config: The gateway's `tensorzero.toml`, or a pattern; None for that of trajkit.toml or the folder.
        function: Whose variant; None for that of the learned steps.
        template_variant: Whose prompts it takes; None for that of the learned steps.
        variant: The new one; None for the template's name and the method.
        traffic: Its share, from 0 to 1; None for none.
        server: What serves a model of yours.
        api_base: Where a model of yours answers.
        api_key_location: Such as `env::MY_KEY`.
        name: What the configuration calls a model of yours; None for the job.
        served_as: What its server calls it, where that is another name.
        emit: Give address, model and sampling for any other client instead.
        output: With `emit`: a file for it.
        undo: Take back the last registration, or that of `variant`.
        runs: The folder where jobs are kept.
        dry_run: Write nothing.
        yes: Write the configuration.

    Raises:
        RequestError: There is no such model, options do not go together, or `yes` is not given.
        ConfigError: The gateway would not load it.
    """
    from trajkit.commands.candidate import candidate
    from trajkit.registry.ledger import Ledger

    asked = {**locals(), "goal": path_or_none(output)}
    ledger = Ledger(Path(runs))
    check(asked, emit=emit, undo=undo)
    if undo:
        return _undone(ledger, job, asked)
    asked = with_known(ledger, job, asked)
    found = asked["found"] or candidate(job, Path(runs), asked)
    if emit is not None:
        return Registered(notes=found.notes, serve=found.command, settings=emitted(found, asked))
    planned = plan(found, asked)
    if planned.diff and not (dry_run or yes):
        raise RequestError(
            f"this changes {planned.pattern}", hint="--yes writes it, --dry-run shows the change alone"
        )
    written = None if dry_run else written_down(planned, ledger)
    return Registered(tuple(planned.diff), written, planned.notes, planned.placeholders, found.command)


def check(asked: Mapping[str, Any], *, emit: str | None, undo: bool) -> None:
    """Refuse options that would do nothing.

    Raises:
        RequestError: One was given.
    """
    from trajkit.commands.candidate import refuse_options

    if asked["goal"] is not None and emit is None:
        raise RequestError("-o is for --emit", hint="the configuration is written in its place")
    if undo:
        refuse_options({**asked, "emit": emit}, _NOT_TO_UNDO, "--undo")
    elif emit is not None:
        refuse_options(asked, _NOT_TO_EMIT, "--emit")


def with_known(ledger: Ledger, job: str | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options with what the ledger knows of a variant that is only to get another share of the traffic.

    Args:
        ledger: Where registrations are.
        job: Whose model; None for the variant that is named, else for the last job.
        asked: The options.

    Returns:
        The options, with the candidate as `found`: None where there is more to do than to direct traffic.
    """
    from trajkit._core.settings import remembered
    from trajkit.commands.candidate import Candidate
    from trajkit.registry.toml_file import Configuration

    more = (*_OF_A_SERVER, "model", "template_variant", "emit")
    if asked["traffic"] is None or any(asked.get(name) not in (None, False) for name in more):
        return {**asked, "found": None}
    if job is None and asked["variant"] is None:
        job = (remembered("last_job") or {}).get("job_id")
    wanted = {"variant": asked["variant"], "function": asked["function"]}
    config = known_config(asked["config"])
    for each in () if config is None else ledger.standing():
        is_wanted = all(value in (None, getattr(each, name)) for name, value in wanted.items())
        is_here = each.config == str(Path(config or "").absolute())
        if not (is_wanted and is_here and (job is None or job in each.model.all_names)):
            continue
        functions = Configuration.read(each.config).get("functions") or {}
        there = functions.get(each.function, {}).get("variants", {}).get(each.variant)
        if there is None:
            continue
        names = {name: getattr(each, name) for name in ("function", "template_variant", "variant")}
        return {**asked, **names, "found": Candidate(there["model"], each.model)}
    return {**asked, "found": None}


class Planned(NamedTuple):
    """A variant that can be written."""

    found: Candidate
    """The model."""
    pattern: str
    """The configuration's file, or a pattern of several."""
    before: Configuration
    """As it is."""
    after: Configuration
    """As it would be."""
    names: dict[str, str]
    """Function, template and name of the variant."""
    diff: list[str]
    """The change, line by line."""
    notes: tuple[str, ...]
    """What a user should know."""
    placeholders: tuple[str, ...]
    """Variables that had to be stood in for, so that the gateway loads it."""


def plan(found: Candidate, asked: Mapping[str, Any]) -> Planned:
    """What registering would change; the gateway has loaded it.

    Raises:
        RequestError: It is not clear which configuration, function or template.
        ConfigError: The gateway would not load it.
    """
    from trajkit.registry import change
    from trajkit.registry.toml_file import Configuration
    from trajkit.registry.variant import register as add

    pattern = known_config(asked["config"])
    if pattern is None:
        raise RequestError("which configuration?", hint=f"--config {CONFIG}, or `config` in trajkit.toml")
    before = Configuration.read(pattern)
    names = names_of(found, before, asked)
    made = add(before, model=found.model, traffic=asked["traffic"], **names)
    change.check_writable(before, made.configuration)
    diff = change.diff(before, made.configuration)
    placeholders = _loaded(before, made.configuration) if diff else ()
    notes = (*made.notes, *found.notes)
    return Planned(found, pattern, before, made.configuration, names, diff, notes, placeholders)


def written_down(planned: Planned, ledger: Ledger) -> Registration | None:
    """Write the change and note it; None where nothing changes and the ledger knows it.

    What somebody wrote by hand, or another ledger knows, is noted too: lineage shall know of it.
    """
    if not planned.diff and any(_is_same(each, planned) for each in ledger.standing()):
        return None
    return _write(planned, ledger)


def known_config(asked: str | None) -> str | None:
    """The configuration that is asked for, else that of `trajkit.toml`, else the one that is here."""
    return asked or project().config or (CONFIG if Path(CONFIG).is_file() else None)


def names_of(found: Candidate, before: Configuration, asked: Mapping[str, Any]) -> dict[str, str]:
    """Function, template and name of the new variant: what is asked for, else what the steps were of."""
    function = asked["function"] or found.function
    if function is None:
        known = found.functions or tuple(before.get("functions") or ())
        of = "the learned steps are of" if found.functions else "the configuration has"
        raise RequestError("which function?", hint=f"--function NAME; {of} {', '.join(known) or 'none'}")
    template = asked["template_variant"] or (found.variants[0] if len(found.variants) == 1 else None)
    if template is None:
        from trajkit.registry.variant import variants_of

        known = found.variants or tuple(variants_of(before, function))
        of = "the learned steps are of" if found.variants else "the function has"
        raise RequestError(
            "which variant's prompts?", hint=f"--template-variant NAME; {of} {', '.join(known) or 'none'}"
        )
    variant = asked["variant"] or f"{template}_{found.tuned.method or 'tuned'}"
    return {"function": function, "template_variant": template, "variant": variant}


def _loaded(before: Configuration, after: Configuration) -> tuple[str, ...]:
    """Let the gateway load it; say what it had to be given."""
    from trajkit.registry.check import check_loads

    try:
        return check_loads(after)
    except ConfigError as refused:
        try:
            check_loads(before)
        except ConfigError as old:
            if old.message == refused.message:
                hint = "it refuses it as it is now, too: mend that first; nothing was changed"
                raise ConfigError(old.message, hint=hint) from refused
        raise


def _write(planned: Planned, ledger: Ledger) -> Registration:
    from trajkit.registry import change
    from trajkit.registry.ledger import Registration

    now = datetime.now(UTC)
    registration_id = f"{now:%Y%m%dT%H%M%S%f}-{planned.names['variant']}"
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in registration_id)
    files = change.write(planned.before, planned.after, STATE_FOLDER / "backups" / safe)
    registration = Registration(
        registration_id=registration_id,
        model=planned.found.tuned,
        **planned.names,
        config=str(Path(planned.pattern).absolute()),
        files=files,
        registered_at=now,
        trajkit_version=trajkit.__version__,
    )
    ledger.add(registration)
    return registration


def _is_same(known: Registration, planned: Planned) -> bool:
    """Whether the ledger has this registration."""
    of = {"function": known.function, "template_variant": known.template_variant, "variant": known.variant}
    is_here = known.config == str(Path(planned.pattern).absolute())
    return of == planned.names and is_here and known.model.name == planned.found.tuned.name


def emitted(found: Candidate, asked: Mapping[str, Any]) -> ClientSettings:
    """Address, model and sampling for any client; in a file too, where one is named."""
    from trajkit._core.files import refuse_existing, write_json
    from trajkit.registry.served import client_settings
    from trajkit.registry.toml_file import Configuration
    from trajkit.registry.variant import template_of

    template: dict[str, Any] = {}
    if (pattern := known_config(asked["config"])) is not None:
        before = Configuration.read(pattern)
        names = names_of(found, before, asked)
        template = template_of(before, names["function"], names["template_variant"])
    value = client_settings(served_model(found), template)
    if asked["goal"] is not None:
        refuse_existing(asked["goal"])
        write_json(asked["goal"], value.model_dump(mode="json"))
    return value


def served_model(found: Candidate) -> Any:
    """Where the model answers, and to which name."""
    from trajkit.registry.served import address_of

    return address_of(found.model) if isinstance(found.model, str) else found.model


def _undone(ledger: Ledger, job: str | None, asked: Mapping[str, Any]) -> Registered:
    from trajkit.registry import change

    last = last_registration(ledger, job, asked)
    change.check_undo(last.files)
    diff = tuple(change.undo_diff(last.files))
    if asked["dry_run"]:
        return Registered(diff)
    if not asked["yes"]:
        raise RequestError(
            f"this changes {last.config}", hint="--yes takes it back, --dry-run shows the change alone"
        )
    take_back(ledger, last)
    return Registered(diff, last)


def take_back(ledger: Ledger, registration: Registration) -> None:
    """Put back what the files of a registration were, and note it."""
    from trajkit.registry import change
    from trajkit.registry.ledger import Undone

    change.undo(registration.files)
    ledger.add(Undone(registration_id=registration.registration_id, undone_at=datetime.now(UTC)))


def last_registration(ledger: Ledger, job: str | None, asked: Mapping[str, Any]) -> Registration:
    """The newest registration that stands, of what is asked for.

    Raises:
        RequestError: There is none.
    """
    wanted = {
        "variant": asked["variant"],
        "function": asked["function"],
        "config": asked["config"] and str(Path(asked["config"]).absolute()),
    }
    models = [name for name in (job, asked["model"]) if name is not None]
    for each in ledger.standing():
        is_of_model = all(name in each.model.all_names for name in models)
        is_wanted = all(value in (None, getattr(each, name)) for name, value in wanted.items())
        if each.files and is_of_model and is_wanted:
            return each
    wanted["model"] = " ".join(models)
    of = ", ".join(f"{name} {value}" for name, value in wanted.items() if value)
    raise RequestError(
        f"there is nothing to take back{f' of {of}' if of else ''}",
        hint=f"what was registered: {ledger.path}",
    )
