"""Options of `rollout` and `evaluate`, and the model of them that a rollout takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from trajkit.commands.options.group import EngineOptions
from trajkit.commands.options.types import Count, File, Option, Output, RunsFolder, Settings, Tasks, many
from trajkit.commands.place import texts
from trajkit.rollouts.options import Options
from trajkit.stack.vllm_command import VLLM

Whole: TypeAlias = Annotated[int, Option(least=0)]
"""A whole number, 0 or more."""
Positive: TypeAlias = Annotated[float | None, Option(least=0, is_open=True)]
"""A number above 0; None for no limit."""
Price: TypeAlias = Annotated[float | None, Option(least=0)]
"""US dollars per million tokens."""


class PlayingOptions(EngineOptions, total=False):
    """Episodes to play, their limits, and the store to write."""

    env_set: Settings | None
    """A setting of the environment. May be repeated."""
    task: Annotated[Tasks, Option(default=())]
    """A task, or a game. May be repeated. Default: all."""
    vllm_command: Annotated[str, Option(default=VLLM, metavar="COMMAND")]
    """Command that starts vLLM, up to `serve`; vLLM options may follow."""
    policy_set: Settings | None
    """A setting of the models or of the agent that plays, such as temperature=1. May be repeated."""
    history: Whole
    """Past steps shown."""
    max_steps: Count | None
    """Cut an episode off after this many actions."""
    run_seed: Whole
    """Seed of the sampling and of the order of the episodes."""
    concurrency: Annotated[int | None, Option(least=1, most=10_000)]
    """Maximum requests in flight; fewer while a service asks for it. Default: 16; 64 with models in this
    process; 128 with vLLM."""
    timeout: Annotated[
        float, Option(default=Options.model_fields["timeout_s"].default, least=0, is_open=True)
    ]
    """Seconds to wait for one request."""
    episode_timeout: Positive
    """Seconds for one episode; it then ends as an error."""
    retries: Whole
    """How often to retry a request after a service failure."""
    max_calls: Count | None
    """Stop after this many model requests."""
    max_cost_usd: Positive
    """Stop before more than this is spent; needs the prices."""
    max_minutes: Positive
    """Stop after this many minutes."""
    input_price: Price
    """US dollars per million tokens of prompts. Default: that of trajkit.toml."""
    output_price: Price
    """US dollars per million tokens of answers. Default: that of trajkit.toml."""
    function: Annotated[str | None, Option(metavar="NAME")]
    """The gateway's function. Default: that of trajkit.toml, the only one, or act."""
    config: File
    """The gateway's tensorzero.toml. Default: that of trajkit.toml, else that of the local stack."""
    runs: Annotated[RunsFolder, Option(default="runs")]
    """Folder where jobs are kept."""
    output: Output
    """Store to write."""
    new_run: bool
    """Play everything again, even finished episodes."""
    dry_run: bool
    """Print what would be played and what it may cost; play nothing."""
    yes: bool
    """Do not ask before calling a paid model."""


_FIELDS = {
    "env_set": "env_settings",
    "policy_set": "policy_settings",
    "task": "tasks",
    "variant": "variants",
    "decoding": "decodings",
    "timeout": "timeout_s",
    "episode_timeout": "episode_timeout_s",
    "config": "config_file",
    "output": "store",
}
"""Fields of `Options` by the options that have other names."""


def fields_of(env_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a command as fields of `Options`, without those that were not given.

    Args:
        env_id: The environment.
        given: Options by name; those that `Options` does not have are left out.
    """
    fields = {"env_id": env_id} | {_FIELDS.get(name, name): value for name, value in given.items()}
    fields |= {name: texts(fields[name]) for name in ("env_settings", "policy_settings")}
    fields |= {name: many(fields.get(name)) for name in ("tasks", "variants", "decodings")}
    known = Options.model_fields
    return {name: value for name, value in fields.items() if name in known and value not in (None, (), {})}
