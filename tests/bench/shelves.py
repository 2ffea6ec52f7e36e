"""Sessions by the thousand, written straight to disk in the form the daemon leaves them in."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path

from pyagentd.store.document.text import format_file
from tests.store.shelf import Recorded
from tests.store.talk import Call, Step, Turn

BRANCHES = 3
_AGENT_EVERY = 10  # sessions
_PRESET = "---\nbackend: offline\nmodel: offline\n---\nHelp.\n"
_SYLLABLES = (
    "ba",
    "re",
    "ti",
    "no",
    "ku",
    "sal",
    "mer",
    "dor",
    "vin",
    "pex",
    "lu",
    "fa",
    "gen",
    "ho",
    "qui",
    "zat",
    "wy",
)
_WORDS = ["".join(syllables) for length in (1, 2, 3) for syllables in itertools.product(_SYLLABLES, repeat=length)]
# Like a language: few words are everywhere, most are rare.
_WEIGHTS = [1 / (rank + 2) for rank in range(len(_WORDS))]


class Talker:
    """Makes turns of random words; ``rare(number)`` is a word that only one session has."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def words(self, count: int) -> str:
        """Return so many words."""
        return " ".join(self._random.choices(_WORDS, _WEIGHTS, k=count))

    def turn(self, size: int = 60, mark: str = "") -> Turn:
        """Return a turn with about ``size`` words in its answer and, now and then, a tool call."""
        call = Call(name="Read", input={"path": f"src/{self.words(1)}.py"}, result=self.words(size))
        calls = (call,) if self._random.random() < 0.3 else ()
        return Turn(prompt=f"{mark} {self.words(12)}".strip(), steps=(Step(texts=(self.words(size),), calls=calls),))

    def talk(self, title: str) -> Recorded:
        """Return an empty conversation."""
        talk = Recorded()
        talk.session(title=title, workspace_root="/tmp")
        return talk


def rare(number: int) -> str:
    """Return the word that only session ``number`` has."""
    return f"rare{number:06d}"


def fill(root: Path, count: int) -> None:
    """Write ``count`` sessions with three branches each, some of them with an agent."""
    talker = Talker()
    for number in range(count):
        session_id = f"session-{number:05d}-20260205123052"
        home = root / session_id / "branches"
        talk = talker.talk(f"About {rare(number)}")
        talk.play(talker.turn(mark=rare(number)))
        for branch, name in enumerate(_names()):
            if branch:
                talk.play(talker.turn())  # what the branch has beyond those before it
            write(home / name, talk, session_id)
        if number % _AGENT_EVERY == 0:
            agent_id = f"explorer-20260205123053-{number:05d}"
            agent = talker.talk("")
            agent.play(talker.turn())
            write(home / "main" / "agents" / agent_id, agent, agent_id, type="agent", parent_session_id=session_id)
        (root / session_id / "current").symlink_to("branches/main")


def write(place: Path, talk: Recorded, session_id: str, **facts: str) -> None:
    """Write the files of one branch, or what has become of them."""
    place.mkdir(parents=True, exist_ok=True)
    rows = ({"seq": row.seq, "type": row.type, "data": row.data} for row in talk.rows)
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows]
    (place / "messages.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (place / "session.md").write_text(format_file(talk.document))
    (place / "preset.md").write_text(_PRESET)
    time = "2026-02-05T12:30:52Z"
    plan = {
        "version": "3.0",
        "session_id": session_id,
        "created": time,
        "updated": time,
        **facts,
        "preset": "minimal",
    }
    (place / "scope-plan.yml").write_text("".join(f'{key}: "{value}"\n' for key, value in plan.items()))


def _names() -> Iterator[str]:
    yield "main"
    for number in range(1, BRANCHES):
        yield f"2026020512310{number}-try"
