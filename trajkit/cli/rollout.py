"""`trajkit rollout`: play seeded episodes of an environment."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from trajkit.cli.option import runs_option
from trajkit.cli.settings import env_set, settings_option

_EPILOG = """\
It plays through the gateway at TENSORZERO_GATEWAY_URL; else through one of its own on the database at
TENSORZERO_CLICKHOUSE_URL, with --config; else on the local stack (`trajkit up`). There is no gateway process
to start: that of TensorZero 2026.6.0 lives in the command that plays. The other policies need no gateway, and
log nothing.

\b
--policy local plays a model of this machine in this process, many episodes in lock step:
--policy-set temperature=1, top_p=1, max_new_tokens=128, json_mode=auto|schema|object|off, thinking=false.
It is asked with the prompts of --function and --variant of --config, else with those of --policy openai.
So are the steps of experts written down, as a model would have been asked and would have answered.

What is finished is kept in .trajkit/runs, in a folder for these options: the same command again plays only
what is missing, after Ctrl-C, a crash, an error or a limit. --new-run plays everything anew. Concurrency,
timeouts, limits and -o may differ from one time to the next.

Exit codes: 0 every episode is done; 1 some ended by an error, or rows are missing in the database; 2 the
request was wrong; 3 a package is missing; 4 a service refused or is down; 5 a limit stopped it; 130 Ctrl-C.
"""


@click.command(epilog=_EPILOG)
@click.argument("env_id", metavar="ENVIRONMENT")
@env_set
@click.option(
    "--task", "--game", "tasks", multiple=True, help="A task, or a game; may be repeated.  [default: all]"
)
@click.option(
    "--variant", "variants", multiple=True, help="A variant of the function, or all; may be repeated."
)
@click.option(
    "--policy",
    default="gateway",
    show_default=True,
    metavar="POLICY",
    help="Who plays: gateway, local, openai, expert, noisy-expert, random, human, or my_pkg.agent:MyAgent.",
)
@settings_option(
    "--policy-set", "policy_settings", "A setting of local, openai or an agent; may be repeated."
)
@click.option(
    "--model",
    help="The model of openai and of an agent's calls; of local a job's name, a folder, an id or a sample.",
)
@click.option(
    "--model-url",
    metavar="URL",
    help="Its OpenAI-compatible server.  [default: OPENAI_BASE_URL, else OpenAI's own]",
)
@click.option("--noise", type=click.FloatRange(0, 1), help="Share of a noisy expert's slips.  [default: 0.3]")
@click.option(
    "--seeds", metavar="SEEDS", help="Of every task: A:B (A to B-1), A:B:STEP, 1,5,9, or a file of them."
)
@click.option(
    "--episodes", type=click.IntRange(min=1), help="Seeds of every task, from --seed.  [default: 20]"
)
@click.option("--seed", type=click.IntRange(min=0), help="The first seed.  [default: 0]")
@click.option(
    "--shard",
    metavar="I/N",
    default="1/1",
    help="Play only this part of everything; the N parts together are the whole.",
)
@click.option(
    "--purpose",
    type=click.Choice(["train", "eval"]),
    default="train",
    show_default=True,
    help="Marks every inference and feedback; eval episodes never train.",
)
@click.option("--history", type=click.IntRange(min=0), default=8, show_default=True, help="Steps shown back.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Cut an episode off after so many actions.")
@click.option(
    "--run-seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of what is sampled, and of the order of the episodes.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    help="Most requests in flight at once; fewer while a service asks for it.  [default: 16; 64 with local]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=180.0,
    show_default=True,
    help="Seconds to wait for one request.",
)
@click.option(
    "--episode-timeout",
    "episode_timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds for one episode; it then ends as an error.",
)
@click.option(
    "--retries", type=click.IntRange(min=0), default=3, show_default=True, help="After a service's failure."
)
@click.option("--max-calls", type=click.IntRange(min=1), help="Stop after so many requests to models.")
@click.option(
    "--max-cost-usd",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop before more than this is spent; needs the prices.",
)
@click.option(
    "--max-minutes", type=click.FloatRange(min=0, min_open=True), help="Stop after so many minutes."
)
@click.option(
    "--input-price",
    type=click.FloatRange(min=0),
    help="USD per million tokens of prompts.  [default: trajkit.toml]",
)
@click.option(
    "--output-price",
    type=click.FloatRange(min=0),
    help="USD per million tokens of answers.  [default: trajkit.toml]",
)
@click.option(
    "--function", help="The gateway's function.  [default: from trajkit.toml, the only one, or act]"
)
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="The gateway's tensorzero.toml."
)
@runs_option
@click.option("-o", "--output", "store", type=click.Path(path_type=Path), help="Write a store as well.")
@click.option("--new-run", is_flag=True, help="Play everything anew, also what was done before.")
@click.option("--dry-run", is_flag=True, help="Say what would be played and what it may cost; play nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before a model that costs money.")
@click.option("--quiet", is_flag=True, help="Print only the result and errors.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON per episode, when it ends.")
def rollout(runs_folder: Path, dry_run: bool, yes: bool, quiet: bool, as_json: bool, **asked: Any) -> int:
    """Play seeded episodes of ENVIRONMENT, log them, and say how they went."""
    from trajkit.cli.rollout_plan import confirm, show_plan
    from trajkit.cli.rollout_show import Show
    from trajkit.commands.rollout import rollout_options
    from trajkit.environments.quiet import kept_stdout
    from trajkit.rollouts.options import PolicyKind
    from trajkit.rollouts.session import open_run, prepare

    session = prepare(rollout_options(asked, runs_folder))
    if dry_run:
        show_plan(session, as_json=as_json)
        return 0
    confirm(session, yes=yes)
    # C code and programs that an environment starts print where they like; a person needs the terminal itself
    is_human = session.options.kind == PolicyKind.HUMAN
    with open_run(session) as run, contextlib.nullcontext() if is_human else kept_stdout():
        return Show(session, run, quiet=quiet, as_json=as_json).play()
