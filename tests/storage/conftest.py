from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.matrix import daily
from tests.storage.server import BUCKET, SERVICES, Proxy, serving


@pytest.fixture(scope="session", params=daily(SERVICES, {"s3"}))
def server(request: pytest.FixtureRequest) -> Iterator[Proxy]:
    """A server with an empty bucket, behind a proxy: S3 every day, the others under `make test-all`."""
    with serving(request.param) as running:
        yield running


@pytest.fixture
def bucket(server: Proxy, request: pytest.FixtureRequest) -> Iterator[str]:
    """An address of this test's own."""
    server.requests.clear()
    name = request.node.name.replace("[", "-").replace("]", "").replace(" ", "-")
    yield f"{server.protocol}://{BUCKET}/{name}"
    server.fault = lambda method, path: None
