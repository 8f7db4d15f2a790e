"""Play variants of an agent on the same held-out worlds: a rollout on seeds that no model has learned."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue

from trajkit._core.ids import time_of
from trajkit._core.settings import project
from trajkit.environments import typed_environment
from trajkit.environments.base import Environment
from trajkit.errors import RequestError
from trajkit.evaluation.exposure import Exposure, RoomOf, Seen, exposure, is_reserved, refuse_overlap
from trajkit.rollouts.deliver import refuse_other
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.session import Run, Session
from trajkit.schema import Purpose

EVALUATION = "evaluation"
"""Key in a store's source for what was compared, and how far the worlds were held out."""


class Evaluation(NamedTuple):
    """A comparison that is ready to begin."""

    session: Session
    """The rollout: every variant, with every decoding, on every task and seed."""
    exposure: Exposure
    """The worlds that the models have seen; overlaps only where they were allowed."""
    is_reserved: bool
    """Whether the project keeps every world for evaluation."""
    other_prompts: tuple[str, ...] = ()
    """Which models are given other prompts than they learned."""


def evaluation(
    session: Session,
    *,
    seen: Sequence[Seen] = (),
    models: Mapping[str, str] | None = None,
    other_prompts: Sequence[str] = (),
    allow_leak: bool = False,
) -> Evaluation:
    """Make an evaluation from a prepared rollout.

    Args:
        session: From `trajkit.rollouts.session.prepare`, with the purpose `eval`.
        seen: What the models behind the variants were trained and chosen on.
        models: The models by variant, as far as they are known, for the store to say.
        other_prompts: Which models are given other prompts than they learned, for the store to say.
        allow_leak: Play also what a model has seen; the store says so.

    Raises:
        RequestError: The purpose is another, or a model has seen a world that it is to be measured on, or the
            same room under another task.
        RolloutError: The environment failed.
        ConfigError: A `trajkit.toml` cannot be used.
    """
    plan = session.plan
    if plan.purpose != Purpose.EVAL:
        raise RequestError(f"an evaluation is played for eval, not for {plan.purpose}")
    env_id = plan.env_name or plan.env_id
    with contextlib.ExitStack() as opened:
        found = exposure(seen, env_id, plan.tasks, plan.seeds, _rooms(plan, opened))
    if not allow_leak:
        refuse_overlap(found)
    kept = is_reserved(env_id, plan.tasks, plan.seeds)
    said: dict[str, JsonValue] = {
        "variants": {name: (models or {}).get(name) for name in plan.variants},
        "decodings": [str(one) for one in plan.decodings],
        "is_reserved": kept,
        "leaks": [str(one) for one in found.overlaps],
        "unsure": [str(one) for one in found.unsure],
        "other_prompts": list(other_prompts),
    }
    return Evaluation(session._replace(remarks={EVALUATION: said}), found, kept, tuple(other_prompts))


def _rooms(plan: Plan, opened: contextlib.ExitStack) -> RoomOf:
    """The rooms of the plan's environment, which is started when it is first asked for one."""
    info = typed_environment(plan.env_id, plan.env_settings)

    @functools.cache
    def begun(task: str) -> Environment:
        return opened.enter_context(contextlib.closing(info.make(task)))

    @functools.cache
    def room_of(task: str, seed: int) -> str:
        return begun(task).reset(seed).room_hash if task in info.tasks else ""

    return room_of


def with_store(run: Run) -> Session:
    """The session of a run, with a store to write: the one that was asked for, else one named by the run.

    The same run has the same store, however often it is gone on with.

    Raises:
        StoreError: Something else has that name.
    """
    session = run.session
    if session.options.store is not None:
        return session
    began = time_of(run.plan.run)
    path = Path(project().stores) / f"evaluation-{began:%Y%m%dT%H%M%SZ}-{run.plan.run[-4:]}"
    refuse_other(path, run.plan.run)
    return session._replace(options=session.options.model_copy(update={"store": path}))
