"""Let models answer held-out prompts, score each answer with the user's function, and keep the results."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

import trajkit
from trajkit._core.ids import uuid7
from trajkit._core.process.loop import run_to_end
from trajkit._core.settings import STATE_FOLDER, checked_secret, secret_from_environment
from trajkit.curation.scores.scorer import Score, Scorer, Unusable
from trajkit.errors import DataError, RequestError, ServiceError
from trajkit.evaluation.evaluation import EVALUATION
from trajkit.evaluation.groups import GROUP_TAG, SCORE
from trajkit.evaluation.prompts import Prompt, Prompts
from trajkit.formats.chat.rows import ChatWriter, Dialect
from trajkit.formats.chat.turns import action_of, observation_of
from trajkit.rollouts.decoding import Decoding
from trajkit.rollouts.endpoints.endpoint import KEY_VARIABLE, ChatModels, Endpoint
from trajkit.rollouts.faults import FaultKind, Faulty
from trajkit.rollouts.local.endpoint import LocalEndpoint
from trajkit.rollouts.local.player import LocalPlayer
from trajkit.rollouts.local.policy import LocalModels
from trajkit.rollouts.plan import DECODING_TAG
from trajkit.rollouts.policies import Answer
from trajkit.rollouts.records.lines import LineFile, unwritable
from trajkit.rollouts.running.calling import Caller
from trajkit.rollouts.running.limits import LimitReached
from trajkit.rollouts.seeds import derived_seed
from trajkit.schema import Episode, LineageEntry, Manifest, Outcome, Purpose, Transition
from trajkit.store.writer import write_episodes

KIND = "evaluate"
_DIALECT = Dialect(has_parts=False)
_GIVE_UP_AT_START = 5
"""If nothing ever worked and this many failed, the model or the scorer is broken."""
_TASK = "prompt"


class Work(NamedTuple):
    """The requests to send, and how answers are scored."""

    prompts: Prompts
    scorer: Scorer
    score: str
    """Name of the metric."""
    models: Mapping[str, ChatModels]
    """Models by the names of the variants, the baseline first."""
    identities: Mapping[str, JsonValue]
    """Identity of each model, so that another model with the same name is called again."""
    decodings: Sequence[Decoding]
    options: Mapping[str, JsonValue]
    """Further fields of each request, such as `max_tokens`."""
    run_seed: int
    concurrency: int

    @property
    def n_answers(self) -> int:
        """Total number of answers."""
        return self.prompts.n_prompts * len(self.models) * len(self.decodings)

    @property
    def arguments(self) -> dict[str, JsonValue]:
        """All values that decide the requests and the scores."""
        return {
            "prompts": self.prompts.dataset.store.manifest.digest,
            "which": self.prompts.which,
            "by": list(self.prompts.by),
            "scorer": self.scorer.identity.spec,
            "source_sha256": self.scorer.identity.sha256,
            "variants": list(self.models),
            "models": dict(self.identities),
            "decodings": [str(one) for one in self.decodings],
            "options": dict(self.options),
            "run_seed": self.run_seed,
        }


class Answered(NamedTuple):
    """The result of a run."""

    n_answered: int
    """Answers that were given to the scorer without a failure, including those of earlier runs."""
    n_before: int
    """Answers of earlier runs."""
    n_unscored: int
    """Answers for which the scorer returned None."""
    failures: Mapping[str, int]
    """Failures by message, of models and of the scorer."""
    reached: LimitReached | None
    """The limit that stopped the run; None if all requests were sent."""


class _Job(NamedTuple):
    prompt: Prompt
    variant: str
    decoding: Decoding

    @property
    def key(self) -> tuple[str, str, int]:
        return self.variant, str(self.decoding), self.prompt.number


class Answering:
    """One run of an evaluation, which continues an earlier run of the same evaluation.

    Args:
        work: The requests.
        new_run: Send all requests again.

    Raises:
        StoreError: The journal cannot be read or written.
    """

    def __init__(self, work: Work, *, new_run: bool = False) -> None:
        text = json.dumps(work.arguments, sort_keys=True)
        name = f"prompts-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"
        self.journal = LineFile(STATE_FOLDER / "runs" / name)
        with unwritable(self.journal.path):
            self.journal.path.parent.mkdir(parents=True, exist_ok=True)
            if new_run:
                self.journal.path.unlink(missing_ok=True)
        self._work = work
        self._done: set[tuple[str, str, int]] = set()
        self.n_unscored = 0
        self.journal.load(self._take)
        self.n_before = len(self._done)
        self._failed: list[Episode] = []
        self._failures: Counter[str] = Counter()
        self._reached: LimitReached | None = None

    @property
    def n_left(self) -> int:
        """Number of missing answers."""
        return self._work.n_answers - len(self._done)

    def run(self, on_answered: Callable[[int, int], None] = lambda n, of: None) -> Answered:
        """Request the missing answers. Finished answers are kept, also after Ctrl-C.

        Args:
            on_answered: Called after each request with the number of answers, and the total.

        Raises:
            ServiceError: The model does not answer at all.
            RequestError: The model refuses every prompt.
            DataError: The scorer fails on every answer, or some scores are numbers and some booleans.
        """
        with contextlib.closing(self.journal), ThreadPoolExecutor(self._work.concurrency) as scoring:
            run_to_end(self._run(scoring, on_answered))
        return Answered(len(self._done), self.n_before, self.n_unscored, dict(self._failures), self._reached)

    def write(
        self, goal: Path, *, models: Mapping[str, str], leaks: Sequence[str], unsure: Sequence[str]
    ) -> Manifest:
        """Write the answers as an evaluation store, failures included.

        Args:
            goal: The store.
            models: The models by variant.
            leaks: Allowed overlaps with the models' training data.
            unsure: Reasons why training data of the models is unknown.

        Raises:
            StoreError: It exists or cannot be written.
        """
        store = self._work.prompts.dataset.store
        made = len(self._done) + len(self._failed)
        entry = LineageEntry(
            verb=KIND,
            arguments=self._work.arguments,
            n_episodes_in=made,
            n_episodes_out=made,
            n_steps_in=made,
            n_steps_out=made,
            done_at=datetime.now(UTC),
            trajkit_version=trajkit.__version__,
        )
        remarks: dict[str, JsonValue] = {
            "variants": dict(models),
            "decodings": [str(one) for one in self._work.decodings],
            SCORE: self._work.score,
            "leaks": list(leaks),
            "unsure": list(unsure),
        }
        source: dict[str, JsonValue] = {"kind": KIND, "prompts": str(store.path), EVALUATION: remarks}
        return write_episodes(goal, self._episodes(), kind=KIND, source=source, lineage=(entry,))

    def _episodes(self) -> Iterator[Episode]:
        if self.journal.n_lines:
            for line in self.journal:
                yield Episode.model_validate_json(line.episode)
        yield from self._failed

    def _take(self, head: Mapping[str, Any]) -> None:
        variant, decoding, number = head["key"]
        self._done.add((variant, decoding, number))
        self.n_unscored += not head["is_scored"]

    async def _run(self, scoring: ThreadPoolExecutor, on_answered: Callable[[int, int], None]) -> None:
        jobs = self._jobs()
        n_workers = min(self._work.concurrency, max(1, self.n_left))
        workers = [asyncio.create_task(self._worker(jobs, scoring, on_answered)) for _ in range(n_workers)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            for model in self._work.models.values():
                await model.close()

    def _jobs(self) -> Iterator[_Job]:
        """Yield the missing answers, those to one prompt together, so that a stopped run has pairs."""
        for prompt in self._work.prompts:
            for decoding in self._work.decodings:
                for variant in self._work.models:
                    job = _Job(prompt, variant, decoding)
                    if job.key not in self._done:
                        yield job

    async def _worker(
        self, jobs: Iterator[_Job], scoring: ThreadPoolExecutor, on_answered: Callable[[int, int], None]
    ) -> None:
        while self._reached is None and (job := next(jobs, None)) is not None:
            try:
                await self._answer(job, scoring)
            except LimitReached as limit:
                self._reached = limit
            on_answered(len(self._done), self._work.n_answers)

    async def _answer(self, job: _Job, scoring: ThreadPoolExecutor) -> None:
        prompt = job.prompt
        try:
            done = await self._work.models[job.variant].complete(self._request(job))
        except Faulty as failure:
            self._fail(job, failure.fault.message, None, kind=failure.fault.kind)
            return
        answer, loop = done.answer, asyncio.get_running_loop()
        assert answer.completion is not None
        try:
            score = await loop.run_in_executor(
                scoring,
                self._work.scorer.answer,
                prompt.messages,
                answer.completion,
                prompt.step,
                prompt.episode,
            )
        except Unusable as error:
            self._fail(job, f"the scorer {error}", answer, kind=None)
            return
        episode = self._episode(job, answer, score)
        self.journal.append(
            {"key": job.key, "is_scored": score is not None}, episode.model_dump_json(), is_urgent=False
        )
        self._done.add(job.key)
        self.n_unscored += score is None

    def _fail(self, job: _Job, message: str, answer: Answer | None, *, kind: FaultKind | None) -> None:
        """Count a failure; give up if nothing ever worked."""
        self._failures[message] += 1
        self._failed.append(self._episode(job, answer, None, error=message))
        if not self._done and sum(self._failures.values()) >= _GIVE_UP_AT_START:
            if kind is None:
                raise DataError(f"the scorer {self._work.scorer.identity.spec} always fails: {message}")
            if kind == FaultKind.REFUSED:
                raise RequestError(f"no prompt was answered: {message}")
            raise ServiceError(message, hint="run the same command again to retry")

    def _request(self, job: _Job) -> dict[str, Any]:
        prompt, writer = job.prompt, ChatWriter(_DIALECT)
        request: dict[str, Any] = {
            "messages": writer.messages(prompt.messages, [0.0] * len(prompt.messages)),
            **job.decoding.parameters,
            **self._work.options,
        }
        if tools := writer.tools(prompt.step.tools or ()):
            request["tools"] = tools
        if request.get("temperature") != 0:
            request["seed"] = derived_seed("prompt", self._work.run_seed, prompt.number)
        return request

    def _episode(
        self, job: _Job, answer: Answer | None, score: Score, *, error: str | None = None
    ) -> Episode:
        """Return the answer as an episode of one step, whose prompt reports read as a world."""
        prompt, now = job.prompt, datetime.now(UTC)
        outcome = Outcome.UNKNOWN if error is None else Outcome.ERROR
        if isinstance(score, bool):
            outcome = Outcome.SUCCESS if score else Outcome.FAILURE
        completion = None if answer is None else answer.completion
        calls = action_of(completion)
        step = Transition(
            step_index=0,
            variant_name=job.variant,
            messages=prompt.messages,
            tools=prompt.step.tools,
            observation=observation_of(prompt.messages),
            completion=completion,
            action=calls if calls is not None or completion is None else completion.text,
            extra=None if error is None else {"error": error},
        )
        started = now
        if answer is not None:
            started = answer.started_at
            step = step.model_copy(
                update={
                    "inference_id": answer.inference_id,
                    "model_name": answer.model_name,
                    "n_input_tokens": answer.n_input_tokens,
                    "n_output_tokens": answer.n_output_tokens,
                    "finish_reason": answer.finish_reason,
                    "latency_s": answer.latency_s,
                    "started_at": answer.started_at,
                    "cost_usd": answer.cost_usd,
                }
            )
        return Episode(
            episode_id=uuid7(),
            source=KIND,
            env_id=self._work.prompts.env_id,
            task=_TASK,
            seed=prompt.number,
            purpose=Purpose.EVAL,
            started_at=started,
            ended_at=now if answer is None else started + timedelta(seconds=answer.latency_s),
            outcome=outcome,
            metrics={} if score is None else {self._work.score: score},
            tags={
                **prompt.episode.tags,
                DECODING_TAG: str(job.decoding),
                GROUP_TAG: prompt.group,
            },
            origin={"policy": job.variant, "prompt": prompt.place, **({"error": error} if error else {})},
            steps=(step,),
        )


def chat_models(
    players: Sequence[LocalPlayer], model_url: str | None, caller: Caller
) -> Mapping[str, ChatModels]:
    """Open the models that answer prompts, by the names of the players: local ones, or at a server.

    Args:
        players: The models.
        model_url: The OpenAI-compatible server; None for this machine, which loads each base once.
        caller: Sends the requests.

    Raises:
        RequestError: A model cannot be loaded, or the address is invalid.
        MissingExtra: A package is not installed.
    """
    if model_url is None:
        local = LocalModels.open(players)
        return {player.name: _Here(player, local, caller) for player in players}
    url, key = checked_secret(model_url, "--model-url"), secret_from_environment(KEY_VARIABLE)
    address = "" if url is None else url.get_secret_value()
    return {
        player.name: Endpoint(address, key, caller, model=player.model, is_only=True) for player in players
    }


class _Here(LocalEndpoint):
    """A local model, which is released with the endpoint."""

    async def close(self) -> None:
        await self._models.close()
