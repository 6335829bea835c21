"""Named Spark queries around topics: archives in lake tables, their replay, and pipelines declared in a file."""
