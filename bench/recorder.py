"""What `trajkit.Recorder` costs: milliseconds per call, and bytes of a store per turn of a long conversation.

Run as `python bench/recorder.py`; under a minute. The calls go to a server on loopback in a process of its
own, in turns with and without the recorder. The limit is on what the calling thread computes, which a busy
machine hardly changes; what the clock says is shown beside it. The store of an agent that calls a tool in
each of 100 turns is compared with one of the same steps that has one full prompt per row.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.server
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAI

import trajkit
from trajkit.schema import Episode
from trajkit.store.writer import write_episodes

LIMIT_MS = 1.0
"""Most that the recorder may add to a call, in milliseconds of the calling thread."""
CALLS = 300
N_TURNS = 100
LIMIT_GROWTH = 2.2
"""Most that twice as many turns may cost, as a multiple."""
LIMIT_SHARE = 0.1
"""Most that a store may hold of the text of one full prompt per row."""

SHORT: list[Any] = [{"role": "user", "content": "Which way?"}]
LONG = [{"role": "user", "content": hashlib.sha256(str(n).encode()).hexdigest() * 16} for n in range(100)]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers at once; what it says depends on the length of the conversation alone."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        """Answer."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if request.get("stream"):
            chunks = [_chunk({"role": "assistant", "content": "left "}) for _ in range(50)]
            events = [*map(json.dumps, chunks), json.dumps(_chunk({}, "stop")), "[DONE]"]
            self._send("".join(f"data: {event}\n\n" for event in events), "text/event-stream")
        else:
            self._send(json.dumps(_completion(len(request["messages"]))), "application/json")

    def _send(self, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _completion(n_messages: int) -> dict[str, Any]:
    function = {"name": "look", "arguments": json.dumps({"at": f"door {n_messages}"})}
    calls = [{"id": f"call_{n_messages}", "type": "function", "function": function}]
    message = {"role": "assistant", "content": "I look.", "tool_calls": calls}
    return {
        "id": "one",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "two", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def serve(address: Connection) -> None:
    """Say where, and answer for ever."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address.send(f"http://127.0.0.1:{server.server_port}/v1")
    server.serve_forever()


class Times:
    """What calls took with and without the recorder, in milliseconds."""

    def __init__(self) -> None:
        self.computed: dict[bool, list[float]] = {False: [], True: []}
        self.waited: dict[bool, list[float]] = {False: [], True: []}

    @contextlib.contextmanager
    def one(self, *, is_recorded: bool) -> Iterator[None]:
        """Measure a call."""
        computed, waited = time.thread_time(), time.perf_counter()
        yield
        self.waited[is_recorded].append(1000 * (time.perf_counter() - waited))
        self.computed[is_recorded].append(1000 * (time.thread_time() - computed))

    @property
    def added_ms(self) -> float:
        """What the recorder added to what the thread computed: the median over pairs of calls."""
        pairs = zip(self.computed[True], self.computed[False], strict=True)
        return statistics.median(recorded - alone for recorded, alone in pairs)

    def __str__(self) -> str:
        alone, recorded = (statistics.median(self.waited[is_recorded]) for is_recorded in (False, True))
        computed = f"{self.added_ms:+.3f} ms computed (at most {LIMIT_MS:g})"
        return f"{computed}; {alone:.2f} ms alone, {recorded:.2f} ms recorded"


def turns() -> Iterator[bool]:
    """Whether each call is recorded: pairs of one that is and one that is not, each first in every other."""
    for number in range(CALLS):
        yield from (False, True) if number % 2 else (True, False)


def plain_call(client: OpenAI, messages: list[Any]) -> None:
    """One call."""
    client.chat.completions.create(model="m", messages=messages)


def streamed_call(client: OpenAI, messages: list[Any]) -> None:
    """One call whose answer comes in 51 pieces."""
    for _ in client.chat.completions.create(model="m", messages=messages, stream=True):
        pass


def calls(url: str, call: Callable[[Any, list[Any]], None], messages: list[Any]) -> Times:
    """Calls in turns with and without the recorder."""
    times = Times()
    with (
        tempfile.TemporaryDirectory() as folder,
        OpenAI(base_url=url, api_key="unused") as client,
        trajkit.Recorder(client, store=Path(folder) / "store") as recorder,
        recorder.episode(),
    ):
        for is_recorded in turns():
            with times.one(is_recorded=is_recorded):
                call(recorder.client if is_recorded else client, messages)
    return times


def async_calls(url: str) -> Times:
    """The same with an asynchronous client."""
    times = Times()

    async def play(folder: str) -> None:
        client = AsyncOpenAI(base_url=url, api_key="unused")
        async with trajkit.Recorder(client, store=Path(folder) / "store") as recorder, recorder.episode():
            for is_recorded in turns():
                asked = recorder.client if is_recorded else client
                with times.one(is_recorded=is_recorded):
                    await asked.chat.completions.create(model="m", messages=SHORT)
        await client.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(folder))
    return times


def play_agent(url: str, n_turns: int, store: Path) -> Path:
    """An agent that calls a tool in each turn, recorded; what a tool says does not compress well."""
    messages: list[Any] = [
        {"role": "system", "content": "You look at doors. " * 20},
        {"role": "user", "content": "Which one is open?"},
    ]
    client = OpenAI(base_url=url, api_key="unused")
    with client, trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        for turn in range(n_turns):
            said = recorder.client.chat.completions.create(model="m", messages=messages).choices[0].message
            seen = " ".join(hashlib.sha256(f"{turn} {n}".encode()).hexdigest() for n in range(12))
            for call in said.tool_calls or ():
                messages += [said, {"role": "tool", "tool_call_id": call.id, "content": seen}]
    return store


def in_full(store: Path, goal: Path) -> Path:
    """The same steps with one full prompt per row."""

    def episodes() -> Iterator[Episode]:
        for episode in trajkit.open_dataset(store):
            steps = zip(episode.steps, episode.prompts(), strict=True)
            full = tuple(
                step.model_copy(update={"n_prompt_kept": 0, "messages": prompt}) for step, prompt in steps
            )
            yield episode.model_copy(update={"steps": full})

    write_episodes(goal, episodes(), kind="bench")
    return goal


def n_bytes(store: Path) -> int:
    """Size of a store's steps on disk."""
    return sum(path.stat().st_size for path in (store / "steps").iterdir())


def n_characters(store: Path) -> int:
    """Length of the prompts that its rows hold."""
    column = trajkit.open_dataset(store).arrow("steps").read_all().column("messages")
    return sum(len(text) for text in column.to_pylist() if text is not None)


def main() -> int:
    """Print the figures with their limits; 1 when one is missed."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    is_missed = False
    try:
        url = ours.recv()
        for name, times in (
            ("a short call", calls(url, plain_call, SHORT)),
            ("a call of 100 kB", calls(url, plain_call, LONG)),
            ("a stream of 51 pieces", calls(url, streamed_call, SHORT)),
            ("an asynchronous call", async_calls(url)),
        ):
            is_missed |= times.added_ms > LIMIT_MS
            print(f"{name:22} {times}")
        with tempfile.TemporaryDirectory() as folder:
            stores = [play_agent(url, n, Path(folder) / str(n)) for n in (N_TURNS // 2, N_TURNS)]
            full = [in_full(store, store.with_name(f"{store.name} in full")) for store in stores]
            print(f"{'':24}{N_TURNS // 2:>11} turns{N_TURNS:>11} turns   growth")
            for what, size in (("characters of prompts", n_characters), ("bytes on disk", n_bytes)):
                for kind, made_stores in (("", stores), (", full", full)):
                    half, whole = (size(store) for store in made_stores)
                    print(f"{what + kind:28} {half:>12,} {whole:>16,} {whole / half:>8.2f}")
                    is_missed |= not kind and whole / half > LIMIT_GROWTH
            share = n_characters(stores[1]) / n_characters(full[1])
            is_missed |= share > LIMIT_SHARE
            print(f"{share:.3f} of the characters of one full prompt per row (at most {LIMIT_SHARE:g})")
            print(f"growth for twice the turns: at most {LIMIT_GROWTH:g}")
    finally:
        server.terminate()
        server.join()
    print("MISSED" if is_missed else "ok")
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
