"""`trajkit evaluate`: play variants on the same held-out worlds, and say how they differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core.console import talk
from trajkit.cli.option import Command, adding, runs_option
from trajkit.cli.rollout import rollout
from trajkit.cli.settings import settings_option
from trajkit.commands.evaluate import GATEWAY, PROCESS

if TYPE_CHECKING:
    from trajkit.evaluation.evaluation import Evaluation

_EPILOG = """\
Variants are those of a function, played through the gateway as `trajkit rollout` finds it. Or they are models
of this machine, played in this process without a gateway: NAME=MODEL, where MODEL is a job, the folder of a
model or of an adapter, the id of a model, or sample:tiny-base. In process a variant that names no model is
one that `trajkit register` added, and its model is found by its name. Prompts are those of the configuration
(--config, else that of trajkit.toml, else the local stack's): of the variant itself, else those of
--template-variant, else those that the tuned models learned. Without a configuration a model gets trajkit's
own prompt.

All variants play the same tasks and seeds. Seeds that a compared model has learned, or was chosen by, are
refused: what it learned is known of the jobs under --runs and of the models that were registered.

Every inference and feedback is marked as evaluation, so that no export trains on it. What is finished is
kept: the same command again plays only what is missing, after Ctrl-C, a crash, a limit or a dead server.

Exit codes: 0 every episode is done; 1 some ended by an error, or rows are missing in the database; 2 the
request was wrong; 3 a package is missing; 4 a service refused or is down; 5 a limit stopped it; 130 Ctrl-C.
"""


def _as_rollout(*names: str) -> Callable[[Command], Command]:
    """Options of `trajkit rollout`, by the names of their parameters."""
    found = {parameter.name: parameter for parameter in rollout.params}

    def add(command: Command) -> Command:
        parameters = command.__dict__.setdefault("__click_params__", [])
        parameters.extend(found[name] for name in reversed(names))
        return command

    return add


_shared = adding(
    _as_rollout("history", "max_steps", "run_seed", "concurrency", "timeout_s", "episode_timeout_s"),
    _as_rollout("retries", "max_calls", "max_cost_usd", "max_minutes", "input_price", "output_price"),
    _as_rollout("function", "config_file"),
)


@click.command(epilog=_EPILOG)
@click.argument("env_id", metavar="ENVIRONMENT")
@_as_rollout("env_settings", "tasks")
@click.option(
    "--variants",
    "variants",
    multiple=True,
    required=True,
    metavar="A,B,…",
    help="What is compared, the baseline first: names, or NAME=MODEL; may be repeated.",
)
@click.option(
    "--seeds",
    required=True,
    metavar="SEEDS",
    help="Of every task: A:B (A to B-1), A:B:STEP, 1,5,9, or a file of them.",
)
@click.option(
    "--decoding",
    "decodings",
    multiple=True,
    default=("config",),
    show_default=True,
    metavar="HOW",
    help="The same for all: greedy, temperature=1, temperature=0.7,top_p=0.9, or config, as the variant says "
    "itself; repeated, each gives a comparison.",
)
@click.option(
    "--through",
    type=click.Choice([GATEWAY, PROCESS]),
    help="The gateway, or this process.  [default: process where a model is named]",
)
@click.option("--model", help="In process: the model of every variant that names none.")
@click.option(
    "--template-variant",
    metavar="VARIANT",
    help="In process: whose prompts a model gets that is no variant itself.",
)
@settings_option("--policy-set", "policy_settings", "In process: a setting of the models; may be repeated.")
@_shared
@runs_option
@click.option("--allow-leak", is_flag=True, help="Play also what a model has learned; the result says so.")
@click.option(
    "-o",
    "--output",
    "store",
    type=click.Path(path_type=Path),
    help="The store to write.  [default: evaluation-… in the folder of stores]",
)
@_as_rollout("new_run", "dry_run", "yes", "quiet")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def evaluate(
    variants: tuple[str, ...],
    runs_folder: Path,
    through: str | None,
    model: str | None,
    template_variant: str | None,
    allow_leak: bool,
    dry_run: bool,
    yes: bool,
    quiet: bool,
    as_json: bool,
    **asked: Any,
) -> int:
    """Compare variants on held-out seeds of ENVIRONMENT.

    \b
    trajkit evaluate babyai --variants baseline,history --seeds 200:220
    trajkit evaluate babyai --variants base=sample:tiny-base,tuned=JOB --seeds 200:220 --decoding greedy
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.cli.rollout_plan import confirm, show_plan
    from trajkit.commands.evaluate import prepared

    evaluation = prepared(
        variants,
        asked,
        runs_folder,
        through=through,
        model=model,
        template_variant=template_variant,
        allow_leak=allow_leak,
    )
    if not quiet:
        _tell(evaluation)
    if dry_run:
        show_plan(evaluation.session, as_json=as_json)
        return 0
    confirm(evaluation.session, yes=yes)
    return _play(evaluation, quiet=quiet, as_json=as_json)


def _tell(evaluation: Evaluation) -> None:
    """What a reader of the result must know of the worlds."""
    for overlap in evaluation.exposure.overlaps:
        talk(f"not held out (--allow-leak): {overlap}")
    for unsure in evaluation.exposure.unsure:
        talk(str(unsure))
    for other in evaluation.other_prompts:
        talk(f"warning: {other}: what it learned may not show")
    if not evaluation.is_reserved:
        plan = evaluation.session.plan
        talk(
            f"seeds {plan.seeds} are not all reserved: "
            f"`trajkit reserve {plan.env_id} --seeds {plan.seeds}` keeps trainings off them"
        )


def _play(evaluation: Evaluation, *, quiet: bool, as_json: bool) -> int:
    from trajkit.cli.evaluate_show import print_result
    from trajkit.cli.rollout_show import Show
    from trajkit.environments.quiet import kept_stdout
    from trajkit.evaluation.evaluation import with_store
    from trajkit.rollouts.session import open_run

    # C code and programs that an environment starts print where they like
    leaks = [str(one) for one in evaluation.exposure.overlaps]
    with open_run(evaluation.session) as run, kept_stdout():
        run.session = with_store(run)
        code = Show(run.session, run, quiet=quiet, has_result=False).play()
        if run.journal.n_done and run.session.options.store is not None:
            print_result(run, run.session.options.store, leaks, quiet=quiet, as_json=as_json)
    return code
