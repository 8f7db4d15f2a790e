"""`trajkit register`: a tuned model as a new variant in a gateway's configuration."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import trajkit
from trajkit._settings import STATE_FOLDER, project
from trajkit.cli import output
from trajkit.cli.jobs import runs_option
from trajkit.cli.page import visible
from trajkit.cli.training import confirm, near
from trajkit.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from trajkit.cli.candidate import Candidate
    from trajkit.registry.configuration import Configuration
    from trajkit.registry.ledger import Ledger, Registration

UNCHANGED = "nothing was changed"
RESTART = "a running gateway must be restarted: it does not read its configuration again"
_CONFIG = "tensorzero.toml"
_OF_A_SERVER = ("server", "api_base", "api_key_location", "name", "served_as")
_NOT_TO_UNDO = (*_OF_A_SERVER, "template_variant", "traffic", "emit")
_NOT_TO_EMIT = ("variant", "traffic", "dry_run")
_STYLES = {"+": "green", "-": "red", "@": "cyan"}

_EPILOG = """\
The new variant says what the template variant says, to the tuned model. Every comment and the order of the
file stay. It gets no traffic unless --traffic says so: where the gateway sampled all variants evenly, what it
did is written down first. The gateway itself loads the edited configuration before the old one is replaced;
no database is touched. --undo takes the last registration back.
"""


class Share(click.ParamType[float]):
    """A share: `5%`, or 0.05."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share as a number."""
        text = str(value).strip()
        try:
            return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"{value!r} is no share, such as 5% or 0.05", param, ctx)


