"""Write what is generated: `docs/cli.md`, the tables of two pages, and `schemas/`.

They come from the commands' help, from the formats, the sources, the models and the columns. `make docs` runs
this; a test runs it into a temporary folder and compares bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from conformance import page as formats_page
from pydantic import BaseModel

from trajkit.cli.main import cli
from trajkit.commands.catalog import COMMANDS
from trajkit.commands.recipe.steps import recipe_schema
from trajkit.evaluation.reports.object import report_schema
from trajkit.schema import Episode, Feedback, Transition
from trajkit.schema.json_schema import NOUNS, json_schema
from trajkit.sources.catalog import OWN, source_named
from trajkit.sources.source import FIELDS
from trajkit.store.layout import CONTENT_HASH, METRICS, TABLES, Column, quoted
from trajkit.training.local.settings import TrainingFile

ROOT = Path(__file__).parent.parent

_PAGE_WIDTH = 100
_MODELS: dict[str, type[BaseModel]] = {"episodes": Episode, "steps": Transition, "feedback": Feedback}

# columns that the writer adds: they are not fields of a model
_DERIVED = {
    ("episodes", "function_names"): "The functions of its steps, sorted.",
    ("episodes", "variant_names"): "The variants of its steps, sorted.",
    ("episodes", "n_steps"): "Number of its rows in `steps`.",
    ("episodes", "n_input_tokens"): "Sum over its steps; null when a step's is unknown.",
    ("episodes", "n_output_tokens"): "Sum over its steps; null when a step's is unknown.",
    ("episodes", "cost_usd"): "Sum over its steps; null when a step's is unknown.",
    ("episodes", "content_hash"): "Digest of the episode with its steps and its feedback.",
    ("steps", "episode_id"): "The episode that it belongs to.",
}


def main(root: Path = ROOT) -> None:
    """Write every generated file under `root`."""
    for name, text in generated().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def generated() -> dict[str, str]:
    """The text of every generated file, by its path in the project."""
    formats = ROOT / "docs" / "formats.md"
    sources = ROOT / "docs" / "sources.md"
    texts = {
        "docs/cli.md": _cli_page(),
        "docs/sources.md": _sources_page(sources.read_text(encoding="utf-8")),
        "docs/formats.md": formats_page(formats.read_text(encoding="utf-8")),
        "schemas/v1/store.sql": _store_sql(),
    }
    for noun in NOUNS:
        texts[f"schemas/v1/{noun}.schema.json"] = (
            json.dumps(json_schema(noun), indent=2, ensure_ascii=False) + "\n"
        )
    recipe = recipe_schema()
    texts["schemas/v1/recipe.schema.json"] = json.dumps(recipe, indent=2, ensure_ascii=False) + "\n"
    training = TrainingFile.model_json_schema()
    texts["schemas/v1/training.schema.json"] = json.dumps(training, indent=2, ensure_ascii=False) + "\n"
    texts["schemas/v1/report.schema.json"] = json.dumps(report_schema(), indent=2, ensure_ascii=False) + "\n"
    return texts


def _cli_page() -> str:
    lines = [
        "# The command line",
        "",
        "Generated from `--help` by `make docs`. Results go to stdout, progress and talk to stderr. Every",
        "command that prints a result has `--json`.",
        "",
        "Exit codes: 0 done, 1 failed, 2 the request was wrong, 3 an extra is missing, 4 a service refused,",
        "130 stopped with Ctrl-C.",
        "",
    ]
    frame = click.Context(cli, info_name="trajkit", terminal_width=_PAGE_WIDTH, color=False)
    lines += _help(cli, frame, heading="trajkit")
    for name in COMMANDS:
        command = cli.get_command(frame, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=frame)
        lines += _help(command, context, heading=f"trajkit {name}")
        for inner in command.list_commands(context) if isinstance(command, click.Group) else ():
            part = command.get_command(context, inner)
            assert part is not None
            of_part = click.Context(part, info_name=inner, parent=context)
            lines += _help(part, of_part, heading=f"trajkit {name} {inner}")
    return "\n".join(lines)


def _sources_page(page: str) -> str:
    """The page with its tables: the sources, and what each keeps, changes and loses."""
    sources = [source_named(name) for name in OWN]
    about = ["| name | what is read |", "|---|---|"]
    about += [f"| `{source.name}` | {source.about} |" for source in sources]
    fields = ["| field | " + " | ".join(f"`{source.name}`" for source in sources) + " |"]
    fields.append("|---" * (len(sources) + 1) + "|")
    notes: dict[str, int] = {}
    for name in FIELDS:
        cells = []
        for source in sources:
            fact = source.fact(name)
            mark = f"<sup>{notes.setdefault(fact.note, len(notes) + 1)}</sup>" if fact.note else ""
            cells.append(f"{fact.fate.value}{mark}")
        fields.append(f"| {name} | {' | '.join(cells)} |")
    fields += ["", *(f"{number}. {note}" for note, number in notes.items())]
    for name, table in (("sources", about), ("fields", fields)):
        start, end = f"<!-- {name}: made by `make docs` -->", f"<!-- {name}: end -->"
        before, _, rest = page.partition(start)
        after = rest.partition(end)[2]
        page = "\n".join([f"{before}{start}", "", *table, "", f"{end}{after}"])
    return page


def _help(command: click.Command, context: click.Context, *, heading: str) -> list[str]:
    shown = [line.rstrip() for line in command.get_help(context).splitlines()]
    return [f"## {heading}", "", "```text", *shown, "```", ""]


def _store_sql() -> str:
    lines = [
        "-- The columns of a store, version 1. Generated from trajkit/store/layout.py by `make docs`.",
        "-- Types are DuckDB's. In Parquet JSON is the logical type JSON, TIMESTAMPTZ UTC microseconds.",
        "-- Null means unknown. `not in the digest` marks what the content digest leaves out.",
    ]
    for table, columns in TABLES.items():
        lines += ["", f"CREATE TABLE {table} (", *_columns(table, columns), ");"]
    return "\n".join(lines) + "\n"


def _columns(table: str, columns: tuple[Column, ...]) -> Iterator[str]:
    written = (*columns, CONTENT_HASH) if table == "episodes" else columns
    for column in written:
        marks = "" if column.is_digested else " (not in the digest)"
        described = f"-- {_description(table, column.name)}{marks}"
        if column.sql_type == METRICS:
            yield f"    {described}"
            yield "    -- One field per metric of this level, DOUBLE or BOOLEAN; without any, no such column:"
            yield "    -- metrics STRUCT(...),"
            continue
        comma = "" if column is written[-1] else ","
        yield f"    {described}"
        yield f"    {quoted(column.name)} {column.sql_type}{comma}"


def _description(table: str, name: str) -> str:
    text = _DERIVED.get((table, name)) or _MODELS[table].model_fields[name].description
    assert text is not None
    return " ".join(text.split()).replace("None", "null")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
