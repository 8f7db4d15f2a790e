"""What was found in a store: by kind and place, and never what it was."""

from __future__ import annotations

from trajkit.schema.base import Count, Model, Name


class Found(Model):
    """Values of one kind in one place."""

    kind: Name
    """What they are, such as `github-token`."""
    place: Name
    """Table and column, such as `steps.messages`, or `manifest.source`."""
    n_found: Count
    """How often, over all rows."""
    n_values: Count
    """How many different ones."""


class RedactReport(Model):
    """What a search for secrets and personal data came to."""

    found: tuple[Found, ...]
    """By kind and place, the most frequent first; none where nothing was found."""
    n_texts: Count
    """Texts that were read, over all columns."""
    n_bytes: Count
    """Their size, as UTF-8."""

    @property
    def n_found(self) -> int:
        """How many values stand in the store, over all kinds and places."""
        return sum(each.n_found for each in self.found)

    @property
    def n_by_kind(self) -> dict[str, int]:
        """The same for each kind, the most frequent first."""
        numbers: dict[str, int] = {}
        for each in self.found:
            numbers[each.kind] = numbers.get(each.kind, 0) + each.n_found
        return dict(sorted(numbers.items(), key=lambda item: (-item[1], item[0])))
