"""What a broker tells its operator: logs, metrics, health."""
