"""Compare the answers of a tuned model and its base to one prompt of a store."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

from trajkit._core.output import console
from trajkit._core.output.console import Cell, count, plural, table_text, talk
from trajkit._core.output.result import Result
from trajkit.commands.options.group import flattened
from trajkit.commands.options.request import checked, picked
from trajkit.commands.options.types import Count, Option, Place, RunsFolder, StoreLike
from trajkit.commands.place import store_path
from trajkit.training.question import Answered, Question, Sampling, question

if TYPE_CHECKING:
    from trajkit.training.hosted.chat import ChatPlan

_HEADINGS = ("answer", "model", "tokens", "text")
_NARROWEST = 30
_PROMPT_END = 300


class Answers(list[Answered], Result):
    """The answers to one prompt, the recorded one first; none of a service that was not called.

    Args:
        answers: The answers.
        asked: The prompt.
        drawn: How they were sampled.
    """

    def __init__(self, answers: Iterable[Answered], asked: Question, drawn: Sampling) -> None:
        super().__init__(answers)
        self.question, self.sampling = asked, drawn

    def to_json(self) -> dict[str, Any]:
        """The prompt, how answers were sampled, and the answers."""
        return {
            "episode_id": self.question.episode.episode_id,
            "step_index": self.question.step.step_index,
            "messages": self.question.messages,
            "tools": self.question.tools,
            "sampling": self.sampling.model_dump(),
            "answers": [answer._asdict() for answer in self],
        }

    def print_text(self) -> None:
        """Print the table, as wide as the terminal."""
        if self:
            console.result_text(self._table(self._width() if sys.stdout.isatty() else None))

    def __str__(self) -> str:
        return self._table(None)

    def __repr__(self) -> str:
        return f"<{plural(len(self), 'answer')} to step {self.question.step.step_index}>"

    def _repr_html_(self) -> str:
        from trajkit._core.output import notebook as html

        place = f"episode {self.question.episode.episode_id}, step {self.question.step.step_index}"
        parts = [html.title("answers", place)]
        for answer in self:
            parts += [
                html.facts((answer.by, answer.model or "")),
                html.block("\n".join(_lines(answer, None))),
            ]
        return html.framed(parts)

    def _table(self, width: int | None) -> str:
        """A table: an answer of several lines, or one too wide for the terminal, continues below."""
        rows: list[tuple[str, ...]] = []
        for answer in self:
            first, *others = _lines(answer, width)
            n_tokens = "" if answer.n_tokens is None else count(answer.n_tokens)
            rows.append((answer.by, answer.model or "", n_tokens, first))
            rows += [("", "", "", text) for text in others]
        return table_text([Cell(heading, is_number=heading == "tokens") for heading in _HEADINGS], rows)

    def _width(self) -> int:
        """Columns that are left for the text."""
        names = max(len(answer.model or "") for answer in self)
        taken = len("recorded") + 2 + max(names, len("model")) + 2 + len("tokens") + 2
        return max(_NARROWEST, shutil.get_terminal_size().columns - taken)


def _lines(answer: Answered, width: int | None) -> list[str]:
    if answer.problem is not None:
        return [f"no answer: {answer.problem}"]
    text = f"{answer.text} …" if answer.is_cut else answer.text
    lines = text.splitlines() or ["(nothing)"]
    if width is None:
        return lines
    return [part for line in lines for part in textwrap.wrap(line, width, replace_whitespace=False) or [""]]


class TryOptions(TypedDict, total=False):
    """Options of `try_`."""

    base: Annotated[str | None, Option(metavar="DIR|ID")]
    """Base model of MODEL, if MODEL does not name it."""
    temperature: Annotated[float, Option(least=0)]
    """0 takes the most probable token each time."""
    max_new_tokens: Count
    """Maximum tokens per answer."""
    seed: int
    """The same seed gives the same answers."""
    n: Count
    """Answers per model."""
    runs: Annotated[RunsFolder, Option(default="runs")]
    """Folder where jobs are kept."""
    dry_run: bool
    """For a model at a service: print the plan, and call no model."""
    yes: bool
    """For a model at a service: call it, which costs money."""


@flattened(Sampling)
def try_(
    model: Place,
    store: StoreLike,
    place: Annotated[str, Option(metavar="EPISODE:STEP")],
    **options: Unpack[TryOptions],
) -> Answers:
    """Print the recorded answer of a step, and those of a tuned model and its base to the same prompt.

    Models at a service are called only after a confirmation, or with --yes.

    Args:
        model: A job's name, a folder with an adapter or a model, or an id.
        store: The store.
        place: Episode and step: an id, the beginning of one, or a position from 0; steps count from 0.

    Raises:
        RequestError: There is no such model or step, or a service costs money and `yes` is not given.
        ServiceError: The service does not answer.

    Example:
        trajkit try goto-sft stores/goto 0:3
    """
    from trajkit.store.dataset import Dataset, open_dataset

    asked = question(store if isinstance(store, Dataset) else open_dataset(store_path(store)), place)
    drawn = checked(Sampling, picked(options, Sampling.model_fields)).checked()
    _tell(asked)

    def agree(plan: ChatPlan) -> bool:
        for text in _plan_lines(plan, drawn):
            talk(text)
        if options["dry_run"]:
            talk("dry run: no model was called")
            return False
        console.confirm(
            "Ask?",
            yes=options["yes"],
            verb="calls it",
            refused="no model was called",
            unasked="calling a service costs money",
        )
        return True

    answers = Answers(_answers(str(model), options, asked, drawn, agree=agree), asked, drawn)
    if any(answer.is_cut for answer in answers):
        talk(f"note: cut after {plural(drawn.max_new_tokens, 'token')}; --max-new-tokens for more")
    return answers


def _answers(
    model: str, options: TryOptions, asked: Question, drawn: Sampling, *, agree: Callable[[ChatPlan], bool]
) -> Iterable[Answered]:
    """The recorded answer, and those of base and tuned model; nothing if `agree` returns False."""
    from trajkit.commands.play.local_model import job_of, model_folder, refuse_stranger
    from trajkit.models.generation.located import located
    from trajkit.training.job import LOCAL
    from trajkit.training.local.outcome.answer import answers

    runs_folder, base = Path(options["runs"]), options["base"]
    found = job_of(model, runs_folder)
    if found is None:
        refuse_stranger(model, runs_folder)
        return answers(located(model, base), model, asked, drawn)
    runs, job = found
    if job.target != LOCAL:
        from trajkit.training.hosted.chat import ask, chat_plan

        plan = chat_plan(job, asked, drawn, base=base)
        return ask(plan, asked, drawn) if agree(plan) else []
    folder = model_folder(model, runs, job)
    return answers(located(str(folder), base or job.base), job.job_id, asked, drawn)


def _plan_lines(plan: ChatPlan, drawn: Sampling) -> Iterator[str]:
    """The requests to a service."""
    yield f"calls     {plan.url}, with the key of {plan.key_variable}"
    yield f"models    {plan.base} and {plan.tuned}"
    yield (
        f"requests  {plural(plan.n_requests, 'request')}, each of about "
        f"{plural(plan.n_prompt_tokens, 'token')} and an answer of up to {drawn.max_new_tokens:,}"
    )
    yield "price     the service's own for this many tokens"


def _tell(asked: Question) -> None:
    """Print which prompt it is."""
    episode = asked.episode
    world = [str(each) for each in (episode.env_id, episode.task) if each is not None]
    if episode.seed is not None:
        world.append(f"seed {episode.seed}")
    where = f"  {' '.join(world)}" if world else ""
    last = episode.n_steps - 1
    talk(f"episode {episode.episode_id}{where}  step {asked.step.step_index} of 0 to {last}")
    tools = ", ".join(str(tool.get("name")) for tool in asked.step.tools or ())
    offers = f"; tools: {tools}" if tools else ""
    talk(f"prompt  {plural(len(asked.prompt), 'message')}{offers}; the last one ends:")
    for text in asked.prompt[-1].text[-_PROMPT_END:].splitlines():
        talk(f"        {text}")
    if asked.losses:
        talk(f"left out of the prompt: {', '.join(asked.losses)}")
