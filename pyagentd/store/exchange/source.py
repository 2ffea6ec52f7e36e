"""What an export is made from: a branch or an agent read from disk once, with the agents below it.

Everything after this is pure. Roles that were lost are recovered here, so every format says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyagentd import regularfile
from pyagentd.store import document, metadata, paths
from pyagentd.store.align import placed
from pyagentd.store.attachments import linked
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import Document
from pyagentd.store.journal import read_rows
from pyagentd.store.paths import BranchRef

_LARGEST_IMAGE = 10 * 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One timeline.

    Attributes:
        session_id: Of the session or the agent.
        branch_name: Its branch.
        created: When, in ISO 8601, or "" when the metadata is lost.
        preset: What it was made from, or "".
        document: What the user sees, with sound roles.
        conversation: What the log says.
        images: Attached images by the link that the document has to them.
        agents: Those it spawned, in the order it did.
    """

    session_id: str
    branch_name: str = paths.MAIN_BRANCH
    created: str = ""
    preset: str = ""
    document: Document
    conversation: Conversation
    images: Mapping[str, bytes] = field(default_factory=dict)
    agents: tuple[Source, ...] = ()

    @property
    def title(self) -> str:
        """The title somebody gave, or ""."""
        return str(self.conversation.session.get("title") or "")


def read_source(ref: BranchRef) -> Source:
    """Return the branch or agent ``ref`` with everything below it.

    Raises:
        StoreError: The disk refused.
    """
    conversation = Conversation(read_rows(paths.journal_file(ref.branch_dir)))
    found, _ = placed(document.read(paths.session_file(ref.branch_dir)), conversation)
    facts = metadata.read_session_metadata(ref.branch_dir) or {}
    return Source(
        session_id=ref.session_id,
        branch_name=ref.branch_name,
        created=facts.get("created", ""),
        preset=facts.get("preset", ""),
        document=found,
        conversation=conversation,
        images=dict(_images(found.body, ref.branch_dir)),
        agents=tuple(sorted(map(read_source, _agents(ref.branch_dir)), key=lambda agent: agent.created)),
    )


def _agents(branch_dir: Path) -> Iterator[BranchRef]:
    home = paths.agents_dir(branch_dir)
    for place in sorted(home.iterdir()) if home.is_dir() else ():
        if not place.is_symlink() and paths.session_file(place).is_file():
            yield paths.agent_ref(place)


def _images(body: str, branch_dir: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the images of ``files/`` that the document shows; a link that leads out of there is not followed."""
    for each in linked(body, branch_dir):
        try:
            if each.shown and each.size <= _LARGEST_IMAGE:
                yield each.link, regularfile.read_bytes(each.file, limit=_LARGEST_IMAGE)
        except OSError:
            continue  # the page says what is not there
