"""Runs in an environment with verifiers 0.4: builds its traces from calls, and writes them as it does.

Usage: client_graph.py URL FOLDER. The calls go to the server at URL, the turns into the package's own graph,
and its own writer writes the episodes. Its harnesses need a sandbox and are not part of this.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from openai import OpenAI
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.dialects.chat import ChatDialect
from verifiers.v1.episode import EnvInfo, Episode
from verifiers.v1.graph import prepare_turn
from verifiers.v1.task import TaskData
from verifiers.v1.trace import AgentInfo, Error, ModelCall, Reward, TimeSpan, Trace, TraceTask
from verifiers.v1.types import Sampling, TurnTokens
from verifiers.v1.utils.trace_store import write_episode

URL, FOLDER = sys.argv[1], Path(sys.argv[2])
DIALECT = ChatDialect()
CLIENT = OpenAI(base_url=URL, api_key="none", max_retries=0)


def begun(name: str, agent: str) -> Trace:
    data = TaskData(prompt=name, idx=0)
    task = TraceTask(type="Task", data=data, key=name)
    return Trace(
        id=f"{name}-{agent}", task=task, agent=AgentInfo(config=AgentConfig(model="stand-in"), name=agent)
    )


def turn(trace: Trace, messages: list[dict[str, Any]], tools: list[dict[str, Any]], ids: Any = None) -> None:
    request = DIALECT.parse_request({"model": "stand-in", "messages": messages, "tools": tools})
    pending = prepare_turn(trace, request.messages, request.tools)
    start = time.time()
    sent: Any = {"messages": messages, **({"tools": tools} if tools else {})}
    response = DIALECT.parse_response(CLIENT.chat.completions.create(model="stand-in", **sent))
    if ids is not None:
        prompt, completion, spans = ids
        tokens = TurnTokens(
            prompt_ids=prompt,
            completion_ids=completion,
            completion_logprobs=[-0.5] * len(completion),
            message_spans=spans,
        )
        response = response.model_copy(update={"tokens": tokens})
    node = pending.commit(response)
    trace.calls.append(
        ModelCall(
            node=node,
            model="stand-in",
            sampling=Sampling(temperature=0.0),
            finish_reason=response.finish_reason,
            usage=response.usage,
            time=TimeSpan(start=start, end=time.time()),
        )
    )


def written(name: str, traces: list[Trace]) -> None:
    for trace in traces:
        trace.ok = trace.is_completed = True
    write_episode(
        FOLDER, Episode(id=name, env=EnvInfo(id="babyai"), task=traces[0].task, traces=traces, ok=True)
    )


trace: Trace | None = None
for text in sys.stdin:
    told = json.loads(text)
    if "two agents" in told:
        solver, judge = begun("pair", "solver"), begun("pair", "judge")
        system, user = {"role": "system", "content": "Solve."}, {"role": "user", "content": "1 + 1?"}
        turn(solver, [system, user], [], ([1, 2, 3, 4], [5, 6], [(0, 1), (1, 3)]))
        said = {"role": "assistant", "content": "2", "reasoning_content": "One and one."}
        more = {"role": "user", "content": "Sure?"}
        turn(
            solver,
            [system, user, said, more],
            [],
            ([1, 2, 3, 4, 5, 6, 7, 8], [9], [(0, 1), (1, 3), (4, 6), (6, 7)]),
        )
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        turn(judge, [{"role": "user", "content": [{"type": "text", "text": "Is it right?"}, image]}], [])
        solver.rewards = {"right": Reward(score=1.0, weight=0.5), "unscored": None}
        solver.metrics = {"n_words": 3.0, "late": None}
        judge.rewards = {"agrees": Reward(score=0.0)}
        error = Error(type="ProviderError", message="too many requests", status_code=429)
        judge.calls.append(ModelCall(model="stand-in", error=error))
        written("pair", [solver, judge])
    elif "end" in told:
        assert trace is not None
        trace.rewards = {"episode_return": Reward(score=told["value"])}
        written(told["end"], [trace])
        trace = None
    else:
        trace = trace or begun(told["name"], "agent")
        turn(trace, told["messages"], told["tools"])
    sys.stdout.write('"ok"\n')
    sys.stdout.flush()
