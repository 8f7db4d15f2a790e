"""One set of TensorZero's rows, made by a seed, for every database that it can lie in.

The rows are plain Python: JSON as lists and dicts, ids as text, tags as dicts, hashes as hexadecimal digits.
They hold every shape that both databases can hold: JSON and chat functions, tools of the configuration and of
the call, thoughts, files, unknown blocks, the old spellings, several model calls for one inference, episodes
that mix functions and variants, workflow evaluations, evaluation traffic, and feedback of all four kinds,
given more than once, late, and within one millisecond. No text holds a NUL character: JSONB cannot.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tests.sources.row_database import Row, spelled
from trajkit.sources.tensorzero.connect.clickhouse.dialect import ClickHouse
from trajkit.sources.tensorzero.connect.postgres.dialect import Postgres

BASE_MS = 1_772_000_000_000  # 2026-02-25: partitions of two months are crossed when the set is large
EPISODE_GAP_MS = 3_600_000
WORKFLOW_OFFSET_MS = 10_000_000_000_000
METRICS = {
    "episode_return": ("float", "episode"),
    "progression": ("float", "episode"),
    "success": ("boolean", "episode"),
    "step_score": ("float", "inference"),
    "step_ok": ("boolean", "inference"),
}
FLOATS = (0.7, 0.1 + 0.2, 1 / 3, 0.9, 0.5, 1.0, 0.0, -2.25, 1e-7, 16_777_217.0, 1e10, 0.699999988)
ODD_VARIANT = 'it\'s "odd"; DROP TABLE x; -- \\ é'
TEXTS = (
    "go forward",
    "a wall 1 step forward\nYou carry nothing",
    'she said "type":"file" and {"role":"user"}',
    "back\\slash, tab\t, bell \x07, unit \x1f, del \x7f",
    "ünïcödé 漢字 🙂 \u2028",
    '<a> & \'b\' {{ c }} ]}, {"text": "x", "type": "text"}',
    "",
)
_PARAMETERS = {
    "type": "object",
    "properties": {"to": {"type": "string", "enum": ["north", "south"]}, "n": {"type": "integer"}},
    "required": ["to"],
    "additionalProperties": False,
}
_STATIC_TOOLS = {
    "move": {"description": "Move somewhere", "parameters": _PARAMETERS, "name": "move", "strict": False},
    "look": {"description": "Look", "parameters": {"type": "object"}, "name": "look", "strict": True},
}
_DYNAMIC_TOOL = {
    "description": "Shout",
    "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    "name": "shout",
    "strict": False,
}
_EVAL_TAGS = {
    "tensorzero::evaluation_run_id": "01900000-0000-7000-8000-000000000001",
    "tensorzero::evaluation_name": "e",
}


class Data:
    """The rows of one database."""

    def __init__(self) -> None:
        self.inferences: list[Row] = []
        """Of both kinds of functions: `function_type` says which; the others' columns are missing."""
        self.model_inferences: list[Row] = []
        self.feedback: list[Row] = []
        """Of all four kinds: `kind` says which."""
        self.snapshots: list[Row] = []
        self.tasks: list[Row] = []

    @property
    def episode_ids(self) -> list[str]:
        """Every episode once, in the order in which they were made."""
        return list(dict.fromkeys(row["episode_id"] for row in self.inferences))


def generated(seed: int = 0, n_episodes: int = 60) -> Data:
    """Make the rows of `n_episodes`, with every shape among them from about 40 episodes on."""
    return _Maker(seed).data(n_episodes)


def config_of(description: str) -> str:
    """A configuration as a snapshot keeps it: what its files say stands in it."""
    metrics = "".join(
        f'[metrics.{name}]\ntype = "{kind}"\noptimize = "max"\nlevel = "{level}"\n\n'
        for name, (kind, level) in METRICS.items()
    )
    tools = "".join(
        f'[tools.{name}]\ndescription = "{tool["description"]}"\nstrict = {spelled(tool["strict"])}\n\n'
        f'[tools.{name}.parameters]\n__tensorzero_remapped_path = "{name}.json"\n'
        f"__data = '{spelled(tool['parameters'])}'\n\n"
        for name, tool in _STATIC_TOOLS.items()
    )
    return (
        f'# {description}\n[functions.act]\ntype = "json"\n\n'
        '[functions.talk]\ntype = "chat"\ntools = ["move", "look"]\ntool_choice = "auto"\n\n'
        '[functions.plain]\ntype = "chat"\ntools = []\ntool_choice = "none"\n\n' + metrics + tools
    )


