"""`partition.metadata`: the topic id of a partition's directory. A topic that is created again has another id."""

import base64

from penstock.model.ids import TOPIC_ID_ZERO, TopicId


def encode(topic_id: TopicId) -> bytes:
    """As Kafka writes it: the id in base64 for URLs, unpadded."""
    text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    return f"version: 0\ntopic_id: {text}\n".encode()


def decode(data: bytes) -> TopicId:
    """The topic id in a file; zero when there is none."""
    for line in data.decode(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "topic_id":
            try:
                found = base64.urlsafe_b64decode(value.strip() + "==")
            except ValueError:
                return TOPIC_ID_ZERO
            return TopicId(found) if len(found) == len(TOPIC_ID_ZERO) else TOPIC_ID_ZERO
    return TOPIC_ID_ZERO


def is_rotten(found: TopicId, checkpointed: TopicId) -> bool:
    """Whether an id differs from the checkpointed one by bit rot: in one character. Two random ids never do."""
    if TOPIC_ID_ZERO in (found, checkpointed):
        return False
    pairs = zip(encode(found), encode(checkpointed), strict=True)
    return sum(one != other for one, other in pairs) == 1
