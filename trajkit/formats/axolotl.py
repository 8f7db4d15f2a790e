"""axolotl's chat rows: every message says whether it is learned, so that masks are exact.

Arguments of calls and parameters of tools are JSON in a text: axolotl's reader would merge objects with
different fields in different rows into one type with all fields.
"""

from __future__ import annotations

import json
from typing import Any

from trajkit.formats.base import (
    Example,
    Mask,
    PlainText,
    Problem,
    Row,
    SftFormat,
    Training,
    Unit,
    json_line,
)
from trajkit.formats.chat.rows import Dialect, Reference, example_row, read_example
from trajkit.formats.training_file import local_path, script, settings
from trajkit.schema import FileBlock, Role
from trajkit.schema.base import JsonObject


def _image(block: FileBlock, role: Role) -> Reference | None:
    if not (block.mime_type or "").startswith("image/"):
        return None
    if path := local_path(block):
        return Reference({"type": "image", "path": path}, frozenset({"storage_path"}))
    if block.source_url and "://" in block.source_url:
        return Reference({"type": "image", "url": block.source_url}, frozenset({"source_url"}))
    return None


_DIALECT = Dialect(
    mark="train", reasoning="reasoning_content", image=_image, names_results=True, has_content=True
)


def _row(example: Example) -> Row:
    row = example_row(example, _DIALECT)
    for tool in row.value.get("tools", ()):
        if "parameters" in tool["function"]:
            tool["function"]["parameters"] = json_line(tool["function"]["parameters"])
    if [(each["role"], each["train"]) for each in row.value["messages"][-1:]] == [("assistant", True)]:
        return row
    wrong = Problem("the last message is not the assistant's", "messages")
    return row._replace(problems=(*row.problems, wrong))


def _read(value: JsonObject) -> Example:
    row: Any = value
    example = read_example({**value, "messages": [_with_url(each) for each in row["messages"]]}, _DIALECT)
    tools = tuple(
        {k: json.loads(v) if k == "parameters" else v for k, v in tool.items()}  # type: ignore[arg-type]
        for tool in example.tools
    )
    return example._replace(tools=tools)


def _with_url(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message with its images in OpenAI's spelling, which `read_messages` reads."""
    if not isinstance(message["content"], list):
        return message
    parts = [
        {"type": "image_url", "image_url": {"url": part.get("url") or f"file://{part['path']}"}}
        if part["type"] == "image"
        else part
        for part in message["content"]
    ]
    return {**message, "content": parts}


def _plain(unit: Unit) -> PlainText:
    before = {
        role: f'{{"role":"{role}","train":false,"content":"' for role in ("system", "user", "assistant")
    }
    learned = '{"role":"assistant","train":true,"content":"'
    return PlainText(
        before=before, learned=learned, after='"}', last="," + learned, tail='"}]}', head='{"messages":['
    )


def _files(training: Training) -> dict[str, str]:
    kind = "parquet" if training.data.endswith(".parquet") else "json"
    return {
        "train.yaml": settings(
            "axolotl train train.yaml",
            {
                "base_model": training.model,
                "chat_template": "tokenizer_default",
                "datasets": [
                    {
                        "path": training.data,
                        "ds_type": kind,
                        "type": "chat_template",
                        "field_messages": "messages",
                        # only this field of each message decides
                        "message_field_training": "train",
                        "roles_to_train": [],
                        "train_on_eos": "turn",
                    }
                ],
                "sequence_len": training.max_tokens,
                "output_dir": "out",
                "adapter": "lora",
                "lora_r": 16,
                "lora_alpha": 32,
                "lora_dropout": 0.0,
                "lora_target_linear": True,
                "micro_batch_size": 1,
                "gradient_accumulation_steps": 8,
                "num_epochs": 2,
                "learning_rate": 0.0001,
                "lr_scheduler": "cosine",
                "optimizer": "adamw_torch",
                "bf16": "auto",
                "gradient_checkpointing": True,
                "seed": 1,
            },
        ),
        "train.sh": script("axolotl train train.yaml"),
    }


AXOLOTL = SftFormat(
    name="axolotl",
    about="axolotl: a folder with the rows, train.yaml and train.sh",
    row=_row,
    read=_read,
    columns={
        "messages": "STRUCT(role VARCHAR, train BOOLEAN, reasoning_content VARCHAR, content JSON, "
        'tool_calls STRUCT(id VARCHAR, "type" VARCHAR, '
        'function STRUCT("name" VARCHAR, arguments VARCHAR))[], '
        '"name" VARCHAR, tool_call_id VARCHAR)[]',
        "tools": 'STRUCT("type" VARCHAR, function STRUCT("name" VARCHAR, description VARCHAR, '
        "parameters VARCHAR, strict BOOLEAN))[]",
    },
    masks={Unit.STEP: Mask.EACH, Unit.EPISODE: Mask.EACH},
    plain=_plain,
    files=_files,
)
"""Rows for axolotl, with settings and a script for training."""
