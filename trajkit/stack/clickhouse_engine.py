"""The child process of the local database: the only user of chdb's undocumented entry point.

chdb contains the program clickhouse-local, which can listen like a server since ClickHouse 26.7
(ClickHouse pull request 101143). The public API of chdb opens an embedded connection, which cannot listen;
`_chdb.query` runs the program. It reads `config.xml` in the working folder, so this process changes to that
folder, but only after the import of chdb: the import opens a connection that would read the file, too.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

# The program ends with its last query, so the last one never ends: a 3 s sleep per row of an endless table.
# Its user needs only the right to listen and to read that table.
QUERY = (
    "SYSTEM START LISTEN HTTP; SELECT sleepEachRow(3) FROM system.numbers FORMAT Null"
    " SETTINGS max_block_size = 1, max_execution_time = 0"
)
GRANTS = ("GRANT SYSTEM LISTEN ON *.*", "GRANT SELECT ON system.numbers")


def serve(folder: Path) -> str:
    """Serve the database in a folder until killed; return the reason when it fails."""
    engine: Any = importlib.import_module("chdb._chdb")
    os.chdir(folder)
    # the second argument becomes the server's default format; a real server has TabSeparated
    answer = engine.query(QUERY, "TabSeparated", path=str(folder / "data"))
    return str(answer.error_message()) or "the database ended by itself"


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1])))
