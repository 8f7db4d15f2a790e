"""Play seeded episodes of an environment."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Literal, TypedDict, Unpack

from trajkit.commands.options.group import engine_of, flattened
from trajkit.commands.options.playing import PlayingOptions, Whole, fields_of
from trajkit.commands.options.request import checked
from trajkit.commands.options.types import Count, Many, Option
from trajkit.commands.play.local_model import local_model
from trajkit.commands.play.played import Rollout, planned
from trajkit.commands.play.playing import confirm, play, shards_of
from trajkit.commands.play.vllm import refuse_vllm_options, vllm_of
from trajkit.rollouts.options import Options, PolicyKind


class PlayerOptions(TypedDict, total=False):
    """Who plays which episodes."""

    variant: Annotated[Many, Option(default=())]
    """A variant of the function, or all. May be repeated."""
    policy: Annotated[str, Option(metavar="POLICY")]
    """The player: gateway, local, vllm, openai, expert, noisy-expert, random, human, or
    my_pkg.agent:MyAgent."""
    model: Annotated[str | None, Option(metavar="MODEL")]
    """The model of openai and of an agent's calls; for local and vllm a job's name, a folder, an id or a
    sample."""
    model_url: Annotated[str | None, Option(metavar="URL")]
    """Its OpenAI-compatible server. Default: OPENAI_BASE_URL, else OpenAI's own; with vllm one is started."""
    noise: Annotated[float | None, Option(least=0, most=1)]
    """Share of a noisy expert's mistakes. Default: 0.3."""
    seeds: Annotated[str | None, Option(metavar="SEEDS")]
    """Seeds of every task: A:B (A to B-1), A:B:STEP, 1,5,9, or a file of them."""
    episodes: Count | None
    """Number of seeds of every task, from --seed. Default: 20."""
    seed: Whole | None
    """The first seed. Default: 0."""
    shard: Annotated[str, Option(metavar="I/N")]
    """Play only this part of the episodes; the N parts together are all."""
    purpose: Literal["train", "eval"]
    """Marks inferences and feedback; eval is never trained on."""


class RolloutOptions(PlayerOptions, PlayingOptions, total=False):
    """Options of `rollout`."""


@flattened(Options)
def rollout(
    env_id: Annotated[str, Option(metavar="ENVIRONMENT")], **options: Unpack[RolloutOptions]
) -> Rollout:
    """Play seeded episodes of an environment, and report the results.

    It plays through the gateway at TENSORZERO_GATEWAY_URL; else through one of its own on the database at
    TENSORZERO_CLICKHOUSE_URL, with --config; else on the local stack (`trajkit up`). There is no gateway
    process to start: that of TensorZero 2026.6.0 runs inside the command that plays. The other policies need
    no gateway and log nothing.

    --policy local plays a local model in this process, many episodes in lock step: --policy-set
    temperature=1, top_p=1, max_new_tokens=128, json_mode=auto|schema|object|off, thinking=false. The model
    gets the prompts of --function and --variant of --config, else those of --policy openai. The steps of
    experts hold the same prompts, and the answers that a model would have given.

    --policy vllm plays the same models in a vLLM of your environment, which is started and stopped with this
    command, or runs at --model-url. An adapter is loaded by its name. Token ids and log-probabilities are
    kept. The settings are those of local.

    Finished episodes are kept in .trajkit/runs, in a folder for these options: the same command again plays
    only what is missing, after Ctrl-C, a crash, an error or a limit. --new-run plays everything again.
    Concurrency, timeouts, limits and -o may differ from one time to the next. With --json each episode is a
    line, printed when it ends.

    Exit codes: 0 every episode is done; 1 some ended in an error, or rows are missing in the database; 2 the
    request was wrong; 3 a package is missing; 4 a service refused or is down; 5 a limit stopped it; 130
    Ctrl-C.

    Args:
        env_id: The environment, such as `babyai`.

    Raises:
        RequestError: Something cannot be played as requested, or a model costs money and `yes` is not given.
        ServiceError: The gateway, its database or the model is down.
        RolloutError: The environment or the agent fails every time.

    Example:
        trajkit rollout babyai --policy expert --task goto --episodes 20 -o stores/expert
    """
    from trajkit.environments.quiet import kept_stdout
    from trajkit.rollouts.session import open_run, prepare

    fields = fields_of(env_id, options)
    if options["policy"] in (PolicyKind.LOCAL, PolicyKind.VLLM) and options["model"] is not None:
        is_served = options["policy"] == PolicyKind.VLLM and options["model_url"] is not None
        fields |= local_model(options["model"], Path(options["runs"]), is_served=is_served).options
    session = prepare(checked(Options, fields))
    refuse_vllm_options(session.options, options["vllm_command"], options["on"])
    engine = engine_of(options, has_shard=session.plan.shard.of > 1)
    if options["dry_run"]:
        return planned(session)
    confirm(session, yes=options["yes"])
    # C code and programs that an environment starts print where they like; a person needs the terminal itself
    is_human = session.options.kind == PolicyKind.HUMAN
    with (
        open_run(session) as run,
        vllm_of(run, options["vllm_command"]),
        contextlib.nullcontext() if is_human else kept_stdout(),
        shards_of(engine, run) as shards,
    ):
        return play(run, has_rows=True, division=shards)
