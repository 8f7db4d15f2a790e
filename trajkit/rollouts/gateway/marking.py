"""Mark abandoned episodes in the gateway's database, so that an export leaves them out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from trajkit.errors import RequestError, ServiceError
from trajkit.rollouts.faults import FaultKind, Faulty
from trajkit.rollouts.gateway.calls import Gateway, ask
from trajkit.rollouts.records.journal import Abandoned, Journal
from trajkit.rollouts.running.calling import Caller
from trajkit.schema.feedback import ABANDONED_TAG


async def mark_abandoned(gateway: Gateway, caller: Caller, journal: Journal, *, limit_s: float) -> None:
    """Log a comment on every unmarked abandoned episode; those that fail are left to the next run.

    Args:
        gateway: An open gateway.
        caller: Sends the requests.
        journal: Records the abandoned episodes and which are marked.
        limit_s: Seconds after which the rest is left to the next run.
    """
    tasks = [
        asyncio.create_task(_mark(gateway, caller, journal, one)) for one in list(journal.unmarked.values())
    ]
    try:
        async with asyncio.timeout(limit_s):
            await asyncio.gather(*tasks)
    except TimeoutError:
        pass
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _mark(gateway: Gateway, caller: Caller, journal: Journal, one: Abandoned) -> None:
    arguments: dict[str, Any] = {
        "metric_name": "comment",
        "value": f"abandoned: {one.message}",
        "episode_id": one.episode_id,
        "tags": {"trajkit.run": journal.run, ABANDONED_TAG: one.reason},
    }
    with contextlib.suppress(RequestError, ServiceError):  # unmarked; reported at the end
        try:
            await ask(caller, gateway.feedback, arguments, is_paid=False)
        except Faulty as failure:
            is_unknown = failure.fault.kind == FaultKind.NOT_STORED and failure.fault.is_lasting
            if not is_unknown:  # an episode without rows in the database needs no mark
                return
        journal.mark(one.episode_id)
