"""Converts web pages to text for a model: HTML becomes Markdown, other text is unchanged.

html-to-markdown does the work: maintained, MIT, compiled, 30 ms to import, a megabyte in 0.2 s. Scripts, styles and
navigation are left out, links stay.

A page can be built so that its text takes gigabytes or the converter fails. So the daemon starts ``python -m
pyagentd.tools.page``, which reads one: a line of JSON, ``[type, URL]``, then the page on stdin, its text on stdout.
"""

import codecs
import json
import re
import resource
import signal
import sys
from contextlib import suppress

MOST_TEXT = 5_000_000  # bytes of the text of a page that are kept

_MOST_MEMORY = 1_000_000_000
_SECONDS = 30  # it ends itself after this, should the daemon be gone

_HTML = ("text/html", "application/xhtml+xml")
_ALSO_TEXT = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|javascript|ecmascript|yaml|toml|x-ndjson)\b")
# Encodings that Python decodes and browsers do not: they fail, take minutes, or give lone surrogates.
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"})
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_HEAD = 2048  # bytes in which a page says how it is written
_BLANK_LINES = re.compile(r"\n{3,}")


def is_html(content_type: str) -> bool:
    """Return whether this content type is HTML; a missing type counts as HTML."""
    return not content_type or content_type.lower().startswith(_HTML)


def is_text(content_type: str) -> bool:
    """Return whether ``text_of`` can read this content type."""
    return is_html(content_type) or bool(_ALSO_TEXT.match(content_type.lower()))


def text_of(body: bytes, content_type: str, url: str) -> str:
    """Return the text of a page; ``url`` is the base of its relative links. Blocks."""
    html = is_html(content_type)
    text = _decode(body, content_type, html).replace("\r\n", "\n")
    return _markdown(text, url) if html else text


def _decode(body: bytes, content_type: str, html: bool) -> str:
    charset = _CHARSET.search(content_type)
    if charset is None and html:
        charset = _CHARSET.search(body[:_HEAD].decode("ascii", errors="replace"))
    with suppress(LookupError):  # unknown, or no encoding of text
        if charset and (name := codecs.lookup(charset[1]).name) not in _NO_CHARSETS:
            return body.decode(name, errors="replace")
    return body.decode(errors="replace")


def _markdown(html: str, url: str) -> str:
    from html_to_markdown import ConversionOptions, convert  # the daemon never loads it

    options = ConversionOptions(extract_metadata=False, skip_images=True, base_url=url)
    return _BLANK_LINES.sub("\n\n", convert(html, options).content or "").strip()


def main() -> None:
    """Read the page on stdin."""
    signal.alarm(_SECONDS)
    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, _MOST_MEMORY)):
        with suppress(ValueError, OSError):  # a lower one holds already, or the system has none
            resource.setrlimit(limit, (most, most))
    content_type, url = json.loads(sys.stdin.buffer.readline())
    text = text_of(sys.stdin.buffer.read(), content_type, url)
    sys.stdout.buffer.write(text.encode(errors="replace")[:MOST_TEXT])


if __name__ == "__main__":
    main()
