"""Prove that data is sound: leaks, reserved seeds, replays, secrets, and what environments promise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, overload

from trajkit.commands.place import Many, Place, Settings, StoreLike, goal_of, many, store_path, texts
from trajkit.commands.result import Made
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit._core.settings import Reservation
    from trajkit.curation.judged import Replay
    from trajkit.curation.leak_report import LeakReport
    from trajkit.curation.redact_gate import Opinion
    from trajkit.curation.redact_report import RedactReport
    from trajkit.environments.contract import Check


@overload
def leak(
    train: StoreLike,
    evaluation: StoreLike | None = None,
    *,
    strict_text: bool = False,
    near: float = 0.9,
    drop: None = None,
    output: Place | None = None,
    dry_run: bool = False,
) -> LeakReport: ...


@overload
def leak(
    train: StoreLike,
    evaluation: StoreLike | None = None,
    *,
    strict_text: bool = False,
    near: float = 0.9,
    drop: Literal["train", "eval"],
    output: Place | None = None,
    dry_run: bool = False,
) -> Made: ...


def leak(
    train: StoreLike,
    evaluation: StoreLike | None = None,
    *,
    strict_text: bool = False,
    near: float = 0.9,
    drop: Literal["train", "eval"] | None = None,
    output: Place | None = None,
    dry_run: bool = False,
) -> LeakReport | Made:
    """Look for what two stores share that would spoil a measurement; it is told, not raised.

    Args:
        train: What is learned.
        evaluation: What measures; None looks for reserved worlds only.
        strict_text: Shared text is a leak even where both have seeds.
        near: Share of its runs of words from which on a prompt is near-identical to another.
        drop: Write this side without the episodes that leak.
        output: With `drop`: the store to write; None for one in the folder of stores.
        dry_run: With `drop`: write nothing.

    Returns:
        What they share; with `drop`, the store that shares nothing any more.

    Raises:
        RequestError: There is nothing to compare with.
        NothingMatched: `drop` leaves no episode.
    """
    from trajkit.curation.leak import leak as find_leaks

    mine, other = store_path(train), None if evaluation is None else store_path(evaluation)
    refuse_nothing(mine, other)
    if drop is not None or output is not None or dry_run:
        made = cleaned(mine, other, drop, output, dry_run=dry_run, strict_text=strict_text, near=near)
        return made.kept()
    return find_leaks(mine, other, strict_text=strict_text, near=near)


def cleaned(
    train: str,
    evaluation: str | None,
    side: Literal["train", "eval"] | None,
    output: Place | None,
    *,
    dry_run: bool,
    strict_text: bool,
    near: float,
) -> Made:
    """One of two stores without the episodes that leak.

    Raises:
        RequestError: It is not said which, or there is only one.
        NothingMatched: No episode is left.
    """
    from trajkit.curation.leak import drop_leaks

    if side is None:
        raise RequestError("-o and --dry-run are for --drop", hint="--drop train, or --drop eval")
    if evaluation is None:
        raise RequestError(
            "--drop compares two stores, and there is no EVAL",
            hint="`trajkit select --unreserved` leaves out what is reserved",
        )
    mine, other = (train, evaluation) if side == "train" else (evaluation, train)
    goal = None if dry_run else goal_of("leak", output)
    manifest, entry = drop_leaks(
        mine, goal, other=other, is_train=side == "train", strict_text=strict_text, near=near
    )
    return Made(entry, goal, manifest)


def refuse_nothing(train: str, evaluation: str | None) -> None:
    """Raise where there is nothing that a store could leak to.

    Raises:
        RequestError: No other store, and no reserved seeds.
    """
    from trajkit._core.settings import reserved

    if evaluation is None and not reserved():
        raise RequestError(
            f"nothing to compare {train} with: no EVAL, and no seeds are reserved",
            hint="trajkit leak TRAIN EVAL; `trajkit reserve babyai --seeds 200:220` reserves some",
        )


class Reserved(NamedTuple):
    """Worlds that are kept for evaluation, and the file that says so."""

    path: Path
    """The `trajkit.toml`."""
    reservation: Reservation
    """Which worlds."""


def reserve(
    env_id: str | None = None,
    *,
    seeds: str | None = None,
    task: Many = (),
    env_set: Settings | None = None,
    no_states: bool = False,
    dry_run: bool = False,
) -> list[Reserved]:
    """Keep the worlds of some seeds for evaluation, once for a whole project; without any, list them.

    Args:
        env_id: The environment; None lists what is reserved.
        seeds: Such as `200:220`.
        task: Tasks; none for all.
        env_set: Settings of the environment.
        no_states: Keep the seeds alone; the environment is not begun.
        dry_run: Write nothing.

    Returns:
        The reservation; of a list, all of them.

    Raises:
        RequestError: There is no such environment or task, or no seeds are named.
    """
    from trajkit._core.settings import project, project_files
    from trajkit.curation.reserve import reserve as keep

    if env_id is None:
        refuse_without_environment(seeds, many(task), env_set, no_states, dry_run)
        return [Reserved(path, each) for path in project_files() for each in project(path.parent).reserved]
    if seeds is None:
        raise RequestError(f"which seeds of {env_id}?", hint=f"trajkit reserve {env_id} --seeds 200:220")
    done = keep(
        env_id,
        seeds=seeds,
        tasks=many(task),
        settings=texts(env_set),
        with_states=not no_states,
        dry_run=dry_run,
    )
    return [Reserved(done.path, done.reservation)]


def refuse_without_environment(*given: object) -> None:
    """Raise when one of the options was given that are about an environment.

    Raises:
        RequestError: One was.
    """
    if any(given):
        raise RequestError("no ENVIRONMENT given", hint="trajkit reserve babyai --seeds 200:220")


class Replayed(NamedTuple):
    """What playing again came to."""

    replay: Replay
    """What was verified, what differs, and what could not be played."""
    made: Made | None
    """The store that was written, or would have been; None where none was asked for."""


def replay(
    store: StoreLike | None = None,
    *,
    fill: bool = False,
    only_verified: bool = False,
    env: str | None = None,
    env_set: Settings | None = None,
    max_steps: int | None = None,
    processes: int = 1,
    output: Place | None = None,
    dry_run: bool = False,
) -> Replayed:
    """Play a store's episodes again from their seeds and compare every value; a difference is told.

    Args:
        store: The store; None for the last one that was written here.
        fill: Add rewards, ends and executed actions that the store lacks.
        only_verified: Leave out the episodes that are not verified.
        env: The environment; None for that of the rollout in the lineage.
        env_set: Its settings; the same.
        max_steps: The rollout's own limit of steps; the same.
        processes: How many play side by side.
        output: Write a store that says what was verified; with `fill` or `only_verified` None is one in the
            folder of stores.
        dry_run: Write nothing.

    Raises:
        RequestError: The environment is not known.
        NothingMatched: No episode could be played.
    """
    from trajkit.curation.replay import replay as replay_store

    goal = goal_of("replay", output) if output is not None or fill or only_verified else None
    goal = None if dry_run else goal
    done = replay_store(
        store_path(store),
        goal,
        fill=fill,
        only_verified=only_verified,
        env=env,
        settings=texts(env_set) or None,
        max_steps=max_steps,
        processes=processes,
        dry_run=dry_run,
    )
    made = None if done.entry is None else Made(done.entry, goal, done.manifest, done.replay).kept()
    return Replayed(done.replay, made)


class Redacted(NamedTuple):
    """What redaction found, and left."""

    made: Made
    """The new store."""
    report: RedactReport
    """What was found, by kind and place, never a value."""
    gate: Opinion | None
    """What another scanner still finds; None where none was asked."""


def redact(
    store: StoreLike | None = None,
    *,
    pattern: Settings | None = None,
    pattern_file: Place | None = None,
    skip: Many = (),
    pii: bool = False,
    pii_model: str | None = None,
    gate: bool = True,
    output: Place | None = None,
    dry_run: bool = False,
) -> Redacted:
    """Take secrets and personal data out of a store: each becomes a placeholder such as `[EMAIL_1]`.

    Args:
        store: The store; None for the last one that was written here.
        pattern: More kinds by name, as regular expressions.
        pattern_file: Such patterns, `NAME=REGEX` on a line.
        skip: Kinds to leave as they are.
        pii: Look for names, places and accounts with presidio as well.
        pii_model: The spaCy model with which it reads; None for its own, `none` for no names.
        gate: Ask betterleaks or gitleaks about the new store, where one is on the PATH.
        output: The store to write; None for one in the folder of stores.
        dry_run: Write nothing.

    Raises:
        RequestError: A pattern is none, or there is no such kind.
    """
    from trajkit.curation.redact import redact as redact_store
    from trajkit.curation.redact_gate import second_opinion
    from trajkit.curation.redact_pii import MODEL

    named = texts(pattern) | patterns_of(None if pattern_file is None else Path(pattern_file))
    goal = None if dry_run else goal_of("redact", output)
    model = pii_model or (MODEL if pii else None)
    made = redact_store(store_path(store), goal, patterns=named, skip=many(skip), pii=model)
    opinion = second_opinion(goal) if gate and goal is not None else None
    return Redacted(Made(made.entry, goal, made.manifest, made.report).kept(), made.report, opinion)


def patterns_of(file: Path | None) -> dict[str, str]:
    """Patterns of a file, `NAME=REGEX` on a line; a line that begins with # is passed over.

    Raises:
        RequestError: A line is none.
    """
    if file is None:
        return {}
    patterns = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        name, equals, pattern = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or not name.strip():
            raise RequestError(f"{file} line {number} is not NAME=REGEX")
        patterns[name.strip()] = pattern.strip()
    return patterns


def check_env(
    env_id: str,
    *,
    env_set: Settings | None = None,
    task: Many = (),
    seeds: str = "0:5",
    steps: int = 1000,
    timeout: float = 60.0,
) -> list[Check]:
    """Check that an environment keeps what every environment promises.

    Args:
        env_id: Such as `babyai`, `my_pkg.env:MyEnv` or `gym:Maze-v0`.
        env_set: Its settings.
        task: Tasks; none for all.
        seeds: What is played.
        steps: An episode that has not ended after so many is one that never ends.
        timeout: Longest that one check may take, in seconds.

    Returns:
        Each check with its status; nothing is raised where one failed.

    Raises:
        RequestError: There is no such environment, task or setting.
    """
    from trajkit.environments.contract import check
    from trajkit.environments.quiet import kept_stdout, overheard
    from trajkit.rollouts.seeds import chosen_seeds

    chosen = list(chosen_seeds(seeds=seeds))
    with kept_stdout(), overheard():
        return list(
            check(
                env_id,
                texts(env_set),
                tasks=checked_tasks(many(task)),
                seeds=chosen,
                n_steps=steps,
                limit_s=timeout,
            )
        )


def checked_tasks(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """Each task once; none for all."""
    return () if "all" in tasks else tuple(dict.fromkeys(tasks))
