"""A thin typed facade on confluent-kafka, shared by the commands and every other client in this project."""
