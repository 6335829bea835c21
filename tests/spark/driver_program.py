"""A driver in a process of its own, to be killed: copies the files of a folder to a topic, and ends.

    python driver_program.py FOLDER TOPIC BOOTSTRAP [NAME=VALUE ...]

Settings of Spark follow as NAME=VALUE.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark_penstock.session import local_session
from spark.counted_stream import CountedStream


def main(folder: str, topic: str, bootstrap: str, *settings: str) -> None:
    conf = dict(setting.split("=", 1) for setting in settings)
    spark = local_session("killed", cores="2,4", conf={"spark.log.level": "ERROR", **conf})
    query = CountedStream(Path(folder), topic).start(spark, bootstrap)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
