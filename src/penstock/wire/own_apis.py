"""The APIs that Kafka does not have, in the form of the generated table of those that it has."""

from penstock.wire import redirect, scheduled
from penstock.wire.api.table import TABLE, Entry

OWN: dict[int, Entry] = {
    redirect.API_KEY: Entry("redirect", redirect.NAME, redirect.VERSION_MIN, redirect.VERSION_MAX, None),
    scheduled.API_KEY: Entry("scheduled", scheduled.NAME, scheduled.VERSION_MIN, scheduled.VERSION_MAX, None),
}
ENTRIES: dict[int, Entry] = {**TABLE, **OWN}
