"""The `Turn` of an agent, which it gets at every step and through which it calls models."""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from trajkit.errors import RequestError, TrajkitError
from trajkit.rollouts.endpoints.endpoint import ChatModels, Completed
from trajkit.rollouts.faults import Fault, FaultKind, Faulty
from trajkit.rollouts.gateway.calls import Gateway, GatewayCalls, Inferred, NotTaken
from trajkit.rollouts.gateway_policy import history_text
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.policies import Answer, Past, Situation
from trajkit.rollouts.running.calling import Caller
from trajkit.rollouts.running.limits import LimitReached
from trajkit.rollouts.seeds import derived_seed
from trajkit.schema import Feedback

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion
    from tensorzero import InferenceResponse

T = TypeVar("T")
Done = TypeVar("Done", Completed, Inferred)

OpenGateway = Callable[[], Awaitable[Gateway]]
"""Opens a gateway that stays open until the run is over."""


class Opening(NamedTuple):
    """The argument of an agent's `begin`: the episode that it is about to play."""

    episode_id: str
    env_id: str
    """The environment, such as `babyai`."""
    task: str
    seed: int
    mission: str
    """The goal, as text."""
    memory: dict[str, Any]
    """The same object as `Turn.memory`."""


class Turn:
    """One step at which an agent must act.

    Everything that it may use is an attribute. It calls models through `chat` and `inference`, so that each
    call becomes a step of the episode; a synchronous agent puts `wait` around them. Calls are possible until
    the agent has answered.
    """

    mission: str
    """The goal, as text."""
    observation: str
    """The current observation."""
    history: tuple[Past, ...]
    """The steps so far, oldest first: `observation`, `action_executed` and `action_valid` of each."""
    legal_actions: tuple[str, ...]
    """The legal actions now; empty if any text may be one."""
    env_id: str
    """The environment, such as `babyai`."""
    task: str
    """The task within the environment."""
    seed: int
    """Seed of the world."""
    step: int
    """Number of actions before this one."""
    episode_id: str
    """A UUIDv7."""
    memory: dict[str, Any]
    """The agent's own memory for this episode: empty at its first step, kept until its end."""
    random: random.Random
    """Random numbers that depend on run seed, task, seed and step, so that a run can be repeated."""

    def __init__(
        self,
        situation: Situation,
        legal_actions: tuple[str, ...],
        plan: Plan,
        calls: Calls,
        memory: dict[str, Any],
    ) -> None:
        self.mission = situation.mission
        self.observation = situation.observation
        self.history = tuple(situation.past)
        self.legal_actions = legal_actions
        self.env_id = plan.env_name or plan.env_id
        self.task = situation.job.task
        self.seed = situation.job.seed
        self.step = situation.step_index
        self.episode_id = situation.episode_id
        self.memory = memory
        self.random = random.Random(
            derived_seed("agent", plan.run_seed, self.task, self.seed, situation.step_index)
        )
        self._history = plan.history
        self._calls = calls

    def __repr__(self) -> str:
        return f"Turn(task={self.task!r}, seed={self.seed}, step={self.step})"

    def history_text(self, n: int | None = None) -> str:
        """Return the latest `n` steps as text, oldest first, as in trajkit's prompts; "" at the first step.

        Args:
            n: Number of steps; None for the number of `--history`.
        """
        return history_text(self.history, self._history if n is None else n)

    async def chat(
        self,
        messages: Iterable[Any],
        *,
        model: str | None = None,
        tools: Iterable[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> ChatCompletion:
        """Call the model at `--model-url`; in an evaluation of several models, the evaluated one.

        A failed request is repeated up to `--retries` times. One that fails for good ends the
        episode as an error, even if the agent catches the exception.

        Args:
            messages: The conversation in the form of OpenAI's chat API, with earlier answers unchanged.
            model: Name of the model; None for `--model`.
            tools: Tools that the model may call.
            options: Further arguments of `client.chat.completions.create`. The default `seed` depends on the
                run's seed; None sends none.

        Raises:
            ValueError: A message is invalid, or an option cannot be recorded: `stream`, or `n` above 1.
        """
        if options.get("stream") or options.get("n") not in (None, 1):
            raise ValueError("turn.chat takes one answer at a time, whole: leave out stream and n")
        arguments = {"messages": list(messages), "model": model, **options}
        if tools is not None:
            arguments["tools"] = list(tools)
        return await self._calls.chat(arguments)

    async def inference(
        self, function_name: str, input: Mapping[str, Any], *, variant_name: str | None = None, **options: Any
    ) -> InferenceResponse:
        """Call a function of the TensorZero gateway; failures are as with `chat`.

        Episode id, tags and seed are filled in, and the cache is off. At the end of an episode with at least
        one inference, its metrics are logged at the gateway.

        Args:
            function_name: The function.
            input: Its input, in the gateway's form.
            variant_name: The variant; None leaves it to the gateway.
            options: Further arguments of the client's `inference`, such as `params` or `additional_tools`.

        Raises:
            ValueError: The input is not JSON, or an option cannot be recorded: `stream`, `dryrun` or
                `episode_id`.
        """
        for name in ("stream", "dryrun", "episode_id"):
            if options.get(name):
                raise ValueError(f"turn.inference cannot record this option: leave out {name}")
        arguments = {**options, "function_name": function_name, "input": input, "variant_name": variant_name}
        return await self._calls.infer(arguments)

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Return the result of `turn.chat(…)` or `turn.inference(…)`, for an agent that is synchronous."""
        return self._calls.wait(call)


class Models:
    """The models that an agent may call. Must be closed.

    Args:
        caller: Sends the requests, with the limits of the run.
        open_chat: Opens the models of OpenAI's chat API on first use.
        open_gateway: Opens the gateway on first use; None when there is none.
    """

    def __init__(
        self,
        caller: Caller,
        open_chat: Callable[[], ChatModels],
        *,
        open_gateway: OpenGateway | None = None,
    ) -> None:
        self._caller = caller
        self._open_chat = open_chat
        self._open_gateway = open_gateway
        self._chat: ChatModels | None = None
        self._gateway: GatewayCalls | None = None
        self._opening = asyncio.Lock()

    async def chat(self, arguments: Mapping[str, Any]) -> Completed:
        """Call the model server; see `ChatModels.complete`.

        Raises:
            RequestError: There is no key for OpenAI's own server, or no model is named.
            MissingExtra: The package `openai` is not installed.
        """
        if self._chat is None:
            self._chat = self._open_chat()
        return await self._chat.complete(arguments)

    async def infer(self, arguments: Mapping[str, Any]) -> Inferred:
        """Call the gateway; see `GatewayCalls.infer`."""
        return await (await self._calls()).infer(arguments)

    async def log(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Log an episode's metrics at the gateway; see `GatewayCalls.log`."""
        return await (await self._calls()).log(episode_id, metrics, tags)

    async def close(self) -> None:
        """Close the connections to the model server."""
        if self._chat is not None:
            await self._chat.close()

    async def _calls(self) -> GatewayCalls:
        async with self._opening:
            if self._gateway is None:
                if self._open_gateway is None:
                    raise RequestError(
                        "the agent calls a gateway, and there is none",
                        hint="`trajkit up`, or TENSORZERO_GATEWAY_URL, or a database with --config",
                    )
                gateway = await self._open_gateway()
                self._gateway = GatewayCalls(gateway, self._caller, hint="the agent called turn.inference(…)")
            return self._gateway


class Calls:
    """The model calls of an agent in one step.

    Args:
        models: The models.
        situation: The step.
        plan: The plan, for seeds.
    """

    def __init__(self, models: Models, situation: Situation, plan: Plan) -> None:
        self._models = models
        self._situation = situation
        self._plan = plan
        self.failure: Exception | None = None
        """The first failure of a call; it counts even if the agent catches it."""
        self.has_inferred = False
        """Whether the gateway was called in this step."""
        self._answers: list[Answer] = []
        self._n_begun = self._n_open = 0
        self._is_over = False
        self._idle = asyncio.Event()
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answers in the order of their ids, as in an export of the gateway's database."""
        return tuple(sorted(self._answers, key=lambda answer: answer.inference_id))

    async def chat(self, arguments: dict[str, Any]) -> ChatCompletion:
        """Call the model server."""
        number = self._begin()
        options = {"seed": self._seed(number), **arguments, **self._fixed()}
        if options["seed"] is None:
            del options["seed"]
        return (await self._recorded(lambda: self._models.chat(options))).response

    async def infer(self, arguments: dict[str, Any]) -> InferenceResponse:
        """Call the gateway."""
        number, situation = self._begin(), self._situation
        params = {**arguments.get("params", {})}
        asked = params.get("chat_completion", {})
        params["chat_completion"] = {"seed": self._seed(number), **asked, **self._fixed()}
        own = {"trajkit.step": str(situation.step_index)}
        options = {
            "cache_options": {"enabled": "off"},  # a cached answer is not a sample
            **arguments,
            "params": params,
            "episode_id": situation.episode_id,
            "tags": {**arguments.get("tags", {}), **situation.tags, **own},
        }
        inferred = await self._recorded(lambda: self._models.infer(options))
        self.has_inferred = True
        response: InferenceResponse = inferred.response
        return response

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for a call, in a thread of the agent's."""
        if threading.get_ident() == self._thread or self._is_over:
            call.close()
            if self._is_over:
                raise _turn_is_over()
            raise RuntimeError("turn.wait is for agents that are not asynchronous: write await instead")
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        self._waiting.add(future)
        try:
            return future.result()
        finally:
            self._waiting.discard(future)

    async def close(self) -> None:
        """Refuse further calls, and wait for open ones, which belong to this step."""
        self._is_over = True
        if self._n_open:
            await self._idle.wait()

    def cancel(self) -> None:
        """Refuse further calls, and release threads that wait for one."""
        self._is_over = True
        for future in list(self._waiting):
            future.cancel()

    def _begin(self) -> int:
        """Record a call and return its number in the step."""
        if self._is_over:
            raise _turn_is_over()
        self._n_begun += 1
        return self._n_begun - 1

    def _fixed(self) -> dict[str, float]:
        """Return the sampling parameters that the run fixes."""
        return self._plan.decoding(self._situation.job).parameters

    def _seed(self, number: int) -> int:
        """Return the seed of a call; the first call has the seed that the policy `gateway` sends."""
        later = (number,) if number else ()
        return self._plan.inference_seed(self._situation.job, self._situation.step_index, *later)

    async def _recorded(self, ask: Callable[[], Awaitable[Done]]) -> Done:
        self._n_open += 1
        self._idle.clear()
        try:
            done = await ask()
        except NotTaken as error:
            fault = Fault(FaultKind.AGENT, error.message, is_lasting=True)
            self.failure = self.failure or Faulty(fault)
            raise
        except (Faulty, LimitReached, TrajkitError) as error:
            self.failure = self.failure or error
            raise
        finally:
            self._n_open -= 1
            if not self._n_open:
                self._idle.set()
        self._answers.append(done.answer)
        return done


def _turn_is_over() -> RuntimeError:
    return RuntimeError("this turn is over: models can be called only until the agent has answered")
