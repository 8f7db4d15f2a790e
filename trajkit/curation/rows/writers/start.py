"""Write the starts of episodes, each once, for a trainer that plays from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trajkit._core.files import sha256_file
from trajkit.curation.rows.conversion import Conversion, converted
from trajkit.curation.rows.place import Place
from trajkit.curation.rows.request import FileKind, Options
from trajkit.curation.rows.spool import Written, write_parquet
from trajkit.curation.rows.steps import Steps
from trajkit.curation.rows.tally import Step, Tally, nothing, refuse_what_is_wrong, sorted_counts
from trajkit.formats.base import Loss, LossKind, Problem, Start, StartFormat, json_line
from trajkit.store.dataset import Dataset

_ANEW = "the trainer plays anew"
_PROBLEMS = {
    "env_id": "no environment that can be played again",
    "task": "no task",
    "seed": "no seed, so its world cannot be begun again",
}
_LOSSES = {"initial_state_hash": LossKind.INITIAL_STATE, "total_reward": LossKind.EPISODE_REWARD}
_COLUMNS = ("env_id", "task", "seed", "episode_id", "n_steps", *_LOSSES)
_PER_BATCH = 10_000


def write_starts(
    dataset: Dataset, steps: Steps, form: StartFormat, asked: Options, place: Place, work: Path
) -> Conversion:
    """Write a row for each environment, task and seed, in the order of these.

    Args:
        dataset: Whose episodes.
        steps: The same, open.
        form: The format.
        asked: Whether something may be lost or left out.
        place: Where the file goes.
        work: The folder in which it grows.

    Raises:
        DataError: An episode has no environment, task or seed, or something is lost and `strict`.
        NothingMatched: There is no episode with all of them.
    """
    tally, rows = Tally(), work / "lines"
    n_rows = n_longest = 0
    with rows.open("wb") as file:
        for start in _starts(steps, tally):
            line = f"{json_line(form.row(start))}\n".encode()
            file.write(line)
            n_rows, n_longest = n_rows + 1, max(n_longest, len(line))
    refuse_what_is_wrong(tally, form, asked)
    if not n_rows:
        raise nothing(dataset.store.path, tally.left)
    written = Written(n_rows, rows.stat().st_size, sha256_file(rows), n_longest)
    if place.kind == FileKind.PARQUET:
        rows = work / "rows"
        written = write_parquet(work / "lines", written, rows, form.columns)
    place.settle(rows, None, {})
    return converted(form, dataset, steps, place, written, n_learned=0, **sorted_counts(tally))


def _starts(steps: Steps, tally: Tally) -> Iterator[Start]:
    """Each start once; the tally gets what is refused, and what a row does not say."""
    last: Start | None = None
    table = steps.read(
        f"SELECT {', '.join(_COLUMNS)} FROM episodes SEMI JOIN chosen USING (episode_id) "
        "ORDER BY env_id, task, seed, episode_id"
    )
    for batch in table.to_batches(_PER_BATCH):
        rows: list[dict[str, Any]] = batch.to_pylist()
        for row in rows:
            where = Step(row["episode_id"])
            if problems := tuple(Problem(why, name) for name, why in _PROBLEMS.items() if row[name] is None):
                tally.left[tally.refuse(where, problems)] += row["n_steps"]
                continue
            start = Start(row["env_id"], row["task"], row["seed"])
            tally.left[_ANEW] += row["n_steps"]
            tally.lose(where, (Loss(kind, name) for name, kind in _LOSSES.items() if row[name] is not None))
            if start == last:
                tally.lose(where, [Loss(LossKind.REPEATED_START, "seed")])
            else:
                yield start
            last = start
