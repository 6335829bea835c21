"""One script of requests, sent to Apache Kafka and to penstock; the responses are compared field by field."""
