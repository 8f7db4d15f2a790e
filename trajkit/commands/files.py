"""Files of other tools: bring them in, write them, check and count them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from trajkit.commands.place import Place, StoreLike, goal_of, remember_store, store_path
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.curation.rows.conversion import Conversion
    from trajkit.formats.validation.file import Validation
    from trajkit.formats.validation.tokens import TokenCount
    from trajkit.schema import LineageEntry
    from trajkit.sources.files.importing import Imported as ImportReport
    from trajkit.store.dataset import Dataset


class Imported(NamedTuple):
    """What came in."""

    report: ImportReport
    """What was read, and what could not be."""
    entry: LineageEntry
    """What was done."""
    path: Path
    """The store."""

    @property
    def dataset(self) -> Dataset:
        """Its episodes."""
        from trajkit.store.dataset import open_dataset

        return open_dataset(self.path)


def import_(
    path: Place,
    *,
    from_: str | None = None,
    skip_bad: bool = False,
    include_errored: bool = False,
    success: str | None = None,
    metric: Mapping[str, str] | None = None,
    task: str | None = None,
    purpose: Literal["train", "eval", "unknown"] | None = None,
    output: Place | None = None,
) -> Imported:
    """Bring in files that other tools wrote.

    Args:
        path: A file or a folder.
        from_: What it holds, such as `atif`; None for what it looks like.
        skip_bad: Leave out what cannot be read, and count it.
        include_errored: Take trials that ended in an error, too; they are set aside.
        success: When an episode is a success, as in `reward >= 0.5`; None for what the format says.
        metric: Metrics of the episodes: names to places in the documents, such as `columns.reward`.
        task: Where a document says its task, such as `columns.task`; None for what the format says.
        purpose: What the episodes were played for; None for what the files say.
        output: The store to write; None for one in the folder of stores.

    Raises:
        DataError: A document makes no sense, or nobody knows what the files are.
        StoreError: `output` exists.
    """
    from trajkit.schema import Purpose
    from trajkit.schema.success import parse_success
    from trajkit.sources.files.importing import Wish, import_files

    goal = goal_of("import", output)
    wish = Wish(
        format=from_,
        skip_bad=skip_bad,
        include_errored=include_errored,
        success=success,
        metrics=dict(metric or {}),
        task=task,
        purpose=None if purpose is None else Purpose(purpose),
    )
    rule = None if success is None else parse_success(success)
    report, entry = import_files(Path(path), goal, wish, success=rule)
    remember_store(goal)
    return Imported(report, entry, goal)


def convert(
    store: StoreLike | None = None,
    *,
    to: str,
    output: Place,
    unit: Literal["step", "episode"] | None = None,
    as_: Literal["jsonl", "parquet"] | None = None,
    thoughts: Literal["keep", "strip", "think-text"] | None = None,
    max_length: int | None = None,
    overlong: Literal["error", "drop", "trim-history"] | None = None,
    tokenizer: str | None = None,
    good: str | None = None,
    tools: str | None = None,
    model: str | None = None,
    where: str | None = None,
    include_eval: bool = False,
    strict: bool = False,
    skip_bad: bool = False,
) -> Conversion:
    """Write a training file, or another tool's, from a store or from pairs.

    Args:
        store: A store or a folder of pairs; None for the last store that was written here.
        to: The format, such as `openai-sft`.
        output: The file or folder to write.
        unit: What a row is; None for a step, or what carries all answers where the format learns every one.
        as_: How rows are stored; None for what `output` ends with.
        thoughts: What becomes of them; None keeps them where the format has a place.
        max_length: Most tokens of a row.
        overlong: What becomes of longer rows; None is an error.
        tokenizer: What counts tokens.
        good: trl-kto: the episodes whose answers are good.
        tools: Declare tools that rows call and do not declare: a JSON file, or `from-calls`.
        model: sharegpt, axolotl: the model in train.yaml.
        where: Only the episodes for which this is true.
        include_eval: Train on evaluation episodes too; what they measure is then void.
        strict: Fail when the format cannot carry all that a step says.
        skip_bad: Leave out rows that would be refused, instead of failing.

    Raises:
        RequestError: There is no such format, or an option does not go with it.
        DataError: A row would be refused.
        NothingMatched: There is nothing to learn.
    """
    from trajkit.curation.pair_file import MANIFEST_NAME, open_pairs
    from trajkit.curation.rows.file import convert as convert_dataset
    from trajkit.curation.rows.pairs import convert_pairs
    from trajkit.store.dataset import Dataset, open_dataset

    given: dict[str, Any] = {
        "unit": unit,
        "kind": as_,
        "thoughts": thoughts,
        "max_length": max_length,
        "overlong": overlong,
        "tokenizer": tokenizer,
        "good": good,
        "tools": tools,
        "model": model,
        "include_eval": include_eval,
        "strict": strict,
        "skip_bad": skip_bad,
    }
    asked = {name: value for name, value in given.items() if value not in (None, False)}
    if not isinstance(store, Dataset) and (Path(place := store_path(store)) / MANIFEST_NAME).is_file():
        if where:
            raise RequestError("--where chooses episodes; of pairs all are written")
        pairs = open_pairs(place)
        digest = pairs.manifest.digest
        return convert_pairs(pairs, Path(output), to=to, source=pairs.path, digest=digest, **asked)
    dataset = store if isinstance(store, Dataset) else open_dataset(store_path(store))
    return convert_dataset(dataset.where(where) if where else dataset, Path(output), to=to, **asked)


def validate(
    file: Place,
    *,
    target: Literal["openai", "azure", "nebius", "together", "fireworks", "trl"],
    suffix: str | None = None,
    tokenizer: str | None = None,
    max_length: int | None = None,
    fix: bool = False,
    output: Place | None = None,
) -> Validation:
    """Say what a service or a trainer would refuse in a training file; it is told, not raised.

    Args:
        file: JSON lines or Parquet.
        target: Who the file is for.
        suffix: Check this suffix of the tuned model's name too.
        tokenizer: Count what is learned.
        max_length: The trainer's limit of tokens in a row.
        fix: Write a copy, repaired where that is safe, to `output`.
        output: The copy.

    Raises:
        RequestError: Options do not go together.
        DataError: The file cannot be read at all.
    """
    from trajkit.formats.validation.file import validate as validate_file

    if fix != (output is not None):
        raise RequestError("--fix and -o go together: the file itself is never changed")
    if max_length is not None and tokenizer is None:
        raise RequestError("--max-length is in tokens: say who counts them with --tokenizer")
    return validate_file(
        Path(file),
        target=target,
        suffix=suffix,
        tokenizer=tokenizer,
        max_length=max_length,
        repair_to=None if output is None else Path(output),
    )


def tokens(
    file: Place,
    *,
    model: str,
    target: Literal["openai", "azure", "nebius", "together", "fireworks", "trl"] | None = None,
    epochs: int = 3,
    tokenizer: str | None = None,
    max_length: int | None = None,
    prices: Place | None = None,
    measure: bool = False,
) -> TokenCount:
    """Count the tokens of a training file, and say what tuning a model on it costs.

    Args:
        file: JSON lines or Parquet.
        model: What is tuned.
        target: Whose rows they are; None for what the model says.
        epochs: Passes over the file.
        tokenizer: What counts.
        max_length: Limit of tokens in a row.
        prices: A YAML file with prices and dates of your own.
        measure: Train a few steps of a model on this machine, to say how long it takes.

    Raises:
        RequestError: `measure` is asked of a model that is not here.
        DataError: The file cannot be read.
    """
    from datetime import UTC, datetime

    from trajkit.formats.validation.prices import load_prices
    from trajkit.formats.validation.speed import trained_tokens_per_second
    from trajkit.formats.validation.tokens import count_tokens

    known = load_prices(None if prices is None else Path(prices))
    if measure and not Path(model).is_dir():
        raise RequestError("--measure is for a model in a folder on this machine")
    return count_tokens(
        Path(file),
        target=target or ("openai" if known.find(model) else "trl"),
        model=model,
        prices=known,
        n_epochs=epochs,
        tokenizer=tokenizer,
        max_length=max_length,
        measure=trained_tokens_per_second if measure else None,
        today=datetime.now(UTC).date(),
    )
