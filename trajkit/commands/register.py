"""Add a tuned model to a gateway's configuration as a variant, or print how any client reaches it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from trajkit._core.output import console
from trajkit._core.output.console import confirm, line, talk
from trajkit._core.output.result import Result
from trajkit.commands.options.types import LocalOutput, Option, RunsFolder
from trajkit.commands.place import last_job, near, path_or_none
from trajkit.commands.registration.variant import is_of_proxy, known_config, names_of, plan, written_down
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.commands.registration.candidate import Candidate
    from trajkit.registry.ledger import Ledger, Registration
    from trajkit.registry.served import ClientSettings

_OF_A_SERVER = ("server", "api_base", "api_key_location", "name", "served_as")
_NOT_TO_UNDO = (*_OF_A_SERVER, "template_variant", "traffic", "emit")
_NOT_TO_EMIT = ("variant", "traffic", "dry_run")
_OF_FUNCTIONS = ("function", "template_variant", "traffic")
_UNCHANGED = "nothing was changed"
_DRY_RUN = "dry run: nothing was written"
_RESTART = "a running gateway must be restarted: it does not read its configuration again"
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True)
class Registered(Result):
    """A change of a configuration: what was written, or would be."""

    diff: tuple[str, ...] = ()
    """The change, line by line; empty if the configuration has it already."""
    registration: Registration | None = None
    """Its entry in the ledger; None if nothing was written."""
    notes: tuple[str, ...] = ()
    """What a user should know."""
    placeholders: tuple[str, ...] = ()
    """Variables that are not set here, and needed where the gateway runs."""
    serve: str | None = None
    """The command that serves the model; None if it is served already."""
    settings: ClientSettings | None = None
    """With `emit`: address, model and sampling for any client."""
    outcome: str = ""
    """What now exists: a line, or the settings as JSON; empty after a dry run."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The same for programs."""

    def to_json(self) -> dict[str, Any]:
        """The variant and the change; the registration, or the settings."""
        return dict(self.document)

    def __str__(self) -> str:
        return "\n".join((*map(line, self.diff), *filter(None, (self.outcome,))))

    def print_text(self) -> None:
        """Print what now exists: the change was printed before the question."""
        if self.outcome:
            console.result_text(self.outcome)


def _share(text: str) -> float:
    """Read a share: `5%`, or 0.05."""
    text = text.strip()
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise RequestError(f"--traffic {text!r} is not a share: 5% or 0.05") from None


