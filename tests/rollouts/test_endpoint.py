"""One call of an OpenAI-compatible server, over real HTTP."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import time

import pytest
from pydantic import SecretStr

from tests.matrix import daily
from tests.rollouts.loopback import Reply, refused, said, serve
from trajkit.errors import RequestError
from trajkit.rollouts.endpoints.endpoint import OPENAI_URL, Completed, Endpoint, Refused
from trajkit.rollouts.faults import FaultKind, Faulty, fault_of_status, said_in
from trajkit.rollouts.running.calling import Caller
from trajkit.rollouts.running.limits import Budget, LimitReached, Limits, Prices
from trajkit.schema import Message, ToolCallBlock, message

KEY = "sk-this-is-the-secret-key"
PROMPT = [{"role": "system", "content": "Go."}, {"role": "user", "content": "Observation: a wall"}]


def caller(**changes) -> Caller:
    return Caller(**({"concurrency": 4, "timeout_s": 5.0, "retries": 0} | changes))


def ask(url: str, by: Caller | None = None, *, key: str | None = KEY, model="m", **arguments) -> Completed:
    async def once() -> Completed:
        endpoint = Endpoint(url, SecretStr(key) if key else None, by or caller(), model=model)
        try:
            return await endpoint.complete({"messages": PROMPT, **arguments})
        finally:
            await endpoint.close()

    return asyncio.run(once())


def fault_of(url: str, **changes) -> Faulty:
    with pytest.raises(Faulty) as caught:
        ask(url, **changes)
    return caught.value


def test_an_answer_is_recorded_with_its_prompt_tokens_time_and_names():
    before = time.time()
    with serve(lambda body, n: Reply(said("turn left"))) as server:
        done = ask(server.url, seed=11, temperature=0.5)
    assert done.response.choices[0].message.content == "turn left"
    answer = done.answer
    assert answer.messages == (message("system", "Go."), message("user", "Observation: a wall"))
    assert (answer.raw, answer.completion) == ("turn left", message("assistant", "turn left"))
    assert (answer.n_input_tokens, answer.n_output_tokens, answer.cost_usd) == (7, 3, None)
    assert (answer.model_name, answer.finish_reason, answer.cached) == (
        "the-model-that-answered",
        "stop",
        None,
    )
    assert (answer.function_name, answer.variant_name, answer.input, answer.tools) == (None, None, None, None)
    assert 0 < answer.latency_s < 5
    assert before - 0.01 <= answer.started_at.timestamp() <= time.time()
    assert answer.extra == {
        "endpoint": server.url.removeprefix("http://"),
        "completion_id": "chatcmpl-1",
        "request": {"seed": 11, "temperature": 0.5},
    }
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.body == {"model": "m", "messages": PROMPT, "seed": 11, "temperature": 0.5}
    assert asked.headers["authorization"] == f"Bearer {KEY}"


def test_tools_and_their_calls_are_kept():
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "door"}'}}
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    with serve(lambda body, n: Reply(said(None, tool_calls=[call]))) as server:
        answer = ask(server.url, tools=[tool]).answer
    assert answer.tools == ({"name": "look", "parameters": {"type": "object"}},)
    assert answer.completion == Message(
        role="assistant", content=(ToolCallBlock(id="c1", name="look", arguments='{"at": "door"}'),)
    )
    assert (answer.raw, answer.finish_reason) == (None, "tool_calls")


@pytest.mark.parametrize(
    ("usage", "tokens", "cost"),
    [
        ({}, (None, None), None),
        ({"prompt_tokens": 5, "completion_tokens": None}, (5, None), None),
        ({"prompt_tokens": -1, "completion_tokens": "many"}, (None, None), None),
        ({"prompt_tokens": 1_000_000, "completion_tokens": 500_000}, (1_000_000, 500_000), 1 + 0.5 * 4),
        ({"prompt_tokens": 5, "completion_tokens": 1, "cost": 0.25}, (5, 1), 0.25),
    ],
)
def test_what_is_not_counted_is_unknown_and_a_price_is_the_servers_or_ours(usage, tokens, cost):
    spending = caller(budget=Budget(prices=Prices(input_usd=1, output_usd=4)))
    with serve(lambda body, n: Reply(said("x", usage=usage))) as server:
        answer = ask(server.url, spending).answer
    assert (answer.n_input_tokens, answer.n_output_tokens) == tokens
    assert answer.cost_usd == cost
    assert spending.budget.cost_usd == (cost or 0)
    assert spending.budget.n_unmetered == (None in tokens)


@pytest.mark.parametrize(
    ("status", "body", "headers", "kind", "is_lasting", "wait_s", "words"),
    [
        (401, refused(f"wrong key {KEY}"), {}, "refused", True, None, "OPENAI_API_KEY holds the key"),
        (403, refused("not for you"), {}, "refused", True, None, "403: not for you; OPENAI_API_KEY"),
        (404, refused("no such model"), {}, "refused", True, None, "check the model 'm'"),
        (429, refused("slow down"), {"Retry-After": "7"}, "rate limit", False, 7, "429: slow down"),
        (429, refused("slow down"), {"retry-after-ms": "1500"}, "rate limit", False, 1.5, "slow down"),
        (429, refused("Please try again in 1m30s."), {}, "rate limit", False, 90, "try again"),
        (429, refused("paid?", code="insufficient_quota"), {}, "refused", True, None, "paid?"),
        (400, refused("no such thing"), {}, "refused", True, None, "400: no such thing"),
        (413, b"too large", {}, "refused", True, None, "413: "),
        (500, refused("broken"), {}, "server error", False, None, "500: broken"),
        (503, {"detail": "loading"}, {"Retry-After": "2"}, "server error", False, 2, "503: loading"),
        (504, b"<html>gateway timeout", {}, "timeout", False, None, "504"),
    ],
)
def test_a_status_says_what_failed_whether_it_lasts_and_when_to_come_back(
    status, body, headers, kind, is_lasting, wait_s, words
):
    with serve(lambda asked, n: Reply(body, status, headers)) as server:
        fault = fault_of(server.url).fault
    assert (fault.kind, fault.is_lasting, fault.retry_after_s) == (kind, is_lasting, wait_s)
    assert words in fault.message
    assert KEY not in fault.message


def test_retry_after_may_be_a_date():
    later = email.utils.formatdate(time.time() + 30, usegmt=True)
    fault = fault_of_status(429, "slow", code=None, headers={"retry-after": later})
    assert fault.retry_after_s == pytest.approx(30, abs=2)
    past = fault_of_status(429, "slow", code=None, headers={"retry-after": email.utils.formatdate(0)})
    assert past.retry_after_s == 0
    assert fault_of_status(429, "slow", code=None, headers={"retry-after": "soon"}).retry_after_s is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, None),
        ({}, None),
        ("no", "no"),
        ({"message": "no"}, "no"),
        ({"detail": "no"}, "no"),
        ({"error": "no"}, "no"),
        ({"detail": [{"loc": ["seed"]}]}, '{"detail": [{"loc": ["seed"]}]}'),
        ({"message": 5}, '{"message": 5}'),
        (["é"], '["é"]'),
    ],
)
def test_the_servers_words_are_found_wherever_it_puts_them(body, words):
    assert said_in(body) == words


@pytest.mark.parametrize(
    "body",
    [
        b"<html>}{ \xff",
        b"",
        b"[]",
        {},
        {"choices": []},
        {"choices": [{"message": "hello"}]},
        {"choices": [{"message": {"content": None, "tool_calls": [{"id": "c"}]}}]},
        b'{"choices": [{"message": {"content": "\\ud800"}}]}',
        b'{"choices": [{"message": {"content": "a"}}], "model": "\\ud800"}',
        b'{"choices": [{"message": {"content": "a"}}], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
@pytest.mark.parametrize("kind", daily(["application/json", "text/html"], 1))
def test_what_is_no_completion_is_unreadable(body, kind):
    with serve(lambda asked, n: Reply(body, headers={"Content-Type": kind})) as server:
        fault = fault_of(server.url).fault
    assert fault.kind == FaultKind.UNREADABLE
    assert not fault.is_lasting


def test_a_connection_that_is_closed_or_refused_and_a_slow_answer_are_told_apart(closed_address):
    with serve(lambda body, n: Reply(None)) as server:
        assert fault_of(server.url).fault.kind == FaultKind.CONNECTION
    assert fault_of(f"{closed_address}/v1").fault.kind == FaultKind.CONNECTION

    def slow(body, n):
        time.sleep(0.5)
        return Reply(said("late"))

    with serve(slow) as server:
        fault = fault_of(server.url, by=caller(timeout_s=0.1)).fault
    assert (fault.kind, fault.message) == (FaultKind.TIMEOUT, "no answer in 0.1 s")


def test_what_may_pass_is_sent_again_and_what_lasts_is_not():
    with serve(lambda body, n: Reply(said("x")) if n else Reply(refused("busy"), 429)) as server:
        assert ask(server.url, caller(retries=1)).answer.raw == "x"
        assert len(server.asked) == 2
    with serve(lambda body, n: Reply(refused("no"), 400)) as server:
        assert isinstance(fault_of(server.url, by=caller(retries=3)), Refused)
        assert len(server.asked) == 1


def test_a_limit_of_calls_holds():
    with serve(lambda body, n: Reply(refused("busy"), 500)) as server:
        with pytest.raises(LimitReached, match="--max-calls"):
            ask(server.url, caller(retries=9, budget=Budget(Limits(max_calls=2))))
        assert len(server.asked) == 2


def test_the_key_is_in_no_message_repr_or_log(caplog):
    caplog.set_level(logging.DEBUG)
    with serve(lambda body, n: Reply(refused(f"the key {KEY} is wrong"), 401)) as server:
        failure = fault_of(server.url)
    assert "the key *** is wrong" in failure.fault.message
    chain = [failure]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    endpoint = Endpoint(server.url, SecretStr(KEY), caller())
    texts = [repr(endpoint), str(endpoint), *map(repr, chain), *map(str, chain), caplog.text]
    asyncio.run(endpoint.close())
    assert len(caplog.records) > 0
    assert not [text for text in texts if KEY in text]


def test_credentials_in_the_url_are_not_shown():
    with pytest.raises(RequestError) as caught:
        Endpoint("ftp://me:hunter2@host/v1", None, caller())
    assert "hunter2" not in str(caught.value)
    endpoint = Endpoint("http://me:hunter2@127.0.0.1:9/v1", None, caller())
    assert endpoint.name == "127.0.0.1:9/v1"
    asyncio.run(endpoint.close())


@pytest.mark.parametrize("url", ["", "localhost:8000/v1", "http://", "no url"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(RequestError, match="is not the address of a model server"):
        Endpoint(url, None, caller())


def test_openai_itself_needs_a_key_and_a_local_server_none(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    with pytest.raises(RequestError, match="OPENAI_API_KEY is not set"):
        Endpoint(OPENAI_URL, None, caller())
    with serve(lambda body, n: Reply(said("x"))) as server:
        ask(server.url, key=None)
    assert server.asked[0].headers["authorization"] == "Bearer none"


def test_a_model_must_be_named_somewhere():
    answering = serve(lambda body, n: Reply(said("x")))
    with answering as server, pytest.raises(RequestError, match=r"no model at .* is named"):
        ask(server.url, model=None)
    assert server.asked == []


def test_a_redirect_takes_no_prompt_to_another_host() -> None:
    with serve(lambda body, n: Reply(said("go"))) as stranger:
        moved = {"Location": f"{stranger.url}/chat/completions"}
        with (
            serve(lambda body, n: Reply({}, 307, moved)) as server,
            pytest.raises(Refused, match="answered 307"),
        ):
            ask(server.url)
        assert stranger.asked == []
