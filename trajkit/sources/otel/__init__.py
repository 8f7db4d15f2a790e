"""OpenTelemetry: traces of models and agents, from files, over the network and from a ClickHouse table."""

__all__ = ["receiver"]
