"""The base class of all models, and the types of their fields."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from trajkit._core.times import in_utc


class Model(BaseModel):
    """Base of all models: immutable, no unknown fields; docstrings describe fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        ser_json_bytes="utf8",
        val_json_bytes="utf8",
        protected_namespaces=(),
    )


def _check_text(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"half of a surrogate pair at character {error.start}: not valid Unicode text"
        ) from None
    return value


def _check_json(value: Any) -> Any:
    """Refuse NaN, infinity and text that is not valid Unicode."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not JSON; use null for unknown")
    elif isinstance(value, str):
        _check_text(value)
    elif isinstance(value, list):
        for item in value:
            _check_json(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key)
            _check_json(item)
    return value


Text = Annotated[str, AfterValidator(_check_text)]
"""Unicode text without lone surrogates; may be empty."""

Json = Annotated[JsonValue, AfterValidator(_check_json)]
"""Any JSON value with finite numbers."""

JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_check_json)]
"""A JSON object with finite numbers."""

UtcTime = Annotated[AwareDatetime, AfterValidator(in_utc)]
"""A time with a time zone, converted to UTC, in microseconds."""

MOST = 2**63 - 1
"""The largest integer that a column of a store can hold."""

Count = Annotated[int, Field(ge=0, le=MOST)]
"""A count, from 0."""

Whole = Annotated[int, Field(ge=-MOST - 1, le=MOST)]
"""A 64-bit integer."""

Name = Annotated[Text, Field(min_length=1)]
"""A name or an id: text that is not empty."""
