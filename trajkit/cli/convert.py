"""`trajkit convert`: a training file, or another tool's, from a store or from pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit._core.memory import keeping_freed_memory
from trajkit.commands.place import last_store

if TYPE_CHECKING:
    from trajkit.curation.rows.conversion import Conversion

_EPILOG = """\
\b
openai-sft             OpenAI's fine-tuning, and services that took its format over
together               Together's fine-tuning
fireworks              Fireworks' fine-tuning: a weight for the row, whatever number it is
vertex                 tuning Gemini on Google's Vertex AI
trl-messages           TRL's SFTTrainer with assistant_only_loss=True
trl-prompt-completion  TRL's SFTTrainer: the completion is learned
sharegpt               LLaMA-Factory: a folder with rows, dataset_info.json, train.yaml, train.sh
axolotl                axolotl: a folder with rows, train.yaml, train.sh
text                   prompt and completion as texts, for base models
openai-dpo             preferences, from pairs, for OpenAI, Together and Fireworks
trl-preference         preferences, from pairs, for TRL's DPOTrainer and RewardTrainer
trl-kto                good and bad answers, from a store or pairs, for TRL's KTOTrainer
transitions            a table of steps: prompt, action, reward, done
atif adp sts           episodes whole, for other tools: see docs/formats.md
openai-chat hf-messages

Rows are JSON lines, or Parquet where -o ends so. Beside them, NAME.provenance.parquet says which step each
row learns, with its weight, and why any other is in none.
"""


@click.command(epilog=_EPILOG)
@click.argument("store", required=False)
@click.option("--to", required=True, metavar="FORMAT", help="What to write: a name below, or module:NAME.")
@click.option(
    "-o",
    "--output",
    "goal",
    type=click.Path(path_type=Path),
    required=True,
    help="The file or folder to write.",
)
@click.option(
    "--unit",
    type=click.Choice(["step", "episode"]),
    help="A row is a step, or a conversation as far as it only grows.  [default: step; what "
    "carries all answers where a format learns every one]",
)
@click.option("--as", "kind", type=click.Choice(["jsonl", "parquet"]), help="How rows are stored.")
@click.option(
    "--thoughts",
    type=click.Choice(["keep", "strip", "think-text"]),
    help="Keep them where the format has a place, leave them out, or write <think> text.  [default: keep]",
)
@click.option("--max-length", type=click.IntRange(min=1), metavar="N", help="Most tokens of a row.")
@click.option(
    "--overlong",
    type=click.Choice(["error", "drop", "trim-history"]),
    help="What becomes of longer rows: trim-history takes the oldest turns away.  [default: error]",
)
@click.option(
    "--tokenizer",
    metavar="NAME",
    help="What counts tokens: a folder or Hub id, tiktoken:o200k_base, or estimate.",
)
@click.option(
    "--good",
    metavar="SQL",
    help="trl-kto: the episodes whose answers are good.  [default: by their outcome]",
)
@click.option(
    "--tools",
    metavar="FILE|from-calls",
    help="Declare tools that rows call and do not declare: from a JSON file, or as their calls use them.",
)
@click.option("--model", metavar="NAME", help="sharegpt, axolotl: the model in train.yaml.")
@click.option(
    "--where", metavar="SQL", help="Only the episodes for which this is true, in the words of `select`."
)
@click.option(
    "--include-eval", is_flag=True, help="Train on evaluation episodes too; what they measure is then void."
)
@click.option("--strict", is_flag=True, help="Fail when the format cannot carry all that a step says.")
@click.option("--skip-bad", is_flag=True, help="Leave out rows that would be refused, instead of failing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def convert(store: str | None, to: str, goal: Path, where: str | None, as_json: bool, **options: Any) -> None:
    """Write a training file, or another tool's, from STORE: a store, or a folder of pairs.

    Without STORE it is the last store that was written here. A row teaches one step, with the prompt that the
    model saw and what it answered, or (--unit episode) a conversation with all its answers. What is not
    learned, and what the format cannot carry, is counted on stderr.
    """
    if str(goal) == "-":
        raise click.UsageError("-o is a file: it exists only when every row has been checked")
    asked = {name: value for name, value in options.items() if value not in (None, False)}
    with keeping_freed_memory():
        made = _made(store or last_store(console.talk), goal, to, where, asked)
    _talk(made)
    if as_json:
        console.result_json(made.model_dump(mode="json"))
    else:
        _print(made)


def _made(store: str, goal: Path, to: str, where: str | None, asked: dict[str, Any]) -> Conversion:
    from trajkit.curation.pair_file import MANIFEST_NAME, open_pairs
    from trajkit.curation.rows.file import convert as convert_dataset
    from trajkit.curation.rows.pairs import convert_pairs
    from trajkit.store.dataset import open_dataset

    if (Path(store) / MANIFEST_NAME).is_file():
        if where:
            raise click.UsageError("--where chooses episodes; of pairs all are written")
        pairs = open_pairs(store)
        return convert_pairs(pairs, goal, to=to, source=pairs.path, digest=pairs.manifest.digest, **asked)
    dataset = open_dataset(store)
    with console.Meter() as meter:
        return convert_dataset(
            dataset.where(where) if where else dataset,
            goal,
            to=to,
            progress=lambda n_done, n_all: meter.show("writing", n_done, n_all),
            **asked,
        )


def _print(made: Conversion) -> None:
    noun = "line" if made.data.suffix != ".parquet" else "row"
    tokens = ""
    if made.n_tokens is not None:
        tokens = f"  {'' if made.is_exact else 'about '}{console.plural(made.n_tokens, 'token')}"
    beside = f"  and {made.provenance.name}" if made.provenance and made.data == made.path else ""
    console.result(
        f"{made.path}  {console.plural(made.n_rows, noun)}{tokens}  {console.size(made.n_bytes)}{beside}"
    )


def _talk(made: Conversion) -> None:
    from trajkit.curation.rows.tally import counted

    for reason, n_steps in made.left.items():
        console.talk(f"not learned: {console.plural(n_steps, 'step')}: {reason}")
    if made.losses:
        console.talk(f"left out: {counted(made.losses)} ({made.format} cannot carry them)")
    if made.n_stripped:
        console.talk(f"stripped as asked: {console.plural(made.n_stripped, 'thought')}")
    if made.n_trimmed:
        console.talk(
            f"trimmed: {console.plural(made.n_trimmed, 'row')} by "
            f"{console.plural(made.n_turns_trimmed, 'turn')} of history"
        )
    if made.saving and made.saving.n < made.saving.n_by_step:
        times = made.saving.n_by_step / made.saving.n
        console.talk(
            f"merged: {console.count(made.saving.n)} {made.saving.measure} of messages, where a row for each "
            f"step would take {console.count(made.saving.n_by_step)} ({times:.1f} times as many)"
        )
    for warning in made.warnings:
        console.talk(f"warning: {warning}")