def _text(text: str) -> Row:
    return {"type": "text", "text": text}


class _Maker:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._made = Data()
        self._last_ms = 0
        self._made.snapshots = [
            {
                "hash": f"{'0' * (3 * number)}{self._random.getrandbits(256):064x}"[:64],
                "config": config_of(f"version {number}"),
                "extra_templates": {"a/system": "You play. {{ mission }}", "it's": "{% if x %}ü{% endif %}"},
            }
            for number in range(2)
        ]

    def data(self, n_episodes: int) -> Data:
        kinds = (
            self._json_episode,
            self._chat_episode,
            self._json_episode,
            self._mixed_episode,
            self._old_episode,
            self._sampled_episode,
            self._evaluated_episode,
            self._workflow_episode,
        )
        for number in range(n_episodes):
            start_ms = BASE_MS + number * EPISODE_GAP_MS
            # the first inference's id is made before its episode's, in the same millisecond
            self._first_id = self.id(start_ms)
            self._episode_id = self.id(start_ms)
            self._ms = start_ms
            self._snapshot = self._random.choice(self._made.snapshots)["hash"]
            self._last_call_id = ""
            kinds[number % len(kinds)](number)
            self._score(number)
        return self._made

    def id(self, ms: int) -> str:
        """A UUIDv7 of this millisecond."""
        bits = f"{ms:012x}7{self._random.getrandbits(12):03x}{0x8000 | self._random.getrandbits(14):04x}"
        digits = f"{bits}{self._random.getrandbits(48):012x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    # -- episodes --------------------------------------------------------------------------------------------

    def _json_episode(self, number: int) -> None:
        tags = {
            "trajkit.env": self._random.choice(["babyai", "elsewhere"]),
            "trajkit.task": "goto",
            "trajkit.seed": str(number),
            "trajkit.purpose": "train",
        }
        for step in range(self._random.randint(1, 6)):
            own = {**tags, "trajkit.step": str(step)} if number % 3 else {'user\'s "key"': f"v{step} é\\"}
            self._json_step(tags=own)

    def _chat_episode(self, number: int) -> None:
        """A conversation: each prompt goes on where the one before ended."""
        said: list[Row] = [{"role": "user", "content": [_text(self._random.choice(TEXTS))]}]
        for step in range(self._random.randint(2, 6)):
            call = {"id": f"call_{step}", "name": "move", "arguments": spelled({"to": "north", "n": step})}
            self._chat_step(list(said), call if step % 2 == 0 else None, dynamic=number % 3 == 0)
            said.append({"role": "assistant", "content": self._answered})
            said.append({"role": "user", "content": self._asked(call if step % 2 == 0 else None)})

    def _mixed_episode(self, number: int) -> None:
        for step in range(4):
            if step % 2:
                self._plain_step(self._random.choice(TEXTS))
            else:
                self._json_step(variant=self._random.choice(["baseline", "terse", ODD_VARIANT]))

    def _old_episode(self, number: int) -> None:
        """What was written in the years before: other spellings of the same."""
        image = {
            "type": "image",
            "image": {"url": "https://example.com/a.png", "mime_type": "image/png"},
            "storage_path": {"kind": {"type": "disabled"}, "path": "observability/a.png"},
        }
        for content in (
            [{"type": "text", "value": self._random.choice(TEXTS)}],
            [{"type": "text", "value": {"observation": self._random.choice(TEXTS), "history": [1, 2]}}],
            [{"type": "text", "value": "look at this"}, image],
        ):
            messages = [{"role": "user", "content": content}]
            shown = [block if block["type"] == "image" else _text("as rendered") for block in content]
            self._json_step(messages=messages, shown=[{"role": "user", "content": shown}])

    def _sampled_episode(self, number: int) -> None:
        """Best of n: several calls; and inferences without any call, or with a cached one."""
        self._json_step(n_candidates=3)
        self._json_step(n_candidates=0)
        self._json_step(cached=True)
        self._json_step(n_candidates=2, same=True)

    def _evaluated_episode(self, number: int) -> None:
        if number % 16 < 8:
            self._json_step(tags=dict(_EVAL_TAGS))
        else:
            self._json_step(function="tensorzero::llm_judge::e::j", tags=dict(_EVAL_TAGS))

    def _workflow_episode(self, number: int) -> None:
        self._episode_id = self.id(self._ms + WORKFLOW_OFFSET_MS)
        run_id = self.id(self._ms - 1)
        tags = {
            "tensorzero::workflow_evaluation_run_id": run_id,
            "tensorzero::dynamic_evaluation_run_id": run_id,
            "tensorzero::internal": "true",
            "tensorzero::variant_pinned": "baseline",
        }
        self._made.tasks.append(
            {
                "episode_id": self._episode_id,
                "run_id": run_id,
                "task_name": f"task {number}" if number % 16 < 8 else None,
                "tags": tags,
                "created_ms": self._ms,
            }
        )
        for _ in range(2):
            self._json_step(tags=tags)

    # -- steps -----------------------------------------------------------------------------------------------

    def _next_id(self) -> str:
        if self._first_id:
            found, self._first_id = self._first_id, ""
            return found
        self._ms += self._random.choice([1, 40, 1500])
        return self.id(self._ms)

    def _json_step(
        self,
        *,
        function: str = "act",
        variant: str = "baseline",
        tags: dict[str, str] | None = None,
        messages: list[Row] | None = None,
        shown: list[Row] | None = None,
        n_candidates: int = 1,
        same: bool = False,
        cached: bool = False,
    ) -> None:
        inference_id = self._next_id()
        observation: Any = self._random.choice((*TEXTS, {"b": [1, 2.5], "a": {"z": None, "y": True}}))
        arguments = {"observation": observation, "history": ["x", {"k": 1}]}
        template = {"type": "template", "name": "user", "arguments": arguments}
        action = self._random.choice(["go forward", "turn left", "fly", {"to": "north", "n": 2}, None, 3])
        raw, parsed = self._random.choice(
            [
                (spelled({"thinking": "é", "action": action}), {"thinking": "é", "action": action}),
                (spelled({"thinking": "é", "action": action}), {"thinking": "é", "action": action}),
                ("not json", None),
                (None, None),
            ]
        )
        thoughts = [
            {"type": "thought", "text": "let me see", "signature": "s", "provider_type": "anthropic"},
            {"type": "thought", "text": None, "summary": [{"type": "summary_text", "text": "short"}]},
        ]
        self._made.inferences.append(
            self._inference(inference_id, "json", function, variant, tags)
            | {
                "input": {"system": {"mission": "m"}, "messages": messages or [_said("user", [template])]},
                "output": {"raw": raw, "parsed": parsed},
                "output_schema": {"type": "object"},
                "auxiliary_content": thoughts if self._random.random() < 0.2 else [],
            }
        )
        shown = shown or [_said("user", [_text(f"Observation:\n{spelled(observation)}")])]
        answers = [raw if same or number == 0 else f"candidate {number}" for number in range(n_candidates)]
        for text in answers:
            self._call(inference_id, function, variant, "You play. m", shown, [_text(text or "")], cached)

    def _chat_step(self, prompt: list[Row], call: Row | None, *, dynamic: bool) -> None:
        inference_id = self._next_id()
        blocks: list[Row] = [_text(self._random.choice(TEXTS[:5]))]
        answered = list(blocks)
        if call is not None:
            is_valid = self._random.random() < 0.8
            blocks.append(
                {
                    "type": "tool_call",
                    "id": call["id"],
                    "raw_name": call["name"],
                    "raw_arguments": call["arguments"],
                    "name": call["name"] if is_valid else None,
                    "arguments": json.loads(call["arguments"]) if is_valid else None,
                }
            )
            answered.append({"type": "tool_call", **call})
        if self._random.random() < 0.2:
            extra = {"type": "unknown", "data": {"zz": 1, "a": [True, {"y": 0.5, "b": "ü"}]}}
            blocks.append({**extra, "model_name": "agent", "provider_name": "stand_in"})
            answered.append({**extra, "model_name": "agent", "provider_name": "stand_in"})
        tools = [*_STATIC_TOOLS.values(), *([_DYNAMIC_TOOL] if dynamic else [])]
        choice = self._random.choice(["auto", "required", {"specific": "move"}])
        parallel = self._random.choice([True, False, None])
        self._made.inferences.append(
            self._inference(inference_id, "chat", "talk", "plain", {"user": "u"})
            | {
                "input": {"system": "Be brief.", "messages": prompt},
                "output": blocks,
                "tool_params": {
                    "tools_available": tools,
                    "tool_choice": choice,
                    "parallel_tool_calls": parallel,
                },
                "dynamic_tools": [{"type": "function", **_DYNAMIC_TOOL}] if dynamic else [],
                "allowed_tools": {"tools": [tool["name"] for tool in tools], "choice": "function_default"},
                "tool_choice": choice,
                "parallel_tool_calls": parallel,
            }
        )
        self._call(inference_id, "talk", "plain", "Be brief.", prompt, answered)
        self._answered = answered

    def _asked(self, call: Row | None) -> list[Row]:
        content: list[Row] = [_text(self._random.choice(TEXTS))]
        if call is not None:
            result = {"type": "tool_result", "id": call["id"], "name": call["name"], "result": "done: é"}
            content.insert(0, result)
        if self._random.random() < 0.2:
            content.append(
                {
                    "type": "file",
                    "source_url": None,
                    "mime_type": "image/png",
                    "storage_path": {"kind": {"type": "disabled"}, "path": "observability/b.png"},
                    "filename": "b.png",
                }
            )
        return content

    def _plain_step(self, text: str) -> None:
        inference_id = self._next_id()
        prompt = [_said("user", [_text(text), {"type": "raw_text", "value": "raw"}])]
        shown = [_said("user", [_text(text), _text("raw")])]
        answer = [_text("Fine. " + text)] if self._random.random() < 0.8 else []
        self._made.inferences.append(
            self._inference(inference_id, "chat", "plain", "plain", None)
            | {"input": {"messages": prompt}, "output": answer}
        )
        self._call(inference_id, "plain", "plain", None, shown, answer)

    def _inference(
        self, inference_id: str, kind: str, function: str, variant: str, tags: dict[str, str] | None
    ) -> Row:
        return {
            "id": inference_id,
            "episode_id": self._episode_id,
            "function_type": kind,
            "function_name": function,
            "variant_name": variant,
            "inference_params": {"chat_completion": {"temperature": 0.5}},
            "processing_time_ms": self._random.choice([None, 0, 17, 1234]),
            "ttft_ms": self._random.choice([None, 5]),
            "tags": tags or {},
            "extra_body": [],
            "snapshot_hash": self._snapshot,
            "created_ms": self._ms,
        }

    def _call(
        self,
        inference_id: str,
        function: str,
        variant: str,
        system: str | None,
        messages: list[Row],
        output: list[Row],
        cached: bool = False,
    ) -> None:
        self._made.model_inferences.append(
            {
                "id": self.id(self._ms + 1),
                "inference_id": inference_id,
                "raw_request": spelled({"messages": [], "model": "m"}),
                "raw_response": spelled({"id": "x"}),
                "model_name": self._random.choice(["agent", "agent-2"]),
                "model_provider_name": "stand_in",
                "input_tokens": self._random.choice([None, 11, 300]),
                "output_tokens": self._random.choice([None, 7]),
                "response_time_ms": 0 if cached else self._random.choice([None, 15]),
                "ttft_ms": self._random.choice([None, 4]),
                "system": system,
                "input_messages": messages,
                "output": output,
                "cached": cached,
                "finish_reason": self._random.choice(["stop", "length", "tool_call", None]),
                "snapshot_hash": self._snapshot,
                "cost": None if self._random.random() < 0.3 else str(self._random.randrange(10**6) / 10**9),
                "function_name": function,
                "variant_name": variant,
                "created_ms": self._ms + 1,
            }
        )

    # -- feedback --------------------------------------------------------------------------------------------

    def _score(self, number: int) -> None:
        steps = [row for row in self._made.inferences if row["episode_id"] == self._episode_id]
        end_ms = self._ms + 2000
        for name, (kind, level) in METRICS.items():
            targets = [self._episode_id] if level == "episode" else [row["id"] for row in steps]
            for target in targets:
                # none, one, or several: some within one millisecond, some days later
                for delay in self._random.choice([(), (0,), (0,), (0, 0, 3), (0, 500, 86_400_000)]):
                    value = self._random.choice(FLOATS) if kind == "float" else self._random.random() < 0.5
                    self._feedback(kind, target, end_ms + delay, metric_name=name, value=value)
        if number % 5 == 0:
            self._comment(self._episode_id, "episode", end_ms, self._random.choice(TEXTS[:6]), {})
        if number % 7 == 3:
            self._comment(steps[0]["id"], "inference", end_ms, "true", {"by": "me"})
        if number % 11 == 4:
            reason = {"trajkit.abandoned": "killed"}
            self._comment(self._episode_id, "episode", end_ms + 1, "abandoned: killed", reason)
        if number % 4 == 1:
            step = self._random.choice(steps)
            for delay in (0, 60):
                value: Any = [_text(f"better {delay}")]
                if step["function_type"] == "json":
                    parsed = {"thinking": "t", "action": "better", "score": 0.25}
                    value = {"raw": spelled(parsed), "parsed": parsed}
                self._feedback("demonstration", step["id"], end_ms + delay, value=value)
        if number % 13 == 6:
            self._feedback(
                "boolean",
                self._episode_id,
                end_ms + 9,
                metric_name="success",
                value=True,
                tags={"trajkit.purpose": "eval"},
            )

    def _comment(self, target: str, kind: str, ms: int, value: str, tags: dict[str, str]) -> None:
        self._feedback("comment", target, ms, value=value, target_type=kind, tags=tags)

    def _feedback(self, kind: str, target: str, ms: int, **own: Any) -> None:
        row = {"kind": kind, "id": self.id(ms), "target_id": target, "tags": {}, "created_ms": ms}
        self._made.feedback.append({**row, "snapshot_hash": self._snapshot, **own})


