"""The codec that is committed is the one that the generator writes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "generate_wire.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_the_committed_codec_equals_the_generated_one() -> None:
    checked = generate("--check")

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_changed_missing_and_obsolete_files_are_named(tmp_path: Path) -> None:
    output = tmp_path / "api"
    output.mkdir()
    assert generate("--output", str(output)).returncode == 0
    (output / "metadata.py").write_text("changed")
    (output / "heartbeat.py").unlink()
    (output / "forgotten.py").write_text("")

    checked = generate("--check", "--output", str(output))

    assert checked.returncode == 1
    named = [line.split()[1] for line in checked.stdout.splitlines()]
    assert named == ["api/forgotten.py", "api/heartbeat.py", "api/metadata.py"]
