"""Export of conversations as Markdown, JSON, JSON lines and HTML; import of chats saved by gptel."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyagentd.store.export import export, importing

__all__ = ["export", "importing"]


def __getattr__(name: str) -> Any:
    """Load a module of this package when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
