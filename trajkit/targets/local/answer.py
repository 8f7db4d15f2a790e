"""What a tuned model and the one that it started from answer to one prompt, on this machine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._lazy import need
from trajkit._samples import model_path
from trajkit.errors import DataError, RequestError
from trajkit.formats.tokenizer import ChatTemplate
from trajkit.targets.local.old_names import old_names
from trajkit.targets.question import Answered, Question, Sampling

_ADAPTER = "adapter_config.json"


class Tuned(NamedTuple):
    """A model that was tuned, and what it started from."""

    model: str
    """Folder or id of the model or the adapter."""
    base: str | None
    """Folder or id of what it started from; None when nobody says."""
    is_adapter: bool
    """Whether it is an adapter to the base, and no model by itself."""
    name: str
    """What the user calls it."""


def tuned_model(name: str, base: str | None, *, job: str | None = None) -> Tuned:
    """What a name stands for.

    Args:
        name: A folder with an adapter or a model, or the id of one.
        base: What it started from; None for what the adapter says.
        job: The job that it is of; None where it is of none.

    Raises:
        RequestError: The folder is neither, or the adapter does not say what it belongs to.
    """
    said = _adapter_of(name)
    if said is None:
        if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
            raise RequestError(
                f"{name} is neither an adapter nor a model",
                hint=f"a folder with {_ADAPTER} or config.json, a job's name, or an id",
            )
        return Tuned(name, base, is_adapter=False, name=job or name)
    base = base or said.get("base_model_name_or_path")
    if not base:
        raise RequestError(f"the adapter {name} does not say which model it belongs to", hint="--base MODEL")
    return Tuned(name, base, is_adapter=True, name=job or name)


def answers(tuned: Tuned, question: Question, sampling: Sampling) -> Iterator[Answered]:
    """What was recorded, what the base answers, and what the tuned model does.

    Raises:
        RequestError: A model cannot be loaded, or the prompt does not fit into it.
        MissingExtra: torch, transformers or peft is not installed.
    """
    template = _template(tuned)
    if question.recorded is not None:
        yield _recorded(question, template)
    if tuned.is_adapter:
        model = _loaded(tuned.base or "")
        model = _with_adapter(model, tuned)
        with model.disable_adapter():
            yield from _said("base", tuned.base, model, template, question, sampling)
        yield from _said("tuned", tuned.name, model, template, question, sampling)
        return
    if tuned.base is not None:
        yield from _said("base", tuned.base, _loaded(tuned.base), template, question, sampling)
    yield from _said("tuned", tuned.name, _loaded(tuned.model), template, question, sampling)


def _adapter_of(name: str) -> dict[str, Any] | None:
    """What an adapter says of itself; None when it is none."""
    path = Path(name)
    if path.is_dir():
        file = path / _ADAPTER
        return _read(file) if file.is_file() else None
    hub = need("huggingface_hub", extra="local")
    if name.startswith("sample:"):
        return None
    try:
        file = Path(hub.hf_hub_download(name, _ADAPTER))
    except (OSError, ValueError):  # no such id, no network, or a model that is no adapter
        return None
    return _read(file)


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file} is damaged: {error}") from error
    return found


def _template(tuned: Tuned) -> ChatTemplate:
    """The tokenizer that was saved with the model, else that of its base."""
    has_own = not Path(tuned.model).is_dir() or (Path(tuned.model) / "tokenizer_config.json").is_file()
    template = ChatTemplate(tuned.model if has_own or tuned.base is None else tuned.base)
    if template.has_marks is None:
        raise RequestError(
            f"{template.name} has no chat template", hint="the folder of a model that was tuned with one"
        )
    return template


def _recorded(question: Question, template: ChatTemplate) -> Answered:
    """The recorded answer as the template writes it, so that it can be compared with what models say."""
    rendered = template.render([*question.messages, *(question.recorded or ())], question.tools)
    start, end = rendered.spans[-1]
    said = template.decode(rendered.tokens[start:end])
    step = question.step
    return Answered("recorded", step.variant_name or step.model_name, said, end - start)


def _loaded(name: str) -> Any:
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    has_gpu = torch.cuda.is_available()
    try:
        with _quiet():
            model = transformers.AutoModelForCausalLM.from_pretrained(
                model_path(name), dtype="auto" if has_gpu else torch.float32
            )
    except (OSError, ValueError) as error:
        hint = "a folder with config.json, or an id"
        raise RequestError(f"no model in {name}: {str(error).splitlines()[0]}", hint=hint) from error
    return model.to("cuda" if has_gpu else "cpu").eval()


def _with_adapter(model: Any, tuned: Tuned) -> Any:
    peft = need("peft", extra="local")
    try:
        with _quiet():
            return peft.PeftModel.from_pretrained(model, tuned.model).eval()
    except (OSError, ValueError, RuntimeError) as error:  # no weights, or those of another model
        raise RequestError(
            f"the adapter {tuned.name} does not fit {tuned.base}: {str(error).splitlines()[0]}",
            hint="--base MODEL names what it was trained on",
        ) from error


def _said(
    by: str, name: str | None, model: Any, template: ChatTemplate, question: Question, sampling: Sampling
) -> Iterator[Answered]:
    torch = need("torch", extra="local")
    prompt = template.prompt(question.messages, question.tools)
    room = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if room is not None and len(prompt) + sampling.max_new_tokens > room:
        raise RequestError(
            f"the prompt has {len(prompt):,} tokens, and {name} reads {room:,} with the answer",
            hint="a smaller --max-new-tokens, or an earlier step",
        )
    stops = sorted(template.stops | set(_stops_of(model)))
    tokens = torch.tensor([prompt], device=model.device)
    options: dict[str, Any] = {"do_sample": False}
    if sampling.temperature:
        options = {"do_sample": True, "temperature": sampling.temperature, "top_k": 0, "top_p": 1.0}
        torch.manual_seed(sampling.seed)
    with torch.no_grad(), _quiet():
        made = model.generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=sampling.max_new_tokens,
            num_return_sequences=sampling.n,
            eos_token_id=stops or None,
            pad_token_id=stops[0] if stops else 0,
            **options,
        )
    for row in made[:, len(prompt) :].tolist():
        end = next((place for place, token in enumerate(row) if token in stops), None)
        said = row if end is None else row[:end]
        n_tokens = len(said) + (end is not None)
        yield Answered(by, name, template.decode(said), n_tokens, is_cut=end is None)


def _stops_of(model: Any) -> list[int]:
    """The tokens by which the model's own settings end an answer."""
    found = model.generation_config.eos_token_id
    if found is None:
        return []
    return [found] if isinstance(found, int) else list(found)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the bars and the advice that transformers and peft write on stderr."""
    logging = need("transformers.utils.logging", extra="local")
    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with old_names():
            yield
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()
