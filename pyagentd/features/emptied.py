"""A conversation whose ``session.md`` was emptied: the text is made anew from the log, and a human may remove it.

Nobody deletes a conversation by emptying a file without wanting to, but a program that failed does. So the file is
restored when the session is opened, and whoever edits it is asked whether that was right. Where nobody is asked it
stays restored.
"""

from pyagentd.errors import PyagentdError
from pyagentd.events import Event
from pyagentd.features.contexts import Contexts
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.kernel import Kernel
from pyagentd.store import paths
from pyagentd.store.document import hidden

RESTORE, REMOVE = "Restore", "Remove"


def ask(kernel: Kernel, branch: LiveBranch) -> None:
    """Ask whoever watches a branch what its emptied document meant, once; nobody needs to answer."""
    kernel.emptied.discard(branch.key)
    shown = [message.id for message in hidden.visible(branch.conversation)]
    question = (
        f"{paths.SESSION_FILE} was empty, but its log has a conversation of {len(shown)} messages. "
        "Its text was restored from the log. Is that right, or was the conversation to be removed?"
    )
    options = {
        RESTORE: "Go on with the conversation; it is as it was",
        REMOVE: "The model is no longer shown any of it; the text stays in the log and, folded, in the document",
    }
    asked = {
        "question": question,
        "header": "Emptied",
        "options": [{"label": label, "description": about} for label, about in options.items()],
        "multi_select": False,
    }
    fields = {
        "kind": "question",
        "tool": "question",
        "action": "tool:question:emptied",
        "detail": question,
        "reason": "",
        "preview": "",
        "choices": ["answer", "deny"],
        "questions": [asked],
    }

    def settle(answer: Answer) -> None:
        if answer.decision == "answer" and answer.answers and REMOVE in answer.answers[0]:
            kernel.own(_remove(kernel, branch, shown))

    kernel.questions.post(branch, fields, settle)


async def _remove(kernel: Kernel, branch: LiveBranch, shown: list[str]) -> None:
    async with kernel.using(branch.ref) as live:
        try:
            if shown != [message.id for message in hidden.visible(live.conversation)]:
                text = "The conversation went on, so nothing was removed. /context clear puts all of it behind"
                live.publish(Event("notice", live.key, 0, ({"text": text},)))
            else:
                await kernel.feature(Contexts).clear(live)
        except PyagentdError as error:
            live.publish(Event("notice", live.key, 0, ({"text": f"Nothing was removed: {error}"},)))
