"""Runs in an environment with openai-agents: plays what it is told over stdin, and writes the traces.

Usage: client.py URL thirty.jsonl agents.jsonl. The parent writes a line of JSON for each call of `play`.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import threading
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
    set_trace_processors,
    trace,
)
from agents.tracing import TracingProcessor
from openai import AsyncOpenAI

URL, THIRTY, AGENTS = sys.argv[1:]


class Lines(TracingProcessor):
    """The processor of docs/sources.md: every trace and span as a line, with what response spans saw."""

    def __init__(self, path: str) -> None:
        self.file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 -- closed by shutdown
        self.lock = threading.Lock()

    def write(self, item: Any) -> None:
        row = item.export()
        data = getattr(item, "span_data", None)
        if data is not None and data.type == "response" and data.response is not None:
            row["span_data"] |= {"input": data.input, "response": data.response.model_dump(mode="json")}
        with self.lock:
            self.file.write(json.dumps(row, default=str) + "\n")

    def on_trace_start(self, trace: Any) -> None:
        self.write(trace)

    def on_trace_end(self, trace: Any) -> None: ...

    def on_span_start(self, span: Any) -> None: ...

    def on_span_end(self, span: Any) -> None:
        self.write(span)

    def force_flush(self) -> None:
        self.file.flush()

    def shutdown(self) -> None:
        self.file.close()


class Over(Exception):
    """The episode is over."""


class Player:
    """One episode: an agent whose tool waits for what the world says."""

    def __init__(self, name: str, system: str, mission: str) -> None:
        self.seen: queue.Queue[str | None] = queue.Queue()
        self.waiting: queue.Queue[bool] = queue.Queue()

        def act(action: str) -> str:
            """Do one thing in the world."""
            self.waiting.put(True)
            if (text := self.seen.get()) is None:
                raise Over
            return text

        tool = function_tool(act, failure_error_function=None)
        client = AsyncOpenAI(base_url=URL, api_key="none", max_retries=0)
        model = OpenAIChatCompletionsModel("stand-in", client)
        agent = Agent(
            name="player",
            instructions=system,
            tools=[tool],
            model=model,
            model_settings=ModelSettings(temperature=0.0),
        )

        def run() -> None:
            async def go() -> None:
                with trace("babyai", group_id=name, metadata={"player": "expert"}):
                    await Runner.run(agent, mission, max_turns=50)

            try:
                asyncio.run(go())
            except Exception:  # noqa: BLE001 -- the tool's own way out, whatever the SDK makes of it
                self.waiting.put(False)

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def until_it_acts(self) -> None:
        self.waiting.get(timeout=60)


def thirty() -> None:
    player: Player | None = None
    for text in sys.stdin:
        told = json.loads(text)
        if "end" in told:
            assert player is not None
            player.seen.put(None)
            player.thread.join()
            player = None
        elif player is None:
            system, user = told["messages"]
            player = Player(told["name"], system["content"], user["content"])
            player.until_it_acts()
        else:
            player.seen.put(told["messages"][-1]["content"])
            player.until_it_acts()
        sys.stdout.write('"ok"\n')
        sys.stdout.flush()


class Scripted(OpenAIResponsesModel):
    """A Responses model whose server is a list."""

    def __init__(self, script: list[Any]) -> None:
        super().__init__("scripted", AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:9"))
        self.script = script

    async def _fetch_response(
        self, system: Any, items: Any, settings: Any, tools: Any, *_: Any, **__: Any
    ) -> Any:
        from openai.types.responses import Response

        output = self.script.pop(0)
        if isinstance(output, Exception):
            raise output
        return Response.model_validate(
            {
                "id": f"resp_{len(self.script)}",
                "created_at": 1_790_000_000,
                "object": "response",
                "model": "scripted-2026",
                "instructions": system,
                "output": output,
                "parallel_tool_calls": False,
                "temperature": 0.5,
                "tool_choice": "auto",
                "tools": [
                    {
                        "type": "function",
                        "name": one.name,
                        "description": one.description,
                        "parameters": one.params_json_schema,
                        "strict": True,
                    }
                    for one in tools
                ],
                "usage": {
                    "input_tokens": 40,
                    "output_tokens": 5,
                    "total_tokens": 45,
                    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                    "output_tokens_details": {"reasoning_tokens": 2},
                },
            }
        )


def said(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "msg", "type": "message", "role": "assistant", "status": "completed", "content": content}


def called(name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": "fc",
        "call_id": f"call_{name}",
        "name": name,
        "arguments": json.dumps(arguments),
        "status": "completed",
    }


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": text}]}


def agents() -> None:
    """A session of two traces: an agent as a tool, a handoff, a failure; and a trace without a group."""
    searcher = Agent(name="searcher", instructions="Search.", model=Scripted([[said("It is in the attic.")]]))
    closer = Agent(name="closer", instructions="Close.", model=Scripted([[said("Done.")]]))
    root = Agent(
        name="root",
        instructions="Find the key.",
        model=Scripted(
            [
                [thought("I ask the searcher."), called("ask_searcher", input="Where is the key?")],
                [said("I hand over."), called("transfer_to_closer")],
            ]
        ),
        tools=[searcher.as_tool("ask_searcher", "Ask where something is.")],
        handoffs=[closer],
    )
    image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    question = [{"role": "user", "content": [{"type": "input_text", "text": "Find it."}, image]}]
    plain = RunConfig(workflow_name="keys", group_id="chat-1", trace_metadata={"user": "u-7"})
    asyncio.run(Runner.run(root, question, run_config=plain))
    broken = Agent(name="root", model=Scripted([RuntimeError("out of order")]))
    for config in (plain, RunConfig(workflow_name="keys")):
        try:
            asyncio.run(Runner.run(broken, "Again.", run_config=config))
        except (RuntimeError, IndexError):
            broken = Agent(name="root", model=Scripted([[said("Hello.")]]))


lines = Lines(THIRTY)
set_trace_processors([lines])
thirty()
lines.force_flush()
lines = Lines(AGENTS)
set_trace_processors([lines])
agents()
lines.force_flush()
