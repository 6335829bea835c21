from pathlib import Path

import pytest
import typer

from penstock.cli.failure import Failure
from penstock.cli.options import PROPERTIES_VARIABLE, client_properties


def test_a_secret_comes_from_a_file_and_not_from_the_command_line(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret=@ \n")

    assert client_properties([f"sasl.password=@{secret}", "sasl.username=me"], {}) == {
        "sasl.password": "s3cret=@ ",
        "sasl.username": "me",
    }


def test_a_value_may_begin_with_the_mark_of_a_file() -> None:
    assert client_properties(["sasl.password=@@home", "ssl.key.password=a@b"], {}) == {
        "sasl.password": "@home",
        "ssl.key.password": "a@b",
    }


def test_files_come_before_the_options_that_follow_them(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("# the login\n\nsasl.username = me\nsasl.password=old\nclient.id=x\n")
    second.write_text("sasl.password=new")

    found = client_properties(["client.id=y", f"@{second}"], {PROPERTIES_VARIABLE: str(first)})

    assert found == {"sasl.username": "me", "sasl.password": "new", "client.id": "y"}


def test_a_file_that_cannot_be_used_is_named_and_its_content_is_not_shown(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("sasl.username=me\ns3cret\n")

    with pytest.raises(typer.BadParameter, match="entry 2 is not KEY=VALUE") as refused:
        client_properties([f"@{broken}"], {})
    assert "s3cret" not in str(refused.value)
    for text in ("sasl.password=@/nowhere/at/all", "@/nowhere/at/all"):
        with pytest.raises(Failure, match="cannot read /nowhere/at/all: no such file or directory"):
            client_properties([text], {})
    broken.write_bytes(b"\xff")
    with pytest.raises(Failure, match="it is not UTF-8 text"):
        client_properties([f"sasl.password=@{broken}"], {})
