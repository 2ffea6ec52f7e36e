"""Anthropic's models at Amazon Bedrock and Google Vertex, through the clients of the official Anthropic SDK.

A client adapts a request to its cloud (address, version, signature) and finds credentials where the cloud's own tools
find them; the rest is as in ``anthropic``. Importing this module imports the SDK; making a client imports its cloud's
package.
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import anthropic
import httpx2
from anthropic import (
    NOT_GIVEN,
    AnthropicError,
    AsyncAnthropic,
    AsyncAnthropicBedrock,
    AsyncAnthropicVertex,
    AsyncStream,
    DefaultAioHttpClient,
)

from pyagentd.errors import ConfigError, NoKey, ProviderError
from pyagentd.installation import extra
from pyagentd.llm.anthropic import AnthropicBackend
from pyagentd.llm.http import CONNECT_S, KEEP_S, MAX_CONNECTIONS, Answer, HttpRefusal, network_error
from pyagentd.messages import Body

_LIMITS = httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEP_S)
_HEADERS = {"Content-Type": "application/json", "Accept": "*/*"}


class CloudServer:
    """One cloud, through the SDK's client for it; see ``Server``.

    Args:
        client: The SDK's client.
        login: How to get credentials; the error's hint when there are none.
    """

    def __init__(self, client: AsyncAnthropic, login: str) -> None:
        self._client = client
        self._login = login

    @asynccontextmanager
    async def post(self, path: str, body: Body) -> AsyncIterator[Answer]:
        """Send a request, see ``Server``."""
        try:
            stream = await self._post(path, body)
            try:
                yield Answer(stream.response.headers, self.chunks(stream.response))
            finally:
                await stream.close()
        except anthropic.APIStatusError as error:
            raise HttpRefusal(error.status_code, error.response.headers, error.body) from None
        # `from None`: a cause may quote the request's headers in a logged traceback.
        except anthropic.APIConnectionError as error:
            raise _transport_error(error, error.__cause__) from None
        except (httpx2.HTTPError, aiohttp.ClientError) as error:
            raise _transport_error(error) from None
        except AnthropicError as error:
            raise ProviderError(f"The request was refused before it was sent: {error}") from None

    def chunks(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """Return the bytes of the answer."""
        return response.aiter_bytes()

    async def close(self) -> None:
        """Close the connections, see ``Server``."""
        await self._client.close()

    async def _post(self, path: str, body: Body) -> AsyncStream[object]:
        try:
            return await self._client.post(
                path,
                body=json.loads(body.to_bytes()),
                cast_to=object,
                stream=True,
                stream_cls=AsyncStream[object],
                options={"headers": _HEADERS},
            )
        except (AnthropicError, httpx2.HTTPError, aiohttp.ClientError):
            raise
        except Exception as error:  # the errors of the clouds' packages share no base class
            raise NoKey(
                f"No credentials for this backend: {type(error).__name__}: {error}", hint=self._login
            ) from None


class CloudBackend(AnthropicBackend):
    """Streams answers of one cloud over one pool of connections."""

    async def models(self) -> tuple[str, ...]:
        """Raise ``ProviderError``: the SDK has no list of a cloud's models."""
        raise ProviderError(
            "This cloud's models are not listed here", hint='Name one: model = "…" of the backend, or of the preset'
        )


