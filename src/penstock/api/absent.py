"""APIs of features that are not available, with the responses of a Kafka that is not configured for them.

ACLs (29 to 31), SASL on a plain listener (17, 36), delegation tokens (38 to 41), SCRAM credentials (50).
"""

from __future__ import annotations

from collections import Counter

from penstock.api.registry import Api, RequestContext
from penstock.model.generated_errors import (
    DelegationTokenRequestNotAllowed,
    DuplicateResource,
    IllegalSaslState,
    ResourceNotFound,
    SecurityDisabled,
)
from penstock.wire.api import (
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_delegation_token,
    describe_user_scram_credentials,
    expire_delegation_token,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
)
from penstock.wire.slices import each

NO_AUTHORIZER = "No Authorizer is configured."
NO_TIME = -1
REQUESTER_FROM = 3
ANONYMOUS_TYPE = "User"
ANONYMOUS_NAME = "ANONYMOUS"


class Absent:
    """Responds for features that are not configured."""

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=17, versions=range(2), handle=self.sasl_handshake),
            Api(key=29, versions=range(1, 4), handle=self.describe_acls),
            Api(key=30, versions=range(1, 4), handle=self.create_acls),
            Api(key=31, versions=range(1, 4), handle=self.delete_acls),
            Api(key=36, versions=range(3), handle=self.sasl_authenticate),
            Api(key=38, versions=range(1, 4), handle=self.create_delegation_token),
            Api(key=39, versions=range(1, 3), handle=self.renew_delegation_token),
            Api(key=40, versions=range(1, 3), handle=self.expire_delegation_token),
            Api(key=41, versions=range(1, 4), handle=self.describe_delegation_token),
            Api(key=50, versions=range(1), handle=self.describe_user_scram_credentials),
        )

    def describe_acls(self, context: RequestContext, request: describe_acls.Request) -> describe_acls.Response:
        return describe_acls.Response(
            error_code=SecurityDisabled.code, error_message="No Authorizer is configured on the broker"
        )

    def create_acls(self, context: RequestContext, request: create_acls.Request) -> create_acls.Response:
        return create_acls.Response(
            results=each(
                request.creations,
                lambda _: create_acls.AclCreationResult(error_code=SecurityDisabled.code, error_message=NO_AUTHORIZER),
            )
        )

    def delete_acls(self, context: RequestContext, request: delete_acls.Request) -> delete_acls.Response:
        return delete_acls.Response(
            filter_results=each(
                request.filters,
                lambda _: delete_acls.DeleteAclsFilterResult(
                    error_code=SecurityDisabled.code, error_message=NO_AUTHORIZER
                ),
            )
        )

    def sasl_handshake(self, context: RequestContext, request: sasl_handshake.Request) -> sasl_handshake.Response:
        return sasl_handshake.Response(error_code=IllegalSaslState.code)

    def sasl_authenticate(
        self, context: RequestContext, request: sasl_authenticate.Request
    ) -> sasl_authenticate.Response:
        return sasl_authenticate.Response(
            error_code=IllegalSaslState.code,
            error_message="SaslAuthenticate request received after successful authentication",
        )

    def create_delegation_token(
        self, context: RequestContext, request: create_delegation_token.Request
    ) -> create_delegation_token.Response:
        requester = context.api_version >= REQUESTER_FROM
        return create_delegation_token.Response(
            error_code=DelegationTokenRequestNotAllowed.code,
            principal_type=ANONYMOUS_TYPE,
            principal_name=ANONYMOUS_NAME,
            token_requester_principal_type=ANONYMOUS_TYPE if requester else "",
            token_requester_principal_name=ANONYMOUS_NAME if requester else "",
            issue_timestamp_ms=NO_TIME,
            expiry_timestamp_ms=NO_TIME,
            max_timestamp_ms=NO_TIME,
        )

    def renew_delegation_token(
        self, context: RequestContext, request: renew_delegation_token.Request
    ) -> renew_delegation_token.Response:
        return renew_delegation_token.Response(
            error_code=DelegationTokenRequestNotAllowed.code, expiry_timestamp_ms=NO_TIME
        )

    def expire_delegation_token(
        self, context: RequestContext, request: expire_delegation_token.Request
    ) -> expire_delegation_token.Response:
        return expire_delegation_token.Response(
            error_code=DelegationTokenRequestNotAllowed.code, expiry_timestamp_ms=NO_TIME
        )

    def describe_delegation_token(
        self, context: RequestContext, request: describe_delegation_token.Request
    ) -> describe_delegation_token.Response:
        return describe_delegation_token.Response(error_code=DelegationTokenRequestNotAllowed.code)

    def describe_user_scram_credentials(
        self, context: RequestContext, request: describe_user_scram_credentials.Request
    ) -> describe_user_scram_credentials.Response:
        times = Counter(user.name for user in request.users or ())

        def result(user: tuple[str, int]) -> describe_user_scram_credentials.DescribeUserScramCredentialsResult:
            name, count = user
            return describe_user_scram_credentials.DescribeUserScramCredentialsResult(
                user=name,
                error_code=ResourceNotFound.code if count == 1 else DuplicateResource.code,
                error_message=(
                    f"Attempt to describe a user credential that does not exist: {name}"
                    if count == 1
                    else f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
                ),
            )

        return describe_user_scram_credentials.Response(results=each(list(times.items()), result))
