from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import trajkit
from trajkit.errors import RequestError
from trajkit.schema import FeedbackKind, Outcome, Purpose


@pytest.fixture
def echo(server, wire):
    """The server answers with what it was told last."""
    server.reply = lambda request: wire.Answer(wire.completion(request["messages"][-1]["content"]))


@pytest.fixture
def recorder(client, store, echo):
    with trajkit.Recorder(client, store=store) as made:
        yield made


def say(client, text: str) -> str:
    made = client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    return made.choices[0].message.content


def texts(episode) -> list[str]:
    return [step.completion.text for step in episode.steps]


def test_an_episode_has_what_was_said_about_it(recorder, episodes):
    with recorder.episode(
        task="goto",
        seed=np.int64(7),
        env_id="mine",
        purpose="eval",
        tags={"run": "a"},
        initial_state_hash="ab12",
    ) as e:
        assert recorder.current is e
        say(recorder.client, "one")
        e.step(
            observation="a door",
            action={"go": "left"},
            action_executed="go left",
            action_valid=True,
            reward=0.25,
            legal_actions=["go left", "stay"],
            info={"score": 1},
        )
        e.metric("helpful", 0.5, on_step=True)
        e.comment("good", on_step=True)
        say(recorder.client, "two")
        e.reward(np.float32(0.5))
        e.reward(0.25)
        e.step(terminated=True, truncated=np.False_)
        e.demonstration({"action": "stay"})
        e.metric("progression", 0.5)
        e.metric("progression", 1)
        e.comment("done")
    assert recorder.current is None
    recorder.close()
    (episode,) = episodes()
    assert (episode.task, episode.seed, episode.env_id) == ("goto", 7, "mine")
    assert (episode.purpose, episode.tags, episode.initial_state_hash) == (Purpose.EVAL, {"run": "a"}, "ab12")
    assert (episode.outcome, episode.total_reward) == (Outcome.SUCCESS, 1.0)
    assert episode.metrics == {"progression": 1.0}
    first, second = episode.steps
    assert (first.observation, first.action, first.action_executed) == ("a door", {"go": "left"}, "go left")
    assert (first.action_valid, first.reward, first.metrics) == (True, 0.25, {"helpful": 0.5})
    assert (first.legal_actions, first.info) == (("go left", "stay"), {"score": 1})
    assert (first.terminated, second.terminated, second.truncated) == (None, True, False)
    assert (second.reward, second.demonstration) == (0.75, {"action": "stay"})
    assert episode.started_at <= first.started_at < second.started_at < episode.ended_at
    assert [(one.kind, one.inference_id, one.value) for one in episode.feedback] == [
        (FeedbackKind.FLOAT, first.inference_id, 0.5),
        (FeedbackKind.COMMENT, first.inference_id, "good"),
        (FeedbackKind.DEMONSTRATION, second.inference_id, {"action": "stay"}),
        (FeedbackKind.FLOAT, None, 0.5),
        (FeedbackKind.FLOAT, None, 1.0),
        (FeedbackKind.COMMENT, None, "done"),
    ]


@pytest.mark.parametrize(
    ("notes", "outcome"),
    [
        ([], Outcome.UNKNOWN),
        ([("metric", "success", True)], Outcome.SUCCESS),
        ([("metric", "success", False)], Outcome.FAILURE),
        ([("metric", "progression", 0.9)], Outcome.FAILURE),
        ([("metric", "success", False), ("outcome", "success")], Outcome.SUCCESS),
        ([("outcome", "truncated")], Outcome.TRUNCATED),
    ],
)
def test_an_episode_ends_as_its_metrics_or_the_user_say(recorder, episodes, notes, outcome):
    with recorder.episode() as e:
        say(recorder.client, "one")
        for name, *values in notes:
            getattr(e, name)(*values)
    recorder.close()
    assert episodes()[0].outcome == outcome


def test_a_reward_that_is_missing_makes_the_sum_unknown(recorder, episodes):
    with recorder.episode() as e:
        say(recorder.client, "one")
        say(recorder.client, "two")
        e.reward(1.0)
    recorder.close()
    assert [step.reward for step in episodes()[0].steps] == [None, 1.0]
    assert episodes()[0].total_reward is None


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, asyncio.CancelledError])
def test_an_exception_ends_the_episode_as_an_error_and_goes_on(recorder, episodes, error):
    with pytest.raises(error, match="mine"), recorder.episode() as e:  # noqa: PT012 -- the call is the point
        say(recorder.client, "one")
        e.metric("success", True)
        raise error("mine, with a secret")
    recorder.close()
    (episode,) = episodes()
    assert episode.outcome == Outcome.ERROR
    assert episode.origin == {"error": error.__name__}
    assert texts(episode) == ["one"]


