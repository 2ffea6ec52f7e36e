"""Conversations on their way out and in: export as Markdown, JSON and a page, import of what gptel saved."""
