"""What a rollout costs beyond its calls: its wall time over that of the same calls without environment.

Run as `python bench/rollout.py`; about five minutes. The peer sends the same inferences and feedbacks, of the
same inputs, through the same gateway by as many senders, each taking the next call when its last is answered.
A run repeats call for call, so runs and replays alternate on one database, a replay first.
The middle times count: an hour that is busy elsewhere moves one round by a third.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.rollouts.gateway.calls import Gateway
from trajkit.rollouts.gateway.venue import find_venue, open_venue
from trajkit.rollouts.gateway_policy import GatewayPolicy
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.records.record import Played
from trajkit.rollouts.running.calling import Caller
from trajkit.rollouts.running.runner import play
from trajkit.stack.local import recipe_config, start_stack, stop_stack

LIMIT = 1.15
"""Most that a run may take, as a multiple of the replay."""
ROUNDS = 5
CONCURRENCY = 8
SEEDS = range(20)
VARIANT = "history_and_reasoning"


class Call(NamedTuple):
    """One request as it was sent."""

    method: str
    arguments: dict[str, Any]


class Recording:
    """A gateway that notes every call before it passes it on."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.calls: list[Call] = []

    @property
    def inference(self) -> Callable[..., Awaitable[Any]]:
        """Noted and passed on."""
        return self._noting("inference")

    @property
    def feedback(self) -> Callable[..., Awaitable[Any]]:
        """Noted and passed on."""
        return self._noting("feedback")

    def _noting(self, method: str) -> Callable[..., Awaitable[Any]]:
        def send(**arguments: Any) -> Awaitable[Any]:
            self.calls.append(Call(method, arguments))
            answer: Awaitable[Any] = getattr(self.gateway, method)(**arguments)
            return answer

        return send


async def run_s(gateway: Gateway) -> float:
    """Seconds of a rollout."""
    plan = Plan(
        env_id="babyai",
        tasks=("goto",),
        variants=(VARIANT,),
        seeds=SEEDS,
        concurrency=CONCURRENCY,
    )
    caller = Caller(concurrency=CONCURRENCY, timeout_s=plan.timeout_s, retries=0)
    policy = GatewayPolicy(gateway, plan, caller, function_name="act", variant_name=VARIANT)
    played: list[Played] = []
    began = time.perf_counter()
    await play(plan, {VARIANT: policy}, on_played=played.append)
    seconds = time.perf_counter() - began
    assert all(one.fault is None for one in played)
    return seconds


async def replay_s(gateway: Gateway, calls: list[Call]) -> float:
    """Seconds of the same calls alone."""
    rest = iter(calls)

    async def send() -> None:
        for call in rest:
            await getattr(gateway, call.method)(**call.arguments)

    began = time.perf_counter()
    await asyncio.gather(*(send() for _ in range(CONCURRENCY)))
    return time.perf_counter() - began


async def measure() -> float:
    """The ratio of the medians over all rounds."""
    played: list[float] = []
    replayed: list[float] = []
    async with open_venue(find_venue()) as gateway:
        recording = Recording(gateway)
        await run_s(recording)
        for _ in range(ROUNDS):
            replayed.append(await replay_s(gateway, recording.calls))
            played.append(await run_s(gateway))
            print(
                f"{len(recording.calls)} calls: {replayed[-1]:.1f} s alone, {played[-1]:.1f} s in a rollout"
            )
    return statistics.median(played) / statistics.median(replayed)


def main() -> int:
    """Print the ratio; 1 when it is above the limit."""
    for name in ("TENSORZERO_GATEWAY_URL", "TENSORZERO_CLICKHOUSE_URL"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        start_stack(recipe_config(), folder=Path(folder))
        try:
            ratio = asyncio.run(measure())
        finally:
            stop_stack(folder=Path(folder))
    print(f"rollout / the same calls: {ratio:.3f} (limit {LIMIT}, {CONCURRENCY} at once)")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