def test_episodes_nest(recorder, episodes):
    with recorder.episode(task="outer") as outer:
        say(recorder.client, "o1")
        with recorder.episode(task="inner"):
            say(recorder.client, "i1")
        say(recorder.client, "o2")
    recorder.close()
    first, second = episodes()
    assert (texts(first), texts(second)) == (["o1", "o2"], ["i1"])
    assert second.origin["parent_episode_id"] == outer.episode_id == first.episode_id


def test_two_recorders_know_their_own(client, async_client, tmp_path, echo):
    with (
        trajkit.Recorder(client, store=tmp_path / "a") as one,
        trajkit.Recorder(client, store=tmp_path / "b") as two,
        one.episode(task="one"),
        two.episode(task="two"),
    ):
        say(one.client, "1")
        say(two.client, "2")
        say(client, "no episode's")
    for name, text in (("a", "1"), ("b", "2")):
        (episode,) = trajkit.open_dataset(tmp_path / name)
        assert texts(episode) == [text]


@pytest.mark.full
def test_tasks_that_run_at_once_keep_to_their_episodes(async_client, store, episodes, echo):
    async def play(client, recorder, number: int) -> None:
        async with recorder.episode(task=f"task {number}") as e:
            for turn in range(3):
                await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": f"{number}.{turn}"}]
                )
                e.reward(turn)

    async def main() -> None:
        with trajkit.Recorder(async_client, store=store) as recorder:
            await asyncio.gather(*(play(recorder.client, recorder, number) for number in range(12)))
        await async_client.close()

    asyncio.run(main())
    found = {episode.task: episode for episode in episodes()}
    assert len(found) == 12
    for number in range(12):
        episode = found[f"task {number}"]
        assert texts(episode) == [f"{number}.{turn}" for turn in range(3)]
        assert [step.reward for step in episode.steps] == [0, 1, 2]
        ids = [step.inference_id for step in episode.steps]
        assert ids == sorted(ids)


def test_calls_that_run_at_once_in_one_episode_are_in_the_order_begun(
    async_client, server, wire, store, episodes
):
    def reply(request):
        text = request["messages"][-1]["content"]
        return wire.Answer(wire.completion(text), delay_s=0.2 - 0.06 * int(text))

    server.reply = reply

    async def main() -> None:
        async with trajkit.Recorder(async_client, store=store) as recorder, recorder.episode():

            async def ask(number: int) -> None:
                await asyncio.sleep(0.02 * number)
                await recorder.client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": str(number)}]
                )

            await asyncio.gather(*(ask(number) for number in range(3)))
        await async_client.close()

    asyncio.run(main())
    assert texts(episodes()[0]) == ["0", "1", "2"]


