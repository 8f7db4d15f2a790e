"""What `--set` says, put over what options gave."""

from __future__ import annotations

import pytest

from trajkit.commands.options.request import nested
from trajkit.errors import RequestError


def test_a_path_leads_to_a_field_of_a_field() -> None:
    given = {"lora": {"r": 16}, "seed": 1}
    found = nested({"lora.alpha": 8, "new.deep.er": 9, "seed": 2}, given)
    assert found == {"lora": {"r": 16, "alpha": 8}, "new": {"deep": {"er": 9}}, "seed": 2}
    assert given == {"lora": {"r": 16}, "seed": 1}


def test_a_path_through_a_value_is_refused_by_its_place() -> None:
    with pytest.raises(RequestError, match=r"--set a\.b\.c: a\.b is no group"):
        nested({"a.b": 1, "a.b.c": 2}, {})
