"""Sessions on disk for tests of search: conversations of ``talk`` written to the files of branches, and changed."""

from __future__ import annotations

import copy
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

from pyagentd.store import paths
from pyagentd.store.db.projection import HitRow, Projection, Scope, parse, search
from pyagentd.store.db.state import State
from pyagentd.store.document.files import document_cache, write_document
from pyagentd.store.paths import BranchRef, ref_of
from pyagentd.store.registry import Registry
from tests.store.places import new_session
from tests.store.talk import Step, Talk, Turn


class Recorded(Talk):
    """A talk whose rows have times, and whose runs end in the document."""

    clock = itertools.count(1_770_000_000_000, 1000)
    ids = itertools.count(1)  # nobody else has the same

    def __init__(self, *, chunk: int = 0) -> None:
        super().__init__(chunk=chunk)
        self._ids = self.ids

    def record(self, kind: str, /, **data: Any) -> None:
        if "created_at" in data:
            now = next(self.clock)
            data |= {"created_at": now, "updated_at": now}
        super().record(kind, **data)

    def finish(self, run: dict[str, Any], *, error: dict[str, str] | None = None) -> None:
        super().finish(run, error=error)
        self.record("run", **run, state="kept", reason="error" if error else "done", error=error)

    def say(self, prompt: str, answer: str, **step: Any) -> None:
        self.play(Turn(prompt=prompt, steps=(Step(texts=(answer,), **step),)))

    def session(self, **facts: Any) -> None:
        now = next(self.clock)
        known = {"agent": "main", "title": "", "archived_at": None, "permissions_json": [], "metadata_json": {}}
        self.record("session", id="s", **{**known, **facts}, created_at=now, updated_at=now)


class Shelf:
    """A sessions root with its index."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.registry = Registry(root)
        self.talks: dict[str, Recorded] = {}
        self.state = State(root)
        self.projection = Projection(self.state, root)

    def new(self, name: str = "thing", *turns: tuple[str, str], **facts: Any) -> BranchRef:
        """Make a session with these turns; ``facts`` are of its session row."""
        ref = new_session(self.root, name)
        talk = self.talks[ref.key] = Recorded()
        talk.session(**facts)
        for prompt, answer in turns:
            talk.say(prompt, answer)
        self.write(ref)
        return ref

    def talk(self, ref: BranchRef) -> Recorded:
        return self.talks[ref.key]

    def write(self, ref: BranchRef) -> None:
        """Write a talk's files as the daemon does: lines are appended."""
        talk = self.talks[ref.key]
        lines = [json.dumps({"seq": row.seq, "type": row.type, "data": row.data}) + "\n" for row in talk.rows]
        journal = paths.journal_file(ref.branch_dir)
        known = journal.read_text() if journal.exists() else ""
        text = "".join(lines)
        if known and text.startswith(known):
            with journal.open("a") as file:
                file.write(text[len(known) :])
        else:
            journal.write_text(text)
        file = paths.session_file(ref.branch_dir)
        write_document(file, talk.document, document_cache.read(file) if file.exists() else None)

    def branch(self, ref: BranchRef, name: str) -> BranchRef:
        """Copy a branch of a session."""
        place = ref.session_dir / "branches" / name
        shutil.copytree(ref.branch_dir, place)
        made = ref_of(place)
        self.talks[made.key] = copy.deepcopy(self.talks[ref.key])
        self.talks[made.key]._ids = Recorded.ids
        return made

    def update(self) -> None:
        """Bring the index up to date."""
        update(self.projection, self.registry)

    def find(self, text: str, **scope: Any) -> list[HitRow]:
        """Search an index that is up to date."""
        self.update()
        hits, _ = search(self.state, self.projection, parse(text), limit=50, scope=Scope(**scope))
        return hits

    def said(self, text: str, **scope: Any) -> list[tuple[str, str]]:
        """Return who said what is found."""
        return [(hit["role"], hit["preview"]) for hit in self.find(text, **scope)]

    def close(self) -> None:
        self.state.close()


def update(projection: Projection, registry: Registry) -> None:
    refs = {projection.key(ref.branch_dir): ref for ref in registry.branches()}
    projection.drop(projection.stamps().keys() - refs.keys())
    for ref in refs.values():
        projection.update(ref)


def dump(state: State) -> dict[str, list[tuple[Any, ...]]]:
    """Return all that is in the tables and the index, without the numbers of rows."""
    with state.writing() as db:
        tables = {
            name: sorted(db.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for name in ("chat_sessions", "chat_messages", "chat_parts")
        }
        texts = {row[0]: row[1:] for row in db.execute("SELECT * FROM texts")}
        tables["texts"] = sorted(texts.values(), key=repr)
        db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab(main, texts_index, 'instance')")
        words = db.execute('SELECT term, doc, "offset" FROM temp.words').fetchall()
        tables["words"] = sorted(((texts[doc], term, offset) for term, doc, offset in words), key=repr)
        return tables