def register(
    job: str | None = None,
    *,
    model: Annotated[str | None, Option(metavar="NAME")] = None,
    config: Annotated[str | None, Option(metavar="FILE|PATTERN")] = None,
    function: Annotated[str | None, Option(metavar="NAME")] = None,
    template_variant: Annotated[str | None, Option(metavar="NAME")] = None,
    variant: Annotated[str | None, Option(metavar="NAME")] = None,
    traffic: Annotated[float | None, Option(metavar="SHARE", read=_share)] = None,
    server: Literal["trajkit", "vllm", "transformers"] | None = None,
    api_base: Annotated[str | None, Option(metavar="URL")] = None,
    api_key_location: Annotated[str | None, Option(metavar="WHERE")] = None,
    name: Annotated[str | None, Option(metavar="NAME")] = None,
    served_as: Annotated[str | None, Option(metavar="NAME")] = None,
    emit: Literal["openai-compatible"] | None = None,
    output: LocalOutput = None,
    undo: bool = False,
    runs: RunsFolder = "runs",
    dry_run: bool = False,
    yes: bool = False,
) -> Registered:
    """Add the model of JOB to a gateway's configuration as a new variant; without JOB, that of the last job.

    The new variant is the template variant with the tuned model. Every comment and the order of the file
    stay. It gets no traffic without --traffic: where the gateway sampled all variants evenly, their
    shares are written down first. The gateway itself loads the edited configuration before the old one is
    replaced; no database is touched. A running gateway must be restarted.

    With a --config that ends in .yaml or .yml the model is added to the model list of the LiteLLM proxy,
    under a name that nothing in the file uses yet. If `litellm` is on the PATH, the proxy itself serves the
    edited configuration before the old one is replaced.

    Args:
        job: Name of the job. Default: the last job that was started here.
        model: Register this model instead of a job's, such as openai::ft:….
        config: The gateway's tensorzero.toml, 'config/**/*.toml', or LiteLLM's config.yaml. Default: `config`
            in trajkit.toml, else the tensorzero.toml in the folder.
        function: Add a variant of this function. Default: that of the learned steps.
        template_variant: Take the prompts of this variant. Default: that of the learned steps.
        variant: Name of the new variant. Default: the template's name and the method, such as _sft. With
            LiteLLM, the name that clients call. Default: --name, else the job.
        traffic: Its share of the traffic, such as 5%; for a registered variant no other option is needed.
            Default: none.
        server: What serves your own model. Default: vllm on a GPU, else trajkit.
        api_base: Address of your own model. Default: port 8000 here.
        api_key_location: Where its key is found, such as env::MY_KEY. Default: none.
        name: Name of your own model in the configuration. Default: the job.
        served_as: Its name at its server, if different.
        emit: Print address, model and sampling for any other client instead; no configuration is needed.
        output: With --emit: write them into a file.
        undo: Undo the last registration, or that of --variant.
        runs: Folder where jobs are kept.
        dry_run: Print the change and write nothing.
        yes: Skip the confirmation.

    Raises:
        RequestError: There is no such model, options do not go together, or `yes` is not given and no
            question can be asked.
        ConfigError: The gateway would not load it.

    Example:
        trajkit register
        trajkit register goto-sft --config tensorzero.toml --variant goto_sft --traffic 5%
    """
    from trajkit.commands.registration.candidate import candidate
    from trajkit.registry.ledger import Ledger

    asked = {**locals(), "goal": path_or_none(output)}
    _check(asked)
    ledger = Ledger(Path(runs))
    if undo:
        return _undone(ledger, job, asked)
    asked = _with_known(ledger, job, asked)
    found = asked["found"] or candidate(job, Path(runs), asked)
    return _registered(found, ledger, asked) if emit is None else _emitted(found, asked)


def _registered(found: Candidate, ledger: Ledger, asked: Mapping[str, Any]) -> Registered:
    """Show the change, ask, and write it."""
    planned = plan(found, asked)
    _show(planned.diff)
    console.notes(planned.notes)
    if planned.diff:
        talk(planned.verdict)
    if planned.placeholders:
        talk(f"not set on this machine, and needed where the gateway runs: {', '.join(planned.placeholders)}")
    said: dict[str, Any] = {
        **planned.names,
        "model": found.tuned.name,
        "config": planned.pattern,
        "diff": planned.diff,
        "notes": planned.notes,
        "placeholders": planned.placeholders,
        "serve": found.command,
        "registration_id": None,
        "is_written": False,
    }
    made = Registered(
        tuple(planned.diff), notes=planned.notes, placeholders=planned.placeholders, serve=found.command
    )
    if asked["dry_run"]:
        talk(_DRY_RUN)
        return replace(made, document=said)
    if planned.diff:
        _ask("Write it?", asked, changed=planned.pattern, verb="writes it")
    written, new = written_down(planned, ledger), "as it was"
    if planned.diff and written is not None:
        new, backups = "registered", [each.backup for each in written.files]
        said |= {"registration_id": written.registration_id, "is_written": True}
        said["backups"] = list(map(str, backups))
        talk(f"backup: {', '.join(str(near(each)) for each in backups)}")
        talk(_RESTART)
    _tell_server(found)
    outcome = line(f"{planned.pattern}  {planned.title}  {new}  {found.tuned.name}")
    return replace(made, registration=written, outcome=outcome, document=said)


def _show(diff: Iterable[str]) -> None:
    """Print a change before the question about it; in colour on a terminal only."""
    for each in diff:
        is_name = each[:3] in ("+++", "---")
        console.preview(console.styled(each, fg=None if is_name else _STYLES.get(each[:1]), bold=is_name))


