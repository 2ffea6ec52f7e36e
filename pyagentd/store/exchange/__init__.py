"""Conversations on their way out and in: export as Markdown, JSON and a page, import of what gptel saved.

``source`` reads a branch, ``export`` makes every format of it, ``html`` with ``blocks``, ``prose`` and ``style`` the
page; ``importing`` reads a chat.
"""
