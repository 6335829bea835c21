"""Requests that only the controller serves, on a broker that is not the controller: it carries them there.

Envelope (58) has the request with its header; its response has that of the controller.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.controller.controller import Controller
from penstock.metadata.catalog import Catalog
from penstock.model.deferred import Eventual, after
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRequest, NotController, RequestTimedOut, UnsupportedVersion
from penstock.net.reply import CloseConnection
from penstock.replication.controller_client import ControllerClient
from penstock.wire import envelope
from penstock.wire.api.table import TABLE
from penstock.wire.frame import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    response_is_flexible,
)
from penstock.wire.primitives import Malformed


class Forwarding:
    """Forwards requests of clients to the controller."""

    def __init__(self, *, controller: Controller, client: ControllerClient) -> None:
        self._controller = controller
        self._client = client

    def forwarded(self, api: Api) -> Api:
        """The same API, carried to the controller where this broker is not it."""
        if not api.forwarded:
            return api

        def handle(context: RequestContext, request: Any) -> Eventual[Any]:
            if self._controller.is_active or (api.is_local is not None and api.is_local(request)):
                return api.handle(context, request)
            return self._forward(context, api, request)

        return replace(api, handle=handle)

    @in_turns
    async def _forward(self, context: RequestContext, api: Api, request: Any) -> Eventual[Any]:
        codec = codec_of(api.key)
        version = context.api_version
        header = encode_request_header(api.key, version, context.correlation_id, context.client_id)
        host = context.connection.peer.encode()
        try:
            data = await self._client.forward(header + codec.encode_request(request, version), host=host)
        except RequestTimedOut as error:
            # The controller may have served it, or may yet. Every refusal would say that it did not, and the handler
            # would serve it a second time if this broker has become the controller.
            raise CloseConnection(f"the response to a forwarded {api.name} is lost: {error}") from error
        except BrokerError:
            # No controller was found in time, and none got the request. The handler refuses it in its own way, which
            # clients retry, unless this broker has become the controller.
            return api.handle(context, request)
        _, body = decode_response_header(data, response_is_flexible(api.key, version))
        return codec.decode_response(data, body, version)


class Envelopes:
    """Serves the requests that other brokers forward, on the controller."""

    def __init__(self, *, controller: Controller, catalog: Catalog, rows: Mapping[int, Api]) -> None:
        """`rows` are the APIs that may be forwarded, by key."""
        self._controller = controller
        self._catalog = catalog
        self._rows = rows

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(
                key=envelope.API_KEY,
                versions=range(envelope.VERSION_MAX + 1),
                handle=self.envelope,
                encode=envelope.encode_response,
                internal=True,
            ),
        )

    def envelope(self, context: RequestContext, request: envelope.Request) -> Eventual[envelope.Response]:
        if not self._controller.is_active:
            return envelope.Response(error_code=NotController.code)
        try:
            header = decode_request_header(request.request_data)
            api = self._rows.get(header.api_key)
            if api is None:
                return envelope.Response(error_code=InvalidRequest.code)
            if header.api_version not in api.versions:
                return envelope.Response(error_code=UnsupportedVersion.code)
            codec = codec_of(api.key)
            inner = codec.decode_request(request.request_data, header.body_offset, header.api_version)
        except Malformed:
            return envelope.Response(error_code=InvalidRequest.code)
        theirs = replace(
            context,
            api_key=header.api_key,
            api_version=header.api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            forwarded_from=request.client_host_address.decode(errors="replace"),
        )

        def enclosed(response: Any) -> envelope.Response:
            head = encode_response_header(
                header.correlation_id, response_is_flexible(header.api_key, header.api_version)
            )
            data = head + codec.encode_response(response, header.api_version)
            return envelope.Response(response_data=data, number=self._catalog.number)

        result: Eventual[Any] = api.handle(theirs, inner)
        return after(result, enclosed)


def codec_of(key: int) -> Any:
    """The generated module of an API."""
    return importlib.import_module(f"penstock.wire.api.{TABLE[key].module}")
