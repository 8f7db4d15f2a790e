"""Somebody's own agents: loaded by name, played by the real runner, their models real servers on loopback."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import json
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rollouts.loopback import Reply, refused, said, serve
from trajkit.errors import RequestError, RolloutError, ServiceError
from trajkit.rollouts.agent import MAX_ANSWER_BYTES, AgentPolicy
from trajkit.rollouts.agents.load import find_agent
from trajkit.rollouts.agents.turn import Models
from trajkit.rollouts.endpoints.endpoint import Endpoint
from trajkit.rollouts.faults import FaultKind
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.records.record import Played, to_episode
from trajkit.rollouts.running.calling import Caller
from trajkit.rollouts.running.limits import Budget, Limits
from trajkit.rollouts.running.runner import play
from trajkit.rollouts.seeds import derived_seed
from trajkit.schema import Episode, Outcome

_numbers = itertools.count()
Write = Callable[[str], str]
VISITOR: contextvars.ContextVar[str] = contextvars.ContextVar("VISITOR", default="none")


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module into the working folder; its name is new each time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(code: str) -> str:
        name = f"agent_{next(_numbers)}"
        Path(f"{name}.py").write_text(textwrap.dedent(code), encoding="utf-8")
        return name

    return write


def plan(**changes) -> Plan:
    values = {"env_id": "babyai", "tasks": ("goto",), "variants": ("a",), "seeds": "1:2", "max_steps": 3}
    return Plan(**(values | changes))


def load(spec: str, settings=None, *, url="http://127.0.0.1:9/v1", budget=None, retries=0, **changes):
    plays = plan(**changes)
    caller = Caller(concurrency=plays.concurrency, timeout_s=5, retries=retries, budget=budget)
    models = Models(caller, lambda: Endpoint(url, None, caller, model="m"))
    return AgentPolicy(find_agent(spec, settings or {}), plays, models), plays


def run(policy: AgentPolicy, plays: Plan) -> list[Played]:
    played: list[Played] = []

    async def all_of_them() -> None:
        try:
            await play(plays, {"a": policy}, on_played=played.append)
        finally:
            await policy.close()

    asyncio.run(all_of_them())
    return sorted(played, key=lambda one: one.job.seed)


def episodes(spec: str, settings=None, **changes) -> list[Played]:
    return run(*load(spec, settings, **changes))


def actions(one: Played) -> list:
    return [step.choice.action for step in one.steps]


def _wait_until(is_so: Callable[[], object]) -> None:
    """A thread has answered a moment before it has ended."""
    end = time.monotonic() + 10
    while not is_so() and time.monotonic() < end:
        time.sleep(0.01)
    assert is_so()


# --- what an agent may be ---


@pytest.mark.parametrize(
    "code",
    [
        "def act(observation): return 'turn left' if 'wall' in observation else 'drop'",
        "async def act(observation: str) -> str: return 'turn left' if 'wall' in observation else 'drop'",
        "def act(text, /): return 'turn left' if 'wall' in text else 'drop'",
        "async def later(): return 'turn left'\ndef act(observation): return later()",
        "class Act:\n    async def __call__(self, observation): return 'turn left'\nact = Act()",
        "import functools\nasync def go(how, seen): return how\nact = functools.partial(go, 'turn left')",
    ],
)
def test_a_function_of_the_observation_is_an_agent(write, code):
    (one,) = episodes(f"{write(code)}:act")
    assert actions(one) == ["turn left"] * 3
    assert [step.choice.answers() for step in one.steps] == [()] * 3
    assert one.fault is None


def test_a_turn_holds_what_the_agent_may_know(write):
    module = write(
        """
        seen = []
        def act(turn):
            turn.memory["n"] = turn.memory.get("n", 0) + 1
            more = {"n": turn.memory["n"], "text": turn.history_text(1), "repr": repr(turn)}
            seen.append(vars(turn) | more)
            return "fly" if turn.step == 1 else "turn left"
        """
    )
    (one,) = episodes(f"{module}:act", seeds="7:8")
    seen = sys.modules[module].seen
    first, _, third = seen
    assert (first["mission"], first["observation"]) == (one.mission, one.steps[0].observation)
    assert [turn["observation"] for turn in seen] == [step.observation for step in one.steps]
    assert [turn["step"] for turn in seen] == [0, 1, 2]
    assert (first["env_id"], first["task"], first["seed"], first["episode_id"]) == (
        "babyai",
        "goto",
        7,
        one.episode_id,
    )
    assert first["legal_actions"] == ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
    assert first["history"] == ()
    assert [past.action_executed for past in third["history"]] == ["turn left", "go forward"]
    assert [past.action_valid for past in third["history"]] == [True, False]
    assert third["text"].startswith(f"Observation: {one.steps[1].observation}\nAction: go forward\nNote: ")
    assert [turn["n"] for turn in seen] == [1, 2, 3]
    assert first["repr"] == "Turn(task='goto', seed=7, step=0)"


def test_the_type_of_the_parameter_also_asks_for_the_turn(write):
    code = """
    from __future__ import annotations
    from trajkit.rollouts.agent import Turn
    def act(now: Turn) -> str:
        return now.legal_actions[now.step]
    """
    (one,) = episodes(f"{write(code)}:act")
    assert actions(one) == ["turn left", "turn right", "go forward"]


def test_random_numbers_of_a_turn_follow_from_run_seed_task_seed_and_step(write):
    spec = f"{write('def act(turn): return turn.random.choice(turn.legal_actions)')}:act"
    how = {"seeds": "0:6", "max_steps": 6}
    once = [actions(one) for one in episodes(spec, **how)]
    assert once == [actions(one) for one in episodes(spec, **how, concurrency=1)]
    assert once != [actions(one) for one in episodes(spec, **how, run_seed=1)]
    assert len({tuple(one) for one in once}) > 1


def test_settings_are_converted_to_the_types_of_the_parameters(write):
    module = write(
        """
        def act(observation, *, n: int, how: str = "go forward", often: bool = False):
            return f"{n + 1} {how} {often}"
        class Agent:
            def __init__(self, words: list[str], chance: float = 0.5):
                self.said = f"{words} {chance * 2}"
            def act(self, observation):
                return self.said
        """
    )
    (one,) = episodes(f"{module}:act", {"n": "3", "often": "true"})
    assert actions(one)[0] == "4 go forward True"
    (one,) = episodes(f"{module}:Agent", {"words": "a,b", "chance": "1"})
    assert actions(one)[0] == "['a', 'b'] 2.0"


def test_each_episode_has_an_instance_of_its_own(write):
    module = write(
        """
        made = []
        class Agent:
            def __init__(self):
                self.seen = []
                made.append(self)
            def act(self, observation):
                self.seen.append(observation)
                return str(len(self.seen))
        """
    )
    played = episodes(f"{module}:Agent", seeds="0:5", concurrency=5)
    assert [actions(one) for one in played] == [["1", "2", "3"][: len(one.steps)] for one in played]
    assert len(sys.modules[module].made) == 5


def test_a_class_that_says_so_and_an_object_play_all_episodes(write):
    module = write(
        """
        made = []
        class Agent:
            shared = True
            def __init__(self):
                made.append(self)
            def begin(self, episode):
                episode.memory["from"] = (episode.seed, episode.task, episode.mission, episode.env_id)
            def act(self, turn):
                assert turn.memory["from"] == (turn.seed, turn.task, turn.mission, turn.env_id)
                return "turn left"
        agent = Agent()
        """
    )
    for name, n_made in (("Agent", 2), ("agent", 2)):
        played = episodes(f"{module}:{name}", seeds="0:5", concurrency=5)
        assert {one.fault for one in played} == {None}
        assert len(sys.modules[module].made) == n_made  # one by the module, one by trajkit


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_begin_and_end_are_told_of_the_episode_and_how_it_went(write, kind):
    module = write(
        f"""
        told = []
        class Agent:
            {kind} begin(self, episode):
                self.id = episode.episode_id
                told.append(("begin", self.id))
            {kind} act(self, turn):
                if turn.seed == 2 and turn.step == 1:
                    raise ValueError("enough")
                return "turn left"
            {kind} end(self, metrics):
                told.append(("end", self.id, metrics))
        """
    )
    policy, plays = load(f"{module}:Agent", seeds="1:3", concurrency=1)
    first, second = run(policy, plays)
    whole = ("end", first.episode_id, {"progression": 0.0, "episode_return": 0.0})
    cut = ("end", second.episode_id, None)
    told = sys.modules[module].told
    assert sorted(told) == sorted(
        [("begin", first.episode_id), ("begin", second.episode_id), whole, cut], key=lambda one: one[:2]
    )
    assert policy._playing == {}


def test_an_episode_that_the_environment_breaks_is_let_go_of(write):
    module = write(
        """
        from trajkit.environments.base import Result, Start
        ended = []
        class Broken:
            def reset(self, seed): return Start("stay", "here")
            def step(self, text): raise OSError("no floor")
        class Agent:
            def act(self, observation): return "wait"
            def end(self, metrics): ended.append(metrics)
        """
    )
    policy, plays = load(f"{module}:Agent", env_id=f"{module}:Broken", tasks=("default",), seeds="0:2")
    played = run(policy, plays)
    assert {one.fault.kind for one in played} == {FaultKind.ENVIRONMENT}
    assert sys.modules[module].ended == [None, None]
    assert policy._playing == {}


# --- loading ---


@pytest.mark.parametrize(
    ("code", "name", "settings", "words"),
    [
        ("", "act", {}, "has no 'act'"),
        ("act = 5", "act", {}, "is int, not an agent"),
        ("def act(): return 'x'", "act", {}, "takes no observation"),
        ("def act(*, observation): return 'x'", "act", {}, "takes no observation"),
        ("class Agent: pass", "Agent", {}, "has no method act"),
        ("class Agent:\n    def act(self): pass", "Agent", {}, "takes no observation"),
        (
            "class Agent:\n    def __init__(self): 1 / 0\n    def act(self, o): ...",
            "Agent",
            {},
            "ZeroDivisionError",
        ),
        (
            "class Agent:\n    def __init__(self): exit(3)\n    def act(self, o): ...",
            "Agent",
            {},
            "SystemExit",
        ),
        ("def act(observation, *, depth=1): ...", "act", {"dept": "2"}, "no setting 'dept'"),
        ("def act(observation, *, depth: int = 1): ...", "act", {"depth": "deep"}, "depth='deep'"),
        ("def act(observation, *, depth: int): ...", "act", {}, "needs the setting 'depth'"),
        ("class A:\n    def act(self, o): ...\na = A()", "a", {"x": "1"}, "is an object already"),
        ("def act(observation): ...", "act", {"observation": "x"}, "takes no settings"),
        ("import nothing_of_this_name", "act", {}, "imports 'nothing_of_this_name'"),
        ("1 / 0", "act", {}, "cannot be imported: ZeroDivisionError"),
    ],
)
def test_what_is_no_agent_is_refused_before_anything_is_played(write, code, name, settings, words):
    with pytest.raises(RequestError, match=words):
        load(f"{write(code)}:{name}", settings)


def test_a_module_that_is_not_there_and_a_name_without_one_are_refused(write):
    with pytest.raises(RequestError, match="there is no module 'nowhere'"):
        load("nowhere:act")
    with pytest.raises(RequestError, match="'act' names no agent"):
        load("act")


# --- bad answers ---


@pytest.mark.parametrize(
    ("value", "note"),
    [
        ("None", "the agent answered None"),
        ("b'turn left'", "the agent answered bytes that is not JSON"),
        ("float('nan')", "the agent answered float that is not JSON"),
        ("{1: 2}", "the agent answered dict that is not JSON"),
        ("'\\ud800'", "the agent answered str that is not JSON"),
        ("'x' * 10_000_000", "the agent answered 10,000,002 bytes; more than 1,000,000 are not kept"),
        ("['é' * 400_000, 'é' * 400_000]", "the agent answered 1,600,008 bytes; more than 1,000,000"),
    ],
)
def test_an_answer_that_cannot_be_kept_is_none_and_the_step_says_why(write, value, note):
    (one,) = episodes(f"{write(f'def act(observation): return {value}')}:act", max_steps=2)
    assert (one.fault, one.outcome, one.n_invalid) == (None, Outcome.TRUNCATED, 2)
    assert [step.result.action_executed for step in one.steps] == ["go forward"] * 2
    episode = to_episode(one)
    assert [step.action for step in episode.steps] == [None, None]
    assert episode.steps[0].extra["note"].startswith(note)
    assert Episode.model_validate_json(episode.model_dump_json()) == episode


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("{'go': ['left', 1, None, True]}", {"go": ["left", 1, None, True]}),
        ("''", ""),
        ("Enum('E', {'A': 'fly'}, type=str).A", "fly"),
        (f"'x' * {MAX_ANSWER_BYTES - 2}", "x" * (MAX_ANSWER_BYTES - 2)),
    ],
)
def test_any_other_answer_is_kept_as_it_is_and_judged_by_the_environment(write, value, kept):
    code = f"from enum import Enum\ndef act(observation): return {value}"
    (one,) = episodes(f"{write(code)}:act", max_steps=1)
    (step,) = to_episode(one).steps
    assert (step.action, step.action_valid, step.action_executed, step.extra) == (
        kept,
        False,
        "go forward",
        None,
    )


# --- agents that fail ---


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ("raise ValueError('bad luck')", "ValueError: bad luck (agent_"),
        ("raise SystemExit(4)", "SystemExit: 4 (agent_"),
        ("raise StopIteration", "StopIteration"),
        ("raise asyncio.CancelledError", "CancelledError"),
        ("raise ConnectionError('http://me:hunter2@host')", "http://***@host"),
        ("assert turn.step == 0", "AssertionError"),
    ],
)
def test_an_exception_ends_the_episode_as_an_error_of_the_agent(write, kind, failure, words):
    code = f"import asyncio\n{kind} act(turn):\n    if turn.step == 1: {failure}\n    return 'turn left'"
    (one,) = episodes(f"{write(code)}:act")
    assert (one.outcome, one.fault.kind, one.fault.is_lasting) == (Outcome.ERROR, FaultKind.AGENT, True)
    assert words in one.fault.message
    assert (len(one.steps), one.metrics, one.feedback) == (1, {}, ())


def test_an_exception_in_begin_and_in_end_is_one_of_the_agent_too(write):
    module = write(
        """
        class Begins:
            def begin(self, episode): raise KeyError("begin")
            def act(self, observation): return "drop"
        class Ends:
            def act(self, observation): return "drop"
            async def end(self, metrics): raise KeyError("end")
        class Makes:
            n = 0
            def __init__(self):
                Makes.n += 1
                assert Makes.n == 1
            def act(self, observation): return "drop"
        """
    )
    (begins,) = episodes(f"{module}:Begins")
    (ends,) = episodes(f"{module}:Ends")
    _, makes = sorted(episodes(f"{module}:Makes", seeds="0:2"), key=lambda one: one.fault is not None)
    for one, n_steps in ((begins, 0), (ends, 3), (makes, 0)):
        assert (one.outcome, one.fault.kind, len(one.steps)) == (Outcome.ERROR, FaultKind.AGENT, n_steps)


def test_an_agent_that_always_fails_stops_the_run(write):
    with pytest.raises(RolloutError, match="5 episodes in a row ended by agent error: ZeroDivisionError"):
        episodes(f"{write('def act(observation): return 1 / 0')}:act", seeds="0:50")


def test_what_an_agent_prints_goes_to_stderr(write, capsys):
    code = """
    import asyncio
    print("loaded")
    async def act(turn):
        print("async", turn.step)
        await asyncio.gather(beside(), asyncio.to_thread(print, "in another thread"))
        print("went on")
        return "turn left"
    async def beside():
        await asyncio.sleep(0)
        print("beside")
    def sync(observation):
        print("in a thread")
        return "turn left"
    """
    module = write(code)
    before = sys.stdout
    played = []
    for name in ("act", "sync"):
        policy, plays = load(f"{module}:{name}", seeds="0:4")

        async def play_all(policy=policy, plays=plays) -> None:
            await play(
                plays, {"a": policy}, on_played=played.append, on_step=lambda: sys.stdout.write("step\n")
            )
            await policy.close()

        asyncio.run(play_all())
    n_steps = sum(len(one.steps) for one in played)
    captured = capsys.readouterr()
    assert captured.out == "step\n" * n_steps
    assert captured.err.count("loaded") == 1
    assert captured.err.count("went on") + captured.err.count("in a thread") == n_steps
    assert captured.err.count("in another thread") == captured.err.count("beside") == n_steps / 2
    assert sys.stdout is before


# --- agents that are not asynchronous ---


def test_agents_that_block_play_side_by_side_and_leave_no_thread(write):
    code = "import time\ndef act(observation):\n    time.sleep(0.1)\n    return 'turn left'"
    before, began = threading.active_count(), time.monotonic()
    played = episodes(f"{write(code)}:act", seeds="3:11", concurrency=8)
    n_steps = sum(len(one.steps) for one in played)
    assert time.monotonic() - began < 0.1 * n_steps / 2
    _wait_until(lambda: threading.active_count() == before)


def test_context_variables_of_the_caller_are_set_in_the_agent(write):
    module = write("def act(observation): return asked()\nasync def act_async(observation): return asked()")
    token = VISITOR.set("me")
    try:
        for name in ("act", "act_async"):
            policy, plays = load(f"{module}:{name}")
            sys.modules[module].asked = VISITOR.get
            (one,) = run(policy, plays)
            assert actions(one) == ["me"] * 3
    finally:
        VISITOR.reset(token)


def test_an_agent_that_never_answers_is_cut_off(write):
    code = "import threading\ndef act(observation): threading.Event().wait(20)"
    began = time.monotonic()
    (one,) = episodes(f"{write(code)}:act", episode_timeout_s=0.2)
    assert (one.outcome, one.fault.kind) == (Outcome.ERROR, FaultKind.EPISODE_TIMEOUT)
    assert time.monotonic() - began < 15


def test_a_run_that_is_stopped_frees_the_threads_that_wait_for_a_model(write):
    module = write(
        """
        freed = []
        def act(turn):
            try:
                return turn.wait(turn.chat([{"role": "user", "content": "?"}])).choices[0].message.content
            except BaseException as error:
                freed.append(type(error).__name__)
                raise
        """
    )
    is_asked, may_answer = threading.Event(), threading.Event()

    def slow(body, n):
        is_asked.set()
        may_answer.wait(10)
        return Reply(said("drop"))

    async def stopped(policy, plays) -> None:
        task = asyncio.create_task(play(plays, {"a": policy}, on_played=lambda one: None))
        await asyncio.to_thread(is_asked.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await policy.close()

    with serve(slow) as server:
        asyncio.run(stopped(*load(f"{module}:act", url=server.url)))
        may_answer.set()
    _wait_until(lambda: sys.modules[module].freed)
    assert sys.modules[module].freed == ["CancelledError"]


# --- agents that ask models ---

THREE = """
import asyncio
def talk(turn, text):
    return [{"role": "system", "content": "You play."}, {"role": "user", "content": text}]
