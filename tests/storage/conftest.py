from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.server import BUCKET, Proxy, s3


@pytest.fixture(scope="session")
def server() -> Iterator[Proxy]:
    """A server of S3 with an empty bucket, behind a proxy."""
    with pytest.MonkeyPatch.context() as patch, s3() as running:
        patch.setenv("AWS_ACCESS_KEY_ID", "key-of-tests")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-tests")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", running.url)
        import s3fs

        s3fs.S3FileSystem().mkdir(BUCKET)
        yield running


@pytest.fixture
def bucket(server: Proxy, request: pytest.FixtureRequest) -> Iterator[str]:
    """An address of this test's own."""
    server.requests.clear()
    yield f"s3://{BUCKET}/{request.node.name.replace('[', '-').replace(']', '').replace(' ', '-')}"
    server.fault = lambda method, path: None
