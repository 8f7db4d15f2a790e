"""Serving a tiny model to 16 clients at once: `trajkit serve` against `transformers serve`, in one run.

    python bench/serve.py [--seconds 8] [--rounds 2] [--clients 16]

All serve the tiny base model, with one thread on a core of its own; the clients have another core, and each
asks as soon as it was answered: short prompts of BabyAI, at most 8 new tokens, temperature 1. The servers
take turns, each in a process that is started for its round, and the medians of answers per second are
compared.

trajkit        `trajkit serve`
default        `transformers serve`, which answers one request after the other
continuous     `transformers serve --continuous-batching`; it has no bound

The limit is that trajkit gives at least twice the answers of the default. FastAPI, which transformers' server
is made with, is fetched as a wheel and never installed. Exit 1 when the limit is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.wheels import unpacked

ROOT = Path(__file__).resolve().parents[1]
MIN_RATIO = 2.0
MODEL = ROOT / "data" / "tiny-base"
WHEELS = (("fastapi", "0.165.0"), ("annotated_doc", "0.0.7"), ("opentelemetry_api", "1.45.2"))
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
_READY_S = 120.0
_COLOURS = ("red", "blue", "green", "grey", "purple", "yellow")


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(server: str, port: int) -> list[str]:
    """What starts a server."""
    if server == "trajkit":
        return [sys.executable, "-m", "trajkit", "serve", str(MODEL), "--port", str(port), "--threads", "1"]
    program = Path(sys.executable).with_name("transformers")
    base = [str(program), "serve", str(MODEL), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    return [*base, "--continuous-batching"] if server == "continuous" else base


@contextlib.contextmanager
def serving(server: str, wheels: Path) -> Iterator[int]:
    """A server that takes requests, by its port."""
    port = free_port()
    paths = [str(unpacked(name, version, wheels)) for name, version in WHEELS] if server != "trajkit" else []
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)]),
    }
    with contextlib.ExitStack() as ends:
        log = ends.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(command(server, port), env=environment, stdout=log, stderr=log)
        ends.callback(end, process)
        pin(process.pid, 0)
        deadline = time.monotonic() + _READY_S
        while not is_answered(port, deadline):
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                raise SystemExit(f"{server} did not start:\n{log.read().decode(errors='replace')[-2000:]}")
            time.sleep(0.1)
        yield port


def end(process: subprocess.Popen[bytes]) -> None:
    """End a server, by force when it does not hear."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def pin(pid: int, core: int) -> None:
    """Give a process one core, where the system can and there are several."""
    if len(CORES) > 1:
        os.sched_setaffinity(pid, {CORES[core]})


def is_answered(port: int, deadline: float) -> bool:
    """Whether it answers a request."""
    try:
        ask(port, 0, timeout_s=max(1.0, deadline - time.monotonic()))
    except (OSError, http.client.HTTPException, ValueError):
        return False
    return True


def request(number: int) -> bytes:
    """A prompt of BabyAI, each another one."""
    colour, other = _COLOURS[number % 6], _COLOURS[number // 6 % 6]
    seen = (
        f"a wall {number % 5 + 2} steps forward\na {colour} ball {number % 3 + 1} steps left\na {other} key"
    )
    messages = [
        {"role": "system", "content": "You are an agent in a grid world. Answer with your next action."},
        {"role": "user", "content": f"Mission: go to the {colour} ball\n\nObservation: {seen} {number}"},
    ]
    asked = {"model": str(MODEL), "messages": messages, "max_tokens": 8, "temperature": 1.0}
    return json.dumps(asked).encode()


def ask(
    port: int, number: int, *, timeout_s: float = 60.0, connection: http.client.HTTPConnection | None = None
) -> dict[str, Any]:
    """The tokens that a request took."""
    used = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    used.request("POST", "/v1/chat/completions", request(number), {"Content-Type": "application/json"})
    answer = used.getresponse()
    said = json.loads(answer.read())
    if answer.status != 200:
        raise ValueError(f"{answer.status}: {said}")
    usage: dict[str, Any] = said["usage"]
    return usage


def measured(port: int, n_clients: int, seconds: float) -> tuple[float, float, float]:
    """Answers per second, and the mean tokens of prompts and answers."""
    for number in range(2 * n_clients):
        ask(port, number)
    usages: list[dict[str, Any]] = []
    failures: list[Exception] = []
    start = time.perf_counter()

    def client(place: int) -> None:
        try:
            keep_asking(place)
        except (OSError, http.client.HTTPException, ValueError) as error:
            failures.append(error)

    def keep_asking(place: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = place * 10_000
        while time.perf_counter() - start < seconds:
            usages.append(ask(port, number, connection=connection))
            number += 1
        connection.close()

    threads = [threading.Thread(target=client, args=(place,)) for place in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    if failures:  # who was not answered asks no more, and the rate would be that of fewer clients
        raise SystemExit(f"{len(failures)} of {n_clients} clients were not answered: {failures[0]!r}")
    n_in, n_out = (
        statistics.fmean(each[name] for each in usages) for name in ("prompt_tokens", "completion_tokens")
    )
    return len(usages) / took, n_in, n_out


def main() -> int:
    """Measure, print, and say whether the limit holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="how long each server is asked each round")
    parser.add_argument("--rounds", type=int, default=2, help="how often they take turns")
    parser.add_argument("--clients", type=int, default=16, help="how many ask at the same time")
    options = parser.parse_args()
    pin(0, 1)
    servers = ("trajkit", "default", "continuous")
    rates: dict[str, list[float]] = {server: [] for server in servers}
    print(
        f"{platform.machine()}, {os.cpu_count()} cores; {options.clients} clients, {options.seconds:g} s each"
    )
    with tempfile.TemporaryDirectory(prefix="trajkit-bench-") as folder:
        for turn in range(options.rounds):
            for server in servers if turn % 2 == 0 else reversed(servers):
                with serving(server, Path(folder)) as port:
                    rate, n_in, n_out = measured(port, options.clients, options.seconds)
                rates[server].append(rate)
                print(f"{server:<10} {rate:7.1f} answers/s  {n_in:.0f} + {n_out:.1f} tokens", flush=True)
    middle = {server: statistics.median(found) for server, found in rates.items()}
    ratio = middle["trajkit"] / middle["default"]
    print(
        f"trajkit {middle['trajkit']:.1f}, default {middle['default']:.1f}, continuous batching "
        f"{middle['continuous']:.1f} answers/s: {ratio:.2f} times the default (at least {MIN_RATIO:g}), "
        f"{middle['trajkit'] / middle['continuous']:.2f} times continuous batching"
    )
    return int(ratio < MIN_RATIO)


if __name__ == "__main__":
    raise SystemExit(main())
