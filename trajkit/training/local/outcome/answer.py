"""Answer one prompt with a tuned model and its base model on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trajkit.errors import RequestError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.ask import Ask
from trajkit.models.generation.generate import generate
from trajkit.models.generation.located import located
from trajkit.models.generation.model import LocalModel
from trajkit.training.question import Answered, Question, Sampling

_BASE = "base"
_TUNED = "tuned"


class Tuned(NamedTuple):
    """A tuned model and its base model."""

    model: str
    """Folder or id of the model or the adapter."""
    base: str | None
    """Folder or id of the base model; None when unknown."""
    is_adapter: bool
    """Whether it is an adapter, which cannot run without its base model."""
    name: str
    """Name for the user."""


def tuned_model(name: str, base: str | None, *, job: str | None = None) -> Tuned:
    """Find the model of a name.

    Args:
        name: Folder or id of an adapter or a model.
        base: The base model; None for the one in the adapter's settings.
        job: The job that trained it; None for no job.

    Raises:
        RequestError: The folder is neither, or the adapter does not name its base model.
    """
    found = located(name, base)
    return Tuned(found.model, found.base, found.is_adapter, name=job or name)


def answers(tuned: Tuned, question: Question, sampling: Sampling) -> Iterator[Answered]:
    """Yield the recorded answer, the base model's answers, and the tuned model's answers.

    Raises:
        RequestError: A model cannot be loaded, or the prompt does not fit into it.
        MissingExtra: torch, transformers or peft is not installed.
    """
    template = _template(tuned)
    if question.recorded is not None:
        yield _recorded(question, template)
    if tuned.is_adapter:
        model = LocalModel.open(tuned.base or "", adapters={_TUNED: tuned.model}, name=_BASE)
        yield from _said(_BASE, tuned.base, model, template, question, sampling)
        yield from _said(_TUNED, tuned.name, model, template, question, sampling)
        model.close()
        return
    for by, name, folder in ((_BASE, tuned.base, tuned.base), (_TUNED, tuned.name, tuned.model)):
        if folder is not None:
            model = LocalModel.open(folder, name=by)
            yield from _said(by, name, model, template, question, sampling)
            model.close()


def _template(tuned: Tuned) -> ChatTemplate:
    """Return the tokenizer that was saved with the model, or else its base's; both models use it."""
    has_own = not Path(tuned.model).is_dir() or (Path(tuned.model) / "tokenizer_config.json").is_file()
    template = ChatTemplate(tuned.model if has_own or tuned.base is None else tuned.base)
    if template.has_marks is None:
        raise RequestError(
            f"{template.name} has no chat template", hint="the folder of a model that was tuned with one"
        )
    return template


def _recorded(question: Question, template: ChatTemplate) -> Answered:
    """Return the recorded answer in the template's form, comparable to the models' answers."""
    rendered = template.render([*question.messages, *(question.recorded or ())], question.tools)
    start, end = rendered.spans[-1]
    text = template.decode(rendered.tokens[start:end])
    step = question.step
    return Answered("recorded", step.variant_name or step.model_name, text, end - start)


def _said(
    by: str,
    name: str | None,
    model: LocalModel,
    template: ChatTemplate,
    question: Question,
    sampling: Sampling,
) -> Iterator[Answered]:
    voice = model.voice(by)
    voice.template = template
    n_prompt = len(template.prompt(question.messages, question.tools))
    if voice.room is not None and n_prompt + sampling.max_new_tokens > voice.room:
        raise RequestError(
            f"the prompt has {n_prompt:,} tokens; {name} takes {voice.room:,} with the answer",
            hint="a smaller --max-new-tokens, or an earlier step",
        )
    asks = [
        Ask(
            question.messages,
            model=by,
            max_new_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            seed=sampling.seed * sampling.n + place,
            tools=question.tools,
        )
        for place in range(sampling.n)
    ]
    for said in generate(model, asks):
        is_cut = said.finish_reason == "length"
        yield Answered(by, name, template.decode(said.tokens), said.n_output_tokens, is_cut=is_cut)