def test_a_clock_that_is_set_back_keeps_the_order(recorder, episodes, monkeypatch):
    with recorder.episode() as e:
        say(recorder.client, "one")
        e.metric("score", 1.0)
        monkeypatch.setattr("trajkit._core.ids._clock_ms", lambda: time.time_ns() // 1_000_000 - 3_600_000)
        say(recorder.client, "two")
        e.metric("score", 2.0)
    recorder.close()
    (episode,) = episodes()
    assert texts(episode) == ["one", "two"]
    assert episode.episode_id < episode.steps[0].inference_id < episode.steps[1].inference_id
    assert episode.metrics == {"score": 2.0}
    assert [one.value for one in episode.feedback] == [1.0, 2.0]


def test_threads_are_given_the_episode(recorder, episodes):
    def play(number: int) -> None:
        with recorder.episode(task=f"thread {number}"):
            for turn in range(3):
                say(recorder.client, f"{number}.{turn}")

    threads = [threading.Thread(target=play, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with recorder.episode(task="pool") as e, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(e.bind(lambda text: say(recorder.client, text)), "abcd")) == list("abcd")
        planner = e.agent("planner")
        pool.submit(planner.bind(say), recorder.client, "plan").result()
        pool.submit(say, recorder.client, "lost its way").result()
    recorder.close()
    found = {episode.task: episode for episode in episodes()}
    for number in range(6):
        assert texts(found[f"thread {number}"]) == [f"{number}.{turn}" for turn in range(3)]
    assert sorted(texts(found["pool"])) == ["a", "b", "c", "d", "plan"]
    assert [step.agent_name for step in found["pool"].steps] == [None] * 4 + ["planner"]
    assert texts(found[None]) == ["lost its way"]


def test_agents_have_their_names_and_their_rewards(recorder, episodes):
    with recorder.episode() as e:
        planner, actor = e.agent("planner"), e.agent("actor")
        with planner:
            say(recorder.client, "plan")
        with actor:
            say(recorder.client, "act")
            with planner:
                say(recorder.client, "plan again")
            say(recorder.client, "act again")
        planner.reward(1.0)
        actor.reward(0.5)
        say(recorder.client, "nobody")
    recorder.close()
    assert [(step.agent_name, step.reward) for step in episodes()[0].steps] == [
        ("planner", None),
        ("actor", None),
        ("planner", 1.0),
        ("actor", 0.5),
        (None, None),
    ]


def test_a_decorated_function_is_an_episode_each_time(recorder, async_client, episodes):
    @recorder.episode(task="decorated")
    def play(text: str) -> str:
        recorder.current.metric("success", True)
        return say(recorder.client, text)

    client = recorder.wrap(async_client)

    @recorder.episode(task="async")
    async def play_later(text: str) -> str:
        made = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
        return made.choices[0].message.content

    async def main() -> str:
        answer = await play_later("c")
        await async_client.close()
        return answer

    assert (play("a"), play("b"), asyncio.run(main())) == ("a", "b", "c")
    recorder.close()
    found = [(episode.task, texts(episode), episode.outcome) for episode in episodes()]
    assert found == [
        ("decorated", ["a"], Outcome.SUCCESS),
        ("decorated", ["b"], Outcome.SUCCESS),
        ("async", ["c"], Outcome.UNKNOWN),
    ]


def test_a_generator_is_not_decorated(recorder):
    def play():
        yield 1

    with pytest.raises(RequestError, match="play is a generator"):
        recorder.episode()(play)


def test_blocks_that_end_in_another_order_do_not_mix_up_the_rest(recorder, episodes):
    with contextlib.ExitStack() as stack:
        first = recorder.episode(task="first")
        first.__enter__()
        stack.enter_context(recorder.episode(task="second"))
        first.__exit__(None, None, None)
        say(recorder.client, "x")
    assert recorder.current is None
    recorder.close()
    assert {episode.task: texts(episode) for episode in episodes()} == {"first": [], "second": ["x"]}


def test_a_nested_event_loop_in_a_notebook_keeps_the_episode(recorder, episodes, async_client):
    """As in Jupyter: a loop runs already, and the cell's code runs inside a task of it."""
    client = recorder.wrap(async_client)

    async def cell() -> None:
        with recorder.episode(task="cell"):
            say(recorder.client, "sync in a loop")
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "await"}])
        await async_client.close()

    async def kernel() -> None:
        await asyncio.create_task(cell())

    asyncio.run(kernel())
    recorder.close()
    assert texts(episodes()[0]) == ["sync in a loop", "await"]


def test_what_cannot_be_kept_is_refused_where_it_is_said(recorder):
    for arguments, problem in [
        ({"seed": 2**63}, "whole number of 64 bits"),
        ({"seed": "1"}, "whole number of 64 bits"),
        ({"purpose": "fun"}, "there is no purpose 'fun'"),
        ({"task": 3}, "a task is text, not 3"),
        ({"tags": {"a": 1}}, "tag 'a' is text, not 1"),
        ({"task": "\ud800"}, "a task cannot be kept as JSON"),
    ]:
        with pytest.raises(RequestError, match=problem):
            recorder.episode(**arguments)
    with recorder.episode() as e:
        say(recorder.client, "one")
        e.metric("kind", True)
        for call, problem in [
            (lambda: e.reward(float("nan")), "a reward is a finite number, not nan"),
            (lambda: e.reward("1"), "a reward is a finite number"),
            (lambda: e.metric("score", None), "metric 'score' is a finite number"),
            (lambda: e.metric("", 1.0), "a metric's name is text"),
            (lambda: e.metric("kind", 1.0), "'kind' was a boolean before and is a number now"),
            (lambda: e.metric("Kind", True), "differ only by case"),
            (lambda: e.step(info={"a": object()}), "info cannot be kept as JSON"),
            (lambda: e.step(action_valid=1), "action_valid is True, False or None, not 1"),
            (lambda: e.outcome("fine"), "there is no outcome 'fine'"),
            (lambda: e.agent(""), "an agent's name is text"),
            (lambda: e.__enter__(), "was already begun"),
        ]:
            with pytest.raises(RequestError, match=problem):
                call()


def test_a_reward_before_any_answer_is_counted_and_breaks_nothing(recorder):
    with recorder.episode() as e:
        with pytest.warns(UserWarning, match="a reward came before any call of episode"):
            e.reward(1.0)
        say(recorder.client, "one")
    with pytest.warns(UserWarning, match="1 rewards, metrics and the like"):
        recorder.close()
    assert recorder.counts.n_lost_notes == 1
