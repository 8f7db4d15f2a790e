"""Answer one prompt with a tuned model and its base model on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trajkit.errors import RequestError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.ask import Ask
from trajkit.models.generation.generate import generate
from trajkit.models.generation.located import Located
from trajkit.models.generation.model import LocalModel, open_template
from trajkit.training.question import Answered, Question, Sampling

_BASE = "base"
_TUNED = "tuned"


def answers(tuned: Located, name: str, question: Question, sampling: Sampling) -> Iterator[Answered]:
    """Yield the recorded answer, the base model's answers, and the tuned model's answers.

    Args:
        tuned: The tuned model and its base model.
        name: Name of the tuned model for the user.
        question: The prompt.
        sampling: Settings of the sampling.

    Raises:
        RequestError: A model cannot be loaded, or the prompt does not fit into it.
        MissingExtra: torch, transformers or peft is not installed.
    """
    # both models use the tokenizer that was saved with the tuned one, or else its base's
    has_own = not Path(tuned.model).is_dir() or (Path(tuned.model) / "tokenizer_config.json").is_file()
    template = open_template(tuned.model if has_own or tuned.base is None else tuned.base)
    if question.recorded is not None:
        yield _recorded(question, template)
    if tuned.is_adapter:
        model = LocalModel.open(tuned.base or "", adapters={_TUNED: tuned.model}, name=_BASE)
        yield from _said(_BASE, tuned.base, model, template, question, sampling)
        yield from _said(_TUNED, name, model, template, question, sampling)
        model.close()
        return
    for by, called, folder in ((_BASE, tuned.base, tuned.base), (_TUNED, name, tuned.model)):
        if folder is not None:
            model = LocalModel.open(folder, name=by)
            yield from _said(by, called, model, template, question, sampling)
            model.close()


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
