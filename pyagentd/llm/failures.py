"""What the SDK and the network raise, as errors of ours.

Transient is what another try may mend: timeouts, conflicts, rate limits, everything the server calls its own fault,
and the network. The provider's wording is kept; a request's headers never are, since one of them is the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import aiohttp
import anthropic
import httpx2

from pyagentd.errors import ContextOverflow, ProviderError, TransientProviderError

_TRANSIENT_STATUS = frozenset({408, 409, 429})
_RETRY_HEADER = {"true": True, "false": False}
_NO_CREDIT = "Add credit at the provider's console, or use another key or backend"
_MENDS = {
    401: "Check the API key: the environment variable ANTHROPIC_API_KEY, or the entry in auth-source",
    402: _NO_CREDIT,
    403: "The API key may not use this model or endpoint: choose another model, or use another key",
    404: "Check the preset's model and the base URL",
    429: "It was tried several times: wait a little and send again, or use another model or key",
    400: "If it names a message, edit or rewind that; otherwise check the preset's model and settings",
}
_OVERLOADED = "It was tried several times and nothing is lost: send again in a while"
_OFFLINE = "Nothing is lost: check the network and the base URL, then send again"
_CREDIT = re.compile(r"credit balance|insufficient (funds|credit|quota)|billing", re.IGNORECASE)
# What servers say of a prompt that does not fit, in the API's own words and in those of others that speak it.
_TOO_LONG = re.compile(
    r"prompt is too long|exceeds? (the )?(context|model'?s? (maximum )?context)"
    r"|context[ _](length|window) (is )?exceeded|maximum context length|input is too long|too many (input )?tokens",
    re.IGNORECASE,
)
# Raised before or beside the network: sending the same request again gives the same error.
_OUR_FAULT = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.DecodingError, httpx2.TooManyRedirects)


def provider_error(error: Exception, now: datetime) -> ProviderError:
    """Return the error of ours that ``error``, raised by the SDK or by httpx2, means.

    Args:
        error: An ``anthropic.AnthropicError`` or an ``httpx2.HTTPError``.
        now: The time a ``retry-after`` date is measured from, aware.
    """
    if isinstance(error, anthropic.APIStatusError):
        return _of_status(error, now)
    cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) else error
    if isinstance(cause, httpx2.TransportError) and not isinstance(cause, _OUR_FAULT):
        return TransientProviderError(_of_network(cause, _address(error)), mend=_OFFLINE)
    if isinstance(cause, httpx2.HTTPError) or isinstance(error, anthropic.APIConnectionError):
        # Its text may quote a header.
        kind = type(cause or error).__name__
        return ProviderError(f"The request could not be sent or its answer read ({kind})", mend="Check the base URL")
    return ProviderError(f"The request was refused before it was sent: {error}")


def _of_status(error: anthropic.APIStatusError, now: datetime) -> ProviderError:
    status = error.status_code
    headers = error.response.headers
    text = f"The model's server says {status} {_reason(error)}"
    transient = status in _TRANSIENT_STATUS or status >= 500
    if _RETRY_HEADER.get(headers.get("x-should-retry", ""), transient):
        mend = _MENDS[status] if status == HTTPStatus.TOO_MANY_REQUESTS else _OVERLOADED
        return TransientProviderError(text, retry_after=retry_after(headers, now), mend=mend)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (status == HTTPStatus.BAD_REQUEST and _TOO_LONG.search(text)):
        return ContextOverflow(text)
    if status == HTTPStatus.BAD_REQUEST and _CREDIT.search(text):
        return ProviderError(text, mend=_NO_CREDIT)
    return ProviderError(text, mend=_MENDS.get(status, "The run ended; what was said before stands. Send again"))


def _reason(error: anthropic.APIStatusError) -> str:
    """Return the server's own words, or the status' name when its body is not the API's."""
    if error.api_message:
        return f"({error.type or 'error'}): {str(error.api_message).rstrip('.')}"
    try:
        return HTTPStatus(error.status_code).phrase
    except ValueError:
        return "Overloaded" if error.status_code == 529 else "(no reason given)"


def _address(error: Exception) -> str:
    """Return which server was asked, as `` at host:port``; "" when the error does not say."""
    try:
        request = error.request  # type: ignore[attr-defined]  # a property of the SDK's and of httpx2's errors
        return f" at {request.url.netloc.decode('ascii')}"
    except (AttributeError, RuntimeError):
        return ""


def _of_network(cause: httpx2.TransportError, address: str) -> str:
    beneath = cause.__cause__  # what aiohttp raised: httpx2 has one name for no connection and a lost one
    if isinstance(cause, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return f"The model's server{address} could not be reached in time"
    if isinstance(cause, httpx2.TimeoutException):
        return f"The model's server{address} went silent"
    connecting = not isinstance(beneath, aiohttp.ClientError) or isinstance(beneath, aiohttp.ClientConnectorError)
    if isinstance(cause, httpx2.ConnectError | httpx2.ProxyError) and connecting:
        reason = beneath.os_error if isinstance(beneath, aiohttp.ClientConnectorError) else cause
        return f"The model's server{address} cannot be reached: {str(reason) or type(reason).__name__}"
    return f"The connection to the model's server{address} broke off: {str(cause) or type(cause).__name__}"


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds a server asks to wait: ``retry-after-ms``, or ``retry-after`` in seconds or as a date."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    given = headers.get("retry-after")
    if given is None or (seconds := _number(given)) is not None:
        return seconds if given is not None else None
    try:
        return max(0.0, (parsedate_to_datetime(given) - now).total_seconds())
    except (ValueError, TypeError):  # no date, or one without a zone
        return None


def _number(given: str | None) -> float | None:
    try:
        value = float(given or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
