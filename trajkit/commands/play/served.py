"""Models that a server of this machine is to load, as they are typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.models.serving.served_models import Wanted


def wanted_models(
    models: Sequence[str], names: Sequence[str | None], base: str | None, runs_folder: Path
) -> list[Wanted]:
    """The models by their names.

    Args:
        models: Jobs, folders, ids or samples.
        names: What clients call them, in the same order, None for what was typed; or none at all.
        base: What adapters belong to, where neither the job nor they say so.
        runs_folder: Where jobs are kept.

    Raises:
        RequestError: There is none of a name, or not one name for each.
    """
    from trajkit.commands.play.local_model import local_model
    from trajkit.models.serving.served_models import Wanted

    if names and len(names) != len(models):
        raise RequestError(
            f"{len(models)} models and {len(names)} names", hint="--name NAME for each MODEL, in their order"
        )
    found = [local_model(model, runs_folder) for model in models]
    called = [name or each.called for name, each in zip(names or [None] * len(found), found, strict=True)]
    return [Wanted(name, each.model, base or each.base) for name, each in zip(called, found, strict=True)]
