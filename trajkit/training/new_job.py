"""Create a job: open its data, write its rows into its folder, and its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.files import building_folder
from trajkit._core.samples import SAMPLE_PREFIX
from trajkit.curation.leaks.leak import leak
from trajkit.curation.leaks.report import LeakReport
from trajkit.curation.pair_file import MANIFEST_NAME, Pairs, open_pairs
from trajkit.curation.preferences.leak import leak_of_pairs
from trajkit.curation.rows.conversion import Conversion
from trajkit.curation.rows.file import convert
from trajkit.curation.rows.writers.pairs import convert_pairs
from trajkit.errors import RequestError
from trajkit.formats.base import Format
from trajkit.schema.base import JsonObject
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.store.layout import MANIFEST_NAME as STORE_FILE
from trajkit.training.job import JobData, TuneJob
from trajkit.training.origin import Origin, code_commit, origin_of, versions_of
from trajkit.training.runs import JOB_FILE, Runs

Side = Dataset | Pairs


def open_side(path: Path, method: str, *, good: str | None = None) -> Side:
    """Open a store; for `dpo` pairs; for `kto` either.

    Raises:
        RequestError: It is a store, and the method learns from pairs; or `good` is given for pairs.
        StoreError: It is neither, or cannot be read.
    """
    if method == "sft":
        return open_dataset(path)
    if (path / MANIFEST_NAME).is_file():
        if good is not None:
            raise RequestError("pairs already have a better side", hint="leave --good out")
        return open_pairs(path)
    if method == "kto":
        return open_dataset(path)
    if not str(path).startswith(SAMPLE_PREFIX) and not (path / STORE_FILE).is_file():
        return open_pairs(path)  # its error says what is missing
    raise RequestError(
        f"{path} is a store, and {method} learns from pairs",
        hint=f"trajkit pairs {path} --margin 0.1 -o PAIRS, then --train PAIRS",
    )


def place_of(side: Side) -> Path:
    """Return the path of the data."""
    return side.path if isinstance(side, Pairs) else side.store.path


def digest_of(side: Side) -> str:
    """Return the digest of the data's content."""
    return side.manifest.digest if isinstance(side, Pairs) else side.store.manifest.digest


def written_rows(
    side: Side,
    lines: Path,
    form: Format,
    on_progress: Callable[[str, int, int | None], None],
    **options: Any,
) -> Conversion:
    """Write the rows of a side as JSON lines.

    Args:
        side: The data.
        lines: The new file.
        form: Format of the rows.
        on_progress: Called with the current phase.
        options: Options of `convert`, or of `convert_pairs` for pairs.

    Raises:
        NothingMatched: No step or pair gives a row.
    """
    on_progress("writing rows", 0, None)
    if isinstance(side, Pairs):
        digest = side.manifest.digest
        return convert_pairs(side, lines, to=form, source=side.path, digest=digest, **options)
    progress = lambda n_done, n_total: on_progress("writing rows", n_done, n_total)  # noqa: E731
    return convert(side, lines, to=form, progress=progress, **options)


def origin_of_side(side: Side) -> Origin:
    """Return the functions and variants of the learned steps."""
    if isinstance(side, Pairs):
        return Origin(tuple(side.manifest.functions), tuple(side.manifest.variants))
    return origin_of(side)


def leak_of(train: Side, validation: Side | None) -> LeakReport:
    """Check the data for leaks and reserved worlds.

    Raises:
        RequestError: One side is pairs and the other a store.
    """
    if isinstance(train, Pairs) and not isinstance(validation, Dataset):
        return leak_of_pairs(train, validation)
    if isinstance(train, Dataset) and not isinstance(validation, Pairs):
        return leak(train.store.path, None if validation is None else validation.store.path)
    assert validation is not None
    pairs, store = (train, validation) if isinstance(train, Pairs) else (validation, train)
    raise RequestError(
        f"{place_of(pairs)} is pairs, and {place_of(store)} is a store: they cannot be compared",
        hint="--train and --val are both pairs, or both stores",
    )


class Written(NamedTuple):
    """The rows of a job, in its folder."""

    train: JobData | None
    """Training data; None if the model plays during its training."""
    validation: JobData | None = None
    """Validation data."""
    remote: JsonObject = {}
    """Initial state at a service: the first `TuneJob.remote`."""


def prepared_job(
    runs: Runs,
    write: Callable[[Path], Written],
    *,
    name: str | None,
    data: Path,
    origin: Callable[[], Origin],
    leak: LeakReport | None,
    packages: Sequence[str],
    **facts: Any,
) -> tuple[TuneJob, bool]:
    """Return the prepared job of a key, and whether it is new.

    Args:
        runs: Folder of the jobs.
        write: Writes the rows into the job's folder. It is not called where the job exists already.
        name: Name of the job; None for one made of the model, the data, and the method if it is not `sft`.
        data: Training data, as the user names it.
        origin: Finds the functions and variants of the learned steps, for a new job.
        leak: Result of the leak check; None if there are no stores.
        packages: Packages whose versions affect the result.
        facts: Other fields of `TuneJob`, including its key.

    Raises:
        RequestError: There is another job with the name, or it cannot be one.
    """
    found = runs.find(facts["key"])
    if found is not None and name in (None, found.job_id):
        return found, False
    if name is None:
        parts = [path.rpartition("/")[2].removeprefix(SAMPLE_PREFIX) for path in (facts["base"], str(data))]
        name = runs.new_name("-".join(parts if facts["method"] == "sft" else [*parts, facts["method"]]))
    else:
        runs.check_name(name)
    learned = origin()
    with building_folder(runs.path(name)) as folder:
        job = TuneJob(
            **facts,
            **write(folder)._asdict(),
            job_id=name,
            leak=None if leak is None else leak.model_dump(mode="json"),
            function=learned.function,
            variants=learned.variants,
            versions=versions_of(packages),
            code_commit=code_commit(),
            created_at=datetime.now(UTC),
        )
        (folder / JOB_FILE).write_text(job.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return job, True
