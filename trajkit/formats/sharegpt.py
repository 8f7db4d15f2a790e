"""ShareGPT conversations for LLaMA-Factory: `from` is the speaker, and human and model alternate.

LLaMA-Factory's rules: after a system message, `human` or `observation` stand at odd places and `gpt` or
`function_call` at even ones; other rows are skipped with an easily missed warning. Which turns are learned is
a setting of the training, not of a row: every turn of the model, or (`mask_history`) the last.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trajkit.errors import DataError
from trajkit.formats.base import (
    Example,
    Loss,
    LossKind,
    Mask,
    PlainText,
    Problem,
    Row,
    SftFormat,
    Training,
    Unit,
    json_line,
)
from trajkit.formats.chat.rows import arguments_object, functions, lost_kind, misplaced_calls
from trajkit.formats.chat.think import split_think_text, think_text
from trajkit.formats.training_file import local_path, script, settings
from trajkit.schema import (
    Block,
    FileBlock,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from trajkit.schema.base import JsonObject

_MODEL, _WORLD = ("gpt", "function_call"), ("human", "observation")
_IMAGE = "<image>"
_NAME = "trajkit"


class _Writer:
    """Writes the turns of one example."""

    def __init__(self) -> None:
        self.turns: list[dict[str, str]] = []
        self.images: list[str] = []
        self.losses: list[Loss] = []
        self.problems: list[Problem] = []

    def add(self, message: Message, where: str) -> None:
        if message.role != Role.ASSISTANT:
            self.problems.extend(misplaced_calls(message, where))
            self._results(message, where)
            text = self._text(message, where)
            if text or not any(isinstance(b, ToolResultBlock) for b in message.content):
                self._add_turn("system" if message.role == Role.SYSTEM else "human", text, where)
            return
        self._answer(message, where)
        self._results(message, where)  # results of tools that the service itself called

    def _results(self, message: Message, where: str) -> None:
        for index, block in enumerate(message.content):
            if isinstance(block, ToolResultBlock):
                self.losses.append(Loss(LossKind.TOOL_CALL_ID, f"{where}.content.{index}"))
                self._add_turn("observation", block.result, where)
            elif isinstance(block, ThoughtBlock) and message.role != Role.ASSISTANT:
                self.losses.append(Loss(LossKind.THOUGHT, f"{where}.content.{index}"))

    def _answer(self, message: Message, where: str) -> None:
        thoughts = [self._thought(b, f"{where}.content.{i}") for i, b in enumerate(message.content)]
        thought = "\n".join(filter(None, thoughts))
        if sum(map(bool, thoughts)) > 1:
            self.losses.append(Loss(LossKind.JOINED_TEXT, where))
        text = self._text(message, where)
        calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
        if calls:
            if text:
                self.losses.append(Loss(LossKind.TEXT_BESIDE_CALL, where))
            value = self._calls(calls, where)
            self._add_turn("function_call", think_text(thought, value) if thought else value, where)
        elif text or thought:
            self._add_turn("gpt", think_text(thought, text) if thought else text, where)
        elif not message.content or any(isinstance(b, TextBlock) for b in message.content):
            self._add_turn("gpt", "", where)

    def _add_turn(self, speaker: str, value: str, where: str) -> None:
        before = self.turns[-1]["from"] if self.turns else ""
        if speaker in _WORLD and before in _WORLD:
            self.losses.append(Loss(LossKind.JOINED_MESSAGE, where))
            self.turns[-1]["value"] += f"\n{value}"
            return
        self.turns.append({"from": speaker, "value": value})

    def _text(self, message: Message, where: str) -> str:
        texts = []
        for index, block in enumerate(message.content):
            if isinstance(block, TextBlock) and block.text:
                texts.append(block.text)
            elif isinstance(block, FileBlock) and (path := self._image(block, message.role)):
                self.images.append(path)
                texts.append(_IMAGE)
                if block.source_url or block.filename or block.detail:
                    self.losses.append(Loss(LossKind.FILE_FIELD, f"{where}.content.{index}"))
            elif (kind := lost_kind(block)) is not None:
                self.losses.append(Loss(kind, f"{where}.content.{index}"))
        if len(texts) > 1:
            self.losses.append(Loss(LossKind.JOINED_TEXT, where))
        return "\n".join(texts)

    def _image(self, block: FileBlock, role: Role) -> str | None:
        if role != Role.USER or not (block.mime_type or "").startswith("image/"):
            return None
        return local_path(block)

    def _thought(self, block: Block, where: str) -> str:
        if not isinstance(block, ThoughtBlock):
            return ""
        if not block.text:
            self.losses.append(Loss(LossKind.THOUGHT, where))
        elif block != ThoughtBlock(text=block.text):
            self.losses.append(Loss(LossKind.THOUGHT_SIGNATURE, where))
        return block.text or ""

    def _calls(self, calls: Sequence[ToolCallBlock], where: str) -> str:
        self.losses.extend(Loss(LossKind.TOOL_CALL_ID, where) for _ in calls)
        values = [
            {"name": call.name, "arguments": arguments_object(call, where, self.problems)} for call in calls
        ]
        return json_line(values[0]) if len(values) == 1 else json.dumps(values, ensure_ascii=False)


def _row(example: Example) -> Row:
    writer = _Writer()
    for position, (message, weight) in enumerate(zip(example.messages, example.weights, strict=True)):
        if weight not in (0, 1):
            writer.losses.append(Loss(LossKind.PARTIAL_WEIGHT, f"messages.{position}"))
        writer.add(message, f"messages.{position}")
    value: dict[str, Any] = {"conversations": writer.turns}
    if tools := [tool["function"] for tool in functions(example.tools, writer.losses)]:
        value["tools"] = json.dumps(tools, ensure_ascii=False)
    if writer.images:
        value["images"] = writer.images
    return Row(value, tuple(writer.losses), (*writer.problems, *_problems(writer)))


def _problems(writer: _Writer) -> list[Problem]:
    found = []
    turns = writer.turns
    talk = turns[1:] if turns and turns[0]["from"] == "system" else turns
    first = len(turns) - len(talk)
    for position, turn in enumerate(talk):
        at = f"conversations.{first + position}"
        if turn["from"] == "system":
            found.append(Problem("system message that is not the first", at))
        elif turn["from"] not in (_MODEL if position % 2 else _WORLD):
            found.append(Problem(f"{turn['from']} where it is the other's turn", at))
        if not turn["value"]:
            found.append(Problem(f"empty {turn['from']} message", at))
    if not talk or talk[-1]["from"] not in _MODEL:
        found.append(Problem("the last message is not the assistant's", "conversations"))
    n_marks = sum(turn["value"].count(_IMAGE) for turn in turns)
    if writer.images and n_marks != len(writer.images):
        found.append(Problem(f"a text with {_IMAGE} beside images", "conversations"))
    return found


def _read(value: JsonObject) -> Example:
    row: Any = value
    images = iter(row.get("images") or ())
    messages = [
        _message(turn["from"], turn["value"], images, position)
        for position, turn in enumerate(row["conversations"])
    ]
    weights = tuple(float(message.role == Role.ASSISTANT) for message in messages)
    return Example(tuple(messages), weights, tuple(json.loads(row.get("tools") or "[]")))


def _message(speaker: str, text: str, images: Any, position: int) -> Message:
    if speaker == "observation":
        return Message(role=Role.TOOL, content=(ToolResultBlock(id="", name="", result=text),))
    if speaker == "human":
        return Message(role=Role.USER, content=tuple(_with_images(text, images)))
    if speaker == "system":
        return Message(role=Role.SYSTEM, content=(TextBlock(text=text),))
    if speaker not in _MODEL:
        raise DataError(f"conversations.{position}.from is {speaker!r}")
    thought, rest = split_think_text(text)
    blocks: list[Block] = [] if thought is None else [ThoughtBlock(text=thought)]
    if speaker == "gpt":
        blocks.extend([TextBlock(text=rest)] if rest else [])
        return Message(role=Role.ASSISTANT, content=tuple(blocks))
    found = json.loads(rest)
    for call in found if isinstance(found, list) else [found]:
        arguments = json.dumps(call["arguments"], ensure_ascii=False)
        blocks.append(ToolCallBlock(id="", name=call["name"], arguments=arguments))
    return Message(role=Role.ASSISTANT, content=tuple(blocks))


def _with_images(text: str, images: Any) -> list[Block]:
    blocks: list[Block] = []
    for number, piece in enumerate(text.split(_IMAGE)):
        if number and (path := next(images, None)) is not None:
            blocks.append(FileBlock(source_url=f"file://{path}", mime_type="image/*"))
        if piece.strip("\n"):
            blocks.append(TextBlock(text=piece.strip("\n") if _IMAGE in text else piece))
    return blocks


def _plain(unit: Unit) -> PlainText:
    before = {
        "system": '{"from":"system","value":"',
        "user": '{"from":"human","value":"',
        "assistant": '{"from":"gpt","value":"',
    }
    if unit == Unit.EPISODE:  # the training would learn an answer that is only context
        del before["assistant"]
    return PlainText(
        before=before,
        learned='{"from":"gpt","value":"',
        after='"}',
        last=',{"from":"gpt","value":"',
        tail='"}]}',
        head='{"conversations":[',
        alternates=True,
        refused=("<think>",),
    )


def _files(training: Training) -> dict[str, str]:
    columns = {"messages": "conversations"}
    columns |= {name: name for name in ("tools", "images") if name in training.columns}
    about = {
        _NAME: {
            "file_name": training.data,
            "formatting": "sharegpt",
            "columns": columns,
            "tags": {
                "role_tag": "from",
                "content_tag": "value",
                "user_tag": "human",
                "assistant_tag": "gpt",
                "observation_tag": "observation",
                "function_tag": "function_call",
                "system_tag": "system",
            },
        }
    }
    command = "llamafactory-cli train train.yaml"
    return {
        "dataset_info.json": json.dumps(about, indent=2) + "\n",
        "train.yaml": settings(
            command,
            {
                "model_name_or_path": training.model,
                "stage": "sft",
                "do_train": True,
                "finetuning_type": "lora",
                "lora_rank": 16,
                "lora_target": "all",
                "dataset_dir": ".",
                "dataset": _NAME,
                "cutoff_len": training.max_tokens,
                # a row per step learns its last turn; a row per episode learns all of them
                "mask_history": training.unit == Unit.STEP,
                "output_dir": "out",
                "per_device_train_batch_size": 1,
                "gradient_accumulation_steps": 8,
                "num_train_epochs": 2.0,
                "learning_rate": 0.0001,
                "lr_scheduler_type": "cosine",
                "warmup_ratio": 0.1,
                "bf16": True,
                "logging_steps": 10,
                "seed": 1,
            },
        ),
        "train.sh": script(command),
    }


SHAREGPT = SftFormat(
    name="sharegpt",
    about="LLaMA-Factory: a folder with the rows, dataset_info.json, train.yaml and train.sh",
    row=_row,
    read=_read,
    columns={
        "conversations": 'STRUCT("from" VARCHAR, "value" VARCHAR)[]',
        "tools": "VARCHAR",
        "images": "VARCHAR[]",
    },
    masks={Unit.STEP: Mask.LAST, Unit.EPISODE: Mask.ALL},
    plain=_plain,
    files=_files,
)
"""Conversations for LLaMA-Factory, with settings and a script for training."""
