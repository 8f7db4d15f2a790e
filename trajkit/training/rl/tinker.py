"""Reinforcement learning at a service with Tinker's API: it samples and learns, this machine plays."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trajkit._core.lazy import need
from trajkit._core.settings import secret_from_environment
from trajkit.errors import RequestError, ServiceError, TrainingError, TrajkitError
from trajkit.formats.rl import TINKER
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.ask import Ask, AskError, Said
from trajkit.models.generation.model import LocalModel
from trajkit.models.generation.row import Row
from trajkit.rollouts.faults import Fault, FaultKind, Faulty, shown
from trajkit.rollouts.records.record import Played
from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Text
from trajkit.store.engine import connect
from trajkit.store.layout import quoted
from trajkit.training.rl.experience import Watch, experience_of, lived_of, success_of
from trajkit.training.rl.loss import StepRow
from trajkit.training.rl.play import Stage
from trajkit.training.rl.recipe import TinkerRecipe

KEY_VARIABLE, URL_VARIABLE = "TINKER_API_KEY", "TINKER_BASE_URL"
_STATE_KEPT_S = 14 * 24 * 3600
"""Seconds for which the service keeps a state to resume from."""
_HINTS = {
    401: f"check that {KEY_VARIABLE} is a key of this service",
    402: "the account has no credit left",
    403: "the key, or its account, lacks a permission",
    404: "check that the service has this model",
}


class Best(Model):
    """A measured model that the service keeps."""

    iteration: Count
    """Iteration after which it was measured."""
    success: float
    """Share of successes on the held-out seeds."""
    episode_return: float
    """Mean return on the held-out seeds."""
    model: Text
    """Its path at the service."""


class Progress(Model):
    """Progress of a job, as `TuneJob.remote` stores it: saved after each iteration."""

    n_done: Count = 0
    """Number of finished iterations."""
    state: Text | None = None
    """Path of the weights and the optimizer at the service; None before the first iteration."""
    first_success: float | None = None
    """Held-out success of the initial model; None without held-out seeds."""
    best: Best | None = None
    """The best of the measured models; None before there is one."""


class TinkerTrained(Model):
    """The result of a training at a service."""

    model: Text
    """Path of the adapter at the service, for sampling; `tinker checkpoint download` fetches it."""
    state: Text | None
    """Path of the last weights with the optimizer state, to resume from."""
    n_iterations: Count
    """Number of finished iterations."""
    best_iteration: Count | None
    """Iteration after which the kept weights were saved; None for the last."""
    success: float | None
    """Share of successes of the kept model on the held-out seeds; None if it was not measured."""
    episode_return: float | None
    """Mean return of the kept model on the held-out seeds."""
    first_success: float | None
    """Share of successes of the initial model."""


def check_key() -> str:
    """Return the key of the service.

    Raises:
        RequestError: It is not set.
        ConfigError: It has characters that cannot be sent.
    """
    key = secret_from_environment(KEY_VARIABLE)
    if key is None:
        raise RequestError(f"{KEY_VARIABLE} is not set", hint="the key is read only from there")
    return key.get_secret_value()


def train_at_service(
    base: str,
    recipe: TinkerRecipe,
    progress: Progress,
    *,
    tokenizer: str,
    held_out: frozenset[str],
    tell: Callable[[JsonObject], None],
    keep: Callable[[int, Sequence[Played]], None] | None,
    save: Callable[[Progress], None],
) -> TinkerTrained:
    """Play and learn; the service has the model.

    Args:
        base: The model, as the service names it.
        recipe: Settings of the training.
        progress: The progress to resume from.
        tokenizer: Folder or id of the tokenizer.
        held_out: Initial states of held-out worlds; episodes in them are not learned.
        tell: Called with each event.
        keep: Called with the episodes of each iteration.
        save: Called with the progress after each iteration.

    Raises:
        RequestError: There is no key.
        ServiceError: The service refused, failed, or cannot be reached.
        TrainingError: Nothing can be learned, or the loss is not a number.
        MissingExtra: The package `tinker` is not installed.
    """
    service = _Service(base, recipe, progress.state)
    with contextlib.closing(Stage(base, recipe, ChatTemplate(tokenizer), service.answers)) as stage:
        watch = Watch(recipe, tell)
        measures = bool(recipe.play.eval_seeds)

        def measured(iteration: int) -> Any:
            nonlocal held_out
            played = stage.measured(None)
            held_out |= {one.initial_state_hash for one in played}
            how = success_of(lived_of(played).traces)
            tell({"kind": "evaluation", "iteration": iteration, **how._asdict()})
            return how

        if measures and progress.state is None:
            progress = progress.model_copy(update={"first_success": measured(0).success})
        for iteration in range(progress.n_done, recipe.iterations):
            watch.begin()
            played = stage.attempts(None, iteration)
            if keep is not None:
                keep(iteration, played)
            lived = lived_of(played, held_out=held_out)
            watch.played(iteration, lived)
            experience = experience_of(lived.traces, recipe)
            found = experience.advantages(recipe)
            # rows with an advantage of 0 would cost money and change nothing
            places = np.flatnonzero((found.values != 0) & ~found.left_out)
            watch.report |= {
                "n_learned": len(places),
                "n_silent": found.n_equal + found.n_single,
                "entropy": -float(
                    np.mean([each for row in experience.rows for each in row.logprobs] or [0.0])
                ),
            }
            watch.check(len(places))
            if len(places):
                watch.report |= service.learned(
                    [experience.rows[place] for place in places], found.values[places], iteration
                )
                service.refresh()
            watch.end(recipe.learning_rate)
            n_done, best = iteration + 1, progress.best
            if measures and (n_done % recipe.eval_every == 0 or n_done == recipe.iterations):
                how = measured(n_done)
                if best is None or how.episode_return > best.episode_return:
                    kept = service.kept(f"iteration-{n_done}")
                    best = Best(
                        iteration=n_done, success=how.success, episode_return=how.episode_return, model=kept
                    )
            state = service.saved(f"state-{n_done}")
            progress = progress.model_copy(update={"n_done": n_done, "state": state, "best": best})
            save(progress)
    best = progress.best
    return TinkerTrained(
        model=service.kept("final") if best is None else best.model,
        state=progress.state,
        n_iterations=progress.n_done,
        best_iteration=None if best is None else best.iteration,
        success=None if best is None else best.success,
        episode_return=None if best is None else best.episode_return,
        first_success=progress.first_success,
    )


class _Sent(NamedTuple):
    """An optimizer step that was requested from the service."""

    rows: Sequence[StepRow]
    advantages: Any
    backward: Any
    step: Any


class _Service:
    """One model in training at a service.

    Args:
        base: The model, as the service names it.
        recipe: Address of the service, and settings of the training.
        state: Path of the weights and the optimizer state to resume from; None for a new model.
    """

    def __init__(self, base: str, recipe: TinkerRecipe, state: str | None) -> None:
        key = check_key()
        os.environ.setdefault("TINKER_TELEMETRY", "0")  # its reports contain tracebacks and request headers
        tinker = need("tinker", extra="tinker")
        self._types, self._recipe, self._where = tinker.types, recipe, recipe.base_url or "Tinker"
        self._status_error = tinker.APIStatusError
        with self._asked("to begin"):
            client = tinker.ServiceClient(api_key=key, base_url=recipe.base_url or None)
            if state is None:
                made = client.create_lora_training_client(base_model=base, rank=recipe.r, seed=recipe.seed)
            else:
                made = client.create_training_client_from_state_with_optimizer(state)
            self._training = _arrived(made)
        self.refresh()

    def refresh(self) -> None:
        """Sample from the current weights from now on."""
        with self._asked("to load the current weights"):
            self._sampler = _arrived(self._training.save_weights_and_get_sampling_client())

    def saved(self, name: str) -> str:
        """Save weights and optimizer state, and return their path."""
        with self._asked("to save the state"):
            return str(self._training.save_state(name, ttl_seconds=_STATE_KEPT_S).result().path)

    def kept(self, name: str) -> str:
        """Save the current adapter for sampling, and return its path."""
        with self._asked("to keep the weights"):
            return str(self._training.save_weights_for_sampler(name).result().path)

    def answers(self, model: LocalModel, asks: Sequence[Ask]) -> list[Said | Exception]:
        """Answer prompts concurrently, with the tokens as the service sampled them."""
        drawn = [self._drawn(model, ask) for ask in asks]  # send all before waiting for the first
        return [one if isinstance(one, Exception) else self._read(*one) for one in drawn]

    def _drawn(self, model: LocalModel, ask: Ask) -> tuple[Row, Any] | Exception:
        try:
            row = Row(model.voice(ask.model), ask)
        except AskError as error:
            return error
        how = self._types.SamplingParams(
            max_tokens=row.most,
            seed=None if ask.seed is None else ask.seed % 2**31,
            stop=sorted(row.voice.stops) or None,
            temperature=ask.temperature,
            top_p=ask.top_p,
        )
        prompt = self._types.ModelInput.from_ints(list(row.prompt))
        return row, self._sampler.sample(prompt=prompt, num_samples=1, sampling_params=how)

    def _read(self, row: Row, future: Any) -> Said | Exception:
        try:
            with self._asked("to answer"):
                drawn = future.result().sequences[0]
        except ServiceError as error:
            return Faulty(Fault(FaultKind.SERVER, error.message, is_lasting=True))
        if drawn.logprobs is None or len(drawn.logprobs) != len(drawn.tokens):
            told = f"{self._where} gave no log-probabilities"
            return Faulty(Fault(FaultKind.UNREADABLE, told, is_lasting=True))
        for token, logprob in zip(drawn.tokens, drawn.logprobs, strict=True):
            row.add(int(token), float(logprob))
            if row.is_over:
                break
        return row.answer()

    def learned(self, rows: Sequence[StepRow], advantages: Any, iteration: int) -> dict[str, float]:
        """Take the optimizer steps of an iteration.

        Args:
            rows: The rows to learn.
            advantages: The advantage of each row.
            iteration: From 0; determines the order of the rows.

        Returns:
            `loss`, the mean of -A p / q over the tokens, with p the probability before each step and q that
            of the sampling; and `drift`, the mean absolute difference of their logarithms before the first
            step.

        Raises:
            ServiceError: The service refused.
            TrainingError: The loss is not a number.
        """
        recipe, data = self._recipe, self._data(rows, advantages)
        adam = self._types.AdamParams(learning_rate=recipe.learning_rate)
        sent: list[_Sent] = []
        with self._asked("to learn"):
            for places in self._parts(len(rows), iteration):
                backward = self._training.forward_backward([data[place] for place in places], recipe.loss_fn)
                step = self._training.optim_step(adam)  # sent before the gradient arrives: both are queued
                sent.append(_Sent([rows[place] for place in places], advantages[places], backward, step))
            found = [_compared(each) for each in sent]
            for each in sent:
                each.step.result()
        loss, drift = float(np.mean([each[0] for each in found])), found[0][1]
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} in iteration {iteration + 1}",
                hint=f"a smaller --learning-rate than {recipe.learning_rate:g}",
            )
        return {"loss": loss, "drift": drift}

    def _parts(self, n_rows: int, iteration: int) -> Iterator[Any]:
        """Yield the places of the rows of each optimizer step."""
        recipe = self._recipe
        for epoch in range(recipe.epochs):
            order = np.random.default_rng([recipe.seed, iteration, epoch]).permutation(n_rows)
            yield from (part for part in np.array_split(order, recipe.minibatches) if len(part))

    def _data(self, rows: Sequence[StepRow], advantages: Iterable[float]) -> list[Any]:
        """Return the rows as Tinker's Datum. Its losses take no mask: prompts have the advantage 0."""
        types = self._types
        return [
            types.Datum(
                model_input=types.ModelInput.from_ints(row["model_input"]["chunks"][0]["tokens"]),
                loss_fn_inputs={
                    name: types.TensorData(**tensor)
                    for name, tensor in row["loss_fn_inputs"].items()
                    if name != "mask"
                },
            )
            for row in _rows_of(rows, advantages)
        ]

    @contextlib.contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """Convert all exceptions of the client to one error without the key."""
        try:
            yield
        except TrajkitError:
            raise
        except Exception as error:  # noqa: BLE001 -- the client raises ValueError, RuntimeError and its own
            status = error.status_code if isinstance(error, self._status_error) else None
            said = shown(str(error)) or type(error).__name__
            raise ServiceError(f"{self._where} failed {what}: {said}", hint=_HINTS.get(status or 0)) from None


