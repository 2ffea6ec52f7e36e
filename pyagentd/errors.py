"""All errors of the package, in one tree ordered by who can recover: each class says what it means.

``code`` travels over the wire as a symbol and in ``--json`` output; it is stable.
"""

import difflib
from collections.abc import Iterable
from typing import ClassVar

_ENDS = (".", "?", "!", "…")  # of a sentence


class PyagentdError(Exception):
    """Base of every error this package raises on purpose.

    Args:
        message: One sentence that names what is wrong (file, line, value).
        hint: One sentence that says what to do about it, or "".
    """

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message}{'' if self.message.endswith(_ENDS) else '.'} {self.hint}"


class UserError(PyagentdError):
    """The person who asked can correct it."""

    code = "user-error"


class NotFound(UserError):
    """No such session, branch, agent, ask or run."""

    code = "not-found"


class Ambiguous(UserError):
    """A prefix or a name fits more than one thing; the message lists them."""

    code = "ambiguous"


class NotASession(UserError):
    """The file or directory is not a session of ours."""

    code = "not-a-session"


class PresetError(UserError):
    """A preset is unknown, malformed or incomplete."""

    code = "preset-error"


class SkillError(UserError):
    """A skill is malformed."""

    code = "skill-error"


class ConfigError(UserError):
    """The configuration file or an environment variable is malformed."""

    code = "config-error"


class SignatureError(UserError):
    """A signature cannot be read.

    Args:
        message: What is wrong.
        source: The whole text of the signature, or "" where it was data.
        line: Where in it, from 1; 0 where it was data.
        column: Likewise, from 1.
        hint: What to write instead.
    """

    code = "signature-error"

    def __init__(self, message: str, *, source: str = "", line: int = 0, column: int = 0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.source = source
        self.line = line
        self.column = column

    def caret(self) -> str:
        """Return the line of the source with a mark under the place; "" where it was data."""
        if not self.line:
            return ""
        return f"{self.source.splitlines()[self.line - 1]}\n{' ' * (self.column - 1)}^"


class TemplateError(UserError):
    """A prompt's placeholders are malformed, or have no value.

    Args:
        message: What is wrong.
        missing: The names that have no value, dotted, in order of appearance.
        line: Where, from 1; 0 where several places are meant.
        column: Likewise, from 1.
        hint: What to write instead.
    """

    code = "template-error"

    def __init__(
        self, message: str, *, missing: tuple[str, ...] = (), line: int = 0, column: int = 0, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.missing = missing
        self.line = line
        self.column = column


class NoKey(UserError):
    """The backend needs an API key and none was given."""

    code = "no-key"


class NotInstalled(UserError):
    """A feature needs Python packages that were not installed with the rest."""

    code = "not-installed"


class Busy(UserError):
    """The branch has a run in flight."""

    code = "busy"


class Conflict(UserError):
    """The id that a client chose is already taken."""

    code = "conflict"


class Unconfirmed(UserError):
    """The operation would lose something, which the message names, and was not confirmed."""

    code = "unconfirmed"


class RateLimited(UserError):
    """A trigger exceeded its rate limit; the delivery was dropped."""

    code = "rate-limited"


class Blocked(UserError):
    """A hook blocked a message."""

    code = "blocked"


class BadRequest(UserError):
    """The arguments of an operation do not fit its signature."""

    code = "bad-request"


class Stale(BadRequest):
    """The document has changed since the client read it; the client saves and asks again."""

    code = "stale"


class ProviderError(PyagentdError):
    """The model's server refused, and asking again would not help."""

    code = "provider-error"


class TransientProviderError(ProviderError):
    """The model's server refused for now: rate limit, overload, network.

    Args:
        message: What the server or the network said.
        retry_after: Seconds the server asked us to wait, or None.
    """

    code = "provider-unavailable"

    def __init__(self, message: str, *, retry_after: float | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class ContextOverflow(ProviderError):
    """The conversation is too long for the model, whatever is left out of it."""

    code = "context_overflow"
    HINT = "Fork it from an earlier message, rewind it, or choose a model with a larger window"

    def __init__(self, message: str, *, hint: str = HINT) -> None:
        super().__init__(message, hint=hint)


class BudgetSpent(PyagentdError):
    """A run used all the turns, time or tokens that its preset allows; what it said so far stands."""

    code = "budget"


class StoreError(PyagentdError):
    """Reading or writing the disk failed; nothing written before is damaged."""

    code = "store-error"


class ToolError(PyagentdError):
    """A tool could not do what it was asked; the model reads the message."""

    code = "tool-error"


class WireError(PyagentdError):
    """The peer broke the protocol, or the connection ended."""

    code = "wire-error"


class Unreachable(WireError):
    """No daemon answers, and none could be started."""

    code = "unreachable"


# Suggestions for a misspelled name; pure, for every place that looks names up.

_NEAR = 0.6  # from 0, nothing in common, to 1, the same


def nearest(name: str, known: Iterable[str], *, cutoff: float = _NEAR) -> str | None:
    """Return the one of ``known`` that is most similar to ``name``, or None if none is.

    Args:
        name: The misspelled name.
        known: The names that exist.
        cutoff: The least similarity, from 0 to 1.
    """
    close = difflib.get_close_matches(name, list(known), 1, cutoff)
    return close[0] if close else None


def did_you_mean(
    name: str, known: Iterable[str], *, shown: str = '"{}"', inside: bool = False, cutoff: float = _NEAR
) -> str:
    """Return the question ``Did you mean "search"?``, or "" if none of ``known`` is similar.

    Args:
        name: The misspelled name.
        known: The names that exist.
        shown: How the question quotes a name, with ``{}`` for it.
        inside: Whether the question is part of a sentence, and so begins in lower case.
        cutoff: See ``nearest``.
    """
    near = nearest(name, known, cutoff=cutoff)
    if near is None:
        return ""
    return f"{'did' if inside else 'Did'} you mean {shown.format(near)}?"
