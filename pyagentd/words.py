"""Formats counts, amounts and untrusted text for people."""

import re

# Control characters, and those that reorder, hide or break lines. Joiners stay: scripts and emoji need them.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]|\r(?!\n)"
)


def quantity(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 message`` or ``2 messages``; ``plural`` is needed where an added ``s`` does not make it."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def short_tokens(tokens: int) -> str:
    """Return a number of tokens in a few characters: 950, 1.2k, 12k, 1.2M."""
    if tokens >= 999_500:
        return f"{tokens / 1_000_000:.1f}M"
    if tokens >= 9_950:
        return f"{round(tokens / 1000)}k"
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else str(tokens)


def dollars(amount: float) -> str:
    """Return an amount of US dollars; below a cent with more places."""
    return f"${amount:,.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"


def size(count: float) -> str:
    """Return a number of bytes in its largest unit: ``12 B``, ``1.2 MB``."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 1000:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} TB"


def printable(text: str) -> str:
    """Return ``text`` with control and invisible characters escaped; line ends and tabs stay."""
    return _UNSEEN.sub(lambda found: _visible(found[0]), text)


def _visible(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
