"""A chat template is somebody else's program: it ends in time, and as an error of its own."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.matrix import daily
from tests.tiny import byte_tokenizer
from trajkit.cli.main import run
from trajkit.errors import RequestError
from trajkit.formats.tokens import template_bounds
from trajkit.formats.tokens.tokenizer import ChatTemplate

ASKED = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
LONG, OVER, END = "{% for i in range(99999) %}", "{% for i in r %}", "{% endfor %}"
ENDLESS = {
    "a long range": "{% for i in range(10**9) %}x{% endfor %}",
    "loops in loops": f"{LONG}{LONG}{LONG}{{% endfor %}}{{% endfor %}}{{% endfor %}}",
    "loops over one list": f"{{% set r = range(99999) %}}{OVER}{OVER}{OVER}{END}{END}{END}",
    "a filtered loop": f"{LONG}{{% for b in range(99999) if b < 0 %}}{{% endfor %}}{{% endfor %}}",
    "a macro that calls itself twice": "{% macro m(n) %}{{ m(n-1) ~ m(n-1) if n }}{% endmacro %}{{ m(60) }}",
    "a macro that calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a recursive loop": "{% for a in [[1]] recursive %}{{ loop([a, a]) }}{% endfor %}",
    "a power of a power": "{{ 9**(9**9) }}",
    "a text many times": "{{ 'x' * 10**10 }}",
    "a list many times": "{% set l = [1] * 10**10 %}",
    "a text that doubles": f"{{% set n = namespace(x='x') %}}{LONG}{{% set n.x = n.x + n.x %}}{END}",
    "a number that squares": f"{{% set n = namespace(x=9) %}}{LONG}{{% set n.x = n.x * n.x %}}{END}",
    "a wide number": "{{ '%1000000000d' % 1 }}",
    "a text joined to itself": "{% set a = 'x' ~ 'x' %}" + "{% set a = a ~ a %}" * 40,
    "a block within a block": "{% set a %}x{% endset %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 40,
    "a centred text": "{{ 'x'|center(5000000000) }}",
    "an aligned text": "{{ 'x'.ljust(5000000000) }}",
    "an indented text": "{{ ('x\\n' * 10000)|indent(width=100000) }}",
    "a wide field": "{{ '{:>5000000000}'.format('x') }}",
    "a wide field of a filter": "{{ '%*d'|format(2000000000, 1) }}",
    "a text put in for each letter": "{% set a = 'x' * 9000 %}" + "{% set a = a|replace('x', a) %}" * 3,
    "a long text between": "{{ ('x' * 3000000).join('y' * 99999) }}{{ range(99999)|join('x' * 3000000) }}",
    "many slices": "{{ [1]|slice(1000000000)|list }}",
    "a wide indentation": "{{ [[1]]|tojson(indent=2000000000) }}",
    "many words": "{{ lipsum(n=10000000) }}",
    "a division by zero": "{{ 1 / 0 }}",
}


@pytest.mark.parametrize(
    "name",
    daily(
        ENDLESS,
        ENDLESS.keys() - {"a macro that calls itself twice", "loops over one list", "a filtered loop"},
    ),
)
def test_a_template_without_end_is_refused_in_time(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_bounds, "_LONGEST_S", 0.2)
    opened = ChatTemplate(byte_tokenizer(tmp_path, ENDLESS[name]))
    before = time.thread_time()
    with pytest.raises(RequestError, match=r"the chat template of .* cannot write it"):
        opened.prompt(ASKED)
    assert time.thread_time() - before < 60


@pytest.mark.full
@pytest.mark.parametrize("command", daily(["tokens", "convert"], 1))
def test_the_commands_refuse_one_without_a_traceback(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    marked = f"{LONG}{LONG}{{% generation %}}{{% endgeneration %}}{{% endfor %}}{{% endfor %}}"
    name = byte_tokenizer(tmp_path / "endless", marked)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"messages": ASKED}), encoding="utf-8")
    to = ["convert", "sample:babyai", "--to", "trl-messages", "-o", str(tmp_path / "other.jsonl")]
    commands = {
        "tokens": ["tokens", str(rows), "--model", name],
        "convert": [*to, "--include-eval", "--tokenizer", name, "--max-length", "100"],
    }
    assert run(commands[command]) == 2
    told = capsys.readouterr().err
    assert "cannot write it: it computes for longer than 2 s" in told
    assert "Traceback" not in told


def test_an_ordinary_template_writes_as_ever(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ '\\n' if not loop.last }}"
        "{{ m.content + '!' * 2 }}{{ 'a%s' % 7 }}{{ 2 ** 3 }}{% else %}none{% endfor %}"
        "{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}"
        "{% for c in 'abc' if c != 'b' %}{{ c }}{% endfor %}{% for _ in undefined %}{% endfor %}"
    )
    opened = ChatTemplate(byte_tokenizer(tmp_path, template))
    assert opened.decode(opened.prompt(ASKED)) == "1/2\nx!!a782/2y!!a78a1ac"
