"""Answer one prompt with a model that was tuned at a service, and with its base model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from pydantic import SecretStr

from trajkit._core.process.loop import run_to_end
from trajkit._core.secrets import hidden
from trajkit._core.settings import secret_from_environment
from trajkit.errors import RequestError, ServiceError
from trajkit.formats.chat.rows import ChatWriter, Dialect
from trajkit.formats.tokens.tokenizer import CharacterEstimate
from trajkit.formats.validation.target import HOSTED
from trajkit.rollouts.endpoints.endpoint import Endpoint
from trajkit.rollouts.faults import Faulty
from trajkit.rollouts.running.calling import Caller
from trajkit.schema import Message, ThoughtBlock, ToolCallBlock
from trajkit.training.hosted.remote import Remote
from trajkit.training.job import TuneJob
from trajkit.training.question import Answered, Question, Sampling

_DIALECT = Dialect(has_parts=False)
_TIMEOUT_S, _RETRIES = 120.0, 2


class ChatPlan(NamedTuple):
    """The requests to send."""

    url: str
    """Address of the API."""
    key_variable: str
    """Environment variable with the key."""
    base: str
    """The base model."""
    tuned: str
    """The tuned model."""
    n_requests: int
    """Number of requests."""
    n_prompt_tokens: int
    """Estimated tokens of the prompt."""


def chat_plan(job: TuneJob, question: Question, sampling: Sampling, *, base: str | None = None) -> ChatPlan:
    """Plan the requests to a job's model and its base model. Nothing is sent.

    Args:
        job: The job of the tuned model.
        question: The prompt.
        sampling: Settings of the sampling.
        base: Model to compare with; None for the job's base model.

    Raises:
        RequestError: The job has no model.
    """
    tuned = job.result.get("model")
    if not tuned:
        raise RequestError(
            f"job {job.job_id} has no model: it is {job.status}", hint=f"trajkit jobs wait {job.job_id}"
        )
    remote = Remote.of(job)
    name = str(remote.settings.get("profile")) if job.target == "openai" else job.target
    service = HOSTED.get(name, HOSTED["other"])
    messages, tools = _written(question)
    estimated = CharacterEstimate().render(messages, tools).n_tokens
    url = f"{remote.where.rstrip('/')}{service.chat_path}"
    return ChatPlan(url, service.key_variable, base or job.base, str(tuned), 2 * sampling.n, estimated)


def ask(plan: ChatPlan, question: Question, sampling: Sampling) -> list[Answered]:
    """Return the recorded answer and those of both models. A base model without an answer has a problem.

    Raises:
        ServiceError: The tuned model does not answer.
        RequestError: There is no key.
        MissingExtra: The package `openai` is not installed.
    """
    return run_to_end(_asked(plan, question, sampling))


async def _asked(plan: ChatPlan, question: Question, sampling: Sampling) -> list[Answered]:
    key = secret_from_environment(plan.key_variable)
    caller = Caller(concurrency=1, timeout_s=_TIMEOUT_S, retries=_RETRIES)
    server = Endpoint(plan.url, key, caller)
    found = []
    if question.step.completion is not None:
        by = question.step.variant_name or question.step.model_name
        found.append(Answered("recorded", by, _text(question.step.completion), question.step.n_output_tokens))
    try:
        try:
            found += [each async for each in _said(server, key, "base", plan.base, question, sampling)]
        except Faulty as failure:
            found.append(Answered("base", plan.base, "", None, problem=failure.fault.message))
        try:
            found += [each async for each in _said(server, key, "tuned", plan.tuned, question, sampling)]
        except Faulty as failure:
            hint = f"check {plan.key_variable}, and whether the service serves the model"
            raise ServiceError(failure.fault.message, hint=hint) from None
    finally:
        await server.close()
    return found


async def _said(
    server: Endpoint, key: SecretStr | None, by: str, model: str, question: Question, sampling: Sampling
) -> AsyncIterator[Answered]:
    messages, tools = _written(question)
    for number in range(sampling.n):
        arguments: dict[str, Any] = {
            "model": model,
            "messages": messages,
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_new_tokens,
            "seed": sampling.seed + number,
        }
        done = await server.complete(arguments | ({"tools": tools} if tools else {}))
        answer = done.answer
        text = hidden(_text(answer.completion) if answer.completion is not None else answer.raw or "", key)
        is_cut = answer.finish_reason == "length"
        yield Answered(by, model, text, answer.n_output_tokens, is_cut=is_cut)


def _written(question: Question) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Return prompt and tools in the API's format."""
    writer = ChatWriter(_DIALECT)
    messages = writer.messages(question.prompt, [0.0] * len(question.prompt))
    return messages, writer.tools(question.step.tools or ()) or None


def _text(answer: Message) -> str:
    """Return an answer as text: its text, thoughts and tool calls."""
    parts = []
    for block in answer.content:
        if isinstance(block, ToolCallBlock):
            parts.append(f"{block.name}({block.arguments})")
        elif isinstance(block, ThoughtBlock):
            parts.append(f"[thought] {block.text or ''}")
    return "\n".join(part for part in (answer.text, *parts) if part)
