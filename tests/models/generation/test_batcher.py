"""Asks of many coroutines, answered by one thread."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from trajkit.errors import ServiceError
from trajkit.models.generation.ask import Ask, AskError
from trajkit.models.generation.batcher import Batcher
from trajkit.models.generation.generate import generate
from trajkit.models.generation.model import LocalModel, Voice
from trajkit.models.serving.app import Chat


def ask(number: int, **how: Any) -> Ask:
    messages = [{"role": "user", "content": f"You see {number} balls."}]
    return Ask(**{"messages": messages, "seed": number, "max_new_tokens": 12, **how})


def test_what_is_asked_together_is_answered_as_if_it_were_alone(fresh: LocalModel) -> None:
    asks = [ask(number, model=name) for number in range(20) for name in ("base", "one")]

    async def all_of_them() -> list[tuple[int, ...]]:
        async with Batcher(fresh, side_by_side=8) as batcher:
            return [each.tokens for each in await asyncio.gather(*map(batcher.ask, asks))]

    assert asyncio.run(all_of_them()) == [each.tokens for each in generate(fresh, asks)]


def test_asks_of_the_same_time_share_a_batch(fresh: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    call = Voice.__call__

    def noted(self: Voice, tokens: Any, *rest: Any) -> Any:
        sizes.append(tokens.shape[0])
        return call(self, tokens, *rest)

    monkeypatch.setattr(Voice, "__call__", noted)

    async def both() -> None:
        async with Batcher(fresh) as batcher:
            await asyncio.gather(*(batcher.ask(ask(number)) for number in range(16)))

    asyncio.run(both())
    assert max(sizes) >= 8


def test_a_bad_ask_spoils_no_other(fresh: LocalModel) -> None:
    async def mixed() -> list[Any]:
        async with Batcher(fresh) as batcher:
            asks = [ask(1), ask(2, model="nobody"), ask(3, json_schema={"type": "objekt"}), ask(4)]
            return await asyncio.gather(*map(batcher.ask, asks), return_exceptions=True)

    first, stranger, shapeless, last = asyncio.run(mixed())
    assert isinstance(stranger, AskError)
    assert isinstance(shapeless, AskError)
    assert [first.tokens, last.tokens] == [each.tokens for each in generate(fresh, [ask(1), ask(4)])]


def test_a_model_that_fails_fails_those_who_wait_and_answers_the_next(
    fresh: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def two() -> tuple[Any, Any]:
        async with Batcher(fresh) as batcher:
            with monkeypatch.context() as broken:
                broken.setattr(Voice, "__call__", lambda *_: 1 / 0)
                lost = await asyncio.gather(batcher.ask(ask(1)), return_exceptions=True)
            return lost[0], await batcher.ask(ask(2))

    lost, said = asyncio.run(two())
    assert isinstance(lost, ServiceError)
    assert "ZeroDivisionError" in str(lost)
    assert said.tokens == generate(fresh, [ask(2)])[0].tokens


def test_a_device_that_is_lost_is_told_to_everyone_and_by_health(
    fresh: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AcceleratorError(RuntimeError):  # torch's, which a test cannot make
        pass

    def lost(*_: Any) -> Any:
        raise AcceleratorError("the device is gone")

    async def health(chat: Chat) -> tuple[int, str]:
        transport = httpx.ASGITransport(chat.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get("/health")
        return answer.status_code, answer.json()["status"]

    async def both() -> tuple[list[Any], list[tuple[int, str]]]:
        async with Batcher(fresh) as batcher:
            chat = Chat(batcher, max_new_tokens=8)
            before = await health(chat)
            monkeypatch.setattr(Voice, "__call__", lost)
            asks = [batcher.ask(ask(number)) for number in range(3)]
            failed = await asyncio.gather(*asks, return_exceptions=True)
            failed += await asyncio.gather(batcher.ask(ask(4)), return_exceptions=True)
            return failed, [before, await health(chat)]

    failed, told = asyncio.run(both())
    assert [type(each) for each in failed] == [ServiceError] * 4
    assert told == [(200, "ok"), (503, "failed")]


def test_one_that_spoils_a_batch_spoils_no_other(fresh: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    call = Voice.__call__
    spoilt = fresh.voice(None).template.encode("99")

    def picky(self: Voice, tokens: Any, *rest: Any) -> Any:
        said = tokens.tolist()
        if any(spoilt == row[at : at + len(spoilt)] for row in said for at in range(len(row))):
            raise IndexError("no such token")
        return call(self, tokens, *rest)

    monkeypatch.setattr(Voice, "__call__", picky)

    async def mixed() -> list[Any]:
        async with Batcher(fresh) as batcher:
            asks = (batcher.ask(ask(number)) for number in (1, 99, 2))
            return await asyncio.gather(*asks, return_exceptions=True)

    first, lost, last = asyncio.run(mixed())
    assert isinstance(lost, ServiceError)
    monkeypatch.undo()
    assert [first.tokens, last.tokens] == [each.tokens for each in generate(fresh, [ask(1), ask(2)])]


def test_a_long_answer_does_not_hold_up_a_short_one(fresh: LocalModel) -> None:
    endless = ask(
        1, max_new_tokens=3000, json_schema={"type": "array", "items": {"const": 1}, "minItems": 900}
    )

    async def race() -> list[str]:
        ended: list[str] = []
        async with Batcher(fresh) as batcher:

            async def run(name: str, asked: Ask) -> None:
                await batcher.ask(asked)
                ended.append(name)

            async with asyncio.TaskGroup() as group:
                heard = asyncio.Event()
                long = asyncio.create_task(batcher.ask(endless, on_text=lambda _: heard.set()))
                await heard.wait()
                group.create_task(run("short", ask(2)))
            ended.append("long" if long.done() else "waits")
            long.cancel()
        return ended

    assert asyncio.run(race()) == ["short", "waits"]


def test_text_is_heard_while_it_grows_and_never_what_stops_it(fresh: LocalModel) -> None:
    whole = generate(fresh, [ask(5, temperature=0.0)])[0].text
    stop = whole[-6:-2]

    async def listen(stops: tuple[str, ...]) -> tuple[list[str], str]:
        heard: list[str] = []
        async with Batcher(fresh) as batcher:
            said = await batcher.ask(ask(5, temperature=0.0, stop=stops), on_text=heard.append)
        return heard, said.text

    for stops in ((), (stop,)):
        heard, text = asyncio.run(listen(stops))
        assert heard
        assert all(text.startswith(each) for each in heard)
        assert text == (whole[: whole.index(stop)] if stops else whole)


def test_a_closed_one_answers_what_came_before_and_no_more(fresh: LocalModel) -> None:
    async def late() -> tuple[int, str]:
        batcher = Batcher(fresh)
        waiting = asyncio.create_task(batcher.ask(ask(1)))
        await asyncio.sleep(0)
        await asyncio.to_thread(batcher.close)
        said = await waiting
        with pytest.raises(ServiceError, match="closed") as caught:
            await batcher.ask(ask(2))
        return said.n_output_tokens, caught.value.message

    assert asyncio.run(late())[0] > 0
