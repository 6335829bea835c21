"""A thin typed facade on confluent-kafka, shared by everything of ours that is a client of a broker."""
