"""Times in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def in_utc(moment: datetime) -> datetime:
    """Convert a time to UTC; one without an offset is in UTC already.

    Raises:
        ValueError: In UTC it is not in the years 1 to 9999.
    """
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{moment.isoformat()} is not in the years 1 to 9999 in UTC") from None


def utc_of(text: str) -> datetime:
    """Read a date or a time in ISO 8601, in UTC.

    Raises:
        ValueError: It is neither, or it is not in the years 1 to 9999 in UTC.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is UTC else in_utc(moment)
