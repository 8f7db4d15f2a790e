"""The child process of the local database: the one place that uses chdb's undocumented entry point.

chdb carries the whole program clickhouse-local, which can listen like a server since ClickHouse 26.7
(ClickHouse pull request 101143). The public API of chdb opens an embedded connection, which cannot; its
`_chdb.query` runs the program. That reads `config.xml` in the working folder, so this process goes there, but
imports chdb before: the import opens a connection of its own, which would read that file too.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

# The program ends with its last query, so the last one never ends: a 3 s nap per row of an endless table.
# Whoever runs it needs the right to listen and that one table, nothing else.
QUERY = (
    "SYSTEM START LISTEN HTTP; SELECT sleepEachRow(3) FROM system.numbers FORMAT Null"
    " SETTINGS max_block_size = 1, max_execution_time = 0"
)
GRANTS = ("GRANT SYSTEM LISTEN ON *.*", "GRANT SELECT ON system.numbers")


def serve(folder: Path) -> str:
    """Serve the database in a folder until killed; return why it could not."""
    engine: Any = importlib.import_module("chdb._chdb")
    os.chdir(folder)
    # the second argument becomes the server's default format; that of a real server is TabSeparated
    answer = engine.query(QUERY, "TabSeparated", path=str(folder / "data"))
    return str(answer.error_message()) or "the database ended by itself"


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1])))
