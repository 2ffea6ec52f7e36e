"""Turns exceptions of the official SDKs into errors of ours; one generator makes the SDKs, so their names match."""

from datetime import datetime
from types import ModuleType

import aiohttp
import httpx2

from pyagentd.errors import ProviderError, TransientProviderError
from pyagentd.llm.http import CONNECT_S, KEEP_S, MAX_CONNECTIONS, OFFLINE, HttpRefusal, network_error, refusal

LIMITS = httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEP_S)

# Raised before or beside the network: sending the same request again gives the same error.
_OUR_FAULT = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.DecodingError, httpx2.TooManyRedirects)


def timeouts(timeout_s: float) -> httpx2.Timeout:
    """Return the limits of one request; ``timeout_s`` is the longest silence within an answer."""
    return httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))


def provider_error(error: Exception, now: datetime, sdk: ModuleType) -> ProviderError:
    """Return the error of ours that ``error``, raised by the SDK or by httpx2, means.

    Args:
        error: What the SDK or httpx2 raised.
        now: The time a ``retry-after`` date is measured from, aware.
        sdk: The provider's.
    """
    if isinstance(error, sdk.APIStatusError):
        return refusal(HttpRefusal(error.status_code, error.response.headers, error.body), now)
    if isinstance(error, sdk.APIConnectionError):
        return transport_error(error, error.__cause__)
    if isinstance(error, httpx2.HTTPError):
        return transport_error(error)
    return ProviderError(f"The request was refused before it was sent: {error}")


def transport_error(error: Exception, cause: BaseException | None = None) -> ProviderError:
    """Return the error of ours that ``error`` of httpx2 means, or one of an SDK with such a ``cause``."""
    cause = cause or error
    if isinstance(cause, httpx2.TransportError) and not isinstance(cause, _OUR_FAULT):
        return _of_network(cause, _address(error))
    # Its text may quote a header.
    kind = type(cause).__name__
    return ProviderError(f"The request could not be sent or its answer read ({kind})", hint="Check the base URL")


def _of_network(cause: httpx2.TransportError, address: str) -> ProviderError:
    beneath = cause.__cause__  # what aiohttp raised: httpx2 has one name for no connection and a lost one
    if isinstance(beneath, aiohttp.ClientError):
        return network_error(beneath, address)
    server = f"he model's server{f' at {address}' if address else ''}"
    if isinstance(cause, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        text = f"T{server} could not be reached in time"
    elif isinstance(cause, httpx2.TimeoutException):
        text = f"T{server} went silent"
    elif isinstance(cause, httpx2.ConnectError | httpx2.ProxyError):
        text = f"T{server} cannot be reached: {str(cause) or type(cause).__name__}"
    else:
        text = f"The connection to t{server} broke off: {str(cause) or type(cause).__name__}"
    return TransientProviderError(text, hint=OFFLINE)


def _address(error: Exception) -> str:
    """Return which server was asked, as ``host:port``; "" when the error does not say."""
    try:
        request = error.request  # type: ignore[attr-defined]  # a property of the SDK's and of httpx2's errors
        return str(request.url.netloc.decode("ascii"))
    except (AttributeError, RuntimeError):
        return ""
