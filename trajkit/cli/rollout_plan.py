"""What a rollout is about to do, and the question before a model that costs money."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from trajkit._core.console import count, is_terminal, plural, result, result_json, talk
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.rollouts.costs import Estimate
    from trajkit.rollouts.session import Session


def show_plan(session: Session, *, as_json: bool) -> None:
    """Print the plan as the result."""
    plan, estimate = session.plan, session.estimate()
    if as_json:
        result_json(
            {
                "n_episodes": plan.n_episodes,
                "n_done": plan.n_episodes - estimate.n_episodes,
                "tasks": plan.tasks,
                "variants": plan.variants,
                "seeds": str(plan.seeds),
                "shard": str(plan.shard),
                "metrics": session.metrics,
                **estimate._asdict(),
            }
        )
        return
    result(heading(session))
    for line in _lines(session, estimate):
        result(line)
    talk("dry run: nothing was played")


def confirm(session: Session, *, yes: bool) -> None:
    """Show the plan and ask, when a model that costs money is about to be asked.

    Raises:
        RequestError: There is nobody to ask, and no --yes.
    """
    if not session.paid_models() or (estimate := session.estimate()).n_episodes == 0:
        return
    talk(heading(session))
    for line in _lines(session, estimate):
        talk(line)
    if yes:
        return
    if not (sys.stdin.isatty() and is_terminal()):
        raise RequestError(
            f"this asks a model that may cost money: {', '.join(estimate.models)}",
            hint="--yes plays it, --dry-run shows the plan alone",
        )
    if not click.confirm("Play?", err=True):
        talk("nothing was played")
        raise click.exceptions.Exit(1)


def heading(session: Session) -> str:
    """What is played, in a line."""
    plan = session.plan
    where = f" through the gateway ({session.venue.name})" if session.function_name and session.venue else ""
    shard = f"; shard {plan.shard}" if plan.shard.of > 1 else ""
    tasks, variants = ", ".join(plan.tasks), ", ".join(plan.variants)
    decodings = f"; {' and '.join(map(str, plan.decodings))}" if plan.decodings else ""
    return (
        f"{plural(plan.n_episodes, 'episode')} of {plan.env_id} for {plan.purpose.value}{where}: {tasks}; "
        f"{variants}; seeds {plan.seeds}{shard}{decodings}"
    )


def _lines(session: Session, estimate: Estimate) -> Iterator[str]:
    if n_done := session.plan.n_episodes - estimate.n_episodes:
        yield f"done      {count(n_done)} before; {plural(estimate.n_episodes, 'episode')} to play"
    if not estimate.models:
        yield "models    none that costs money"
        return
    yield f"models    {', '.join(estimate.models)}"
    if estimate.n_calls is None or estimate.n_input_tokens is None or estimate.n_output_tokens is None:
        yield "calls     nothing bounds them; --max-steps or --max-calls does"
    else:
        retries = "" if session.plan.retries == 0 else ", and those that are sent again"
        yield f"calls     at most {count(estimate.n_calls)}{retries}"
        bound = "at most" if estimate.is_output_bound else "about"
        yield (
            f"tokens    about {count(estimate.n_input_tokens)} in (an estimate from the first observations), "
            f"{bound} {count(estimate.n_output_tokens)} out"
        )
    if estimate.cost_usd is None:
        yield "price     unknown; --input-price and --output-price say what tokens cost"
    else:
        yield f"price     at most about {estimate.cost_usd:,.2f} USD"
