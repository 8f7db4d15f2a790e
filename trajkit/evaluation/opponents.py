"""Decide which groups are compared with each other: those whose answers were sampled in the same way."""

from __future__ import annotations

from collections.abc import Sequence

from trajkit.errors import RequestError
from trajkit.evaluation.groups import Group
from trajkit.store.nameable import nearest


def opponents(
    groups: Sequence[Group], baselines: Sequence[str] = (), *, across_decodings: bool = False
) -> list[tuple[str, str]]:
    """The pairs of baseline and candidate, by their names.

    A baseline is compared with every other group of its own decoding. Where no other
    group has its decoding, it is compared with all groups if it was named. If there is no pair otherwise, the
    first group is compared with all groups.

    Args:
        groups: All groups, in their order.
        baselines: Those that the others are compared with: groups, or variants, which stand for their groups
            of every decoding. None takes the first group of each decoding.
        across_decodings: Compare groups of different decodings too; without baselines, with the first alone.

    Raises:
        RequestError: There is no such group.
    """
    decodings = {group.name: group.who.decoding for group in groups}
    firsts = list({decoding: name for name, decoding in reversed(decodings.items())}.values())[::-1]
    named = list(dict.fromkeys(each for name in baselines for each in _called(name, groups)))
    if across_decodings:
        return _pairs(named or firsts[:1], {name: list(decodings) for name in decodings})
    alike = {name: [one for one in decodings if decodings[one] == decodings[name]] for name in decodings}
    if named:
        is_alone = {name for name in named if len(alike[name]) == 1}
        return _pairs(named, {**alike, **{name: list(decodings) for name in is_alone}})
    return _pairs(firsts, alike) or _pairs(firsts[:1], {name: list(decodings) for name in decodings})


def _pairs(baselines: Sequence[str], against: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Each baseline with each of the others that it is compared with; two baselines once."""
    found: dict[tuple[str, str], None] = {}
    for one in baselines:
        for other in against[one]:
            if other != one and (other, one) not in found:
                found[one, other] = None
    return list(found)


def _called(name: str, groups: Sequence[Group]) -> list[str]:
    """The group of this name, or those of the variant, or of the store that is named so."""
    names = [group.name for group in groups]
    if name in names:
        return [name]
    found = [group.name for group in groups if name == (group.who.source_name or group.who.variant)]
    if not found:
        raise RequestError(f"no variant {name!r} in these stores", hint=nearest(name, names))
    return found
