"""Export of conversations as Markdown, JSON, JSON lines and HTML; import of chats of gptel and of other programs."""

from typing import TYPE_CHECKING

from pyagentd import door

if TYPE_CHECKING:
    from pyagentd.store.export import export, html, importing
else:
    __getattr__ = door(__name__, "export", "html", "importing")

__all__ = ["export", "html", "importing"]
