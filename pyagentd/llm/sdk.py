"""Turns exceptions of the official SDKs into errors of ours; one generator makes the SDKs, so their names match."""

import aiohttp
import httpx2

from pyagentd.errors import ProviderError, TransientProviderError
from pyagentd.llm.http import CONNECT_S, KEEP_S, MAX_CONNECTIONS, OFFLINE, network_error

LIMITS = httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEP_S)

# Raised before or beside the network: sending the same request again gives the same error.
_OUR_FAULT = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.DecodingError, httpx2.TooManyRedirects)


def timeouts(timeout_s: float) -> httpx2.Timeout:
    """Return the limits of one request; ``timeout_s`` is the longest silence within an answer."""
    return httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))


def transport_error(error: Exception, cause: BaseException | None = None) -> ProviderError:
    """Return the error of ours that ``error`` of httpx2 means, or one of an SDK with such a ``cause``."""
    cause = cause or error
    beneath = cause.__cause__  # what aiohttp raised: httpx2 has one name for no connection and a lost one
    address = _address(error)
    server = f"he model's server{f' at {address}' if address else ''}"
    match beneath if isinstance(beneath, aiohttp.ClientError) else cause:
        case aiohttp.ClientError() as lost:
            return network_error(lost, address)
        case httpx2.TransportError() if isinstance(cause, _OUR_FAULT):
            return network_error(cause)
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            text = f"T{server} could not be reached in time"
        case httpx2.TimeoutException():
            text = f"T{server} went silent"
        case httpx2.ConnectError() | httpx2.ProxyError():
            text = f"T{server} cannot be reached: {str(cause) or type(cause).__name__}"
        case httpx2.TransportError():
            text = f"The connection to t{server} broke off: {str(cause) or type(cause).__name__}"
        case _:
            return network_error(cause)
    return TransientProviderError(text, hint=OFFLINE)


def _address(error: Exception) -> str:
    """Return which server was asked, as ``host:port``; "" when the error does not say."""
    try:
        request = error.request  # type: ignore[attr-defined]  # a property of the SDK's and of httpx2's errors
        return str(request.url.netloc.decode("ascii"))
    except (AttributeError, RuntimeError):
        return ""
