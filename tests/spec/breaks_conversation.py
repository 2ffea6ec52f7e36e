"""For every question of specification 002 one way to break the code that answers it; see ``breaks``."""

from __future__ import annotations

from functools import partial

from tests.spec.breaking import Break

_of = partial(Break, spec="002")

BREAKS_OF_CONVERSATIONS = [
    _of(
        'How do I design a "plan mode"?',
        "pyagentd/policy/profiles.py",
        "    if not (own or above) or _only_looks(action):\n",
        "    if not above or _only_looks(action):\n",
    ),
    _of(
        'When a user clicks "approve and auto mode" on a plan, does that fire a trigger or a user message?',
        "pyagentd/api/conversations.py",
        'metadata={"agent": agent})',
        "metadata={})",
    ),
    _of(
        "When the agent asks me to pick from options (and I may add free-text follow-up), how does the pick come "
        "back?",
        "pyagentd/features/questions.py",
        'json.dumps({"answers": answer.answers or []}, ensure_ascii=False)',
        'json.dumps({"answers": [each[:1] for each in answer.answers or []]}, ensure_ascii=False)',
    ),
    _of(
        "If the user closes their laptop mid-turn and reconnects later, can the turn resume without a new message?",
        "pyagentd/runtime/kernel.py",
        "            branch.detach(sink)\n",
        "            branch.detach(sink)\n            branch.stop()\n",
    ),
    _of(
        "Can a user rewind past a compaction back to a turn the compaction summarized?",
        "pyagentd/store/document/hidden.py",
        "    return shown[ids.index(after) + 1 :] if after else shown\n",
        "    return [each for each in shown[ids.index(after) + 1 :] if not is_marker(each)] if after else shown\n",
    ),
    _of(
        "How is a compaction stored in the DB, and how does it support UIs that show a divider or the summary?",
        "pyagentd/store/conversation.py",
        '        "tail_start_id": tail_start_id,\n',
        '        "tail": tail_start_id,\n',
    ),
    _of(
        "How should errors be designed — what auto-retries, what hard-fails, and is a hard-failed session dead "
        "forever?",
        "pyagentd/runtime/queue.py",
        '        if reason == "error":\n',
        '        if reason == "never":\n',
    ),
    _of(
        "Can the main agent re-prompt a finished subagent? Can parent and subagent have a multi-turn conversation?",
        "pyagentd/tools/spec.py",
        '"additionalProperties": False,',
        '"additionalProperties": True,',
    ),
    _of(
        "When an agent edits a document the user has open, does the open view stay in sync?",
        "elisp/pyagentd-buffers.el",
        "    (unwind-protect (revert-buffer t t t)\n",
        "    (unwind-protect (ignore)\n",
    ),
]
