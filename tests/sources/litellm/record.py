"""Play thirty episodes and some special calls through the real LiteLLM proxy, and keep its spend logs.

    python -m tests.sources.litellm.record FOLDER

writes `tests/data/sources/litellm/spend_logs.jsonl.gz`, and `spend_logs.sql`, which makes the table as
litellm's own migrations do. Recorded with litellm 1.108.7 and litellm-proxy-extras 0.4.110. FOLDER gets
the environment.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import httpx2
from openai import APIError, OpenAI

from tests.node_tools import free_port, running
from tests.sources import foreign, thirty

DATA = Path(__file__).parents[2] / "data" / "sources" / "litellm"
ROWS, TABLE = "spend_logs.jsonl", "spend_logs.sql"
REQUIREMENTS = ("litellm[proxy]==1.108.7", "litellm-proxy-extras==0.4.110")
KEY = "sk-only-for-tests"
ALIAS = "agent"
PRICE = 1e-6
_PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)


def environment(folder: Path) -> Path:
    """The Python with litellm."""
    return foreign.environment(folder / "environment", REQUIREMENTS)


def config(model_url: str, *, callback: bool) -> str:
    """A configuration of the proxy: one model that answers, one that is not there."""
    lines = [
        "router_settings: {disable_cooldowns: true}",
        "litellm_settings:",
        "  num_retries: 0",
        "  cache: true",
    ]
    lines += ["  cache_params: {type: local, mode: default_off}"]
    lines += ["  callbacks: [spend_rows.rows]"] if callback else []
    lines += ["general_settings:", "  master_key: os.environ/LITELLM_MASTER_KEY", "model_list:"]
    models = ((ALIAS, "hosted_vllm", model_url), ("broken", "hosted_vllm", "http://127.0.0.1:9/v1"))
    for name, provider, url in (*models, ("bridged", "lm_studio", model_url)):
        lines += [f"  - model_name: {name}", "    litellm_params:", f"      model: {provider}/{thirty.MODEL}"]
        lines += [f"      api_base: {url}", "      api_key: none"]
        lines += [f"      input_cost_per_token: {PRICE}", f"      output_cost_per_token: {PRICE}"]
    return "\n".join(lines) + "\n"


@contextmanager
def proxy(python: Path, folder: Path, text: str, **variables: str) -> Iterator[str]:
    """The address of the real proxy with a configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    (folder / "spend_rows.py").write_text(
        Path(__file__).with_name("spend_rows.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    port = free_port()
    command = [
        foreign.program(python, "litellm"),
        "--config",
        str(folder / "config.yaml"),
        "--port",
        str(port),
    ]
    command += ["--host", "127.0.0.1"]
    own = {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
    with ExitStack() as stack:
        with mock.patch.dict(os.environ, {**own, **variables}):
            for name in ("PYTHONPATH", "DATABASE_URL"):
                os.environ.pop(name, None)
            url = stack.enter_context(running(command, port, folder / "log"))
        yield url


def play(answers: thirty.Answers, url: str) -> list[thirty.Played]:
    """The thirty episodes through the proxy."""

    @contextmanager
    def episode(name: str) -> Iterator[thirty.Ask]:
        with OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            more = {"litellm_session_id": name, "metadata": {"tags": ["babyai"]}}

            def ask(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Any:
                return client.chat.completions.create(
                    model=ALIAS,
                    messages=messages,
                    tools=tools,
                    temperature=0.5,
                    user="player",
                    extra_body=more,
                )  # type: ignore[call-overload]

            yield ask

    return thirty.play(answers, episode, lambda _name, _value: None)


def special(answers: thirty.Answers, url: str) -> None:
    """Calls of other kinds: each in a session of its own."""
    with OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:

        def ask(session: str | None, content: Any, answer: dict[str, Any] | None, **more: Any) -> None:
            if answer is not None:
                answers.put({"role": "assistant", **answer})
            body = {} if session is None else {"litellm_session_id": session}
            body |= more.pop("extra_body", {})
            model = more.pop("model", ALIAS)
            client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": content}], extra_body=body, **more
            )

        with suppress(APIError):
            ask("failed", "are you there?", None, model="broken")
        ask("long", "word " * 1000, {"content": "a long text"})
        ask("thought", "what is 1 + 1?", {"content": "2", "reasoning_content": "I add."})
        picture = [
            {"type": "text", "text": "what is it?"},
            {"type": "image_url", "image_url": {"url": _PIXEL}},
        ]
        ask("picture", picture, {"content": "a dot"})
        ask(None, "no session", {"content": "none"})
        noted = {"metadata": {"spend_logs_metadata": {"task": "cache"}}}
        ask("cached", "twice", {"content": "once"}, extra_body={"cache": {"use-cache": True}, **noted})
        time.sleep(1)
        ask("cached", "twice", None, extra_body={"cache": {"use-cache": True}, **noted})
    headers = {"Authorization": f"Bearer {KEY}"}
    tool = {"name": "act", "description": "Act.", "parameters": {"type": "object", "properties": {}}}
    call = {"id": "call_1", "type": "function", "function": {"name": "act", "arguments": "{}"}}
    with httpx2.Client(base_url=url, headers=headers, timeout=60) as plain:
        answers.put({"role": "assistant", "content": "I act.", "tool_calls": [call]})
        body = {
            "model": "bridged",
            "instructions": "Be brief.",
            "input": [{"role": "user", "content": "act"}],
            "tools": [{"type": "function", **tool}],
            "litellm_session_id": "responses",
        }
        plain.post("/v1/responses", json=body).raise_for_status()
        answers.put({"role": "assistant", "content": "I act.", "tool_calls": [call]})
        body = {
            "model": "bridged",
            "max_tokens": 50,
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "act"}],
            "tools": [{"name": "act", "description": "Act.", "input_schema": tool["parameters"]}],
            "litellm_session_id": "anthropic",
        }
        plain.post("/v1/messages", json=body).raise_for_status()


def unstored(answers: thirty.Answers, url: str) -> None:
    """Two calls to a proxy that stores no prompts."""
    with OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        for text in ("one", "two"):
            answers.put({"role": "assistant", "content": text})
            client.chat.completions.create(
                model=ALIAS,
                messages=[{"role": "user", "content": text}],
                extra_body={"litellm_session_id": "unstored"},
            )


def wait_for(file: Path, n_rows: int) -> list[dict[str, Any]]:
    """The rows of a file, when all are there: litellm writes them after it has answered."""
    deadline = time.monotonic() + 60
    while True:
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        if len(lines) >= n_rows:
            return [json.loads(line) for line in lines]
        assert time.monotonic() < deadline, f"{len(lines)} of {n_rows} rows"
        time.sleep(0.1)


def record(folder: Path) -> tuple[list[dict[str, Any]], list[thirty.Played]]:
    """The rows of all calls, and the thirty episodes as they were played."""
    python, file = environment(folder), folder / ROWS
    file.unlink(missing_ok=True)
    n_special = 9
    with thirty.Answers() as answers:
        text = config(answers.url, callback=True)
        with proxy(
            python, folder / "stored", text, SPEND_ROWS=str(file), STORE_PROMPTS_IN_SPEND_LOGS="true"
        ) as url:
            played = play(answers, url)
            n_calls = sum(sum(one.role == "assistant" for one in each.messages) for each in played)
            wait_for(file, n_calls)
            special(answers, url)
            wait_for(file, n_calls + n_special)
        with proxy(python, folder / "unstored", text, SPEND_ROWS=str(file)) as url:
            unstored(answers, url)
            rows = wait_for(file, n_calls + n_special + 2)
    return [_clean(row, folder) for row in rows], played


def table(folder: Path) -> str:
    """The SQL of the table, from the migrations that litellm brings."""
    (migrations,) = (folder / "environment").glob("lib/*/site-packages/litellm_proxy_extras/migrations")
    found: list[str] = []
    for file in sorted(migrations.glob("*/migration.sql")):
        text = re.sub(r"^\s*--.*$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        found += [
            f"-- {file.parent.name}\n{one.strip()};"
            for one in text.split(";")
            if re.match(r'\s*(CREATE TABLE|ALTER TABLE)[^"]*"LiteLLM_SpendLogs"', one)
        ]
    return "\n\n".join(found) + "\n"


def _clean(row: dict[str, Any], folder: Path) -> dict[str, Any]:
    text = json.dumps(row)
    for path in (str(folder), *_paths(text)):
        text = text.replace(path, "…")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", text)
    found: dict[str, Any] = json.loads(text)
    return found


def _paths(text: str) -> Sequence[str]:
    return sorted(set(re.findall(r"/[\w./-]+/site-packages", text)), key=len, reverse=True)


def main(folder: Path) -> None:
    """Record, and write the fixture."""
    rows, _ = record(folder)
    DATA.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (DATA / f"{ROWS}.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    (DATA / TABLE).write_text(table(folder), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
