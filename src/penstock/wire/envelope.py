"""A handwritten codec of Envelope, the request of one broker that another carries to the controller.

As the generated ``api.envelope``, with a tagged field of ours in the response: the number of the controller's last
transaction, so that the broker responds to its client only when its own metadata has it.
"""

from __future__ import annotations

from penstock.wire.api import envelope as generated
from penstock.wire.primitives import Buffer, FlexibleReader, FlexibleWriter

API_KEY = generated.API_KEY
NAME = generated.NAME
VERSION_MIN = generated.VERSION_MIN
VERSION_MAX = generated.VERSION_MAX
FLEXIBLE_FROM = generated.FLEXIBLE_FROM

Request = generated.Request
encode_request = generated.encode_request
decode_request = generated.decode_request

NUMBER_TAG = 100
NO_NUMBER = -1


class Response(generated.Response):
    """The response to the request inside, with its header, or why there is none."""

    __slots__ = ("number",)

    def __init__(self, *, response_data: bytes | None = None, error_code: int = 0, number: int = NO_NUMBER) -> None:
        super().__init__(response_data=response_data, error_code=error_code)
        self.number = number
        """Of a transaction not before the last one of the request."""


def encode_response(response: Response, version: int) -> bytes:
    out = FlexibleWriter()
    out.raw_nullable(response.response_data)
    out.int16(response.error_code)
    number = FlexibleWriter()
    number.int64(response.number)
    out.tags([(NUMBER_TAG, number)])
    return bytes(out)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    reader = FlexibleReader(data, offset)
    response_data, error_code, number = reader.raw_nullable(), reader.int16(), NO_NUMBER
    for tag, end in reader.tagged():
        if tag == NUMBER_TAG:
            number = reader.int64()
        else:
            reader.pos = end
    reader.finish()
    return Response(response_data=response_data, error_code=error_code, number=number)
