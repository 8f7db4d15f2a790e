"""The text of a JSON function's answer, however the database spells it: the store has one spelling."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb

from tests.sources.row_database import RowDatabase
from tests.sources.shapes import Steps
from trajkit.schema import TextBlock
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.export.export import export
from trajkit.store.dataset import open_dataset

# the member `raw` of an output as it is stored, and the text of the answer (None: there is none)
RAW = {
    "plain": ('"go \\"there\\""', 'go "there"'),
    "escapes that the store spells otherwise": ('"a\\/b \\u00e9 \\u0001 \\u2028"', "a/b é \x01 \u2028"),
    "JSON in a text": ('"{\\"action\\":\\"go\\\\n\\"}"', '{"action":"go\\n"}'),
    "empty": ('""', ""),
    "the word null": ('"null"', "null"),
    "null": ("null", None),
    "a number": ("12", "12"),
    "an object": ('{"b": 1, "a": [true]}', '{"b":1,"a":[true]}'),
}


# the member `parsed`, the action, and whether the output is invalid
PARSED = [
    ('{"action":"go"}', "go", False),
    ('{"action":null}', None, False),
    ('{"action":["go",1]}', ["go", 1], False),
    ('"go"', None, False),
    ("null", None, True),
]


def test_an_answer_is_the_text_of_its_output_in_the_stores_spelling(tmp_path: Path) -> None:
    steps = Steps()
    for stored, _ in RAW.values():
        steps.json(output=f'{{ "raw": {stored}, "parsed": {{"action": "go"}} }}')
    export(RowDatabase(steps.inferences, steps.calls), ExportRequest(), tmp_path / "store")
    (episode,) = open_dataset(tmp_path / "store")
    for (name, (_, text)), step in zip(RAW.items(), episode.steps, strict=True):
        assert step.completion is not None
        found = [block.text for block in step.completion.content if isinstance(block, TextBlock)]
        assert found == ([] if text is None else [text]), name
        assert step.action == "go"
    parts = str(tmp_path / "store" / "steps" / "*.parquet")
    rows = duckdb.execute(
        f"SELECT completion::VARCHAR, json(completion::VARCHAR)::VARCHAR FROM '{parts}'"
    ).fetchall()
    assert len(rows) == len(RAW)
    for written, spelled in rows:
        assert written == spelled
        assert json.loads(written)["role"] == "assistant"


def test_an_action_is_what_the_parsed_output_says() -> None:
    steps = Steps()
    for parsed, _, _ in PARSED:
        steps.json(output=f'{{"raw":"r","parsed":{parsed}}}')
    _, made = steps.export()
    assert [(step.action, step.mask_reason) for step in made] == [
        (action, "invalid output" if is_invalid else None) for _, action, is_invalid in PARSED
    ]
