"""Values of settings and where they come from, as DescribeConfigs reports them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache

from penstock.config.broker import ALIASES, BROKER_KEYS, BrokerConfig
from penstock.config.group_settings import GROUP_KEYS
from penstock.config.key import Key, Kind, Mode, Synonym, text_of
from penstock.config.log import PARTITIONS_GHOSTS, TOPIC_KEYS


class Source(IntEnum):
    """Where a value came from, by the number the protocol gives it."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """One place that gives a setting a value; the first of a list is the one in force."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One setting of a topic or a broker. A sensitive one has no value."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    origins: tuple[Origin, ...]
    kind: Kind
    doc: str


def describe_topic(overrides: Mapping[str, str], broker: BrokerConfig, names: list[str] | None = None) -> list[Entry]:
    """A topic's settings in force, or only `names`; unknown names are left out, as in Kafka."""
    wanted = TOPIC_KEYS if names is None else {name: TOPIC_KEYS[name] for name in names if name in TOPIC_KEYS}
    return [topic_entry(declared, overrides, broker) for declared in wanted.values() if shown(declared, overrides)]


def describe_ghosts(ghosts: Sequence[int], names: list[str] | None = None) -> list[Entry]:
    """A topic's drained partitions without replicas, in the form of a setting that nobody can change."""
    if not ghosts or (names is not None and PARTITIONS_GHOSTS not in names):
        return []
    return [
        Entry(
            name=PARTITIONS_GHOSTS,
            value=",".join(map(str, ghosts)),
            source=Source.DEFAULT_CONFIG,
            read_only=True,
            sensitive=False,
            origins=(),
            kind=Kind.LIST,
            doc="Drained partitions that are empty and have no replicas.",
        )
    ]


def shown(declared: Key, given: Mapping[str, str]) -> bool:
    return not declared.internal or declared.name in given


def topic_entry(declared: Key, overrides: Mapping[str, str], broker: BrokerConfig) -> Entry:
    origins: list[Origin] = []
    if declared.name in overrides:
        value = canonical(declared, overrides[declared.name])
        origins.append(Origin(name=declared.name, value=value, source=Source.DYNAMIC_TOPIC_CONFIG))
    origins.extend(chain_origins(tuple(synonym.name for synonym in declared.synonyms), broker))
    value, source = text_of(getattr(broker.topic_defaults, declared.attribute)), Source.DEFAULT_CONFIG
    if origins:
        value, source = in_topic_unit(declared, origins[0]), origins[0].source
    return entry(declared, value, source, tuple(origins), read_only=False)


def describe_group(settings: Mapping[str, str], broker: BrokerConfig, names: list[str] | None = None) -> list[Entry]:
    """A group's settings in force: its own over the broker's."""
    wanted = GROUP_KEYS if names is None else {name: GROUP_KEYS[name] for name in names if name in GROUP_KEYS}
    return [group_entry(declared, settings, broker) for declared in wanted.values()]


def group_entry(declared: Key, settings: Mapping[str, str], broker: BrokerConfig) -> Entry:
    origins: list[Origin] = []
    if declared.name in settings:
        value = canonical(declared, settings[declared.name])
        origins.append(Origin(name=declared.name, value=value, source=Source.GROUP_CONFIG))
    if declared.synonyms:
        origins.extend(chain_origins((declared.synonyms[0].name,), broker))
    else:
        value = text_of(declared.default)
        origins.append(Origin(name=declared.name, value=value, source=Source.DEFAULT_CONFIG))
    return entry(declared, origins[0].value, origins[0].source, tuple(origins), read_only=False)


def in_topic_unit(declared: Key, origin: Origin) -> str | None:
    """The broker's value of a synonym, in the unit of the topic's key."""
    synonyms: dict[str, Synonym] = {synonym.name: synonym for synonym in declared.synonyms}
    if origin.source is Source.DYNAMIC_TOPIC_CONFIG or origin.value is None:
        return origin.value
    value = synonyms[origin.name].text(origin.value)
    return "-1" if declared.name == "retention.ms" and int(value) < 0 else value


