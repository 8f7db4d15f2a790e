"""What every command that trains has in common: the sides of a store, the plan, the question before it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit.cli.option import Command, adding, runs_option, thoughts_option
from trajkit.commands.place import near as near
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.commands.sides import OfOneFunction, Sides
    from trajkit.curation.leak_report import LeakReport
    from trajkit.training.job import TuneJob


_NEGATIVE = "negative weight"
"""Why `trajkit.convert` leaves out an answer that was worse than others."""


class Targets(click.Group):
    """A group with a subcommand for each target, whose module is imported when it is called.

    Args:
        targets: Name of the subcommand to its module and its line in the group's help.
    """

    def __init__(self, *arguments: Any, targets: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._targets = targets

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which they are shown."""
        return list(self._targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand; None when there is none of that name."""
        if cmd_name not in self._targets:
            return None
        module = importlib.import_module(f"trajkit.cli.{self._targets[cmd_name][0]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._targets.items()])


def train_option(what: str, last: str) -> Callable[[Command], Command]:
    """`--train`: what is learned.

    Args:
        what: The kind of thing that it names, as a metavar.
        last: What is taken without it.
    """
    return click.option("--train", metavar=what, help=f"What is learned; by default {last}.")


def side_options(
    what: str = "STORE",
    *,
    last: str = "the last store written here",
    cut_by: str = "world",
    picks_best: bool = True,
) -> Callable[[Command], Command]:
    """`--train`, `--val` and `--val-fraction`, which `sides` and `preference.pair_sides` read.

    Args:
        what: What is learned from, as a metavar.
        last: What is taken without `--train`.
        cut_by: What stays together where one is cut in two.
        picks_best: Whether what measures chooses the checkpoint that is kept.
    """
    best = ", and picks the best checkpoint" if picks_best else ""
    return adding(
        train_option(what, last),
        click.option("--val", metavar=what, help=f"What measures on the way{best}."),
        click.option(
            "--val-fraction",
            type=click.FloatRange(min=0, max=0.5),
            default=0.1,
            show_default=True,
            help="Without --val, and where `split` left none beside --train: the share that measures, cut by "
            f"{cut_by}; 0 for none.",
        ),
    )


row_options = adding(
    click.option(
        "--unit",
        type=click.Choice(["episode", "step"]),
        default="episode",
        show_default=True,
        help="What becomes a row: an append-only conversation with all its answers, or a step.",
    ),
    thoughts_option,
)
"""`--unit` and `--thoughts`: what becomes a row."""

job_options = adding(
    click.option("--name", metavar="NAME", help="The job's name.  [default: of the model and the store]"),
    click.option("--allow-leak", is_flag=True, help="Train although the stores share what they must not."),
    runs_option,
    click.option("--dry-run", is_flag=True, help="Print the plan and train nothing."),
    click.option("--yes", is_flag=True, help="Do not ask."),
    click.option("--detach", is_flag=True, help="Do not wait: `trajkit jobs wait` does."),
    click.option("--json", "as_json", is_flag=True, help="Print the job as JSON."),
)
"""What the job is called and where it is kept, whether to ask, to wait, to print JSON."""


def sides(asked: Mapping[str, Any], made: list[Path], function: OfOneFunction | None = None) -> Sides:
    """The two stores that `side_options` name; without `--val` one store is cut.

    Args:
        asked: The options.
        made: Gets the stores that are written on the way.
        function: Whose steps are learned; None for those of every function.
    """
    from trajkit.commands.sides import sides as found

    given = (asked["train"], asked["val"], asked["val_fraction"])
    return found(*given, function=function, made=made, say=console.talk)


def read_setting(typed: str) -> Any:
    """What was typed: null, lists and objects are JSON; what else a text is, its field knows."""
    if typed == "null" or typed[:1] in ("[", "{"):
        try:
            return json.loads(typed)
        except ValueError:
            return typed
    return typed


def side_lines(job: TuneJob) -> Iterator[str]:
    """The lines of a plan that say what is learned and what measures."""
    sides = [("learned", job.train)] + ([("measured", job.validation)] if job.validation is not None else [])
    for name, data in sides:
        yield (
            f"{name:9} {near(data.store)}  {console.plural(data.n_episodes, 'episode')}"
            f"  {console.plural(data.n_rows, 'row')}  {console.count(data.n_tokens)} tokens,"
            f" {console.count(data.n_learned_tokens)} of them learned; longest {console.count(data.longest)}"
        )
    for reason, number in job.train.left.items():
        yield f"          not learned: {console.plural(number, 'step')}: {reason}"
        if reason == _NEGATIVE:
            yield "          so only what was better than its group is learned, and nothing is unlearned"
    for kind, number in job.train.losses.items():
        yield f"          left out: {console.plural(number, kind)}"
    if job.validation is None:
        yield "measured  nothing: the last checkpoint is kept, not the best"


def leak_line(report: LeakReport) -> str:
    """The line of a plan that says what the two sides share."""
    leaks = "; ".join(finding.words for finding in report.blocking) if report.leaks else "none"
    return f"leaks     {leaks}{' (allowed)' if report.leaks else ''}"


def confirm(
    question: str = "Train?",
    *,
    yes: bool,
    verb: str = "trains",
    refused: str = "nothing was trained",
) -> None:
    """Ask before something is started; `--yes` has answered.

    Args:
        question: What is asked.
        yes: Whether --yes was given.
        verb: What --yes does, where nobody is here to ask.
        refused: What is said when the answer was no.

    Raises:
        RequestError: Nobody is here to ask.
        Exit: The answer was no.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and console.is_terminal()):
        raise RequestError("nobody is here to ask", hint=f"--yes {verb}, --dry-run shows the plan alone")
    if not click.confirm(question, err=True):
        console.talk(refused)
        raise click.exceptions.Exit(1)
