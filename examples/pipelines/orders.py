"""Creates the topics of the reference pipeline and sends orders: python orders.py [HOST:PORT [COUNT]]

Most orders are in time; every fiftieth is a minute old, and every hundredth is not JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

CUSTOMERS = {"ada": ("Ada", "GB"), "bob": ("Bob", "US"), "cyd": ("Cyd", "FR"), "dee": ("Dee", "DE")}
PRODUCTS = ("apple", "bread", "cheese", "dates", "eggs")
TOPICS = (
    "orders",
    "customers",
    "orders-dead",
    "orders-per-minute",
    "top-products",
    "orders-enriched",
    "orders-again",
)
SECONDS_MAX = 60


def make_topics(bootstrap: str) -> None:
    """Create the missing topics."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    there = admin.list_topics(timeout=SECONDS_MAX).topics
    wanted = [
        NewTopic(name, 2, 1, config={"cleanup.policy": "compact"} if name == "customers" else {})
        for name in TOPICS
        if name not in there
    ]
    for made in admin.create_topics(wanted).values() if wanted else ():
        made.result(SECONDS_MAX)


def customers() -> Iterator[tuple[bytes, bytes]]:
    for key, (name, country) in CUSTOMERS.items():
        yield key.encode(), json.dumps({"name": name, "country": country}).encode()


def orders(count: int, begin: datetime, spacing: timedelta) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values; the same for the same arguments."""
    names = list(CUSTOMERS)
    for number in range(count):
        late = timedelta(minutes=1) if number % 50 == 49 else timedelta()
        order = {
            "id": number,
            "customer": names[number % len(names)],
            "product": PRODUCTS[(number * number) % len(PRODUCTS)],
            "amount": round(1 + number % 97 / 4, 2),
            "ordered_at": (begin + number * spacing - late).isoformat(),
        }
        broken = number % 100 == 99
        yield order["customer"].encode(), b"{broken" if broken else json.dumps(order).encode()


def main(bootstrap: str, count: int = 10_000) -> None:
    make_topics(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for key, value in customers():
        producer.produce("customers", value, key)
    for key, value in orders(count, datetime.now(UTC), timedelta(milliseconds=50)):
        producer.produce("orders", value, key)
        producer.poll(0)
    producer.flush()
    print(f"{count} orders sent")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from where import bootstrap_servers

    main(bootstrap_servers(*sys.argv[1:2]), *(int(each) for each in sys.argv[2:3]))
