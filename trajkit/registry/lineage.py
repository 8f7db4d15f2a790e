"""Trace a model to its training data, and an episode or a store to the models trained on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from trajkit._core.address import readable
from trajkit.errors import StoreError
from trajkit.registry.ledger import Learned, Registration, TunedModel
from trajkit.schema import LineageEntry, Model
from trajkit.schema.base import Count, Name
from trajkit.schema.manifest import Sha256
from trajkit.store.engine import connect, literal, scan
from trajkit.store.reader import open_store

_PAIRS = "chosen_episode_id"


class Use(Model):
    """How a training used an episode."""

    episode_id: Name
    """Id of the episode."""
    n_steps: Count
    """Number of its steps in the data; for pairs, how often it is a side of a pair."""
    n_learned: Count
    """Number of those steps that a row trains."""


class Unknown(Model):
    """Why the learned episodes are unknown."""

    reason: Name
    """The reason, in words."""


def uses_of(learned: Learned, *, episode_id: str | None = None) -> list[Use] | Unknown:
    """Return the episodes of a training's data, by id.

    Args:
        learned: Training or validation data.
        episode_id: Return only this episode; None for all.

    Returns:
        The uses, or the reason why they are unknown, such as that both the rows and the store are gone.
    """
    condition = "" if episode_id is None else f"WHERE episode_id = {literal(episode_id)}"
    source = _of_rows(learned.rows) if learned.rows is not None and learned.rows.is_file() else None
    if source is None:
        try:
            store = open_store(learned.store)
        except StoreError:
            return Unknown(reason=f"{learned.store} and the rows are gone")
        if store.manifest.digest != learned.digest:
            return Unknown(reason=f"{learned.store} has other content now, and the rows are gone")
        source = f"(SELECT episode_id, loss_weight <> 0 AS is_learned FROM {scan(store.parts('steps'))})"
    query = (
        "SELECT episode_id, count(*), count(*) FILTER (WHERE is_learned)"
        f" FROM {source} {condition} GROUP BY episode_id ORDER BY episode_id"
    )
    try:
        with connect() as connection:
            rows = connection.execute(query).fetchall()
    except duckdb.Error as error:
        return Unknown(reason=f"{learned.rows or learned.store} cannot be read: {str(error).splitlines()[0]}")
    return [Use(episode_id=each, n_steps=n, n_learned=n_learned) for each, n, n_learned in rows]


def _of_rows(path: Path) -> str:
    """Return SQL of one row per step or side of a pair, and whether it is learned."""
    rows = scan([path])
    if _PAIRS not in pq.read_schema(readable(path)).names:
        return f"(SELECT episode_id, row IS NOT NULL AND weight <> 0 AS is_learned FROM {rows})"
    sides = [
        f"SELECT {side}_episode_id AS episode_id, row IS NOT NULL AS is_learned FROM {rows}"
        f" WHERE side IS NULL OR side = '{side}'"
        for side in ("chosen", "rejected")
    ]
    return f"({' UNION ALL '.join(sides)})"


_SHORTEST_DIGEST = 8
_HEX = frozenset("0123456789abcdef")


class Side(StrEnum):
    """How a training used an episode."""

    TRAIN = "train"
    """To learn from it."""
    VALIDATION = "validation"
    """To validate on it, which selects the best checkpoint."""


class Sight(Model):
    """A use of an episode by a model."""

    model: TunedModel
    """The model."""
    side: Side
    """Training or validation."""
    use: Use
    """Number of its steps that were used."""
    variants: tuple[Registration, ...] = ()
    """The variants that use the model."""


class Doubt(Model):
    """A model whose training data is unknown."""

    model: TunedModel
    """The model."""
    side: Side
    """Whether the training or the validation data is unknown."""
    reason: Name
    """The reason, in words."""


class EpisodeLineage(Model):
    """The models that used an episode."""

    episode_id: Name
    """Id of the episode."""
    sights: tuple[Sight, ...] = ()
    """The uses of the episode, by the newest model first."""
    doubts: tuple[Doubt, ...] = ()
    """Models whose data is unknown, so that they may have used it."""


class ModelLineage(Model):
    """The origin of a model."""

    model: TunedModel
    """The model."""
    variants: tuple[Registration, ...] = ()
    """The variants that use the model."""
    ancestors: tuple[TunedModel, ...] = ()
    """The tuned models that it was trained from, the nearest first; their training data counts as its own."""
    train: tuple[Use, ...] | Unknown | None = None
    """Training episodes; None when no training data is recorded."""
    validation: tuple[Use, ...] | Unknown | None = None
    """Validation episodes; None when there is no validation data."""


class StoreLineage(Model):
    """The origin of a store, and the models that were trained on it."""

    path: Name | None = None
    """The folder, or the name of a sample; None if only its digest is known."""
    digest: Sha256
    """Digest of its content."""
    history: tuple[LineageEntry, ...] = ()
    """Lineage of the store, oldest first."""
    models: tuple[TunedModel, ...] = ()
    """Models that were trained on it, or on a store derived from it."""
    measured: tuple[TunedModel, ...] = ()
    """Models that were validated on it."""
    variants: tuple[Registration, ...] = ()
    """The variants that use the trained models."""


class Lineage:
    """The known models and variants.

    Args:
        models: The models, the newest first; of duplicates the first counts.
        registrations: The registrations that were not undone, the newest first.
    """

    def __init__(self, models: Sequence[TunedModel], registrations: Sequence[Registration]) -> None:
        self.registrations = tuple(registrations)
        self.models = tuple(_once([*models, *(each.model for each in registrations)]))

    @property
    def names(self) -> list[str]:
        """All names that can be looked up, except for folders."""
        every = {name for model in self.models for name in model.all_names}
        of_models = {name for name in every if not Path(name).is_absolute()}
        return sorted(of_models | {name for each in self.registrations for name in _names(each)})

    def find_models(self, name: str) -> list[TunedModel]:
        """Return the models with a name: of the model itself, a job, a folder, or a variant."""
        wanted = {name, str(Path(name).absolute())}
        found = [model for model in self.models if wanted & model.all_names]
        for each in self.registrations:
            if name in _names(each) or wanted & each.model.all_names:
                found += [model for model in self.models if model.all_names & each.model.all_names]
        return list(_once(found))

    def find_digests(self, text: str) -> list[str]:
        """Return the digests of training and validation stores that begin with a text."""
        if len(text) < _SHORTEST_DIGEST or not set(text) <= _HEX:
            return []
        known = {digest for model in self.models for side in _sides(model) for digest in side.digests}
        return sorted(digest for digest in known if digest.startswith(text))

    def of_model(self, model: TunedModel) -> ModelLineage:
        """Return the origin of a model."""
        return ModelLineage(
            model=model,
            variants=self._variants(model),
            ancestors=tuple(self._ancestors(model)),
            train=_uses(model.train),
            validation=_uses(model.validation),
        )

    def of_store(
        self, digest: str, *, path: str | None = None, history: Sequence[LineageEntry] = ()
    ) -> StoreLineage:
        """Return the origin of a store and the models that were trained on it."""
        learned = [model for model in self.models if model.train and digest in model.train.digests]
        measured = [model for model in self.models if model.validation and digest in model.validation.digests]
        return StoreLineage(
            path=path,
            digest=digest,
            history=tuple(history) or self._history(digest),
            models=tuple(learned),
            measured=tuple(measured),
            variants=tuple(each for model in learned for each in self._variants(model)),
        )

    def of_episode(self, episode_id: str) -> EpisodeLineage:
        """Return the models that used an episode."""
        sights: list[Sight] = []
        doubts: list[Doubt] = []
        for model in self.models:
            for side, learned in zip(Side, (model.train, model.validation), strict=True):
                if learned is None:
                    continue
                found = uses_of(learned, episode_id=episode_id)
                if isinstance(found, Unknown):
                    doubts.append(Doubt(model=model, side=side, reason=found.reason))
                    continue
                variants = self._variants(model)
                sights += [Sight(model=model, side=side, use=use, variants=variants) for use in found]
        return EpisodeLineage(episode_id=episode_id, sights=tuple(sights), doubts=tuple(doubts))

    def _variants(self, model: TunedModel) -> tuple[Registration, ...]:
        """Return the model's variants, the newest first, each once with its first registration."""
        names = model.all_names
        found = {
            (each.config, *_names(each)): each for each in self.registrations if each.model.all_names & names
        }
        return tuple(found.values())

    def _ancestors(self, model: TunedModel) -> Iterator[TunedModel]:
        seen = {model.name}
        while model.base is not None:
            wanted = {model.base, str(Path(model.base).absolute())}
            before = next((each for each in self.models if wanted & each.all_names), None)
            if before is None or before.name in seen:
                return
            seen.add(before.name)
            yield before
            model = before

    def _history(self, digest: str) -> tuple[LineageEntry, ...]:
        """Return the history of a store, as the ledger entry of a training records it."""
        for model in self.models:
            for side in _sides(model):
                if side.digest == digest:
                    return side.history
                digests = [entry.parent_digest for entry in side.history]
                if digest in digests:
                    return side.history[: digests.index(digest)]
        return ()


def _names(registration: Registration) -> tuple[str, str]:
    return registration.variant, registration.title


def _sides(model: TunedModel) -> list[Learned]:
    return [side for side in (model.train, model.validation) if side is not None]


def _uses(learned: Learned | None) -> tuple[Use, ...] | Unknown | None:
    found = None if learned is None else uses_of(learned)
    return tuple(found) if isinstance(found, list) else found


def _once(models: Sequence[TunedModel]) -> Iterator[TunedModel]:
    """Yield each model once, identified by its job key or else its name."""
    seen = set()
    for model in models:
        identity = model.job_key or model.name
        if identity not in seen:
            seen.add(identity)
            yield model