@click.command(epilog=_EPILOG)
@click.argument("job", required=False)
@click.option("--model", metavar="NAME", help="A model instead of a job's, such as openai::ft:….")
@click.option(
    "--config", metavar="FILE|PATTERN", help="The gateway's tensorzero.toml, or 'config/**/*.toml'."
)
@click.option("--function", metavar="NAME", help="Whose variant.  [default: that of the learned steps]")
@click.option(
    "--template-variant", metavar="NAME", help="Whose prompts it takes.  [default: that of the learned steps]"
)
@click.option("--variant", metavar="NAME", help="The new one.  [default: the template's name and _sft]")
@click.option("--traffic", type=Share(), metavar="SHARE", help="Its share, such as 5%.  [default: none]")
@click.option(
    "--server",
    type=click.Choice(["trajkit", "vllm", "transformers"]),
    help="What serves a model of yours.  [default: vllm on a GPU, else trajkit]",
)
@click.option("--api-base", metavar="URL", help="Where a model of yours answers.  [default: port 8000 here]")
@click.option("--api-key-location", metavar="WHERE", help="Such as env::MY_KEY.  [default: none]")
@click.option(
    "--name", metavar="NAME", help="What the configuration calls a model of yours.  [default: the job]"
)
@click.option("--served-as", metavar="NAME", help="What its server calls it, where that is another name.")
@click.option(
    "--emit",
    type=click.Choice(["openai-compatible"]),
    help="Print address, model and sampling for any other client instead; no configuration is needed.",
)
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="With --emit: a file for it.")
@click.option("--undo", is_flag=True, help="Take back the last registration, or that of --variant.")
@runs_option
@click.option("--dry-run", is_flag=True, help="Print the change and write nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def register(job: str | None, runs_folder: Path, undo: bool, emit: str | None, **asked: Any) -> None:
    """Add the model of JOB to a gateway's configuration as a new variant; without JOB, that of the last.

    \b
    trajkit register --config tensorzero.toml --function act \\
        --template-variant history_and_reasoning --variant history_and_reasoning_sft
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.cli.candidate import candidate, refuse_options
    from trajkit.registry.ledger import Ledger

    if asked["goal"] is not None and emit is None:
        raise RequestError("-o is for --emit", hint="the configuration is written in its place")
    ledger = Ledger(runs_folder)
    if undo:
        from trajkit.cli.register_undo import take_back

        refuse_options({**asked, "emit": emit}, _NOT_TO_UNDO, "--undo")
        take_back(ledger, job, asked)
        return
    if emit is not None:
        refuse_options(asked, _NOT_TO_EMIT, "--emit")
    found = candidate(job, runs_folder, asked)
    if emit is not None:
        from trajkit.cli.register_emit import print_settings

        print_settings(found, asked)
        return
    _register(found, ledger, asked)


def _register(found: Candidate, ledger: Ledger, asked: dict[str, Any]) -> None:
    from trajkit.registry import change
    from trajkit.registry.configuration import Configuration
    from trajkit.registry.variant import register as add

    pattern = known_config(asked["config"])
    if pattern is None:
        raise RequestError("which configuration?", hint=f"--config {_CONFIG}, or `config` in trajkit.toml")
    before = Configuration.read(pattern)
    names = names_of(found, before, asked)
    made = add(before, model=found.model, traffic=asked["traffic"], **names)
    change.check_writable(before, made.configuration)
    lines = change.diff(before, made.configuration)
    if not asked["as_json"]:
        print_diff(lines)
    for note in (*made.notes, *found.notes):
        output.talk(f"note: {note}")
    placeholders = _check(before, made.configuration) if lines else ()
    said: dict[str, Any] = {
        **names,
        "model": found.tuned.name,
        "config": pattern,
        "diff": lines,
        "notes": [*made.notes, *found.notes],
        "placeholders": placeholders,
        "serve": found.command,
        "registration_id": None,
        "is_written": False,
    }
    is_known = any(_is_same(each, found, pattern, names) for each in ledger.standing())
    if not lines and not is_known and not asked["dry_run"]:
        # somebody wrote it by hand, or the ledger is another: lineage shall know of it
        _write(found, before, made.configuration, ledger, pattern, names)
    if lines and not asked["dry_run"]:
        confirm("Write it?", yes=asked["yes"], verb="writes", refused=UNCHANGED)
        registration = _write(found, before, made.configuration, ledger, pattern, names)
        said |= {"registration_id": registration.registration_id, "is_written": True}
        said["backups"] = [str(file.backup) for file in registration.files]
    _print_outcome(said, asked)


def known_config(asked: str | None) -> str | None:
    """The configuration that is asked for, else that of `trajkit.toml`, else the one that is here."""
    return asked or project().config or (_CONFIG if Path(_CONFIG).is_file() else None)


def names_of(found: Candidate, before: Configuration, asked: dict[str, Any]) -> dict[str, str]:
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


def _check(before: Configuration, after: Configuration) -> tuple[str, ...]:
    """Let the gateway load it; say what it had to be given."""
    from trajkit.registry.check import check_loads

    try:
        given = check_loads(after)
    except ConfigError as refused:
        try:
            check_loads(before)
        except ConfigError as old:
            if old.message == refused.message:
                hint = "it refuses it as it is now, too: mend that first; nothing was changed"
                raise ConfigError(old.message, hint=hint) from refused
        raise
    output.talk("the gateway loads it")
    if given:
        output.talk(f"not set on this machine, and needed where the gateway runs: {', '.join(given)}")
    return given


def _write(
    found: Candidate,
    before: Configuration,
    after: Configuration,
    ledger: Ledger,
    pattern: str,
    names: dict[str, str],
) -> Registration:
    from trajkit.registry import change
    from trajkit.registry.ledger import Registration

    now = datetime.now(UTC)
    registration_id = f"{now:%Y%m%dT%H%M%S%f}-{names['variant']}"
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in registration_id)
    files = change.write(before, after, STATE_FOLDER / "backups" / safe)
    registration = Registration(
        registration_id=registration_id,
        model=found.tuned,
        **names,
        config=str(Path(pattern).absolute()),
        files=files,
        registered_at=now,
        trajkit_version=trajkit.__version__,
    )
    ledger.add(registration)
    return registration


def _is_same(known: Registration, found: Candidate, pattern: str, names: dict[str, str]) -> bool:
    """Whether the ledger has this registration."""
    of = {"function": known.function, "template_variant": known.template_variant, "variant": known.variant}
    is_here = known.config == str(Path(pattern).absolute())
    return of == names and is_here and known.model.name == found.tuned.name


def print_diff(lines: list[str]) -> None:
    """A diff on stdout, in colour on a terminal only."""
    for line in lines:
        style = _STYLES.get(line[:1]) if line[:3] not in ("+++", "---") else None
        click.echo(click.style(visible(line), fg=style, bold=line[:3] in ("+++", "---")))


def _print_outcome(said: dict[str, Any], asked: dict[str, Any]) -> None:
    if asked["as_json"]:
        output.result_json(said)
    if asked["dry_run"]:
        output.talk("dry run: nothing was written")
        return
    if said["is_written"]:
        output.talk(f"what was there before: {', '.join(str(near(Path(each))) for each in said['backups'])}")
        output.talk(RESTART)
    if said["serve"] is not None:
        output.talk(f"the model is served by\n  {said['serve']}")
    if not asked["as_json"]:
        new = "registered" if said["is_written"] else "as it was"
        output.result(
            visible(f"{said['config']}  {said['function']}/{said['variant']}  {new}  {said['model']}")
        )
