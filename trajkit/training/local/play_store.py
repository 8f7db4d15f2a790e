"""Fill in the settings of played episodes from the training store."""

from __future__ import annotations

from pathlib import Path

from trajkit.errors import RequestError
from trajkit.store.dataset import Dataset
from trajkit.store.engine import connect
from trajkit.store.reader import verify
from trajkit.store.view import create_views
from trajkit.training.local.recipe import PlayRecipe
from trajkit.training.origin import Origin


def staged(recipe: PlayRecipe, train: Dataset, origin: Origin) -> PlayRecipe:
    """Return the recipe with environment, tasks, function and variant; missing ones come from the store.

    Raises:
        RequestError: The store has none, or several to choose from.
    """
    verify(train.store)
    with connect() as connection:
        create_views(connection, train.store)
        worlds = connection.execute(
            "SELECT env_id, list_sort(list(DISTINCT task)) FROM episodes"
            " WHERE env_id IS NOT NULL GROUP BY ALL"
        ).fetchall()
    tasks = {env: tuple(task for task in found if task is not None) for env, found in worlds}
    env = recipe.env or _only(tuple(tasks), "environment", "play.env")
    if not recipe.config:
        raise RequestError(
            "the model plays with the prompts of a gateway's function, and there is no configuration",
            hint="--set play.config=tensorzero.toml, or config in trajkit.toml",
        )
    return recipe.model_copy(
        update={
            "env": env,
            "tasks": recipe.tasks or tasks.get(env, ()),
            "config": str(Path(recipe.config).resolve()),
            "function": recipe.function or _only(origin.functions, "function", "play.function"),
            "variant": recipe.variant or _only(origin.variants, "variant", "play.variant"),
        }
    )


def _only(names: tuple[str, ...], noun: str, field: str) -> str:
    if len(names) == 1:
        return names[0]
    known = f"it has {', '.join(names)}: --set {field}={names[0]}" if names else f"--set {field}=…"
    raise RequestError(f"the {noun} to play is not clear from the store", hint=known)
