"""Anthropic's models at Amazon Bedrock and Google Vertex: the SDK's clients for them, the rest as in ``anthropic``.

The clients rewrite a request for their cloud (address, version, signature), and find credentials where the cloud's
own tools find them. Importing this imports no cloud's package; making a client does.
"""

import json
import os
from collections.abc import AsyncIterator

import httpx2
from anthropic import (
    NOT_GIVEN,
    AnthropicError,
    AsyncAnthropicBedrock,
    AsyncAnthropicVertex,
    AsyncStream,
    DefaultAioHttpClient,
)

from pyagentd.errors import ConfigError, NoKey, ProviderError
from pyagentd.installation import extra
from pyagentd.llm.anthropic import AnthropicBackend
from pyagentd.llm.http import CONNECT_S, LIMITS

_HEADERS = {"Content-Type": "application/json", "Accept": "*/*"}


class CloudBackend(AnthropicBackend):
    """Streams answers of one cloud over one pool of connections."""

    login = ""  # how one gets credentials, the hint of the error when there are none

    async def models(self) -> tuple[str, ...]:
        """Raise ``ProviderError``: the SDK has no list of a cloud's models."""
        raise ProviderError(
            "This cloud's models are not listed here", hint='Name one: model = "…" of the backend, or of the preset'
        )

    async def _post(self, body: bytes) -> AsyncStream[object]:
        try:
            return await self._client.post(
                "/v1/messages",
                body=json.loads(body),
                cast_to=object,
                stream=True,
                stream_cls=AsyncStream[object],
                options={"headers": _HEADERS},
            )
        except (AnthropicError, httpx2.HTTPError):
            raise
        except Exception as error:  # each cloud's package has errors of its own, which share no base
            said = f"No credentials for this backend: {type(error).__name__}: {error}"
            raise NoKey(said, hint=self.login) from None


class BedrockBackend(CloudBackend):
    """Amazon Bedrock: its stream has frames of its own around the events."""

    login = "Run `aws configure` or `aws sso login`, or set AWS_BEARER_TOKEN_BEDROCK, where the daemon starts"

    async def _chunks(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        async for event in self._client._make_sse_decoder().aiter_bytes(response.aiter_bytes()):
            yield f"event: {event.event}\ndata: {event.data.replace(chr(10), ' ')}\n\n".encode()


class VertexBackend(CloudBackend):
    """Google Vertex."""

    login = "Run `gcloud auth application-default login` where the daemon starts"


def bedrock(
    *, api_key: str, base_url: str | None, timeout_s: float, region: str | None, project: str | None = None
) -> CloudBackend:
    """Return a backend at Bedrock.

    Args:
        api_key: A bearer token; "" for the credentials that AWS' own tools find.
        base_url: Another address than the region's.
        timeout_s: The longest silence within an answer.
        region: None is that of the environment, or of the profile.
        project: Of no use here.

    Raises:
        NotInstalled: The extra is missing.
        ConfigError: No region is known.
    """
    with extra("bedrock", "Bedrock"):
        import boto3  # noqa: F401  # the SDK loads it with its first request, on the loop
        import botocore.eventstream
        import botocore.parsers  # noqa: F401
    timeout = httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
    try:
        client = AsyncAnthropicBedrock(
            api_key=api_key or None,
            aws_region=region,
            base_url=base_url,
            timeout=timeout,
            max_retries=0,
            open_telemetry=False,
            http_client=DefaultAioHttpClient(timeout=timeout, limits=LIMITS),
        )
    except Exception as error:  # of the SDK or of botocore: no region, no such profile
        raise ConfigError(
            f"Bedrock: {error}", hint='Add region = "us-east-1" to the backend, or set AWS_REGION'
        ) from None
    return BedrockBackend(client)  # type: ignore[arg-type]  # it has the methods that are used


def vertex(
    *, api_key: str, base_url: str | None, timeout_s: float, region: str | None, project: str | None
) -> CloudBackend:
    """Return a backend at Vertex.

    Args:
        api_key: An access token; "" for the credentials that Google's own tools find.
        base_url: Another address than the region's.
        timeout_s: The longest silence within an answer.
        region: None is that of the environment (CLOUD_ML_REGION), else "global".
        project: None is that of the environment (ANTHROPIC_VERTEX_PROJECT_ID).

    Raises:
        NotInstalled: The extra is missing.
        ConfigError: No project is known.
    """
    with extra("vertex", "Vertex"):
        import google.auth.transport.requests  # noqa: F401  # the SDK loads it with its first request
    timeout = httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
    client = AsyncAnthropicVertex(
        region=region or os.environ.get("CLOUD_ML_REGION") or "global",
        project_id=project or os.environ.get("ANTHROPIC_VERTEX_PROJECT_ID") or NOT_GIVEN,
        access_token=api_key or None,
        base_url=base_url,
        timeout=timeout,
        max_retries=0,
        open_telemetry=False,
        http_client=DefaultAioHttpClient(timeout=timeout, limits=LIMITS),
    )
    if not client.project_id:
        raise ConfigError(
            "Vertex: no project is known", hint='Add project = "…" to the backend, or set ANTHROPIC_VERTEX_PROJECT_ID'
        )
    return VertexBackend(client)  # type: ignore[arg-type]  # it has the methods that are used
