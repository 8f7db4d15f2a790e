"""Register tuned models as variants in a gateway's configuration, and record their training data."""

__all__ = [
    "change",
    "check",
    "ledger",
    "lineage",
    "local_server",
    "proxy_check",
    "proxy_config",
    "served",
    "toml_file",
    "variant",
]
