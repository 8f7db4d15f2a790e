"""The options of a rollout; `prepare` chooses those that are left open."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, WrapValidator

from trajkit._core.address import is_address, place_of
from trajkit.errors import RequestError
from trajkit.rollouts.local.player import LocalPlayer
from trajkit.rollouts.running.limits import Limits, Prices
from trajkit.schema import Model, Purpose
from trajkit.schema.base import Count, Name


def _placed(given: Any, as_path: Callable[[Any], Path]) -> Path:
    return place_of(given) if is_address(given) else as_path(given)


Dollars = Annotated[float, Field(ge=0)]
"""US dollars."""


CONCURRENCY = 16
"""Default number of concurrent episodes."""
LOCAL_CONCURRENCY = 64
"""Default with a model in this process, which answers many almost as fast as one."""
VLLM_CONCURRENCY = 128
"""Default with vLLM, which answers faster the more requests it has."""


class PolicyKind(StrEnum):
    """Kinds of policies."""

    GATEWAY = "gateway"
    """Variants of a function of the gateway."""
    EXPERT = "expert"
    """The environment's own expert."""
    RANDOM = "random"
    """Any legal action."""
    NOISY_EXPERT = "noisy-expert"
    """The expert with slips."""
    HUMAN = "human"
    """A person at the terminal."""
    OPENAI = "openai"
    """A model at any OpenAI-compatible URL."""
    LOCAL = "local"
    """Models on this machine, in this process."""
    VLLM = "vllm"
    """Local models, in a vLLM of the user's environment."""
    MODULE = "module"
    """The user's own agent, as `module:Name`."""


class Options(Model):
    """The options of a rollout; `prepare` chooses missing ones."""

    env_id: Name
    """The environment, such as `babyai`, or `my_pkg.env:MyEnv`."""
    env_settings: dict[str, str] = {}
    """Settings of the environment, as they were typed."""
    tasks: tuple[Name, ...] = ("all",)
    """Tasks to play; `all` is every one."""
    policy: Name = PolicyKind.GATEWAY.value
    """The policy: a kind of policy, or `my_pkg.agent:MyAgent`."""
    policy_settings: dict[str, str] = {}
    """Settings of an agent or of the policies openai, local and vllm, as they were typed."""
    model: Name | None = None
    """The model of the policies openai, local and vllm, and of an agent's calls that name none."""
    model_base: Name | None = None
    """Base model of an adapter of the policies local and vllm, where its settings do not name it."""
    model_called: Name | None = None
    """Name of the model of the policies local and vllm in stores and at a server; None for `model`."""
    players: tuple[LocalPlayer, ...] = ()
    """Models for the policies local and vllm, instead of one model with the prompts of some variants. For an
    agent: the models, each of which answers its calls in separate episodes; they are at `model_url`, or on
    this machine if it is None."""
    model_url: Name | None = None
    """Address of an OpenAI-compatible server; None for OPENAI_BASE_URL, or else OpenAI's own. With the policy
    vllm: the address of the vLLM; None until one is started."""
    function: Name | None = None
    """The gateway's function; None takes that of trajkit.toml, the only one, or `act`. For a policy that
    calls no gateway: the function whose prompts it gets."""
    variants: tuple[Name, ...] = ()
    """Variants of the function; `all` for every one; empty for the only one."""
    decodings: tuple[Name, ...] = ()
    """Decodings, such as `greedy` or `temperature=1`, each for every variant; empty leaves it to the
    policy."""
    noise: Annotated[float, Field(ge=0, le=1)] | None = None
    """Probability of a random action of the noisy expert; None for 0.3. Other policies accept only None."""
    seeds: str | None = None
    """Seeds for every task: `A:B`, `A:B:STEP`, `1,5,9`, or a file; excludes the next two."""
    episodes: Annotated[int, Field(ge=1)] | None = None
    """Episodes per task; 20 when no seeds are given either."""
    seed: Count | None = None
    """The first seed."""
    shard: str = "1/1"
    """Part of the episodes that is played here, as `I/N`."""
    purpose: Purpose = Purpose.TRAIN
    """Purpose of the episodes."""
    run_seed: Count = 0
    """Seed of all sampling, and of the order."""
    history: Count = 8
    """Number of latest steps in the model's prompt."""
    max_steps: Annotated[int, Field(ge=1)] | None = None
    """Actions after which an episode is cut off; None leaves that to the environment."""
    concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Maximum requests in flight; None for 16, 64 with the policy local, or 128 with the policy vllm."""
    timeout_s: Annotated[float, Field(gt=0)] = 180.0
    """Longest wait for one request, in seconds."""
    episode_timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Longest time for one episode, in seconds; None for no limit."""
    retries: Count = 3
    """Maximum retries per failed request."""
    max_calls: Annotated[int, Field(ge=1)] | None = None
    """Requests to a model after which the run stops; None for no limit."""
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    """Cost after which the run stops; needs prices."""
    max_minutes: Annotated[float, Field(gt=0)] | None = None
    """Time after which the run stops."""
    input_price: Dollars | None = None
    """US dollars per million tokens of prompts; None takes that of trajkit.toml."""
    output_price: Dollars | None = None
    """US dollars per million tokens of answers; None takes that of trajkit.toml."""
    config_file: Path | None = None
    """The gateway's configuration; None as in `find_venue`."""
    store: Annotated[Path, WrapValidator(_placed)] | None = None
    """Store to write at the end; None writes none."""
    new_run: bool = False
    """Play all episodes again, even if an earlier run of the same options has played some."""

    @property
    def kind(self) -> PolicyKind:
        """Kind of the policy.

        Raises:
            RequestError: There is no policy of that name.
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
        """Number of concurrent episodes."""
        if self.kind == PolicyKind.HUMAN:
            return 1
        if self.kind == PolicyKind.VLLM:
            return self.concurrency or VLLM_CONCURRENCY
        is_here = self.kind == PolicyKind.LOCAL or (bool(self.players) and self.model_url is None)
        return self.concurrency or (LOCAL_CONCURRENCY if is_here else CONCURRENCY)

    @property
    def limits(self) -> Limits:
        """Limits of the run."""
        return Limits(self.max_calls, self.max_cost_usd, self.max_minutes)

    def prices(self, input_price: float | None, output_price: float | None) -> Prices | None:
        """Return the prices of tokens; None when they are unknown.

        Args:
            input_price: Price in trajkit.toml.
            output_price: Price in trajkit.toml.

        Raises:
            RequestError: Only one of the two is known, or a cost limit has no prices.
        """
        given = self.input_price if self.input_price is not None else input_price
        made = self.output_price if self.output_price is not None else output_price
        if (given is None) != (made is None):
            raise RequestError(
                "there must be prices of prompts and of answers, and one is missing",
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
