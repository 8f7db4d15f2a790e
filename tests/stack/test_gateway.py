from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.stack.conftest import RECIPE
from trajkit.errors import ConfigError, ServiceError
from trajkit.stack.clickhouse import ClickHouse
from trajkit.stack.gateway import create_schema, open_gateway
from trajkit.stack.gateway_config import prepare_config
from trajkit.stack.loopback import LoopbackHandler, LoopbackServer


@pytest.fixture
def config(tmp_path: Path, model: Any) -> Path:
    return prepare_config(RECIPE, tmp_path / "config", model_url=model.url)


def opened(config_file: Path | None, **options: Any) -> None:
    async def once() -> None:
        async with open_gateway(config_file, **options):
            pass

    asyncio.run(once())


@pytest.mark.full
def test_opening_it_once_makes_tensorzeros_tables(config: Path, tmp_path: Path) -> None:
    with ClickHouse.start(tmp_path / "new") as database:
        asyncio.run(create_schema(config, database.secret_url))
        assert database.ask("SELECT max(migration_id) FROM tensorzero.TensorZeroMigration") == "53\n"
        assert database.ask("SELECT count() FROM tensorzero.JsonInference WHERE 0") == "0\n"


def test_every_row_is_there_when_the_answer_is(config: Path, database: ClickHouse) -> None:
    text = config.read_text().replace("async_writes = false", "async_writes = true")
    config.write_text(text)  # whatever the file says

    async def play() -> list[str]:
        async with open_gateway(config, clickhouse_url=database.secret_url, timeout_s=60) as gateway:
            message = {"role": "user", "content": [{"type": "text", "arguments": {"observation": "a wall"}}]}
            calls = [
                gateway.inference(
                    function_name="act",
                    variant_name="baseline",
                    input={"system": {"mission": "go to the red ball"}, "messages": [message]},
                )
                for _ in range(20)
            ]
            return [str(answer.inference_id) for answer in await asyncio.gather(*calls)]

    ids = asyncio.run(play())
    found = database.ask(f"SELECT count() FROM tensorzero.JsonInference WHERE toString(id) IN {tuple(ids)}")
    assert found == "20\n"


def test_what_happens_inside_the_block_is_not_taken_for_a_failure_to_open(
    config: Path, database: ClickHouse
) -> None:
    async def play() -> None:
        async with open_gateway(config, clickhouse_url=database.secret_url):
            raise ValueError("of the caller")

    with pytest.raises(ValueError, match="of the caller"):
        asyncio.run(play())


def test_a_wrong_password_is_a_service_error_that_does_not_show_it(
    config: Path, database: ClickHouse
) -> None:
    url = database.url.replace(database.user.password, "wr0ng-secret")
    with pytest.raises(ServiceError, match="ClickHouse refused the user or the password") as caught:
        opened(config, clickhouse_url=SecretStr(url))
    assert "wr0ng-secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_unreachable_database_is_a_service_error_that_shows_no_password(config: Path) -> None:
    with pytest.raises(ServiceError, match=r"cannot use ClickHouse: .*Connection refused") as caught:
        opened(config, clickhouse_url=SecretStr("http://me:s3cret@127.0.0.1:1/tensorzero"))
    assert "s3cret" not in str(caught.value)


def test_a_database_url_that_is_none_is_the_callers_mistake(config: Path) -> None:
    with pytest.raises(ConfigError, match="the ClickHouse URL is not a URL"):
        opened(config, clickhouse_url=SecretStr("s3cret nonsense"))


def test_a_gateway_needs_a_configuration(database: ClickHouse) -> None:
    with pytest.raises(ConfigError, match=r"needs a tensorzero\.toml"):
        opened(None, clickhouse_url=database.secret_url)


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ('type = "json"', 'type = "jsom"', "jsom"),
        ("baseline = 1.0", "nobody = 1.0", "candidate variant `nobody` does not exist"),
        ('model = "agent"', 'model = "gpt-4.1-mini"', "Model name 'gpt-4.1-mini' not found"),
        ("act/user_schema.json", "act/none.json", r"Failed to resolve path `act/none\.json`"),
    ],
)
def test_what_the_gateway_refuses_is_a_configuration_error_in_its_own_words(
    config: Path, database: ClickHouse, wrong: str, right: str, message: str
) -> None:
    config.write_text(config.read_text().replace(wrong, right))
    with pytest.raises(ConfigError, match=message) as caught:
        opened(config, clickhouse_url=database.secret_url)
    assert str(config) in caught.value.message


def test_a_gateway_elsewhere_that_does_not_answer_is_a_service_error() -> None:
    with pytest.raises(
        ServiceError, match=r"no gateway answers at http://me:\*\*\*@127\.0\.0\.1:1"
    ) as caught:
        opened(None, gateway_url="http://me:s3cret@127.0.0.1:1")
    assert caught.value.hint == "check TENSORZERO_GATEWAY_URL"
    with pytest.raises(ServiceError, match="no gateway answers at nonsense"):
        opened(None, gateway_url="nonsense")


def test_a_gateway_elsewhere_needs_neither_configuration_nor_database() -> None:
    class Handler(LoopbackHandler):
        def do_GET(self) -> None:
            self.send(404, "text/plain", b"")

    with LoopbackServer(0, Handler) as server:
        server.start()
        opened(None, gateway_url=server.url)


OPEN_AND_LEAVE = """
import asyncio, sys
from pathlib import Path
from pydantic import SecretStr
from trajkit.stack.gateway import create_schema
asyncio.run(create_schema(Path(sys.argv[1]), SecretStr(sys.argv[2])))
"""


def run_script(config: Path, database: ClickHouse, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", OPEN_AND_LEAVE, str(config), database.url],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.parametrize("n_times", [1, pytest.param(8, marks=pytest.mark.full)])
def test_a_program_that_ends_after_its_gateway_ends_well_and_has_said_nothing(
    config: Path, database: ClickHouse, n_times: int
) -> None:
    for _ in range(n_times):
        ended = run_script(config, database)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_recipe_uses_nothing_that_the_gateway_calls_deprecated(
    config: Path, database: ClickHouse
) -> None:
    ended = run_script(config, database, RUST_LOG="warn")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
