"""Local services, started and stopped by trajkit: ClickHouse, the embedded gateway, a stand-in model."""
