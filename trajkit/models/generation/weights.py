"""Loading a causal language model and its adapters, without what their libraries say on stderr."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pickle import UnpicklingError
from typing import Any

from trajkit._core.lazy import need
from trajkit._core.samples import pretrained
from trajkit.errors import RequestError
from trajkit.models.generation.old_names import old_names

SMALL = 50_000_000
"""Up to as many parameters, each adapter is merged into a copy of its base: memory for speed."""


def default_device() -> str:
    """The GPU where there is one."""
    torch = need("torch", extra="local")
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_base(name: str, device: str) -> Any:
    """A causal language model, ready to answer.

    Args:
        name: A folder, the id of one, or `sample:tiny-base`.
        device: As torch names it.

    Raises:
        RequestError: There is none, or the device is not there.
    """
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    dtype = torch.float32 if device == "cpu" else "auto"
    try:
        with quiet():
            model = pretrained(transformers.AutoModelForCausalLM, name, dtype=dtype)
    except (OSError, ValueError) as error:
        hint = "a folder with config.json, or an id"
        raise RequestError(f"no model in {name}: {_first_line(error)}", hint=hint) from error
    try:
        return model.to(device).eval()
    except (RuntimeError, AssertionError) as error:
        raise RequestError(f"{name} cannot be put on {device!r}: {_first_line(error)}") from error


def merged(base: Any, folder: str, name: str) -> Any:
    """A copy of a model with an adapter in its weights.

    Args:
        base: The model.
        folder: Where the adapter is, or its id.
        name: What the user calls it: any text, such as a path with a dot, which peft would not take.

    Raises:
        RequestError: The adapter belongs to another model.
    """
    wrapped = with_adapter(copy.deepcopy(base), folder, "default", said=name)
    with quiet():
        return wrapped.merge_and_unload().eval()


def with_adapter(model: Any, folder: str, name: str, *, said: str) -> Any:
    """A model with one adapter more, which is not merged.

    Args:
        model: A model, or one that has adapters already.
        folder: Where the adapter is, or its id.
        name: What peft is to call it.
        said: What the user calls it.

    Raises:
        RequestError: The adapter belongs to another model.
    """
    peft = need("peft", extra="local")
    try:
        with quiet():
            if getattr(peft.PeftConfig.from_pretrained(folder), "megatron_config", None):
                raise ValueError(
                    "it names a module of its own to import, and trajkit runs no code of a model's"
                )
            if isinstance(model, peft.PeftModel):
                model.load_adapter(folder, adapter_name=name)
                return model.eval()
            return peft.PeftModel.from_pretrained(model, folder, adapter_name=name).eval()
    except (OSError, ValueError, RuntimeError, UnpicklingError) as error:  # no weights, or another model's
        raise RequestError(
            f"the adapter {said} does not fit its base: {_first_line(error)}",
            hint="the base is to be the model that it was trained on",
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@contextlib.contextmanager
def quiet() -> Iterator[None]:
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
