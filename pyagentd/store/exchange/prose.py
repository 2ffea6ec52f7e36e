"""Markdown as HTML that can do no harm: for pages that quote what models, tools and strangers wrote.

Raw HTML is text. A link goes to http, https, mailto or a place of the same page, any other one is only its words. An
image is one that is given, or one that is written out in the text; nothing is ever loaded. The result is well-formed
XML too.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from pyagentd.store.attachments import media_type

_SCHEMES = frozenset({"http", "https", "mailto"})
_WRITTEN_OUT = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+\Z")
_LOWEST_HEADING = 6


class Prose:
    """Renders texts of one conversation.

    Args:
        images: Images by the link that the texts have to them.
    """

    def __init__(self, images: Mapping[str, bytes] | None = None) -> None:
        self._images = images or {}
        self._markdown = _markdown(breaks=False)
        self._typed = _markdown(breaks=True)

    def html(self, text: str, *, typed: bool = False, depth: int = 2) -> str:
        """Return ``text`` as HTML.

        Args:
            text: Markdown.
            typed: A person typed it: line ends are kept.
            depth: What headings are lowered by, so that those of the page stay above them.
        """
        markdown = self._typed if typed else self._markdown
        tokens = markdown.parse(text)
        _lower_headings(tokens, depth)
        rendered: str = markdown.renderer.render(tokens, markdown.options, {"images": self._images})
        return rendered


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        return True  # `_Renderer` decides: here a refused link would show its address as text


class _Renderer(RendererHTML):
    """Rules for what could reach out of the page."""

    def link_open(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        address = str(tokens[index].attrGet("href") or "")
        if not is_safe_link(address):
            _closing(tokens, index).meta["dead"] = True
            return f'<span class="link" title="{escape(address)}">'
        rel = "" if address.startswith("#") else ' rel="noopener noreferrer"'
        return f'<a href="{escape(address)}"{rel}>'

    def link_close(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        return "</span>" if tokens[index].meta.get("dead") else "</a>"

    def image(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[index]
        address = str(token.attrGet("src") or "")
        words = self.renderInlineAsText(token.children or [], options, env)
        source = address if _WRITTEN_OUT.match(address) else data_uri(env["images"].get(address, b""))
        if source:
            return f'<img src="{escape(source)}" alt="{escape(words)}" />'
        said = f"{words} ({address})" if words else address
        return f'<span class="link">{escape(f"[image: {said}]")}</span>'


def is_safe_link(address: str) -> bool:
    """Return whether following ``address`` stays harmless: http, https, mailto, or a place of the same page."""
    scheme, colon, _ = address.partition(":")
    return address.startswith("#") or bool(colon and scheme.lower() in _SCHEMES)


def data_uri(image: bytes) -> str:
    """Return an image written out, "" when it is none that browsers show."""
    kind = media_type(image)
    return f"data:{kind};base64,{base64.b64encode(image).decode()}" if kind.startswith("image/") else ""


def _markdown(*, breaks: bool) -> MarkdownIt:
    options: Any = {"html": False, "xhtmlOut": True, "breaks": breaks}
    return _Markdown("commonmark", options, renderer_cls=_Renderer).enable(["table", "strikethrough"])


def _lower_headings(tokens: Sequence[Token], by: int) -> None:
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(_LOWEST_HEADING, int(token.tag[1:]) + by)}"


def _closing(tokens: Sequence[Token], index: int) -> Token:
    """Return the token that closes the link at ``index``; links do not nest."""
    return next(token for token in tokens[index:] if token.type == "link_close")
