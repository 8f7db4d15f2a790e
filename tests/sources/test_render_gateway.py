"""The gateway renders templates with values, and so do we: the texts are equal, and so are the failures."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.sources import render_corpus as corpus
from tests.sources import render_gateway
from trajkit.errors import DataError
from trajkit.sources.tensorzero.render.config import Configuration
from trajkit.sources.tensorzero.render.engine import Engine
from trajkit.sources.tensorzero.render.files import from_file
from trajkit.sources.tensorzero.render.literal import read_json

tensorzero = pytest.importorskip("tensorzero", reason="pip install 'trajkit[tensorzero]'")
pytest.importorskip("minijinja", reason="pip install 'trajkit[render]'")


Gateway = Any


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with render_gateway.recording_gateway(tmp_path) as found:
        yield found


class _Case(NamedTuple):
    """A template by name, and a value for it."""

    template: str
    source: str
    value: Any
    is_json_file: bool


def _ours(configuration: Configuration, engine: Engine, cases: list[_Case]) -> list[str | None]:
    templates = configuration.variant("f", "v").templates
    texts: list[str | None] = []
    for case in cases:
        # the way of a stored argument: as JSON
        value = read_json(json.dumps(case.value))
        try:
            texts.append(engine.render(templates[case.template], {"x": value, "unused": [1]}))
        except DataError:
            texts.append(None)
    return texts


async def _theirs(
    gateway: Gateway, config: Path, cases: list[_Case], ours: list[str | None]
) -> list[str | None]:
    """What the gateway makes of the cases: those that we can render in few calls, the others one by one."""
    client = await tensorzero.AsyncTensorZeroGateway.build_embedded(config_file=str(config))
    try:
        texts: list[str | None] = [None] * len(cases)
        for number, (case, text) in enumerate(zip(cases, ours, strict=True)):
            if text is None:
                found = await _rendered(gateway, client, [case])
                texts[number] = None if found is None else found[0]
        for start in range(0, len(cases), 50):
            numbers = [
                number for number in range(start, min(start + 50, len(cases))) if ours[number] is not None
            ]
            found = await _rendered(gateway, client, [cases[number] for number in numbers])
            if found is None:
                for number in numbers:
                    one = await _rendered(gateway, client, [cases[number]])
                    texts[number] = None if one is None else one[0]
            else:
                for number, text in zip(numbers, found, strict=True):
                    texts[number] = text
        return texts
    finally:
        await client.close()


async def _rendered(gateway: Gateway, client: Any, cases: list[_Case]) -> list[str] | None:
    blocks: list[dict[str, Any]] = [
        {"type": "raw_text", "value": "first"},
        {"type": "raw_text", "value": "second"},
    ]
    blocks += [
        {"type": "template", "name": case.template, "arguments": {"x": case.value, "unused": [1]}}
        for case in cases
    ]
    sent = await gateway.ask(
        client, function_name="f", input={"messages": [{"role": "user", "content": blocks}]}
    )
    return None if sent is None else [block["text"] for block in sent[0]["content"]][2:]


def _compare(
    gateway: Gateway,
    files: dict[str, str],
    *,
    gateway_settings: str = "",
    values: Sequence[Any] = corpus.VALUES,
) -> None:
    """Every template with every value, here and there."""
    lines = [
        '[functions.f]\ntype = "chat"\n[functions.f.variants.v]\ntype = "chat_completion"\nmodel = "m"\n'
    ]
    lines += [
        f'templates.t{number}.path = "{gateway.write(name, source)}"\n'
        for number, (name, source) in enumerate(files.items())
    ]
    config = gateway.configure("".join(lines), gateway=gateway_settings)
    configuration = from_file(config)
    engine = Engine(configuration.load)
    cases = [
        _Case(f"t{number}", source, value, any(part in name for part in (".js", ".yaml")))
        for number, (name, source) in enumerate(files.items())
        for value in values
    ]
    ours = _ours(configuration, engine, cases)
    theirs = asyncio.run(_theirs(gateway, config, cases, ours))
    assert sum(_is_refused(case, our) for case, our in zip(cases, ours, strict=True)) <= len(cases) // 10
    differing = [
        f"{case.source!r} with {str(case.value)[:60]!r}: it makes {_short(their)}, we make {_short(our)}"
        for case, their, our in zip(cases, theirs, ours, strict=True)
        if their != our and not _is_refused(case, our)
    ]
    assert differing == []
    assert sum(text is not None for text in theirs) > len(cases) // 4


def _is_refused(case: _Case, our: str | None) -> bool:
    """Whether we say that we cannot render what the gateway can: a large number that a template escapes."""
    value = case.value
    is_large = (isinstance(value, float) and value >= 1e16) or (
        isinstance(value, int) and not -(2**63) <= value < 2**64
    )
    escapes = case.is_json_file or "autoescape" in case.source or "'tojson'" in case.source
    return our is None and is_large and escapes


def _short(text: str | None) -> str:
    return "a failure" if text is None else repr(text[:200])


def test_every_template_gives_the_gateways_text_for_every_value(gateway: Gateway) -> None:
    _compare(gateway, {f"t{number}.minijinja": source for number, source in enumerate(corpus.TEMPLATES)})


def test_the_name_of_a_file_says_how_values_are_escaped(gateway: Gateway) -> None:
    files = {
        f"t{number}.{ending}": source
        for ending, sources in corpus.ESCAPED.items()
        for number, source in enumerate(sources)
    }
    _compare(gateway, files)


def test_templates_may_name_others(gateway: Gateway) -> None:
    for name, source in corpus.PARTS.items():
        gateway.write(f"parts/{name}", source)
    gateway.write("secret", "not for templates")
    _compare(
        gateway,
        {f"t{number}.minijinja": source for number, source in enumerate(corpus.INCLUDING)},
        gateway_settings='template_filesystem_access.base_path = "parts"\n',
    )


def test_values_of_any_kind_are_printed_as_the_gateway_prints_them(gateway: Gateway) -> None:
    chosen = random.Random(4)
    values = [corpus.any_value(chosen) for _ in range(400)]
    files = {f"t{number}.minijinja": source for number, source in enumerate(corpus.MANY)}
    _compare(gateway, files, values=values)
