"""What is known of a model, a variant, a store or an episode, whatever its name stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from trajkit._core.settings import remembered
from trajkit.errors import RequestError, StoreError

if TYPE_CHECKING:
    from trajkit.registry.lineage import EpisodeLineage, Lineage, ModelLineage, StoreLineage


Known: TypeAlias = "ModelLineage | StoreLineage | EpisodeLineage"
"""What is known of one thing."""


def last_job() -> str:
    """The job that was started here last.

    Raises:
        RequestError: None was.
    """
    last = remembered("last_job")
    if last is None:
        raise RequestError("whose lineage?", hint="a model, a variant, a store or an episode")
    return str(last["job_id"])


def answers(known: Lineage, thing: str) -> tuple[Known, ...]:
    """What is known of a thing, whatever it is.

    Raises:
        RequestError: It is nothing that is known here.
    """
    if (store := _store(known, thing)) is not None:
        return (store,)
    if models := known.find_models(thing):
        return tuple(known.of_model(model) for model in models)
    if digests := known.find_digests(thing):
        return tuple(known.of_store(digest) for digest in digests)
    episode = known.of_episode(thing)
    if episode.sights:
        return (episode,)
    from trajkit.store.nameable import nearest

    unknown = "; ".join(f"not known of {doubt.model.name}: {doubt.reason}" for doubt in episode.doubts)
    hint = f"no episode of that id was learned; {nearest(thing, known.names)}"
    raise RequestError(f"nothing is known of {thing!r}", hint=f"{hint}; {unknown}" if unknown else hint)


def _store(known: Lineage, thing: str) -> StoreLineage | None:
    """A store or pairs by their folder; None when it is neither."""
    from trajkit.commands.tuned import manifest_of

    try:
        manifest = manifest_of(thing)
    except StoreError:
        return None
    return known.of_store(manifest.digest, path=thing, history=manifest.lineage)
