"""Find personal data without a fixed pattern by presidio and a spaCy model: names, places, accounts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from trajkit._core.lazy import need
from trajkit.curation.redaction.text import Span
from trajkit.errors import RequestError

EXTRA = "pii"
"""The extra that installs presidio and spaCy."""

MODEL = "en_core_web_lg"
"""presidio's default spaCy model."""

NO_MODEL = "none"
"""Used instead of a model: presidio's own patterns alone, which find no names."""

ENTITIES = {
    "person": "PERSON",
    "location": "LOCATION",
    "nationality": "NRP",
    "credit-card": "CREDIT_CARD",
    "iban": "IBAN_CODE",
    "crypto-wallet": "CRYPTO",
    "us-ssn": "US_SSN",
    "us-itin": "US_ITIN",
    "us-passport": "US_PASSPORT",
    "uk-nhs": "UK_NHS",
}
"""presidio's name of each kind. `redact_shape` finds mail, phone and IP addresses, with more checks."""

_OF_THE_MODEL = frozenset({"person", "location", "nationality"})
_LEAST_SCORE = 0.5
_MOST_CHARACTERS = 100_000
"""Characters read at once: spaCy's memory grows with them, and it refuses more than a million."""
_WORTH_READING = re.compile(r"[^\W\d_]{2}|[0-9]{3}")


class PiiReader:
    """Finds personal data in texts, in the language of a model.

    Args:
        model: A spaCy model: the name of its package, or a folder; `none` for no model.
        skip: Kinds that are not looked for.

    Raises:
        MissingExtra: presidio or spaCy is not installed.
        RequestError: The model is not installed, or finds no names.
    """

    def __init__(self, model: str, skip: Collection[str] = ()) -> None:
        wanted = {kind: name for kind, name in ENTITIES.items() if kind not in skip}
        if model == NO_MODEL:
            wanted = {kind: name for kind, name in wanted.items() if kind not in _OF_THE_MODEL}
        self._kinds = {name: kind for kind, name in wanted.items()}
        pipeline = _pipeline(model)
        self._language = pipeline.lang
        self._analyzer = _analyzer(pipeline, [*wanted.values()])

    def __call__(self, text: str) -> list[Span]:
        """Return the values in a text, in order of their score; they may overlap."""
        return list(self._spans(text)) if self._kinds and _WORTH_READING.search(text) else []

    def _spans(self, text: str) -> Iterator[Span]:
        for start in range(0, len(text), _MOST_CHARACTERS):
            found = self._analyzer.analyze(
                text=text[start : start + _MOST_CHARACTERS],
                language=self._language,
                entities=list(self._kinds),
                score_threshold=_LEAST_SCORE,
            )
            for each in sorted(found, key=lambda one: (-one.score, one.start)):
                yield Span(self._kinds[each.entity_type], start + each.start, start + each.end)


def _pipeline(model: str) -> Any:
    spacy = need("spacy", extra=EXTRA)
    if model == NO_MODEL:
        return spacy.blank("en")
    try:
        pipeline = spacy.load(model)
    except OSError as error:
        raise RequestError(
            f"there is no spaCy model {model!r} on this machine",
            hint=f"python -m spacy download {model}; --pii-model names another one, or a folder with one; "
            f"--pii-model {NO_MODEL} finds numbers of cards and accounts, and no names",
        ) from error
    if not {"ner", "entity_ruler"} & set(pipeline.pipe_names):
        raise RequestError(
            f"the spaCy model {model!r} finds no names: it has no `ner` and no `entity_ruler`",
            hint=f"such as {MODEL}; --pii-model {NO_MODEL} does without names",
        )
    return pipeline


def _analyzer(pipeline: Any, entities: list[str]) -> Any:
    """Return presidio with this model, without recognizers that use the network."""
    presidio = need("presidio_analyzer", extra=EXTRA)
    engines = need("presidio_analyzer.nlp_engine", extra=EXTRA)
    language = pipeline.lang
    engine = engines.SpacyNlpEngine(models=[{"lang_code": language, "model_name": language}])
    engine.nlp = {language: pipeline}  # loaded before: presidio would download a missing model
    registry = presidio.RecognizerRegistry(supported_languages=[language])
    registry.load_predefined_recognizers(languages=[language], nlp_engine=engine)
    registry.recognizers = [
        each for each in registry.recognizers if set(each.supported_entities) & set(entities)
    ]
    return presidio.AnalyzerEngine(
        registry=registry, nlp_engine=engine, supported_languages=[language], default_score_threshold=0
    )
