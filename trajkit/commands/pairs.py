"""Write preference pairs: a better and a worse continuation of one state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from trajkit._core.output.console import count, line, plural, talk
from trajkit._core.output.result import Result
from trajkit._core.settings import remember
from trajkit.commands.options.types import Columns, Option, Output, StoreLike, many
from trajkit.commands.place import goal_of, store_path
from trajkit.store.tally import tally_text

if TYPE_CHECKING:
    from pathlib import Path

    from trajkit.curation.pair_file import PairsManifest
    from trajkit.curation.preferences.pairs import PairsReport
    from trajkit.schema import LineageEntry


@dataclass(frozen=True)
class Pairs(Result):
    """Preference pairs that were written; after a dry run only how many there would be."""

    entry: LineageEntry
    """What was done: episodes and steps in, out, and left out by reason."""
    report: PairsReport
    """How many pairs there are, how many were verified, and notes for the reader."""
    path: Path | None = None
    """The folder of the pairs; None after a dry run."""
    manifest: PairsManifest | None = None
    """The manifest of the pairs; None after a dry run."""

    def to_json(self) -> dict[str, Any]:
        """The folder, its digest, the entry of its lineage and the report."""
        return {
            "pairs": None if self.path is None else str(self.path),
            "digest": None if self.manifest is None else self.manifest.digest,
            **self.entry.model_dump(mode="json"),
            "report": self.report.model_dump(mode="json"),
        }

    def __str__(self) -> str:
        last = plural(self.report.n_pairs, "pair")
        if self.path is not None and self.manifest is not None:
            last = line(f"{self.path}  {last}  digest {self.manifest.digest[:12]}")
        return f"{tally_text(self.entry)}\n{last}"


def pairs(
    store: StoreLike | None = None,
    *,
    match: Literal["state", "prompt", "demonstration"] = "state",
    level: Literal["step", "episode"] = "step",
    margin: Annotated[float | None, Option(metavar="NUMBER")] = None,
    per_state: int = 1,
    same_prompt: bool = False,
    score: Annotated[str | None, Option(metavar="METRIC")] = None,
    by: Columns = (),
    include_eval: bool = False,
    no_verify: bool = False,
    env: Annotated[str | None, Option(metavar="ENV")] = None,
    output: Output = None,
    dry_run: bool = False,
) -> Pairs:
    """Write preference pairs: a better and a worse continuation of one state.

    What the two sides share is one of

        state          environment, task, seed and initial state, and the observations and actions so far
        prompt         the prompt and the tools, after any history
        demonstration  the prompt: a step's answer, and the better one that a person gave for it

    The pairs are a folder: pairs.parquet, and pairs.json with their kind and their origin. Both sides have
    the same group key: no split separates them, unless the store is already one side of a split. By state,
    both episodes are replayed if the environment is one of trajkit's, or is named with --env.

    Args:
        store: The store. Default: the last store written here.
        match: What the two sides have in common.
        level: A side is one answer, or all turns from there to the end.
        margin: Smallest difference of score between the two sides; required except for demonstrations.
        per_state: Maximum pairs per state.
        same_prompt: By state: only pairs whose two sides have the same prompt.
        score: The metric to compare by. Default: episode_return, else total_reward.
        by: Columns that keep episodes together in a split. Default: environment, task and seed.
        include_eval: Also pair evaluation episodes; not for training.
        no_verify: Do not replay the episodes.
        env: The environment to replay in, such as my_pkg.env:MyEnv. Default: that of the store.
        output: The folder to write.
        dry_run: Print the tally and write nothing.

    Raises:
        RequestError: An option is missing or does not go with the others.
        NothingMatched: There is no pair.
        StoreError: The store cannot be read, or `output` exists.

    Example:
        trajkit pairs stores/goto --margin 0.1
    """
    from trajkit.curation.preferences.pairs import pairs as pair_episodes

    goal = None if dry_run else goal_of("pairs", output)
    made = pair_episodes(
        store_path(store),
        goal,
        match=match,
        level=level,
        margin=margin,
        per_state=per_state,
        same_prompt=same_prompt,
        score=score,
        by=many(by),
        include_eval=include_eval,
        verify=not no_verify,
        env=env,
    )
    for note in _notes(made.report, is_checked=match == "state" and not no_verify):
        talk(note)
    if goal is None:
        talk("dry run: nothing was written")
    else:
        remember("last_pairs", {"path": str(goal.absolute())})
    return Pairs(made.entry, made.report, goal, made.manifest)


def _notes(report: PairsReport, *, is_checked: bool) -> Iterator[str]:
    if is_checked:
        yield f"verified by replay: {count(report.n_verified)} of {plural(report.n_pairs, 'pair')}"
    for reason, n_episodes in report.unverified.items():
        yield f"not replayed: {plural(n_episodes, 'episode')}: {reason}"
    if report.n_other_prompt:
        yield (
            f"note: in {plural(report.n_other_prompt, 'pair')} the worse side had another prompt than the "
            "better one, and a trainer would show one prompt for both; --same-prompt leaves them out"
        )
    for note in report.notes:
        yield f"note: {note}"
