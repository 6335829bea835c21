"""Kafka's responses on disk: one file per family, one line per response, equal versions kept once.

{"kafka": "4.3.1", "scenarios": {"wrong_crc": [{"versions": [3, 4], "responses": {"label": {...}}}]}}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .script import Responses

FOLDER = Path(__file__).parent / "recordings"

Recorded = dict[str, dict[int, Responses]]
"""Responses by scenario and version."""


def load(family: str) -> Recorded:
    path = FOLDER / f"{family}.json"
    if not path.exists():
        return {}
    groups = json.loads(path.read_text(encoding="utf-8"))["scenarios"]
    return {
        name: {version: group["responses"] for group in found for version in group["versions"]}
        for name, found in groups.items()
    }


def save(family: str, kafka_version: str, recorded: Recorded) -> None:
    lines = ["{", f' "kafka": {json.dumps(kafka_version)},', ' "scenarios": {']
    names = sorted(recorded)
    for name in names:
        lines.append(f"  {json.dumps(name)}: [")
        groups = _grouped(recorded[name])
        for index, (versions, responses) in enumerate(groups):
            lines.append(f'   {{"versions": {json.dumps(versions)}, "responses": {{')
            labels = list(responses)
            for label in labels:
                comma = "," if label != labels[-1] else ""
                lines.append(f"    {json.dumps(label)}: {_line(responses[label])}{comma}")
            lines.append("   }}" + ("," if index < len(groups) - 1 else ""))
        lines.append("  ]" + ("," if name != names[-1] else ""))
    lines += [" }", "}", ""]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{family}.json").write_text("\n".join(lines), encoding="utf-8")


def _line(response: Any) -> str:
    return json.dumps(response, ensure_ascii=False, separators=(",", ":"))


def _grouped(by_version: dict[int, Responses]) -> list[tuple[list[int], Responses]]:
    groups: dict[str, tuple[list[int], Responses]] = {}
    for version in sorted(by_version):
        responses = by_version[version]
        groups.setdefault(json.dumps(responses), ([], responses))[0].append(version)
    return list(groups.values())
