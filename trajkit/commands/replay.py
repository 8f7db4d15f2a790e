"""Play a store's episodes again from their seeds and compare every value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from trajkit._core.output.console import Cell, Meter, count, line, plural, table_text
from trajkit._core.output.result import Result
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import Count, Option, Output, Settings, StoreLike
from trajkit.commands.place import goal_of, store_path, texts
from trajkit.commands.result import Made
from trajkit.commands.sharding import refuse_secrets
from trajkit.errors import DataError

if TYPE_CHECKING:
    from trajkit.curation.replays.replay import Replay


@dataclass(frozen=True)
class Replayed(Result):
    """The verdicts of a replay, and the store that it made."""

    replay: Replay
    """What was verified, what differs, and what could not be played."""
    made: Made | None
    """The store that was written, or would have been; None if none was requested."""
    only_verified: bool = False
    """Whether the store leaves out what differs."""

    @property
    def failure(self) -> DataError | None:
        """The first difference; None if there is none, or if the store leaves it out."""
        found = self.replay
        if not found.n_different or self.only_verified:
            return None
        verb = "is" if found.n_different == 1 else "are"
        return DataError(
            f"{plural(found.n_different, 'episode')} of {found.store} {verb} not what the environment gives: "
            f"{found.differences[0]}",
            hint="--only-verified -o STORE leaves them out; `trajkit check-env` checks the environment",
        )

    def to_json(self) -> dict[str, Any]:
        """The verdicts; if a store was requested, below its own fields."""
        value = {**self.replay.model_dump(mode="json"), "share_verified": self.replay.share_verified}
        return value if self.made is None else {**self.made.to_json(), "replay": value}

    def __str__(self) -> str:
        found = self.replay
        rows = [("verified", found.n_verified), ("different", found.n_different)]
        rows += [(f"not replayed: {reason}", n) for reason, n in found.unchecked.items()]
        table = table_text(
            [Cell(""), Cell("episodes", is_number=True), Cell("share", is_number=True)],
            [(name, count(n), f"{n / found.n_episodes:.1%}") for name, n in rows],
        )
        steps = f"{count(found.n_steps_verified)} of {plural(found.n_steps_replayed, 'step')}"
        lines = [f"{steps} verified, {plural(found.n_values, 'value')} compared"]
        if found.n_steps_filled:
            lines.append(f"{plural(found.n_steps_filled, 'step')} filled")
        lines += map(str, found.differences)
        if more := found.n_differences - len(found.differences):
            lines.append(f"… and {plural(more, 'difference')} more")
        last = () if self.made is None else ("", str(self.made))
        return "\n".join((table, *map(line, lines), *last))


@flattened()
def replay(
    store: StoreLike | None = None,
    *,
    fill: bool = False,
    only_verified: bool = False,
    env: Annotated[str | None, Option(metavar="ENVIRONMENT")] = None,
    env_set: Settings | None = None,
    max_steps: Count | None = None,
    output: Output = None,
    dry_run: bool = False,
    **engine: Unpack[EngineOptions],
) -> Replayed:
    """Play a store's episodes again from their seeds and compare every value.

    The replay compares, byte by byte, the hash of the initial state, and of each step the observation, the
    executed action, its validity, the reward and the ends. Values that are not stored are not compared. The
    environment is the one of trajkit's that the episode names, or --env: code that only the store names is
    not run. Settings and step limit are those of the rollout in the lineage, else --env-set and --max-steps.
    The exit code is 1 on a difference; in Python it is not raised.

    Args:
        store: The store. Default: the last store written here.
        fill: Add rewards, ends and executed actions that the store lacks.
        only_verified: Leave out the episodes that are not verified.
        env: The environment, such as my_pkg.env:MyEnv. Default: that of the rollout in the lineage.
        env_set: A setting of the environment. May be repeated.
        max_steps: The step limit of the rollout.
        output: Write a store that records what was verified. Default: none; with --fill or --only-verified a
            new name in the folder of stores.
        dry_run: With --fill or --only-verified: write nothing.

    Raises:
        RequestError: The environment is unknown.
        NothingMatched: No episode could be played.
        StoreError: The store cannot be read, or `output` exists.

    Example:
        trajkit replay stores/train
        trajkit replay --fill stores/exported -o stores/filled
    """
    from trajkit.curation.replays.replay import replay as replay_store

    goal = None
    if not dry_run and (output is not None or fill or only_verified):
        goal = goal_of("replay", output)
    settings = texts(env_set)
    if engine["on"] is not None or engine["workers"] is not None:
        refuse_secrets(("--env-set", name, value) for name, value in settings.items())
    with Meter() as meter:
        done = replay_store(
            store_path(store),
            goal,
            fill=fill,
            only_verified=only_verified,
            env=env,
            settings=settings or None,
            max_steps=max_steps,
            engine=engine_of(engine, meter.show),
            dry_run=dry_run,
            on_progress=meter.show,
        )
    made = None if done.entry is None else Made(done.entry, goal, done.manifest, done.replay).kept()
    return Replayed(done.replay, made, only_verified)
