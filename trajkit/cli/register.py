"""`trajkit register`: a tuned model as a new variant in a gateway's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit._core.console import confirm
from trajkit.cli.option import runs_option
from trajkit.commands.place import near

if TYPE_CHECKING:
    from trajkit.commands.candidate import Candidate
    from trajkit.registry.ledger import Ledger

UNCHANGED = "nothing was changed"
RESTART = "a running gateway must be restarted: it does not read its configuration again"
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
@click.option(
    "--traffic",
    type=Share(),
    metavar="SHARE",
    help="Its share, such as 5%; of a variant that is registered no other option is needed.  [default: none]",
)
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
    from trajkit.commands.candidate import candidate
    from trajkit.commands.register import check, with_known
    from trajkit.registry.ledger import Ledger

    check(asked, emit=emit, undo=undo)
    ledger = Ledger(runs_folder)
    if undo:
        from trajkit.cli.register_undo import undo_last

        undo_last(ledger, job, asked)
        return
    asked = with_known(ledger, job, {**asked, "emit": emit})
    found = asked["found"] or candidate(job, runs_folder, asked)
    if emit is not None:
        from trajkit.cli.register_emit import print_settings

        print_settings(found, asked)
        return
    _register(found, ledger, asked)


def _register(found: Candidate, ledger: Ledger, asked: dict[str, Any]) -> None:
    from trajkit.commands.register import plan, written_down

    planned = plan(found, asked)
    if not asked["as_json"]:
        print_diff(planned.diff)
    for note in planned.notes:
        console.talk(f"note: {note}")
    if planned.diff:
        console.talk("the gateway loads it")
    if planned.placeholders:
        console.talk(
            f"not set on this machine, and needed where the gateway runs: {', '.join(planned.placeholders)}"
        )
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
    if planned.diff and not asked["dry_run"]:
        confirm("Write it?", yes=asked["yes"], verb="writes", refused=UNCHANGED)
    registration = None if asked["dry_run"] else written_down(planned, ledger)
    if planned.diff and registration is not None:
        said |= {"registration_id": registration.registration_id, "is_written": True}
        said["backups"] = [str(file.backup) for file in registration.files]
    _print_outcome(said, asked)


def print_diff(lines: list[str]) -> None:
    """A diff on stdout, in colour on a terminal only."""
    for line in lines:
        style = _STYLES.get(line[:1]) if line[:3] not in ("+++", "---") else None
        console.result(console.styled(line, fg=style, bold=line[:3] in ("+++", "---")))


def _print_outcome(said: dict[str, Any], asked: dict[str, Any]) -> None:
    if asked["as_json"]:
        console.result_json(said)
    if asked["dry_run"]:
        console.talk("dry run: nothing was written")
        return
    if said["is_written"]:
        console.talk(f"what was there before: {', '.join(str(near(Path(each))) for each in said['backups'])}")
        console.talk(RESTART)
    if said["serve"] is not None:
        console.talk("the model is served by")
        console.talk(f"  {said['serve']}")
    if not asked["as_json"]:
        new = "registered" if said["is_written"] else "as it was"
        console.result(f"{said['config']}  {said['function']}/{said['variant']}  {new}  {said['model']}")
