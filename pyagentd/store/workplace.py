"""Where a session works, without reading its conversation: for lists."""

from __future__ import annotations

from pathlib import Path

from pyagentd import regularfile
from pyagentd.store import paths
from pyagentd.store.lines import row_of

_BEGINNING = 64 * 1024  # bytes; the session's first row is among the first of its log


def workspace_root(branch_dir: Path) -> str:
    """Return the workspace root of a branch, which never changes; "" when nobody recorded it."""
    try:
        with regularfile.opened(paths.journal_file(branch_dir), limit=regularfile.LOG) as log:
            beginning = log.read(_BEGINNING)
    except OSError:
        return ""
    for line in beginning.split(b"\n"):
        row = row_of(line)
        if row is not None and row.type == "session" and (root := row.data.get("workspace_root")):
            return str(root)
    return ""
