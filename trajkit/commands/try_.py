"""What a tuned model and its base answer to one prompt of a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trajkit.commands.place import Place, StoreLike
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.store.dataset import Dataset
    from trajkit.training.hosted.chat import ChatPlan
    from trajkit.training.question import Answered, Question, Sampling


def try_(
    model: str | Path,
    store: StoreLike,
    place: str,
    *,
    base: str | None = None,
    temperature: float = 0.0,
    max_new_tokens: int = 256,
    seed: int = 0,
    n: int = 1,
    runs: Place = "runs",
    dry_run: bool = False,
    yes: bool = False,
) -> list[Answered]:
    """The recorded answer of a step, and what a tuned model and its base answer to the same prompt.

    Args:
        model: A job's name, a folder with an adapter or a model, or an id.
        store: The store.
        place: `EPISODE:STEP`: an id, the beginning of one, or a position from 0; steps count from 0.
        base: What the model started from, where it does not say so itself.
        temperature: 0 takes the most probable token each time.
        max_new_tokens: Most tokens of an answer.
        seed: The same answers again.
        n: Answers of each model.
        runs: The folder where jobs are kept.
        dry_run: Of a model at a service: ask nobody.
        yes: Of a model at a service: ask it, which costs money.

    Returns:
        The answers, the recorded one first; none of a service that was not asked.

    Raises:
        RequestError: There is no such model or step, or a service costs money and `yes` is not given.
        ServiceError: The service does not answer.
    """
    from trajkit.training.question import Sampling, question

    asked = question(_dataset(store), place)
    drawn = Sampling(temperature=temperature, max_new_tokens=max_new_tokens, seed=seed, n=n).checked()

    def agree(plan: ChatPlan) -> bool:
        if not (yes or dry_run):
            raise RequestError("asking a service costs money", hint="--yes asks, --dry-run does not")
        return not dry_run

    return answers_of(str(model), base, Path(runs), asked, drawn, agree=agree)


def _dataset(store: StoreLike) -> Dataset:
    from trajkit.commands.place import store_path
    from trajkit.store.dataset import Dataset, open_dataset

    return store if isinstance(store, Dataset) else open_dataset(store_path(store))


def answers_of(
    model: str,
    base: str | None,
    runs_folder: Path,
    asked: Question,
    drawn: Sampling,
    *,
    agree: Callable[[ChatPlan], bool],
) -> list[Answered]:
    """What was recorded, and what base and tuned model answer.

    Args:
        model: A job's name, a folder, or an id.
        base: What it started from; None for what the job or the adapter says.
        runs_folder: Where jobs are kept.
        asked: The prompt.
        drawn: How answers are drawn.
        agree: Whether a service is asked, which costs money.

    Raises:
        RequestError: There is no such model.
        ServiceError: The service does not answer.
    """
    from trajkit.commands.local_model import job_of, model_folder, refuse_stranger
    from trajkit.training.jobs import LOCAL
    from trajkit.training.local.answer import answers, tuned_model

    found = job_of(model, runs_folder)
    if found is None:
        refuse_stranger(model, runs_folder)
        return list(answers(tuned_model(model, base), asked, drawn))
    runs, job = found
    if job.target != LOCAL:
        from trajkit.training.hosted.chat import ask, chat_plan

        plan = chat_plan(job, asked, drawn, base=base)
        return ask(plan, asked, drawn) if agree(plan) else []
    folder = model_folder(model, runs, job)
    return list(answers(tuned_model(str(folder), base or job.base, job=job.job_id), asked, drawn))