def _arrived(made: Any) -> Any:
    """Return the client; before about version 0.30 it did not come as a future."""
    return made.result() if hasattr(made, "result") else made


def _rows_of(rows: Sequence[StepRow], advantages: Iterable[float]) -> list[dict[str, Any]]:
    """Return the rows with the columns of the format `tinker`."""
    columns: dict[str, list[Any]] = {name: [] for name in sorted(TINKER.carries)}
    for row, advantage in zip(rows, advantages, strict=True):
        context, n = [0] * len(row.prompt), len(row.completion)
        columns["input_ids"].append([*row.prompt, *row.completion])
        columns["loss_mask"].append([*context, *[1] * n])
        columns["old_logprobs"].append([*context, *row.logprobs])
        columns["advantages"].append([*context, *[float(advantage)] * n])
    made = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in TINKER.columns.items())
    with connect() as connection:
        connection.register("x", pa.table(columns))
        found: list[dict[str, Any]] = connection.sql(f"SELECT {made} FROM x").to_arrow_table().to_pylist()
    return found


def _compared(sent: _Sent) -> tuple[float, float]:
    """Return mean loss and mean absolute drift of a step's tokens, from the service's log-probabilities."""
    losses, drifts = [], []
    for row, advantage, output in zip(
        sent.rows, sent.advantages, sent.backward.result().loss_fn_outputs, strict=True
    ):
        gap = np.array(output["logprobs"].data[-len(row.completion) :]) - np.array(row.logprobs)
        losses.append(-advantage * np.exp(gap))
        drifts.append(np.abs(gap))
    return float(np.concatenate(losses).mean()), float(np.concatenate(drifts).mean())
