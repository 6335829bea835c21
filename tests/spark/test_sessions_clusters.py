"""Where users run Spark: a standalone cluster, a Connect server on it, an environment that is not activated.

All of it from the files that pip installed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from pages import ON_A_CLUSTER, Block, blocks_of
from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import LOOPBACK, Child
from pyspark_penstock.session import spark_environment
from reader import Reader
from spark.cluster_program import ROWS, SECRET
from spark.cutting import CLIENT, PRODUCE, Cut, CuttingProxy
from spark.packed_environment import make_environment
from spark.spark_processes import (
    DRIVER_SECONDS_MAX,
    SHORT_LIVED_JAVA,
    SPARK_HOME,
    TESTS,
    connect_server,
    driver,
    executor_of,
    standalone_cluster,
)
from spark.topic_contents import make_topic, values

# Each of the four tasks of the batch write sends one request, so the fifth is of the stream.
AN_EXECUTOR_OF_THE_STREAM = Cut(PRODUCE, 5, True, CLIENT)
EXPECTED = sorted(f"value-{index}" for index in range(ROWS))


def logs_with(secret: str, folder: Path) -> list[Path]:
    """Files of this folder, logs of executors among them, that hold the secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "stderr" for path in files), "no log of an executor"
    return [path for path in files if secret.encode() in path.read_bytes()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_client_of_a_cluster_writes_and_reads_through_the_loss_of_an_executor_and_its_secrets_stay_its_own(
    tmp_path: Path,
) -> None:
    with (
        CuttingProxy() as proxy,
        standalone_cluster(tmp_path) as master,
        connect_server(tmp_path, master) as address,
    ):
        topic, copy = (make_topic(proxy.bootstrap, partitions=2) for _ in range(2))
        proxy.kill_client = lambda pid: os.kill(executor_of(pid), signal.SIGKILL)
        proxy.arm(AN_EXECUTOR_OF_THE_STREAM)

        child = driver(tmp_path, address, proxy.bootstrap, topic, copy, str(tmp_path), program="cluster_program.py")
        assert child.wait(DRIVER_SECONDS_MAX) == 0, child.tail()
        child.kill()

        assert proxy.fired
        output = (tmp_path / "driver.log").read_text(errors="replace")
        assert f"read {ROWS}" in output
        assert "copied" in output
        assert "Physical Plan" in output
        assert sorted(values(proxy.bootstrap, topic)) == EXPECTED
        assert sorted(values(proxy.bootstrap, copy)) == EXPECTED
    assert logs_with(SECRET, tmp_path) == []


def without_a_named_python(folder: Path) -> dict[str, str]:
    """An environment from which Spark takes ``python3`` of the PATH, and that one lacks this package."""
    programs = folder / "programs-without-penstock"
    programs.mkdir()
    (programs / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    rest = [each for each in os.environ["PATH"].split(os.pathsep) if Path(each) != Path(sys.prefix) / "bin"]
    return {
        **SHORT_LIVED_JAVA,
        "JAVA_HOME": spark_environment({**os.environ, "JAVA_HOME": ""})["JAVA_HOME"],
        "PATH": os.pathsep.join([str(programs), *rest]),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_LOCAL_IP": LOOPBACK,
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_recipes_of_the_page_run_on_a_cluster_whose_workers_have_no_python_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands as they stand, but for three names: the master's address, the broker's, and the directory in /opt."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    installed = make_environment(tmp_path / "opt-penstock")
    settings = tmp_path / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(
        "spark.driver.memory 512m\nspark.executor.memory 512m\nspark.ui.enabled false\n"
        f"spark.driver.bindAddress {LOOPBACK}\n"
    )
    around = without_a_named_python(tmp_path)
    blocks = [block for block in blocks_of("docs/spark-deploy.md") if block.text.startswith(ON_A_CLUSTER)]
    printed: list[str] = []
    with PenstockProcess() as broker, standalone_cluster(tmp_path, (LOOPBACK,), around) as master:
        reader = Reader(tmp_path, broker.bootstrap, broker.data)
        try:
            environment = {**SHORT_LIVED_JAVA, "JAVA_HOME": around["JAVA_HOME"], "SPARK_LOCAL_IP": LOOPBACK}
            exports = "".join(f"export {name}='{value}'\n" for name, value in environment.items())
            activate = f". .venv/bin/activate\n{exports}export SPARK_CONF_DIR={settings}\n"
            reader.paste(Block(page="this test", line=0, language="sh", text=activate))
            for block in blocks:
                text = block.text.replace("spark://master:7077", master).replace("/opt/penstock", str(installed))
                lines = [line for line in text.splitlines() if "-m venv " not in line and "pip install" not in line]
                pasted = Block(page=block.page, line=block.line, language="sh", text="\n".join(lines) + "\n")
                printed.append(reader.paste(pasted))
        finally:
            reader.close()

    assert [text.count(" numbers\n") for text in printed] == [0, 1, 1, 1]
    assert [text.split(" numbers\n")[0].split()[-1] for text in printed[1:]] == ["10", "20", "30"]


@pytest.mark.slow
@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="this Python is in no virtual environment")
def test_a_program_in_an_environment_that_is_not_activated_finds_the_source_once_it_has_registered_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    with PenstockProcess() as broker:
        topic = make_topic(broker.bootstrap)
        command = [sys.executable, str(TESTS / "spark" / "unactivated_program.py"), broker.bootstrap, topic]
        child = Child(
            command, log=tmp_path / "program.log", environment=without_a_named_python(tmp_path), folder=tmp_path
        )
        status = child.wait(DRIVER_SECONDS_MAX)
        child.kill()

    output = (tmp_path / "program.log").read_text(errors="replace")
    assert status == 0, output
    assert "refused True" in output
    assert "registered 0" in output
