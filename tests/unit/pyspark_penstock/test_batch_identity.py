"""The identity of a batch, from the entry that Spark wrote to the checkpoint before it ran the batch."""

from pathlib import Path

import pytest

from pyspark_penstock.batch_identity import Sameness, offsets_of_batch

METADATA = '{{"batchWatermarkMs":0,"batchTimestampMs":{planned_ms},"conf":{{}}}}'


def checkpoint(folder: Path, *ends: str, planned_ms: int = 1) -> Path:
    """A checkpoint whose batches end at these offsets."""
    (folder / "offsets").mkdir(parents=True)
    for number, end in enumerate(ends):
        entry = "\n".join(["v1", METADATA.format(planned_ms=planned_ms), end])
        (folder / "offsets" / str(number)).write_text(entry)
    return folder


def compared(one: Path, other: Path, batch: int) -> Sameness:
    first, second = offsets_of_batch(str(one), batch), offsets_of_batch(f"file://{other}", batch)
    assert first is not None
    assert second is not None
    return first.compare(second)


def test_a_batch_replayed_from_its_entry_is_the_same(tmp_path: Path) -> None:
    one, copy = checkpoint(tmp_path / "one", '{"t":1}', '{"t":2}'), checkpoint(tmp_path / "two", '{"t":1}', '{"t":2}')

    assert compared(one, copy, 0) is Sameness.SAME_PLAN
    assert compared(one, copy, 1) is Sameness.SAME_PLAN


def test_a_batch_planned_again_to_the_same_offsets_needs_the_same_rows(tmp_path: Path) -> None:
    one = checkpoint(tmp_path / "one", '{"t":1}', '{"t":2}')
    restored = checkpoint(tmp_path / "two", '{"t":1}', '{"t":2}', planned_ms=9)

    assert compared(one, restored, 1) is Sameness.SAME_OFFSETS


@pytest.mark.parametrize("ends", [('{"t":1}', '{"t":3}'), ('{"t":0}', '{"t":2}')], ids=["end", "start"])
def test_a_batch_of_other_offsets_is_another(tmp_path: Path, ends: tuple[str, str]) -> None:
    one = checkpoint(tmp_path / "one", '{"t":1}', '{"t":2}')
    restored = checkpoint(tmp_path / "two", *ends, planned_ms=9)

    assert compared(one, restored, 1) is Sameness.OTHER


def test_offsets_are_shortened_for_people_and_not_for_the_comparison(tmp_path: Path) -> None:
    long = '{"t":"' + "x" * 1000
    one, other = checkpoint(tmp_path / "one", long + "1"), checkpoint(tmp_path / "two", long + "2")

    found = offsets_of_batch(str(one), 0)
    assert found is not None
    assert found.text.startswith('{"t":"xxx')
    assert len(found.text) < 400
    assert compared(one, other, 0) is Sameness.OTHER


@pytest.mark.parametrize("where", ["{}/none", "file://{}/none", "nosuchscheme://{}"])
def test_a_checkpoint_that_cannot_be_read_is_unknown_and_no_error(tmp_path: Path, where: str) -> None:
    assert offsets_of_batch(where.format(tmp_path), 3) is None


def test_a_batch_whose_start_is_unknown_is_unknown(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "one", '{"t":1}', '{"t":2}')
    (folder / "offsets" / "0").unlink()

    assert offsets_of_batch(str(folder), 1) is None


@pytest.mark.parametrize("name", ["a b", "a%20b", "a#b", "a?b", "a:b", "ünï"])
@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}", "file:{}//"])
def test_a_checkpoint_is_read_where_spark_writes_it(tmp_path: Path, name: str, form: str) -> None:
    """Spark (Hadoop's Path) does not decode the path of an address."""
    folder = checkpoint(tmp_path / name, '{"t":1}')
    checkpoint(tmp_path / "a", '{"t":2}')

    found = offsets_of_batch(form.format(folder), 0)

    assert found is not None
    assert found.text == '{"t":1}'


def test_a_relative_checkpoint_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(tmp_path / "queries" / "one", '{"t":1}')
    monkeypatch.chdir(tmp_path)

    assert offsets_of_batch("queries/one/", 0) is not None


def test_a_checkpoint_that_is_no_text_is_unknown_and_no_error(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "one", '{"t":1}')
    (folder / "offsets" / "0").write_bytes(b"v1\n{}\n\xff\xfe")

    assert offsets_of_batch(str(folder), 0) is None