async def act(turn):
    plan = await turn.chat(talk(turn, "plan"), model="planner")
    doubt = await turn.chat(talk(turn, "doubt"), temperature=0.5, seed=None)
    answer = await turn.chat(talk(turn, "act"), seed=42)
    return answer.choices[0].message.content
def blocking(turn):
    return turn.wait(act(turn))
async def at_once(turn):
    answers = await asyncio.gather(*(turn.chat(talk(turn, str(n))) for n in range(3)))
    return answers[0].choices[0].message.content
async def impatient(turn):
    asyncio.create_task(turn.chat(talk(turn, "later")))
    await asyncio.sleep(0)
    return "drop"
"""


def echo(body, n):
    return Reply(said(f"{body['messages'][-1]['content']}!"))


@pytest.mark.parametrize("name", ["act", "blocking"])
def test_every_call_of_a_model_is_a_step_and_the_last_has_the_action(write, name):
    with serve(echo) as server:
        (one,) = episodes(f"{write(THREE)}:{name}", url=server.url, max_steps=2)
    assert (one.fault, actions(one), one.n_input_tokens) == (None, ["act!", "act!"], 6 * 7)
    steps = to_episode(one).steps
    assert [step.completion.text for step in steps] == ["plan!", "doubt!", "act!"] * 2
    assert [step.action for step in steps] == [None, None, "act!"] * 2
    assert [step.reward for step in steps] == [None, None, 0.0] * 2
    assert [step.messages[-1].text for step in steps] == ["plan", "doubt", "act"] * 2
    ids = [step.inference_id for step in steps]
    assert ids == sorted(ids)
    first = derived_seed("inference", 0, "goto", 1, 0)  # the one that the policy `gateway` sends
    assert [asked.body.get("seed") for asked in server.asked[:3]] == [first, None, 42]
    assert [asked.body["model"] for asked in server.asked[:3]] == ["planner", "m", "m"]
    assert server.asked[1].body["temperature"] == 0.5


def test_calls_that_are_made_at_once_have_seeds_of_their_own_and_stay_in_the_order_of_their_ids(write):
    with serve(echo) as server:
        (one,) = episodes(f"{write(THREE)}:at_once", url=server.url, max_steps=2)
        again = episodes(f"{one and write(THREE)}:at_once", url=server.url, max_steps=2)[0]
    assert [len(step.choice.answers()) for step in one.steps] == [3, 3]
    ids = [answer.inference_id for answer in one.answers()]
    assert ids == sorted(ids)
    seeds = [asked.body["seed"] for asked in server.asked]
    assert len(set(seeds)) == 6
    assert sorted(seeds[:6]) == sorted(seeds[6:])
    assert again.fault is None


def test_calls_that_were_left_running_belong_to_their_step(write):
    with serve(echo) as server:
        (one,) = episodes(f"{write(THREE)}:impatient", url=server.url, max_steps=2)
    assert (one.fault, actions(one)) == (None, ["drop", "drop"])
    assert [answer.raw for answer in one.answers()] == ["later!", "later!"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("await turn.chat([{'role': 'user'}], stream=True)", "leave out stream"),
        ("await turn.chat([{'role': 'user', 'content': 'x'}], n=2)", "leave out stream and n"),
        ("await turn.chat(['hello'])", "messages.0 is not a message"),
        ("await turn.chat([{'role': 'robot', 'content': 'x'}])", "no role 'robot'"),
        ("await turn.chat([{'role': 'user', 'content': '\\ud800'}])", "messages.0"),
        ("await turn.chat([{'role': 'user', 'content': 'x'}], wrong_option=1)", "wrong_option"),
        ("await turn.inference('f', {}, dryrun=True)", "leave out dryrun"),
        ("await turn.inference('f', {}, episode_id='x')", "leave out episode_id"),
        ("turn.wait(turn.chat([]))", "write await instead"),
    ],
)
def test_a_call_that_cannot_be_recorded_is_an_error_of_the_agent(write, code, words):
    with serve(echo) as server:
        (one,) = episodes(f"{write(f'async def act(turn): {code}')}:act", url=server.url)
    assert one.fault.kind == FaultKind.AGENT
    assert words in one.fault.message
    assert server.asked == []


def test_a_model_cannot_be_asked_when_the_agent_has_answered(write):
    module = write(
        """
        async def act(turn):
            before = turn.memory.get("turn")
            turn.memory["turn"] = turn
            if before is not None:
                await before.chat([{"role": "user", "content": "x"}])
            return "turn left"
        def late(turn):
            before = turn.memory.get("turn")
            turn.memory["turn"] = turn
            if before is not None:
                before.wait(before.chat([{"role": "user", "content": "x"}]))
            return "turn left"
        """
    )
    for name in ("act", "late"):
        (one,) = episodes(f"{module}:{name}")
        assert (one.fault.kind, len(one.steps)) == (FaultKind.AGENT, 1)
        assert "this turn is over" in one.fault.message


SWALLOWS = """
async def act(turn):
    try:
        answer = await turn.chat([{"role": "user", "content": str(turn.step)}])
    except Exception:
        return "drop"
    return "turn left"
