"""Which database a URL names, as an archive takes it."""

from __future__ import annotations

from trajkit.errors import RequestError
from trajkit.sources.access import Access
from trajkit.sources.open import Location
from trajkit.sources.tensorzero.archive.origin import Origin
from trajkit.sources.tensorzero.connect.postgres.url import is_postgres


def connected(location: Location, access: Access = Access()) -> Origin:  # noqa: B008 -- frozen
    """Connect to a database that is to be archived, or compared with its archive.

    Args:
        location: Where it is.
        access: What queries may take of its server.

    Raises:
        RequestError: It is a store or an archive, not a database.
        ServiceError: It cannot be reached, or is no TensorZero database.
    """
    url = location.value.get_secret_value()
    if not location.is_database:
        raise RequestError(
            f"{url} is not a database (from {location.named_by})",
            hint="--source takes a URL such as http://user:password@host:8123/tensorzero",
        )
    if is_postgres(url):
        from trajkit.sources.tensorzero.archive.postgres import PostgresOrigin

        return PostgresOrigin(url, access)
    from trajkit.sources.tensorzero.archive.clickhouse import ClickHouseOrigin

    return ClickHouseOrigin(url, access)
