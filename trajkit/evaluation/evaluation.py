"""Play variants of an agent on the same held-out worlds: a rollout on seeds that no model was trained on."""

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
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.records.deliver import refuse_other
from trajkit.rollouts.session import Run, Session
from trajkit.schema import Purpose

EVALUATION = "evaluation"
"""Key in a store's source for the compared variants and the result of the exposure check."""


class Evaluation(NamedTuple):
    """A comparison that is ready to begin."""

    session: Session
    """The rollout: every variant, with every decoding, on every task and seed."""
    exposure: Exposure
    """Worlds that the models have seen; it has overlaps only where `allow_leak` permitted them."""
    is_reserved: bool
    """Whether the project keeps every world for evaluation."""
    other_prompts: tuple[str, ...] = ()
    """Models that are evaluated with other prompts than they were trained with, in words."""


def evaluation(
    session: Session,
    *,
    seen: Sequence[Seen] = (),
    models: Mapping[str, str] | None = None,
    other_prompts: Sequence[str] = (),
    allow_leak: bool = False,
) -> Evaluation:
    """Prepare an evaluation from a prepared rollout.

    Args:
        session: From `trajkit.rollouts.session.prepare`, with the purpose `eval`.
        seen: Training and selection data of the models behind the variants.
        models: Known models by variant, recorded in the store.
        other_prompts: Models that get other prompts than in training, recorded in the store.
        allow_leak: Also play worlds that a model has seen. The store records them.

    Raises:
        RequestError: The purpose is not `eval`, or a model has seen one of the worlds, or the same room
            under another task.
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
    remarks: dict[str, JsonValue] = {
        "variants": {name: (models or {}).get(name) for name in plan.variants},
        "decodings": [str(one) for one in plan.decodings],
        "is_reserved": kept,
        "leaks": [str(one) for one in found.overlaps],
        "unsure": [str(one) for one in found.unsure],
        "other_prompts": list(other_prompts),
    }
    return Evaluation(session._replace(remarks={EVALUATION: remarks}), found, kept, tuple(other_prompts))


def _rooms(plan: Plan, opened: contextlib.ExitStack) -> RoomOf:
    """Return the room lookup of the plan's environment, which starts with the first lookup."""
    info = typed_environment(plan.env_id, plan.env_settings)

    @functools.cache
    def begun(task: str) -> Environment:
        return opened.enter_context(contextlib.closing(info.make(task)))

    @functools.cache
    def room_of(task: str, seed: int) -> str:
        return begun(task).reset(seed).room_hash if task in info.tasks else ""

    return room_of


def with_store(run: Run) -> Session:
    """Return the session of a run with its store: the requested one, otherwise one named after the run.

    The name depends on the run only, so a resumed run writes the same store.

    Raises:
        StoreError: Something else already has that name.
    """
    session = run.session
    if session.options.store is not None:
        return session
    began = time_of(run.plan.run)
    path = Path(project().stores) / f"evaluation-{began:%Y%m%dT%H%M%SZ}-{run.plan.run[-4:]}"
    refuse_other(path, run.plan.run)
    return session._replace(options=session.options.model_copy(update={"store": path}))