"""


@pytest.mark.parametrize(
    ("reply", "kind"),
    [(Reply(refused("broken"), 500), FaultKind.SERVER), (Reply(refused("too long"), 400), FaultKind.REFUSED)],
)
def test_a_service_that_fails_is_no_bad_agent_whatever_the_agent_makes_of_it(write, reply, kind):
    with serve(lambda body, n: reply if n == 1 else echo(body, n)) as server:
        (one,) = episodes(f"{write(SWALLOWS)}:act", url=server.url)
    assert (one.outcome, one.fault.kind, actions(one)) == (Outcome.ERROR, kind, ["turn left"])


def test_what_was_answered_before_a_step_failed_is_kept(write):
    with serve(lambda body, n: Reply(refused("broken"), 500) if n == 5 else echo(body, n)) as server:
        (one,) = episodes(f"{write(THREE)}:act", url=server.url)
    assert (one.fault.kind, len(one.steps)) == (FaultKind.SERVER, 1)
    assert [answer.raw for answer in one.unfinished] == ["plan!", "doubt!"]
    episode = to_episode(one)
    assert [step.completion.text for step in episode.steps] == ["plan!", "doubt!", "act!", "plan!", "doubt!"]
    assert [step.action for step in episode.steps] == [None, None, "act!", None, None]
    code = "async def act(turn):\n    await turn.chat([{'role': 'user', 'content': 'x'}])\n    1 / 0"
    with serve(echo) as server:
        (one,) = episodes(f"{write(code)}:act", url=server.url)
    assert (one.fault.kind, [answer.raw for answer in one.unfinished]) == (FaultKind.AGENT, ["x!"])


def test_a_limit_of_the_run_cannot_be_swallowed_either(write):
    with serve(echo) as server:
        budget = Budget(Limits(max_calls=7))
        played = episodes(
            f"{write(SWALLOWS)}:act", url=server.url, seeds="1:20", budget=budget, concurrency=1
        )
    assert len(server.asked) == 7
    assert all(one.fault is None and "drop" not in actions(one) for one in played)


def test_a_service_that_is_down_from_the_start_stops_the_run(write, closed_address):
    with pytest.raises(ServiceError, match="5 episodes in a row ended by connection"):
        episodes(f"{write(SWALLOWS)}:act", url=f"{closed_address}/v1", seeds="0:50")


def test_without_a_gateway_the_run_stops_and_says_what_is_missing(write):
    code = "async def act(turn):\n    await turn.inference('act', {'messages': []})"
    with pytest.raises(RequestError, match="the agent calls a gateway, and there is none"):
        episodes(f"{write(code)}:act")


def test_a_conversation_that_grows_is_kept_once(write):
    code = """
    async def act(turn):
        talk = turn.memory.setdefault("talk", [{"role": "system", "content": "You play."}])
        talk.append({"role": "user", "content": turn.observation})
        answer = await turn.chat(talk)
        talk.append(answer.choices[0].message)
        return "turn left"
    """
    with serve(echo) as server:
        (one,) = episodes(f"{write(code)}:act", url=server.url, max_steps=20)
    assert len(server.asked[-1].body["messages"]) == 40
    episode = to_episode(one)
    assert [len(step.messages) for step in episode.steps] == [2] + [1] * 19
    assert list(episode.prompts()) == [step.choice.answer.messages for step in one.steps]


def test_tools_are_called_as_often_as_wanted_within_a_step(write):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    tool = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {}}}
    code = f"""
    async def act(turn):
        talk = [{{"role": "user", "content": turn.observation}}]
        while True:
            message = (await turn.chat(talk, tools=[{tool!r}])).choices[0].message
            if not message.tool_calls:
                return message.content
            talk.append(message)
            for call in message.tool_calls:
                talk.append({{"role": "tool", "tool_call_id": call.id, "content": "a door"}})
    """

    def answer(body, n):
        return Reply(
            said(None, tool_calls=[call]) if body["messages"][-1]["role"] == "user" else said("drop")
        )

    with serve(answer) as server:
        (one,) = episodes(f"{write(code)}:act", url=server.url, max_steps=1)
    looked, acted = to_episode(one).steps
    assert [block.type for block in looked.completion.content] == ["tool_call"]
    assert (looked.finish_reason, looked.action, looked.reward) == ("tool_calls", None, None)
    (result,) = acted.messages
    assert result.content[0].model_dump() == {
        "type": "tool_result",
        "id": "c1",
        "name": "look",
        "result": "a door",
    }
    assert (acted.n_prompt_kept, acted.action, acted.tools) == (2, "drop", looked.tools)
    assert looked.tools == ({"name": "look", "description": "Look.", "parameters": {}},)
    sent = server.asked[1].body["messages"]
    assert json.loads(json.dumps(sent[1]["tool_calls"])) == [call]
