"""The result of a rollout, or of a dry run; and its plan as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajkit._core.output import console
from trajkit._core.output.console import Cell, count, line, plural, table_text, talk
from trajkit._core.output.result import Result
from trajkit.errors import RequestError, RolloutError

if TYPE_CHECKING:
    from trajkit.rollouts.gateway.rows import Checked
    from trajkit.rollouts.records.summary import Mean, Row
    from trajkit.rollouts.running.costs import Estimate
    from trajkit.rollouts.session import Session
    from trajkit.store.dataset import Dataset

STOPPED_BY_A_LIMIT = 5
"""Exit code of a run that --max-calls, --max-cost-usd or --max-minutes ended."""
_NUMBERS = ("episodes", "success", "return", "length", "input tokens", "output tokens", "invalid", "errors")


@dataclass(frozen=True, repr=False)
class Rollout(Result):
    """The results of a rollout; after a dry run only its plan."""

    session: Session
    """What was to be played."""
    estimate: Estimate | None = None
    """What it may cost at most, after a dry run; else None."""
    rows: tuple[Row, ...] = ()
    """Means with standard errors, by variant and task; none after a dry run."""
    n_done: int = 0
    """Episodes that are done, those of earlier runs included."""
    errors: tuple[str, ...] = ()
    """Why episodes ended without a result, each message once."""
    reached: str | None = None
    """The limit that stopped it; None if all was played."""
    rows_checked: Checked | None = None
    """Rows that a gateway elsewhere lost or has too many; None if that was not, or cannot be, checked."""
    use: NamedTuple | None = None
    """How the vLLM was used; None if none played."""
    path: Path | None = None
    """The store; None if none was requested."""
    notes: tuple[str, ...] = ()
    """Further notes, such as requests that failed, the spending and the store."""

    @property
    def n_planned(self) -> int:
        """Episodes of the whole plan."""
        return self.session.plan.n_episodes

    @property
    def is_complete(self) -> bool:
        """Whether every episode is done, and every row of it in the gateway's database."""
        return self.n_done == self.n_planned and not self._n_spoiled

    @property
    def _n_spoiled(self) -> int:
        """Episodes with rows missing in the database."""
        return 0 if self.rows_checked is None else len(self.rows_checked.missing)

    @property
    def dataset(self) -> Dataset:
        """The episodes of the store.

        Raises:
            RequestError: None was written.
        """
        from trajkit.store.dataset import open_dataset

        if self.path is None:
            raise RequestError("no store was written", hint="output='stores/mine' writes one")
        return open_dataset(self.path)

    @property
    def exit_code(self) -> int:
        """5 if a limit stopped it, 1 if episodes ended in an error."""
        return int(bool(self.errors)) if self.reached is None else STOPPED_BY_A_LIMIT

    @property
    def failure(self) -> RolloutError | None:
        """The error of a run whose rows were lost; None if none were."""
        if not self._n_spoiled or self.reached is not None:
            return None
        return RolloutError(
            f"{plural(self._n_spoiled, 'episode')} of {count(self.n_done)} lost rows",
            hint="the gateway must run with observability.async_writes = false",
        )

    def to_json(self) -> dict[str, Any]:
        """The plan after a dry run; else the number of episodes, the means, and the outcome of the others.

        On the command line `--json` prints a line per episode when it ends instead.
        """
        plan = self.session.plan
        if self.estimate is not None:
            return {
                "n_episodes": self.n_planned,
                "n_done": self.n_done,
                "tasks": plan.tasks,
                "variants": plan.variants,
                "seeds": str(plan.seeds),
                "shard": str(plan.shard),
                "metrics": self.session.metrics,
                **self.estimate._asdict(),
            }
        rows = [
            {
                key: value._asdict() if hasattr(value, "_asdict") else value
                for key, value in row._asdict().items()
            }
            for row in self.rows
        ]
        return {
            "run": plan.run,
            "n_planned": self.n_planned,
            "n_done": self.n_done,
            "rows": rows,
            "errors": self.errors,
            "reached": self.reached,
            "store": None if self.path is None else str(self.path),
            **self.served,
            "notes": self.notes,
        }

    @property
    def served(self) -> dict[str, Any]:
        """How the vLLM was used, as a part of a document; empty if none played."""
        return {} if self.use is None else {"vllm": self.use._asdict()}

    def print_text(self) -> None:
        """Print the table or the plan, then the notes."""
        console.result_text(str(self))
        self.tell()

    def print_json(self) -> None:
        """Print the plan of a dry run; episodes were printed when they ended. Then print the notes.

        If a vLLM played, the last line shows how it was used.
        """
        if self.estimate is not None:
            console.result_json(self.to_json())
        elif self.served:
            console.result_json_line(self.served)
        self.tell()

    def tell(self) -> None:
        """Print the notes."""
        for note in self.notes:
            talk(note)

    def __str__(self) -> str:
        if self.estimate is not None:
            return "\n".join(map(line, plan_lines(self.session, self.estimate)))
        headings, cells = self._table()
        return table_text([Cell(name, is_number=at > 1) for at, name in enumerate(headings)], cells)

    def __repr__(self) -> str:
        done = (
            "dry run"
            if self.estimate is not None
            else f"{self.n_done:,} of {plural(self.n_planned, 'episode')}"
        )
        return f"<rollout of {self.session.plan.env_id}: {done}{f', {self.path}' if self.path else ''}>"

    def _repr_html_(self) -> str:
        from trajkit._core.output import notebook as html

        if self.estimate is not None:
            return html.framed((html.title("rollout", "dry run"), html.block(str(self))))
        headings, cells = self._table()
        title = html.title("rollout", f"{self.n_done:,} of {plural(self.n_planned, 'episode')} done")
        return html.framed((title, html.table(headings, cells, n_text=2), *map(html.line, self.notes)))

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Headings and rows: means ± standard errors of the episodes that were played to their end."""
        kinds = list(dict.fromkeys(kind for row in self.rows for kind in row.errors))
        return ["variant", "task", *_NUMBERS, *kinds], [_cells(row, kinds) for row in self.rows]


def _cells(row: Row, kinds: list[str]) -> list[str]:
    return [
        row.variant,
        row.task,
        count(row.n_episodes),
        _mean(row.success, 3),
        _mean(row.total_reward, 3),
        _mean(row.length, 1),
        _mean(row.n_input_tokens, 0),
        _mean(row.n_output_tokens, 0),
        count(row.n_invalid),
        count(row.n_errors),
        *(count(row.errors.get(kind, 0)) for kind in kinds),
    ]


def _mean(mean: Mean | None, digits: int) -> str:
    if mean is None:
        return "-"
    error = "" if mean.standard_error is None else f" ± {mean.standard_error:,.{digits}f}"
    return f"{mean.mean:,.{digits}f}{error}"


def planned(session: Session) -> Rollout:
    """The plan of a rollout, as its result after a dry run."""
    estimate = session.estimate()
    n_done = session.plan.n_episodes - estimate.n_episodes
    return Rollout(session, estimate, n_done=n_done, notes=("dry run: nothing was played",))


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


def plan_lines(session: Session, estimate: Estimate) -> Iterator[str]:
    """What is played, which models are called, and what it may cost."""
    yield heading(session)
    if n_done := session.plan.n_episodes - estimate.n_episodes:
        yield f"done      {count(n_done)} before; {plural(estimate.n_episodes, 'episode')} to play"
    if not estimate.models:
        yield "models    none that costs money"
        return
    yield f"models    {', '.join(estimate.models)}"
    if estimate.n_calls is None or estimate.n_input_tokens is None or estimate.n_output_tokens is None:
        yield "calls     unlimited; --max-steps or --max-calls limits them"
    else:
        retries = "" if session.plan.retries == 0 else ", and retries"
        yield f"calls     at most {count(estimate.n_calls)}{retries}"
        bound = "at most" if estimate.is_output_bound else "about"
        yield (
            f"tokens    about {count(estimate.n_input_tokens)} in (an estimate from the first observations), "
            f"{bound} {count(estimate.n_output_tokens)} out"
        )
    if estimate.cost_usd is None:
        yield "price     unknown; --input-price and --output-price set what tokens cost"
    else:
        yield f"price     at most about {estimate.cost_usd:,.2f} USD"