def describe_broker(broker: BrokerConfig, names: list[str] | None = None) -> list[Entry]:
    """A broker's settings in force, each with all sources that give it a value."""
    wanted = BROKER_KEYS if names is None else {name: BROKER_KEYS[name] for name in names if name in BROKER_KEYS}
    entries = [broker_entry(declared, broker) for declared in wanted.values() if shown(declared, broker.given)]
    for alias, name in ALIASES.items():
        if names is None or alias in names:
            entries.append(alias_entry(alias, broker_entry(BROKER_KEYS[name], broker)))
    return entries


def alias_entry(alias: str, same: Entry) -> Entry:
    """A key under its alias, which has no default of its own: only given values are listed there."""
    given = tuple(replace(o, name=alias) for o in same.origins if o.source is not Source.DEFAULT_CONFIG)
    return replace(same, name=alias, origins=given)


def broker_entry(declared: Key, broker: BrokerConfig) -> Entry:
    origins = tuple(chain_origins(broker_synonyms(declared.name), broker))
    own = next((at for at, origin in enumerate(origins) if origin.name == declared.name), len(origins))
    origins = origins[own:]
    source = origins[0].source if origins else Source.DEFAULT_CONFIG
    value = origins[0].value if origins else None
    return entry(declared, value, source, origins, read_only=declared.mode is Mode.READ_ONLY)


def chain_origins(names: tuple[str, ...], broker: BrokerConfig) -> list[Origin]:
    """The sources that give these synonyms a value, the strongest first.

    Only the first key's default is listed, as in Kafka.
    """
    origins = [
        origin
        for at, name in enumerate(names)
        for origin in broker_origins(BROKER_KEYS[name], broker)
        if at == 0 or origin.source is not Source.DEFAULT_CONFIG
    ]
    return sorted(origins, key=lambda origin: origin.source)


@cache
def broker_synonyms(name: str) -> tuple[str, ...]:
    """Synonyms of a broker's key: itself first, then those that Kafka falls back to."""
    for declared in TOPIC_KEYS.values():
        chain = tuple(synonym.name for synonym in declared.synonyms)
        if len(chain) > 1 and name in chain:
            return chain[chain.index(name) :]
    return (name,)


def broker_origins(declared: Key, broker: BrokerConfig) -> Iterator[Origin]:
    """The sources that give a broker's key a value, the strongest first; none without a setting or a default."""
    name = declared.name
    for settings, source in (
        (broker.given_broker, Source.DYNAMIC_BROKER_CONFIG),
        (broker.given_cluster, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.given, Source.STATIC_BROKER_CONFIG),
    ):
        if name in settings:
            yield Origin(name=name, value=hidden(declared, canonical(declared, settings[name])), source=source)
    if declared.default is not None:
        yield Origin(name=name, value=hidden(declared, text_of(declared.default)), source=Source.DEFAULT_CONFIG)


def describe_dynamic_defaults(broker: BrokerConfig, names: list[str] | None = None) -> list[Entry]:
    """The dynamic settings of all brokers."""
    entries: list[Entry] = []
    for name, text in broker.given_cluster.items():
        declared = BROKER_KEYS[ALIASES.get(name, name)]
        if names is not None and name not in names:
            continue
        value = canonical(declared, text)
        source = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
        origin = Origin(name=name, value=hidden(declared, value), source=source)
        entries.append(entry(declared, value, source, (origin,), read_only=False))
    return entries


def canonical(declared: Key, text: str) -> str | None:
    """A given text in the form in which its value prints; a list keeps its order."""
    if declared.kind is Kind.LIST:
        return ",".join(dict.fromkeys(item.strip() for item in text.split(",")))
    return text_of(declared.read(text))


def hidden(declared: Key, value: str | None) -> str | None:
    return None if declared.sensitive else value


def entry(declared: Key, value: str | None, source: Source, origins: tuple[Origin, ...], *, read_only: bool) -> Entry:
    return Entry(
        name=declared.name,
        value=hidden(declared, value),
        source=source,
        read_only=read_only,
        sensitive=declared.sensitive,
        origins=origins,
        kind=declared.kind,
        doc=declared.doc,
    )