class BedrockServer(CloudServer):
    """Amazon Bedrock, which wraps the events in AWS's own frames."""

    async def chunks(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """Return the bytes of the answer, framed as the Messages API does."""
        async for event in self._client._make_sse_decoder().aiter_bytes(response.aiter_bytes()):
            yield f"event: {event.event}\ndata: {event.data.replace(chr(10), ' ')}\n\n".encode()


def bedrock(
    *, api_key: str, base_url: str | None, timeout_s: float, region: str | None, project: str | None = None
) -> CloudBackend:
    """Return a backend at Bedrock.

    Args:
        api_key: A bearer token; "" for the credentials that AWS' own tools find.
        base_url: Replaces the region's address.
        timeout_s: The longest silence within an answer.
        region: None takes it from the environment or the AWS profile.
        project: Ignored.

    Raises:
        NotInstalled: The extra is missing.
        ConfigError: No region is known.
    """
    with extra("bedrock", "Bedrock"):
        import boto3  # noqa: F401  # the SDK loads it with its first request, on the loop
        import botocore.eventstream
        import botocore.parsers  # noqa: F401
    timeout = _timeouts(timeout_s)
    try:
        client = AsyncAnthropicBedrock(
            api_key=api_key or None,
            aws_region=region,
            base_url=base_url,
            timeout=timeout,
            max_retries=0,
            open_telemetry=False,
            http_client=DefaultAioHttpClient(timeout=timeout, limits=_LIMITS),
        )
    except Exception as error:  # of the SDK or of botocore: no region, no such profile
        raise ConfigError(
            f"Bedrock: {error}", hint='Add region = "us-east-1" to the backend, or set AWS_REGION'
        ) from None
    login = "Run `aws configure` or `aws sso login`, or set AWS_BEARER_TOKEN_BEDROCK, where the daemon starts"
    return CloudBackend(BedrockServer(client, login))  # type: ignore[arg-type]  # it has the methods that are used


def vertex(
    *, api_key: str, base_url: str | None, timeout_s: float, region: str | None, project: str | None
) -> CloudBackend:
    """Return a backend at Vertex.

    Args:
        api_key: An access token; "" for the credentials that Google's own tools find.
        base_url: Replaces the region's address.
        timeout_s: The longest silence within an answer.
        region: None takes it from the environment (CLOUD_ML_REGION), else "global".
        project: None takes it from the environment (ANTHROPIC_VERTEX_PROJECT_ID).

    Raises:
        NotInstalled: The extra is missing.
        ConfigError: No project is known.
    """
    with extra("vertex", "Vertex"):
        import google.auth.transport.requests  # noqa: F401  # the SDK loads it with its first request
    timeout = _timeouts(timeout_s)
    client = AsyncAnthropicVertex(
        region=region or os.environ.get("CLOUD_ML_REGION") or "global",
        project_id=project or os.environ.get("ANTHROPIC_VERTEX_PROJECT_ID") or NOT_GIVEN,
        access_token=api_key or None,
        base_url=base_url,
        timeout=timeout,
        max_retries=0,
        open_telemetry=False,
        http_client=DefaultAioHttpClient(timeout=timeout, limits=_LIMITS),
    )
    if not client.project_id:
        raise ConfigError(
            "Vertex: no project is known", hint='Add project = "…" to the backend, or set ANTHROPIC_VERTEX_PROJECT_ID'
        )
    login = "Run `gcloud auth application-default login` where the daemon starts"
    return CloudBackend(CloudServer(client, login))  # type: ignore[arg-type]  # it has the methods that are used


# Exceptions of the SDK and of its HTTP client, converted to ``ProviderError``.


def _timeouts(timeout_s: float) -> httpx2.Timeout:
    """Return the limits of one request; ``timeout_s`` is the longest silence within an answer."""
    return httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))


def _transport_error(error: Exception, cause: BaseException | None = None) -> ProviderError:
    """Convert an exception of httpx2, or an SDK's exception with one of httpx2 as its ``cause``."""
    cause = cause or error
    beneath = cause.__cause__  # aiohttp's error, since httpx2 does not distinguish no connection and a lost one
    return network_error(beneath if isinstance(beneath, aiohttp.ClientError | OSError) else cause, _address(error))


def _address(error: Exception) -> str:
    """Return the server's address, as ``host:port``; "" when the error has no request."""
    try:
        request = error.request  # type: ignore[attr-defined]  # a property of the SDK's and of httpx2's errors
        return str(request.url.netloc.decode("ascii"))
    except (AttributeError, RuntimeError):
        return ""