def _said(role: str, content: list[Row]) -> Row:
    return {"role": role, "content": content}


# -- ClickHouse ----------------------------------------------------------------------------------------------


def fill_clickhouse(client: Any, data: Data) -> None:
    """Insert the rows into a database with TensorZero's schema, as the gateway spells them there.

    Args:
        client: A clickhouse-connect client whose database it is.
        data: The rows.
    """
    for kind, table in (("json", "JsonInference"), ("chat", "ChatInference")):
        rows = [row for row in data.inferences if row["function_type"] == kind]
        _insert(client, table, [_clickhouse_inference(row) for row in rows])
    _insert(client, "ModelInference", [_clickhouse_call(row) for row in data.model_inferences])
    for kind in ("float", "boolean", "comment", "demonstration"):
        rows = [_clickhouse_feedback(row) for row in data.feedback if row["kind"] == kind]
        _insert(client, ClickHouse.stored[f"{kind}_feedback"].name, rows)
    snapshots = [
        {**row, "hash": int(row["hash"], 16), "tensorzero_version": "2026.6.0"} for row in data.snapshots
    ]
    _insert(client, "ConfigSnapshot", [*snapshots, *snapshots[:1]])  # a gateway writes it at every start
    _insert(client, "DynamicEvaluationRunEpisode", [_clickhouse_task(row) for row in data.tasks])


