"""`trajkit try`: what a tuned model and its base answer to one prompt of a store."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit.cli.option import runs_option
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.training.hosted.chat import ChatPlan
    from trajkit.training.question import Answered, Question, Sampling

_HEADINGS = ("answer", "model", "tokens", "text")
_NARROWEST = 30
_PROMPT_END = 300


@click.command("try")
@click.argument("model")
@click.argument("store")
@click.argument("place", metavar="EPISODE:STEP")
@click.option("--base", metavar="DIR|ID", help="What MODEL started from, where it does not say so itself.")
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="0 takes the most probable token each time.",
)
@click.option(
    "--max-new-tokens",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Most tokens of an answer.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The same answers again.")
@click.option("--n", type=click.IntRange(min=1), default=1, show_default=True, help="Answers of each model.")
@runs_option
@click.option("--dry-run", is_flag=True, help="Of a model at a service: print what would be asked.")
@click.option("--yes", is_flag=True, help="Of a model at a service: ask it, which costs money.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def try_(
    model: str,
    store: str,
    place: str,
    base: str | None,
    runs_folder: Path,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **sampling: Any,
) -> None:
    """Print the recorded answer of a step, and what MODEL and its base answer to the same prompt.

    MODEL is a job's name, a folder with an adapter or a model, or an id. EPISODE is an id, the beginning of
    one, or a position from 0; STEP counts from 0. Models at a service are asked only with --yes.

    \b
    trajkit try goto-sft stores/goto 0:3
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.commands.try_ import answers_of
    from trajkit.store.dataset import open_dataset
    from trajkit.training.question import Sampling, question

    asked = question(open_dataset(store), place)
    drawn = Sampling(**sampling).checked()
    _talk(asked)
    answers = answers_of(
        model,
        base,
        runs_folder,
        asked,
        drawn,
        agree=lambda plan: _agree(plan, drawn, yes=yes, dry_run=dry_run),
    )
    if as_json:
        console.result_json(_document(asked, drawn, answers))
        return
    _print(answers)
    if any(answer.is_cut for answer in answers):
        most = console.plural(drawn.max_new_tokens, "token")
        console.talk(f"note: cut after {most}; --max-new-tokens for more")


def _agree(plan: ChatPlan, drawn: Sampling, *, yes: bool, dry_run: bool) -> bool:
    """Say what a service is asked, and ask whether to."""
    console.talk(f"asks      {plan.url}, with the key of {plan.key_variable}")
    console.talk(f"models    {plan.base} and {plan.tuned}")
    console.talk(
        f"requests  {console.plural(plan.n_requests, 'request')}, each of about "
        f"{console.plural(plan.n_prompt_tokens, 'token')} and an answer of up to {drawn.max_new_tokens:,}"
    )
    console.talk("price     the service's own for so many tokens")
    if dry_run:
        console.talk("dry run: nobody was asked")
        raise click.exceptions.Exit(0)
    if not yes:
        if not (sys.stdin.isatty() and console.is_terminal()):
            raise RequestError("asking a service costs money", hint="--yes asks, --dry-run does not")
        if not click.confirm("Ask?", err=True):
            console.talk("nobody was asked")
            raise click.exceptions.Exit(1)
    return True


def _talk(asked: Question) -> None:
    """Which prompt it was, on stderr."""
    episode = asked.episode
    world = [str(each) for each in (episode.env_id, episode.task) if each is not None]
    if episode.seed is not None:
        world.append(f"seed {episode.seed}")
    where = f"  {' '.join(world)}" if world else ""
    last = episode.n_steps - 1
    console.talk(f"episode {episode.episode_id}{where}  step {asked.step.step_index} of 0 to {last}")
    tools = ", ".join(str(tool.get("name")) for tool in asked.step.tools or ())
    offers = f"; tools: {tools}" if tools else ""
    console.talk(f"prompt  {console.plural(len(asked.prompt), 'message')}{offers}; the last one ends:")
    for line in asked.prompt[-1].text[-_PROMPT_END:].splitlines():
        console.talk(f"        {line}")
    if asked.losses:
        console.talk(f"left out of the prompt: {', '.join(asked.losses)}")


def _print(answers: list[Answered]) -> None:
    """A table: an answer of several lines, or one too wide for the terminal, goes on below itself."""
    rows: list[tuple[str, ...]] = []
    width = _width(answers)
    for answer in answers:
        lines = _lines(answer, width)
        n_tokens = "" if answer.n_tokens is None else console.count(answer.n_tokens)
        rows.append((answer.by, answer.model or "", n_tokens, lines[0]))
        rows += [("", "", "", line) for line in lines[1:]]
    cells = [console.Cell(heading, is_number=heading == "tokens") for heading in _HEADINGS]
    console.table(cells, rows)


def _width(answers: list[Answered]) -> int | None:
    """Columns that are left for the text; None where nothing is wrapped."""
    if not sys.stdout.isatty():
        return None
    names = max(len(answer.model or "") for answer in answers)
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


def _document(asked: Question, drawn: Sampling, answers: list[Answered]) -> dict[str, Any]:
    return {
        "episode_id": asked.episode.episode_id,
        "step_index": asked.step.step_index,
        "messages": asked.messages,
        "tools": asked.tools,
        "sampling": drawn._asdict(),
        "answers": [answer._asdict() for answer in answers],
    }
