"""Write a training file, or another tool's file, from a store or pairs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from trajkit._core.address import place_of
from trajkit._core.output.console import Meter, count, plural, talk
from trajkit._core.process.memory import keeping_freed_memory
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import Count, NewPath, Option, StoreLike
from trajkit.commands.place import store_path
from trajkit.commands.sharding import shards_for
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.curation.rows.conversion import Conversion
    from trajkit.engines.engine import Engine


@flattened()
def convert(
    store: StoreLike | None = None,
    *,
    to: Annotated[str, Option(metavar="FORMAT")],
    output: NewPath,
    unit: Literal["step", "episode"] | None = None,
    as_: Literal["jsonl", "parquet"] | None = None,
    thoughts: Literal["keep", "strip", "think-text"] | None = None,
    max_length: Count | None = None,
    overlong: Literal["error", "drop", "trim-history"] | None = None,
    tokenizer: Annotated[str | None, Option(metavar="NAME")] = None,
    good: Annotated[str | None, Option(metavar="SQL")] = None,
    tools: Annotated[str | None, Option(metavar="FILE|from-calls")] = None,
    model: Annotated[str | None, Option(metavar="NAME")] = None,
    where: Annotated[str | None, Option(metavar="SQL")] = None,
    include_eval: bool = False,
    strict: bool = False,
    skip_bad: bool = False,
    **engine: Unpack[EngineOptions],
) -> Conversion:
    """Write a training file, or another tool's file, from a store or pairs.

    A row teaches one step, with the prompt that the model saw and its answer, or (--unit episode) a
    conversation with all its answers. Steps that are not learned, and content that the format cannot carry,
    are counted on stderr.

        openai-sft             OpenAI's fine-tuning, and services that use its format
        together               Together's fine-tuning
        fireworks              Fireworks' fine-tuning: a weight for the row, which may be any number
        vertex                 tuning Gemini on Google's Vertex AI
        trl-messages           TRL's SFTTrainer with assistant_only_loss=True
        trl-prompt-completion  TRL's SFTTrainer: the completion is learned
        sharegpt               LLaMA-Factory: a folder with rows, dataset_info.json, train.yaml, train.sh
        axolotl                axolotl: a folder with rows, train.yaml, train.sh
        text                   prompt and completion as texts, for base models
        openai-dpo             preferences, from pairs, for OpenAI, Together and Fireworks
        trl-preference         preferences, from pairs, for TRL's DPOTrainer and RewardTrainer
        trl-kto                good and bad answers, from a store or pairs, for TRL's KTOTrainer
        trl-grpo               starts of episodes, for TRL's GRPOTrainer to play: see docs/experience.md
        transitions            a table of steps: prompt, action, reward, done
        tinker verl prime-rl   sampled tokens with log-probabilities and advantages: see docs/experience.md
        atif adp sts           whole episodes, for other tools: see docs/formats.md
        openai-chat hf-messages

    Rows are JSON lines, or Parquet if the file name ends in .parquet. Beside them, NAME.provenance.parquet
    lists the step that each row teaches, with its weight, and why any other step is in no row.

    Args:
        store: A store, or a folder of pairs. Default: the last store written here.
        to: The format: a name from the list, or module:NAME.
        output: The file or folder to write.
        unit: A row is a step, or a conversation as long as it only grows. Default: step; a conversation if
            the format learns every answer of a row.
        as_: How rows are stored. Default: by the file extension, else jsonl.
        thoughts: Keep thoughts if the format has a field for them, leave them out, or write <think> text.
            Default: keep.
        max_length: Maximum tokens per row.
        overlong: Fail on longer rows, drop them, or trim-history: remove the oldest turns. Default: error.
        tokenizer: The tokenizer that counts: a folder or Hub id, tiktoken:o200k_base, or estimate.
        good: For trl-kto: the episodes whose answers are good. Default: by their outcome.
        tools: Declare tools that rows call and do not declare: from a JSON file, or as their calls use them.
        model: For sharegpt and axolotl: the model in train.yaml.
        where: Only the episodes for which this is true, as in `select`.
        include_eval: Include evaluation episodes; evaluating on them is then void.
        strict: Fail if the format cannot carry everything in a step.
        skip_bad: Leave out rows that would be refused, instead of failing.

    Raises:
        RequestError: There is no such format, or an option does not apply to it.
        DataError: A row would be refused.
        NothingMatched: There is nothing to learn.

    Example:
        trajkit convert --to openai-sft -o train.jsonl
    """
    if str(output) == "-":
        raise RequestError("-o must be a file: it is written only when every row has been checked")
    given = {
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
    options = {name: value for name, value in given.items() if value not in (None, False)}
    with keeping_freed_memory():
        made = _made(store, place_of(output), to, where, options, engine_of(engine))
    for note in _notes(made):
        talk(note)
    return made


def _made(
    store: StoreLike | None,
    goal: Path,
    to: str,
    where: str | None,
    options: dict[str, Any],
    engine: Engine | None,
) -> Conversion:
    from trajkit.curation.pair_file import MANIFEST_NAME, open_pairs
    from trajkit.curation.rows.file import convert as convert_dataset
    from trajkit.curation.rows.writers.pairs import convert_pairs
    from trajkit.store.dataset import Dataset, open_dataset

    dataset = store if isinstance(store, Dataset) else None
    if dataset is None:
        path = store_path(store)
        if (place_of(path) / MANIFEST_NAME).is_file():
            if where:
                raise RequestError("--where selects episodes; pairs are always all written")
            if engine is not None:
                raise RequestError("pairs are not converted in shards: leave --on out")
            pairs = open_pairs(path)
            digest = pairs.manifest.digest
            return convert_pairs(pairs, goal, to=to, source=pairs.path, digest=digest, **options)
        dataset = open_dataset(path)
    dataset = dataset.where(where) if where else dataset
    if engine is not None:
        with shards_for(engine, "convert", goal, reads=dataset.store.manifest.digest) as shards:
            return convert_dataset(dataset, goal, to=to, division=shards, **options)
    with Meter() as meter:
        return convert_dataset(
            dataset,
            goal,
            to=to,
            progress=lambda n_done, n_all: meter.show("writing", n_done, n_all),
            **options,
        )


def _notes(made: Conversion) -> Iterator[str]:
    from trajkit.curation.rows.tally import counted

    for reason, n_steps in made.left.items():
        yield f"not learned: {plural(n_steps, 'step')}: {reason}"
    if made.losses:
        yield f"left out: {counted(made.losses)} ({made.format} cannot carry them)"
    if made.n_stripped:
        yield f"stripped as asked: {plural(made.n_stripped, 'thought')}"
    if made.n_trimmed:
        yield f"trimmed: {plural(made.n_trimmed, 'row')} by {plural(made.n_turns_trimmed, 'turn')} of history"
    if made.saving and made.saving.n < made.saving.n_by_step:
        times = made.saving.n_by_step / made.saving.n
        yield (
            f"merged: {count(made.saving.n)} {made.saving.measure} of messages, where a row for each "
            f"step would take {count(made.saving.n_by_step)} ({times:.1f} times as many)"
        )
    for warning in made.warnings:
        yield f"warning: {warning}"