def _insert(client: Any, table: str, rows: list[Row]) -> None:
    if rows:
        names = list(rows[0])
        client.insert(table, [[row[name] for name in names] for row in rows], column_names=names)


def _hash(row: Row) -> int:
    return int(row["snapshot_hash"], 16)


def _clickhouse_inference(row: Row) -> Row:
    shared = ("id", "function_name", "variant_name", "episode_id", "processing_time_ms", "tags", "ttft_ms")
    found = {name: row[name] for name in shared}
    found |= {name: spelled(row[name]) for name in ("input", "output", "inference_params", "extra_body")}
    found["snapshot_hash"] = _hash(row)
    if row["function_type"] == "json":
        return found | {name: spelled(row[name]) for name in ("output_schema", "auxiliary_content")}
    choice = row.get("tool_choice")
    return found | {
        "tool_params": spelled(row["tool_params"]) if "tool_params" in row else "",
        "dynamic_tools": [spelled(tool) for tool in row.get("dynamic_tools", [])],
        "dynamic_provider_tools": [],
        "allowed_tools": spelled(row["allowed_tools"]) if "allowed_tools" in row else None,
        "tool_choice": choice if choice is None or isinstance(choice, str) else spelled(choice),
        "parallel_tool_calls": row.get("parallel_tool_calls"),
    }


