"""A hosted service is an entry in one table and one module, as CONTRIBUTING.md shows it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from trajkit.errors import RequestError
from trajkit.formats.validation.target import HOSTED, MB, TARGETS, HostedService, Target, target_named
from trajkit.registry.served import PREFIXES, address_of
from trajkit.training.hosted.service import connect

CONTRIBUTING = Path(__file__).parents[3] / "CONTRIBUTING.md"


def test_the_worked_example_is_all_that_a_service_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = re.findall(r"```python\n(HostedService\(.*?\n\))\n```", CONTRIBUTING.read_text(), re.DOTALL)
    names = {"HostedService": HostedService, "Target": Target, "MB": MB}
    acme: HostedService = eval(shown, names)
    with pytest.raises(RequestError, match="no service 'acme'") as unknown:
        connect("acme", {})
    assert unknown.value.hint == "services: openai, together, fireworks"
    module = ModuleType("trajkit.training.hosted.acme.connect")
    module.connect = lambda settings: ("acme", settings)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(HOSTED, "acme", acme)
    assert connect("acme", {"base_url": "https://here"}) == ("acme", {"base_url": "https://here"})
    assert acme.url == "https://api.acme.example"
    assert not acme.is_at("api.acme.example")  # it says no hosts


def test_rows_addresses_and_keys_come_from_the_one_table() -> None:
    assert list(TARGETS) == ["openai", "azure", "nebius", "together", "fireworks", "trl"]
    for service in HOSTED.values():
        assert target_named(service.rows.name) == service.rows
    found = {name: address_of(f"{name}::m") for name in HOSTED if name in PREFIXES}
    assert {name: (model.api_base, model.api_key_location) for name, model in found.items()} == {
        "openai": ("https://api.openai.com/v1/", "env::OPENAI_API_KEY"),
        "together": ("https://api.together.ai/v1/", "env::TOGETHER_API_KEY"),
        "fireworks": ("https://api.fireworks.ai/inference/v1/", "env::FIREWORKS_API_KEY"),
    }
    with pytest.raises(RequestError, match="no OpenAI-compatible address of nebius"):
        address_of("nebius::m")
