"""Ten thousand partitions fit into one broker: idle logs need little memory and no open files."""

import gc
import os
import tracemalloc

from tests.unit.storage.logs import ManualClock, Seeded, Settings, batch_of, put, read_all

from penstock.model.ids import TOPIC_ID_ZERO, TopicPartition
from penstock.model.threads import ThreadPool
from penstock.observe.log import logger
from penstock.storage.disk import RealDisk
from penstock.storage.store import LogStore

LOGS = 300
IDLE_LOG_BYTES_MAX = 25_000
FILES_OPEN_MAX = 20
SETTINGS = Settings()


def store_at(path: str) -> LogStore:
    store = LogStore(
        [path],
        disk=RealDisk(),
        threads=ThreadPool(1),
        clock=ManualClock(),
        randomness=Seeded(),
        log=logger("storage"),
        files_open_max=FILES_OPEN_MAX,
    )
    store.load(SETTINGS, broker_id=1, cluster_id="c")
    return store


def test_idle_logs_cost_little_memory_and_no_files(tmp_path):
    path = str(tmp_path / "data")
    store = store_at(path)
    files_before = len(os.listdir("/proc/self/fd"))
    for partition in range(LOGS):
        put(store.create(TopicPartition("t", partition), TOPIC_ID_ZERO, SETTINGS), batch_of(b"x"))
    assert len(os.listdir("/proc/self/fd")) - files_before <= FILES_OPEN_MAX
    store.close()
    del store
    gc.collect()

    tracemalloc.start()
    again = store_at(path)
    gc.collect()
    unopened, _ = tracemalloc.get_traced_memory()
    assert all(len(read_all(log)) == 1 for log in again)
    gc.collect()
    opened, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert unopened / LOGS < IDLE_LOG_BYTES_MAX
    assert opened / LOGS < IDLE_LOG_BYTES_MAX
    assert len(os.listdir("/proc/self/fd")) - files_before <= FILES_OPEN_MAX
    again.close()
