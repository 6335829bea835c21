"""`penstock version`: the versions of penstock, Python and librdkafka."""

from __future__ import annotations

import platform

from penstock import __version__
from penstock.cli.options import OutputFormat, OutputOption
from penstock.cli.output import say, show_json


def version(output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the version, the Python, which record loops are compiled, and librdkafka's version."""
    from penstock.client.library import kafka
    from penstock.wire.build import compiled_modules

    compiled = [name for name, yes in compiled_modules().items() if yes]
    facts = {
        "penstock": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "compiled": compiled,
        "librdkafka": kafka().libversion()[0],
        "confluent_kafka": kafka().__version__,
    }
    if output is OutputFormat.JSON:
        show_json(facts)
        return
    say(f"penstock {__version__}")
    say(f"{facts['implementation']} {facts['python']}")
    say(f"record loops: {'compiled: ' + ', '.join(compiled) if compiled else 'pure Python'}")
    say(f"librdkafka {facts['librdkafka']} (confluent-kafka {facts['confluent_kafka']})")
