"""A driver in a process of its own, to be killed: copies the files of a folder to a topic, and ends.

    python driver_program.py FOLDER TOPIC BOOTSTRAP [NAME=VALUE ...]

Settings of Spark follow as NAME=VALUE. Options that hold secrets go with the query; Spark logs all it can, and keeps
its event log in the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark_penstock.session import local_session
from spark.counted_stream import CountedStream

SECRET = "hunter2"
SECRETS = {
    "kafka.sasl.jaas.config": f'PlainLoginModule required username="a" password="{SECRET}";',
    "kafka.ssl.key.password": SECRET,
}


def main(folder: str, topic: str, bootstrap: str, *settings: str) -> None:
    conf = dict(setting.split("=", 1) for setting in settings)
    events = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder}",
    }
    spark = local_session("killed", cores="2,4", conf={"spark.log.level": "INFO", **events, **conf})
    query = CountedStream(Path(folder), topic).start(spark, bootstrap, **SECRETS)
    query.explain(True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
