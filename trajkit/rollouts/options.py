"""The options of a rollout; `prepare` decides those that are left open."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field

from trajkit.errors import RequestError
from trajkit.rollouts.limits import Limits, Prices
from trajkit.rollouts.local_player import LocalPlayer
from trajkit.schema import Model, Purpose
from trajkit.schema.base import Count, Name

Dollars = Annotated[float, Field(ge=0)]
"""US dollars."""


CONCURRENCY = 16
"""Episodes at once by default."""
LOCAL_CONCURRENCY = 64
"""Episodes at once with a model in this process, which answers many almost as fast as one."""


class PolicyKind(StrEnum):
    """Who can play."""

    GATEWAY = "gateway"
    """Variants of a function of the gateway."""
    EXPERT = "expert"
    """The environment's own solution."""
    RANDOM = "random"
    """Any legal action."""
    NOISY_EXPERT = "noisy-expert"
    """The expert with slips."""
    HUMAN = "human"
    """Whoever sits at the terminal."""
    OPENAI = "openai"
    """A model at any OpenAI-compatible URL."""
    LOCAL = "local"
    """Models of this machine, in this process."""
    MODULE = "module"
    """An agent of the user's own, by `module:Name`."""


class Options(Model):
    """What is asked of a rollout; what is left out is decided by `prepare`."""

    env_id: Name
    """The environment, such as `babyai`, or `my_pkg.env:MyEnv`."""
    env_settings: dict[str, str] = {}
    """Settings of the environment, as they were typed."""
    tasks: tuple[Name, ...] = ("all",)
    """Tasks to play; `all` is every one."""
    policy: Name = PolicyKind.GATEWAY.value
    """Who plays: a kind of policy, or `my_pkg.agent:MyAgent`."""
    policy_settings: dict[str, str] = {}
    """Settings of an agent or of the policies openai and local, as they were typed."""
    model: Name | None = None
    """The model of the policies openai and local, and of an agent's calls that name none."""
    model_base: Name | None = None
    """What the model of the policy local is an adapter to, where it does not say so itself."""
    model_called: Name | None = None
    """What the model of the policy local is called in stores; None for `model`."""
    players: tuple[LocalPlayer, ...] = ()
    """Who plays with the policy local, in the place of one model with the prompts of some variants. With an
    agent: the models, each of which answers its calls in episodes of its own; they are those at `model_url`,
    or of this machine where it is None."""
    model_url: Name | None = None
    """Address of an OpenAI-compatible server; None for OPENAI_BASE_URL, else OpenAI's own."""
    function: Name | None = None
    """The gateway's function; None takes the one of trajkit.toml, the only one, or `act`. Of a policy that
    asks no gateway: the function whose prompts it is given."""
    variants: tuple[Name, ...] = ()
    """Variants of the function; `all` is every one; none is the only one."""
    decodings: tuple[Name, ...] = ()
    """Ways to draw answers, such as `greedy` or `temperature=1`, each for every variant; none leaves it to
    the policy."""
    noise: Annotated[float, Field(ge=0, le=1)] | None = None
    """Probability of a slip of the noisy expert; None is 0.3 for it, and the only choice for others."""
    seeds: str | None = None
    """Seeds for every task: `A:B`, `A:B:STEP`, `1,5,9`, or a file; excludes the next two."""
    episodes: Annotated[int, Field(ge=1)] | None = None
    """How many episodes of every task; 20 when no seeds are given either."""
    seed: Count | None = None
    """The first seed."""
    shard: str = "1/1"
    """Which part of all that is played here, as `I/N`."""
    purpose: Purpose = Purpose.TRAIN
    """What the episodes are for."""
    run_seed: Count = 0
    """Seed of everything that is sampled, and of the order."""
    history: Count = 8
    """Latest steps shown to the model."""
    max_steps: Annotated[int, Field(ge=1)] | None = None
    """Actions after which an episode is cut off; None leaves that to the environment."""
    concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Most requests in flight; None for 16, or 64 with the policy local."""
    timeout_s: Annotated[float, Field(gt=0)] = 180.0
    """Longest wait for one request, in seconds."""
    episode_timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Longest time for one episode, in seconds; None for no limit."""
    retries: Count = 3
    """How often a failed request is sent again."""
    max_calls: Annotated[int, Field(ge=1)] | None = None
    """Requests to a model after which the run stops; None for no limit."""
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    """Money after which the run stops; needs prices."""
    max_minutes: Annotated[float, Field(gt=0)] | None = None
    """Time after which the run stops."""
    input_price: Dollars | None = None
    """US dollars per million tokens of prompts; None takes that of trajkit.toml."""
    output_price: Dollars | None = None
    """US dollars per million tokens of answers; None takes that of trajkit.toml."""
    config_file: Path | None = None
    """The gateway's configuration; None as in `find_venue`."""
    store: Path | None = None
    """Store to write when all is played; None writes none."""
    new_run: bool = False
    """Play everything anew, whatever an earlier run of the same options has done."""

    @property
    def kind(self) -> PolicyKind:
        """What kind of policy plays.

        Raises:
            RequestError: There is none of that name.
        """
        if ":" in self.policy:
            return PolicyKind.MODULE
        known = [kind.value for kind in PolicyKind if kind != PolicyKind.MODULE]
        if self.policy not in known:
            raise RequestError(
                f"no policy {self.policy!r}", hint=f"known: {', '.join(known)}, or my_pkg.agent:MyAgent"
            )
        return PolicyKind(self.policy)

    @property
    def side_by_side(self) -> int:
        """How many episodes are played at once."""
        if self.kind == PolicyKind.HUMAN:
            return 1
        is_here = self.kind == PolicyKind.LOCAL or (bool(self.players) and self.model_url is None)
        return self.concurrency or (LOCAL_CONCURRENCY if is_here else CONCURRENCY)

    @property
    def limits(self) -> Limits:
        """Where the run stops."""
        return Limits(self.max_calls, self.max_cost_usd, self.max_minutes)

    def prices(self, input_price: float | None, output_price: float | None) -> Prices | None:
        """What tokens cost; None when that is not known.

        Args:
            input_price: What trajkit.toml says.
            output_price: What trajkit.toml says.

        Raises:
            RequestError: Only one of the two is known, or a limit on money cannot be kept.
        """
        given = self.input_price if self.input_price is not None else input_price
        made = self.output_price if self.output_price is not None else output_price
        if (given is None) != (made is None):
            raise RequestError(
                "prices are those of prompts and of answers, and one is missing",
                hint="give --input-price and --output-price, in USD per million tokens",
            )
        if given is not None and made is not None:
            return Prices(given, made)
        if self.max_cost_usd is not None:
            raise RequestError(
                "--max-cost-usd needs the prices of the model",
                hint="give --input-price and --output-price, in USD per million tokens",
            )
        return None
