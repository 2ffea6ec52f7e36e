"""``state.db``: sessions as tables with a full-text index, derived from their files, and searching them.

From the file up: ``state`` and ``schema`` (the database), ``tail``, ``texts`` and ``indexed`` (what a branch's files
say), ``tables`` and ``projection`` (that as rows), ``query``, ``search`` and ``listing`` (what is asked of them).
"""
