"""The value of a mission below this one, firewalled fields included, for the program that asked for it.

The record of a call has what models and people may see. The program that called gets the value itself (SPEC 004
Execution Behavior), read from the log of the mission that the call made, so that after a restart it is the same. What
a hook made of the result stands: only the very text that the value gives is exchanged for it.
"""

from __future__ import annotations

from typing import Any

from pyagentd.agent.delegating.kin import child_of_call
from pyagentd.agent.missions.valuetext import as_json, shown
from pyagentd.errors import StoreError
from pyagentd.mission import firewall
from pyagentd.store import paths
from pyagentd.store.journal import read_rows
from pyagentd.store.paths import BranchRef


def private_value(ref: BranchRef, call_id: str, text: str) -> Any:
    """Return the value that a call of the tool ``mission`` came to, None where ``text`` says all of it. Blocks."""
    if firewall.HIDDEN not in text or (child := child_of_call(ref, call_id)) is None:
        return None
    try:
        rows = read_rows(paths.journal_file(child.branch_dir))
    except (OSError, StoreError):
        return None
    ends = [row.data for row in rows if row.type == "mission" and row.data.get("phase") == "end"]
    value = ends[-1].get("value") if ends else None
    return value if value is not None and as_json(shown(firewall.public(value))) == text else None
