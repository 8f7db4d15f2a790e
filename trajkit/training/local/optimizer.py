"""Check an optimizer's name before a job is prepared."""

from __future__ import annotations

from trajkit._core.lazy import need
from trajkit.errors import RequestError
from trajkit.training.local.recipe import LocalRecipe


def check_optimizer(recipe: LocalRecipe) -> None:
    """Check that this machine has the optimizer of a recipe.

    Raises:
        RequestError: There is no such optimizer, or it needs a GPU.
        MissingExtra: Its package is not installed.
    """
    known = [str(name.value) for name in need("transformers.training_args", extra="local").OptimizerNames]
    if recipe.optim not in known:
        raise RequestError(f"no optimizer {recipe.optim!r}", hint=f"optim: {', '.join(known)}")
    if "8bit" in recipe.optim or "paged" in recipe.optim or "bnb" in recipe.optim:
        if not need("torch", extra="local").cuda.is_available():
            raise RequestError(f"the optimizer {recipe.optim} needs a GPU", hint="--set optim=adamw_torch")
        need("bitsandbytes", extra="cuda")
