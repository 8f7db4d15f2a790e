"""The files that a local ClickHouse server reads when it starts: where it listens, and who may log in."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trajkit._core.files import write_text
from trajkit.errors import StackError
from trajkit.stack.clickhouse_engine import GRANTS

HOST = "127.0.0.1"
"""The only address it listens on, and the only one that its users may come from."""

_MOST_PARTS = 100_000
"""Parts of a table before the server makes inserts wait. The gateway leaves one with each inference; they are
merged soon after, and feedback whose episode has to wait for that is refused."""

_CONFIG = """<clickhouse>
  <http_port>{port}</http_port>
  <listen_host>{host}</listen_host>
  <users_config>users.xml</users_config>
  <merge_tree>
    <parts_to_delay_insert>{most_parts}</parts_to_delay_insert>
    <parts_to_throw_insert>{most_parts}</parts_to_throw_insert>
  </merge_tree>
</clickhouse>
"""
_USERS = """<clickhouse>
  <profiles><default/><readonly><readonly>1</readonly></readonly></profiles>
  <quotas><default/></quotas>
  <users>{users}
  </users>
</clickhouse>
"""
_USER = """
    <{name}>
      {password}
      <networks><ip>{host}</ip></networks>
      <profile>{profile}</profile>
      <quota>default</quota>{grants}
    </{name}>"""


class User(NamedTuple):
    """One who may log in to the database."""

    name: str
    password: str
    is_readonly: bool = False


def write_configuration(folder: Path, *, port: int, users: Sequence[User]) -> None:
    """Write what the server reads when it starts: its address, and who may log in.

    Raises:
        StackError: A user has a name or a password that cannot be.
    """
    # The engine logs itself in as `default`, which therefore has no password. Anybody on this machine can do
    # the same, hence it is granted what the start needs and nothing else.
    grants = "".join(f"<query>{grant}</query>" for grant in GRANTS)
    default = _USER.format(
        name="default",
        password="<password></password>",
        host=HOST,
        profile="default",
        grants=f"\n      <grants>{grants}</grants>",
    )
    named = [_user_xml(user) for user in users]
    write_text(folder / "users.xml", _USERS.format(users="".join([default, *named])), mode=0o600)
    write_text(folder / "config.xml", _CONFIG.format(port=port, host=HOST, most_parts=_MOST_PARTS))


def _user_xml(user: User) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", user.name) or user.name == "default" or not user.password:
        raise StackError(f"{user.name!r} cannot be a user: small letters, digits and _, and a password")
    digest = hashlib.sha256(user.password.encode()).hexdigest()
    return _USER.format(
        name=user.name,
        password=f"<password_sha256_hex>{digest}</password_sha256_hex>",
        host=HOST,
        profile="readonly" if user.is_readonly else "default",
        grants="",
    )