def _clickhouse_call(row: Row) -> Row:
    found = {name: value for name, value in row.items() if name != "created_ms"}
    found |= {name: spelled(row[name]) for name in ("input_messages", "output")}
    found["cost"] = None if row["cost"] is None else Decimal(row["cost"])
    return found | {"snapshot_hash": _hash(row)}


def _clickhouse_feedback(row: Row) -> Row:
    found = {name: row[name] for name in ("id", "tags", "value")} | {"snapshot_hash": _hash(row)}
    if row["kind"] == "demonstration":
        return found | {"inference_id": row["target_id"], "value": spelled(row["value"])}
    own = "target_type" if row["kind"] == "comment" else "metric_name"
    return found | {"target_id": row["target_id"], own: row[own]}


def _clickhouse_task(row: Row) -> Row:
    return {
        "run_id": row["run_id"],
        "episode_id_uint": int(row["episode_id"].replace("-", ""), 16),
        "variant_pins": {"act": "baseline"},
        "datapoint_name": row["task_name"],
        "tags": row["tags"],
        "updated_at": _moment(row["created_ms"]),
    }


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


# -- Postgres ------------------------------------------------------------------------------------------------

_INFERENCE_DATA = {
    "chat": (
        "input",
        "output",
        "inference_params",
        "extra_body",
        "dynamic_tools",
        "dynamic_provider_tools",
        "allowed_tools",
        "tool_choice",
        "parallel_tool_calls",
    ),
    "json": ("input", "output", "inference_params", "extra_body", "output_schema", "auxiliary_content"),
}
_EMPTY: Row = {"dynamic_tools": [], "dynamic_provider_tools": []}
_CALL_DATA = ("raw_request", "raw_response", "system", "input_messages", "output")
_NOT_POSTGRES = ("function_type", "created_ms", "kind", "tool_params")


