"""A callback that the LiteLLM proxy loads: it writes each spend log to a file instead of to Postgres.

The rows are those of litellm's own `ProxyDBLogger` and `get_logging_payload`, as they go to the database.
Only the last step is replaced: Prisma, whose engine cannot be had from package registries.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from litellm.proxy.db.db_spend_update_writer import DBSpendUpdateWriter
from litellm.proxy.hooks.proxy_track_cost_callback import _ProxyDBLogger


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


async def _write(self: Any, payload: dict[str, Any], *_: Any, **__: Any) -> bool:
    with Path(os.environ["SPEND_ROWS"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(payload, default=_plain) + "\n")
    return True


DBSpendUpdateWriter._record_spend_log = _write  # type: ignore[method-assign]
rows = _ProxyDBLogger()
