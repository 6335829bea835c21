"""penstock and Apache Kafka under the same load, alternating in one run: ``python -m bench.run``."""