def fill_postgres(connection: Any, data: Data) -> None:
    """Insert the rows into a database with the tables of `postgres_schema.sql`; commits.

    Args:
        connection: A DB-API connection whose parameters are written `$1`.
        data: The rows.
    """
    tables: dict[str, list[Row]] = {}
    for row in data.inferences:
        kind = row["function_type"]
        payload = {name: row.get(name, _EMPTY.get(name)) for name in _INFERENCE_DATA[kind]}
        tables.setdefault(f"{kind}_inferences", []).append(_postgres(row, without=payload))
        tables.setdefault(f"{kind}_inference_data", []).append({"id": row["id"], **_created(row), **payload})
    for row in data.model_inferences:
        payload = {name: row[name] for name in _CALL_DATA}
        tables.setdefault("model_inferences", []).append(_postgres(row, without=payload))
        tables.setdefault("model_inference_data", []).append({"id": row["id"], **_created(row), **payload})
    for row in data.feedback:
        found = _postgres(row)
        if row["kind"] == "demonstration":
            found["inference_id"] = found.pop("target_id")
        tables.setdefault(Postgres.stored[f"{row['kind']}_feedback"].name, []).append(found)
    for row in data.snapshots:
        found = {**row, "hash": f"\\x{row['hash']}", "tensorzero_version": "2026.6.0", "tags": {}}
        tables.setdefault("config_snapshots", []).append(found)
    for row in data.tasks:
        found = {**_postgres(row), "variant_pins": {"act": "baseline"}}
        tables.setdefault("workflow_evaluation_run_episodes", []).append(found)
    with connection.cursor() as cursor:
        for table, rows in tables.items():
            cursor.execute(_insert_into(table, rows[0]), (spelled(rows),))
    connection.commit()


def _insert_into(table: str, row: Row) -> str:
    """The rows come as one JSON list, and become the columns' types in the database."""
    names = ", ".join(row)
    record = f"jsonb_populate_recordset(null::tensorzero.{table}, $1::jsonb)"
    return f"INSERT INTO tensorzero.{table} ({names}) SELECT {names} FROM {record}"


def _created(row: Row) -> Row:
    return {"created_at": _moment(row["created_ms"]).isoformat()}


def _postgres(row: Row, without: Row | None = None) -> Row:
    """A row in Postgres' columns, but for those of another table."""
    gone = (*_NOT_POSTGRES, *(without or ()))
    found = {name: value for name, value in row.items() if name not in gone} | _created(row)
    if "snapshot_hash" in found:
        found["snapshot_hash"] = f"\\x{row['snapshot_hash']}"
    return found
