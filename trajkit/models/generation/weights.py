"""Load a causal language model and its adapters, without the messages of their libraries on stderr."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator
from pickle import UnpicklingError
from typing import Any

from trajkit._core.lazy import need
from trajkit._core.samples import pretrained
from trajkit.errors import RequestError

SMALL = 50_000_000
"""Number of parameters up to which each adapter is merged into its own copy of the base, for speed."""


def default_device() -> str:
    """Return the GPU if there is one, otherwise the CPU."""
    torch = need("torch", extra="local")
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_base(name: str, device: str) -> Any:
    """Load a causal language model for inference.

    Args:
        name: A folder, an id, or `sample:tiny-base`.
        device: Name of a torch device.

    Raises:
        RequestError: There is no such model or device.
    """
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    dtype = torch.float32 if device == "cpu" else "auto"
    try:
        with quiet():
            model = pretrained(transformers.AutoModelForCausalLM, name, dtype=dtype)
    except (OSError, ValueError) as error:
        raise no_model(name, error) from error
    try:
        return model.to(device).eval()
    except (RuntimeError, AssertionError) as error:
        raise RequestError(f"{name} cannot be put on {device!r}: {_first_line(error)}") from error


def merged(base: Any, folder: str, name: str) -> Any:
    """Return a copy of a model with an adapter merged into its weights.

    Args:
        base: The model.
        folder: Folder or id of the adapter.
        name: Name for errors; it may contain characters that peft does not allow.

    Raises:
        RequestError: The adapter belongs to another model.
    """
    wrapped = with_adapter(copy.deepcopy(base), folder, "default", said=name)
    with quiet():
        return wrapped.merge_and_unload().eval()


def with_adapter(model: Any, folder: str, name: str, *, said: str, is_trained: bool = False) -> Any:
    """Add an adapter to a model without merging it.

    Args:
        model: A model, with or without other adapters.
        folder: Folder or id of the adapter.
        name: Name of the adapter in peft.
        said: Name for errors.
        is_trained: Whether its weights get gradients.

    Raises:
        RequestError: The adapter belongs to another model.
    """
    peft = need("peft", extra="local")
    try:
        with quiet():
            if getattr(peft.PeftConfig.from_pretrained(folder), "megatron_config", None):
                raise ValueError(
                    "it names a Python module to import, and trajkit does not run code of a model"
                )
            if isinstance(model, peft.PeftModel):
                model.load_adapter(folder, adapter_name=name)
                return model.eval()
            wrapped = peft.PeftModel.from_pretrained(
                model, folder, adapter_name=name, is_trainable=is_trained
            )
            return wrapped.eval()
    except (OSError, ValueError, RuntimeError, UnpicklingError) as error:  # no weights, or another model's
        raise RequestError(
            f"the adapter {said} does not fit its base: {_first_line(error)}",
            hint="the base must be the model that it was trained on",
        ) from error


def no_model(name: str, error: Exception) -> RequestError:
    """Return the error for a name that is not a model's."""
    return RequestError(
        f"no model in {name}: {_first_line(error)}", hint="a folder with config.json, or an id"
    )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide the progress bars and advice that transformers and peft write to stderr."""
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


@contextlib.contextmanager
def old_names() -> Iterator[None]:
    """Suppress warnings of names that transformers 5 deprecates; peft 0.21 and TRL 1.16 still use them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`\w*gradient_checkpointing\w*`", FutureWarning)
        yield
