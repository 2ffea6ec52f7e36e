"""What a page of the web says, as text for a model: HTML becomes Markdown, other text stays as it is.

html-to-markdown does the work: maintained, MIT, compiled, 30 ms to import, a megabyte in 0.2 s; it is imported when
there is first a page. Scripts, styles and navigation are left out, links stay.
"""

from __future__ import annotations

import codecs
import re

from pyagentd.installation import extra

_HTML = ("text/html", "application/xhtml+xml")
_ALSO_TEXT = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|javascript|ecmascript|yaml|toml|x-ndjson)\b")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_HEAD = 2048  # bytes in which a page says how it is written
_BLANK_LINES = re.compile(r"\n{3,}")


def is_text(content_type: str) -> bool:
    """Return whether ``text_of`` can read what is of this type; what says no type is taken for a page."""
    return not content_type or content_type.lower().startswith(_HTML) or bool(_ALSO_TEXT.match(content_type.lower()))


def text_of(body: bytes, content_type: str, url: str) -> str:
    """Return the text of a page; blocks while it works.

    Args:
        body: As it came.
        content_type: As the server says.
        url: Where from; relative links are of it.
    """
    html = not content_type or content_type.lower().startswith(_HTML)
    text = body.decode(_encoding(body, content_type, html), errors="replace").replace("\r\n", "\n")
    return _markdown(text, url) if html else text


def _encoding(body: bytes, content_type: str, html: bool) -> str:
    said = _CHARSET.search(content_type)
    if said is None and html:
        said = _CHARSET.search(body[:_HEAD].decode("ascii", errors="replace"))
    try:
        return codecs.lookup(said[1]).name if said else "utf-8"
    except LookupError:
        return "utf-8"


def _markdown(html: str, url: str) -> str:
    with extra("html", "Reading a web page"):
        from html_to_markdown import ConversionOptions, convert

    options = ConversionOptions(extract_metadata=False, skip_images=True, base_url=url)
    return _BLANK_LINES.sub("\n\n", convert(html, options).content or "").strip()
