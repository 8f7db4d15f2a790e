"""Local services, started and stopped by trajkit: ClickHouse, the embedded gateway, a stand-in model."""

__all__ = [
    "clickhouse",
    "gateway",
    "gateway_config",
    "local",
    "loopback",
    "process",
    "rule_player",
    "state",
    "vllm",
    "vllm_command",
]
