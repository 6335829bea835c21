"""One script of requests, sent to Apache Kafka and to penstock; the answers are compared field by field."""