def _ask(question: str, asked: Mapping[str, Any], *, changed: str, verb: str) -> None:
    confirm(
        question,
        yes=asked["yes"],
        verb=verb,
        refused=_UNCHANGED,
        unasked=f"this changes {changed}, and there is no terminal to ask on",
    )


def _tell_server(found: Candidate) -> None:
    if found.command is not None:
        talk("the model is served by")
        talk(f"  {found.command}")


def _check(asked: Mapping[str, Any]) -> None:
    """Refuse options that would do nothing.

    Raises:
        RequestError: One was given.
    """
    from trajkit.commands.registration.candidate import refuse_options

    if asked["goal"] is not None and asked["emit"] is None:
        raise RequestError("-o is for --emit", hint="the configuration is edited in place")
    if asked["undo"]:
        refuse_options(asked, _NOT_TO_UNDO, "--undo")
    elif asked["emit"] is not None:
        refuse_options(asked, _NOT_TO_EMIT, "--emit")
    elif is_of_proxy(known_config(asked["config"])):
        refuse_options(asked, _OF_FUNCTIONS, "LiteLLM's configuration, which has no functions")


def _with_known(ledger: Ledger, job: str | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options, completed from the ledger for a variant that only gets another share of the traffic.

    Args:
        ledger: Where registrations are.
        job: The job of the model; None for the named variant, else for the last job.
        asked: The options.

    Returns:
        The options, with the candidate as `found`: None if more than the traffic is to be changed.
    """
    from trajkit.commands.registration.candidate import Candidate
    from trajkit.registry.toml_file import Configuration

    more = (*_OF_A_SERVER, "model", "template_variant", "emit")
    if asked["traffic"] is None or any(asked.get(name) not in (None, False) for name in more):
        return {**asked, "found": None}
    if job is None and asked["variant"] is None:
        _, job = last_job() or (None, None)
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


def _emitted(found: Candidate, asked: Mapping[str, Any]) -> Registered:
    """Address, model and sampling for any client; also in a file, if one is named.

    The sampling is that of the variant whose prompts the model learned.
    """
    from trajkit._core.files import refuse_existing, write_json
    from trajkit.registry.served import address_of, client_settings
    from trajkit.registry.toml_file import Configuration
    from trajkit.registry.variant import template_of

    template: dict[str, Any] = {}
    pattern = known_config(asked["config"])
    if pattern is not None and not is_of_proxy(pattern):
        before = Configuration.read(pattern)
        names = names_of(found, before, asked)
        template = template_of(before, names["function"], names["template_variant"])
    served = address_of(found.model) if isinstance(found.model, str) else found.model
    settings, goal = client_settings(served, template), asked["goal"]
    document = settings.model_dump(mode="json")
    outcome = console.json_text(document)
    if goal is not None:
        refuse_existing(goal)
        write_json(goal, document)
        outcome = line(f"{goal}  {served.model_name} at {served.api_base}")
    console.notes(found.notes)
    _tell_server(found)
    return Registered(
        notes=found.notes, serve=found.command, settings=settings, outcome=outcome, document=document
    )


def _undone(ledger: Ledger, job: str | None, asked: Mapping[str, Any]) -> Registered:
    """Show what a registration changed, ask, restore the files, and record it."""
    from trajkit.registry import change
    from trajkit.registry.ledger import Undone

    last = _last_registration(ledger, job, asked)
    change.check_undo(last.files)
    diff = tuple(change.undo_diff(last.files))
    _show(diff)
    is_written = not asked["dry_run"]
    document = {"registration_id": last.registration_id, "diff": diff, "is_written": is_written}
    if not is_written:
        talk(_DRY_RUN)
        return Registered(diff, document=document)
    _ask("Take it back?", asked, changed=last.config, verb="takes it back")
    change.undo(last.files)
    ledger.add(Undone(registration_id=last.registration_id, undone_at=datetime.now(UTC)))
    talk(_RESTART)
    outcome = line(f"{near(Path(last.config))}  {last.title}  taken back")
    return Registered(diff, last, outcome=outcome, document=document)


def _last_registration(ledger: Ledger, job: str | None, asked: Mapping[str, Any]) -> Registration:
    """The newest active registration that matches the options.

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
