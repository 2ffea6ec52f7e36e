"""Chats that gptel saved, in every form it ever had, and files that are none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given

from pyagentd.errors import BadRequest, NotFound, StoreError
from pyagentd.policy.presets import parse_preset
from pyagentd.store import paths, presetfile
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import text as document
from pyagentd.store.document.reconcile import align
from pyagentd.store.document.text import Document, Settings, format_file, gptel_messages, parse
from pyagentd.store.export.importing import Chat, adopt_chat, fill, preset_text, read_chat
from pyagentd.store.journal import read_rows
from pyagentd.store.sessions import create_session
from tests.store.places import PRESET, StandingClock, new_session
from tests.store.talk import Talk, Turn, talks
from tests.store.test_adopt import merged, plain

STOCK = Path(__file__).parent / "golden" / "stock-gptel.md"
BODY = "### Grüße, wie viele?\n\nSieben 😀 Stück.\n\n### Sicher?\n\nJa.\n\n### "
ROLES = ("Sieben 😀 Stück.", "Ja.")


def bounds(body: str, form: str) -> str:
    """The positions of ``ROLES`` as Emacs prints them."""
    places = [(body.index(text) + 1, body.index(text) + 1 + len(text)) for text in ROLES]
    if form == "v1":
        return "(" + " ".join(f"({start} . {end})" for start, end in places) + ")"
    return "((response " + " ".join(f"({start} {end})" for start, end in places) + "))"


def saved(form: str, *lines: str, body: str = BODY, comment: tuple[str, str] = ("<!-- ", " -->")) -> str:
    """A chat as gptel saves it; ``lines`` are further variables."""
    inside = ["Local Variables:", *lines, f"gptel--bounds: {bounds(body, form)}", "End:"]
    return body + "\n\n" + "".join(f"{comment[0]}{line}{comment[1]}\n" for line in inside)


def imported(path: Path) -> tuple[Chat, Conversation, Document]:
    """What a file becomes: the chat, its log and its document."""
    chat = read_chat(path)
    ref = new_session(path.parent / "sessions")
    fill(ref.branch_dir, adopt_chat(chat, session_id=ref.session_id, now_ms=1))
    conversation = Conversation(read_rows(paths.journal_file(ref.branch_dir)))
    return chat, conversation, document.read(paths.session_file(ref.branch_dir))


def file(tmp_path: Path, content: str | bytes, name: str = "chat.md") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


class TestForms:
    @pytest.mark.parametrize("form", ["v1", "v2"])
    @pytest.mark.parametrize(
        ("name", "comment"), [("chat.md", ("<!-- ", " -->")), ("chat.txt", (";; ", "")), ("chat", ("# ", ""))]
    )
    def test_text_and_roles_come_through(
        self, tmp_path: Path, form: str, name: str, comment: tuple[str, str]
    ) -> None:
        text = saved(form, "gptel-model: gpt-5\\.2", comment=comment)
        path = file(tmp_path, text, name)
        chat, conversation, found = imported(path)
        assert found.body == BODY and found.settings.model == "gpt-5.2" and chat.notes == ()
        assert [found.body[s.start : s.end] for s in found.spans] == list(ROLES)
        assert [(m.role, m.text) for m in conversation.messages.values()] == [
            ("user", "Grüße, wie viele?"),
            ("assistant", ROLES[0]),
            ("user", "Sicher?"),
            ("assistant", ROLES[1]),
        ]
        assert plain(align(found, conversation).view) == merged(gptel_messages(text))
        assert path.read_bytes() == text.encode(), "the file imported from is not changed"

    def test_reasoning_and_tool_calls_become_what_they_were(self, tmp_path: Path) -> None:
        text = STOCK.read_text()
        chat, conversation, found = imported(file(tmp_path, text))
        assert found.body == parse(text).body and found.spans == parse(text).spans and chat.system == "Be terse."
        _, answer = conversation.messages.values()
        assert [part.type for part in answer.parts] == [
            "step-start", "reasoning", "text", "tool-Bash", "step-start", "text",
        ]  # fmt: skip
        (tool,) = [part for part in answer.parts if part.is_tool]
        assert (tool.data["toolCallId"], tool.data["input"]) == ("toolu_01A", {"command": "ls | wc -l"})
        assert plain(align(found, conversation).view) == merged(gptel_messages(text))

    def test_line_ends_of_windows_and_a_byte_order_mark(self, tmp_path: Path) -> None:
        data = b"\xef\xbb\xbf" + saved("v2").replace("\n", "\r\n").encode()
        chat, _, found = imported(file(tmp_path, data))
        assert found.body == BODY and len(found.spans) == 2
        assert len(chat.notes) == 1 and "CR LF" in chat.notes[0]

    def test_one_byte_a_character_is_read_and_said(self, tmp_path: Path) -> None:
        body = BODY.replace("😀", "“x”")
        text = body + saved("v2").removeprefix(BODY)
        roles = f"((response ({body.index('Sieben') + 1} {body.index(' Stück.') + 8})))"
        text = body + f"\n\n<!-- Local Variables: -->\n<!-- gptel--bounds: {roles} -->\n<!-- End: -->\n"
        chat, conversation, found = imported(file(tmp_path, text.encode("cp1252")))
        assert found.body == body and "not UTF-8" in chat.notes[0]
        assert [m.text for m in conversation.messages.values()] == ["Grüße, wie viele?", "Sieben “x” Stück."]

    def test_single_bytes_that_are_no_text_are_kept_and_said(self, tmp_path: Path) -> None:
        data = saved("v2").encode().replace("ü".encode(), b"\xfc", 1)
        chat, _, found = imported(file(tmp_path, data))
        assert found.body.encode("utf-8", "surrogateescape").startswith(b"### Gr\xfc\xc3\x9fe")
        assert len(found.spans) == 2 and chat.notes == (
            "Line 1 is not UTF-8; bytes that are not text were kept as they are",
        )

    def test_without_bounds_all_text_is_the_users(self, tmp_path: Path) -> None:
        chat, conversation, found = imported(file(tmp_path, "### Hi\n\nHello\n"))
        assert found.body == "### Hi\n\nHello\n" and not conversation.messages
        assert len(chat.notes) == 1 and "gptel--bounds" in chat.notes[0]
        assert align(found, conversation).new_prompt == "Hi\n\nHello"

    def test_a_second_block_that_an_emacs_added_loses_nothing(self, tmp_path: Path) -> None:
        second = "\n<!-- Local Variables: -->\n<!-- gptel-model: b -->\n<!-- gptel--bounds: nil -->\n<!-- End: -->\n"
        chat, conversation, found = imported(file(tmp_path, saved("v2", "gptel-model: a") + second))
        assert found.body == BODY and found.settings.model == "b" and len(found.spans) == 2
        assert len(conversation.messages) == 4 and chat.notes

    def test_what_is_wrong_with_the_bounds_is_said(self, tmp_path: Path) -> None:
        text = saved("v2").replace("))", " (9000 9009)))")
        assert len(read_chat(file(tmp_path, text)).notes) == 1

    @given(talks)
    def test_whatever_was_exported_comes_back_and_means_the_same(self, turns: list[Turn]) -> None:
        text = format_file(Talk(turns).document)
        made = adopt_chat(Chat(document=parse(text), system=None, notes=()), session_id="s", now_ms=1)
        assert parse(format_file(made.document)).spans == parse(text).spans
        assert parse(format_file(made.document)).body == parse(text).body


class TestSettings:
    def test_the_block_becomes_the_preset(self, tmp_path: Path) -> None:
        lines = (
            "gptel-model: claude-opus-5",
            'gptel--backend-name: "Claude"',
            'gptel-system-prompt: "Be \\"terse\\".\\nAnd kind."',
            'gptel--tool-names: ("Read" "read_file")',
            "gptel-temperature: 0.3",
            "gptel-max-tokens: 500",
        )
        chat = read_chat(file(tmp_path, saved("v2", *lines)))
        assert chat.system == 'Be "terse".\nAnd kind.'
        assert chat.document.settings.other == ()
        text = preset_text(PRESET, "minimal", chat.document.settings, chat.system)
        read = presetfile.parse(text, Path("p.md"))
        preset = parse_preset("p", read.front, read.body, "p.md")
        assert (preset.model, preset.backend, preset.temperature) == ("claude-opus-5", "Claude", 0.3)
        assert preset.max_tokens == 500
        assert (preset.tools, preset.body) == (("Read",), 'Be "terse".\nAnd kind.')

    def test_a_number_of_tokens_that_no_json_holds_is_none(self, tmp_path: Path) -> None:
        most = f"gptel-max-tokens: {2**64}"
        settings = read_chat(file(tmp_path, saved("v2", most))).document.settings
        assert settings.max_tokens is None and settings.other

    @pytest.mark.parametrize("name", ["gptel-system-prompt", "gptel--system-message"])
    def test_both_names_of_the_system_prompt_are_known(self, tmp_path: Path, name: str) -> None:
        assert read_chat(file(tmp_path, saved("v2", f'{name}: "Hi"'))).system == "Hi"

    def test_of_a_system_prompt_with_examples_the_first_text_counts(self, tmp_path: Path) -> None:
        chat = read_chat(file(tmp_path, saved("v2", 'gptel-system-prompt: ("Be kind." "Hello" "Hi there")')))
        assert chat.system == "Be kind." and "example" in chat.notes[0]

    @pytest.mark.parametrize("value", ["nil", "my-directive", "(lambda () 1)", '"unfinished'])
    def test_a_system_prompt_that_is_no_text_is_none(self, tmp_path: Path, value: str) -> None:
        chat = read_chat(file(tmp_path, saved("v2", f"gptel-system-prompt: {value}")))
        assert chat.system is None and len(chat.notes) == (value != "nil")

    def test_what_the_chat_does_not_say_stays_as_in_the_preset(self) -> None:
        template = "---\n# mine\nbackend: Claude  # ours\nmodel: x\n---\nHelp.\n\n---\nmore\n"
        assert preset_text(template, "t", Settings(), None) == template
        assert preset_text(template, "t", Settings(model="y"), None) == template.replace("model: x", "model: y")
        assert preset_text(template, "t", Settings(), "New.\n---\n") == template.split("Help")[0] + "New.\n---\n"

    def test_variables_that_emacs_would_act_on_are_left_out(self, tmp_path: Path) -> None:
        lines = ('eval: (delete-file "x")', "mode: org", "gptel--preset: coding", "gptel--num-messages-to-send: 5")
        chat = read_chat(file(tmp_path, saved("v2", *lines)))
        assert chat.document.settings.other == (("gptel--num-messages-to-send", "5"),)
        assert chat.notes == ("Left out of the Local Variables: eval, mode, gptel--preset",)


class TestNoChat:
    @pytest.mark.parametrize(
        ("content", "name", "said"),
        [
            (b"", "a.md", "is empty"),
            (b" \n\t\n", "a.md", "is empty"),
            (b"\x89PNG\r\n\x1a\n\0\0", "a.md", "is not text"),
            ("### Hi\n".encode("utf-16"), "a.md", "is not text"),
        ],
    )
    def test_the_error_says_why(self, tmp_path: Path, content: bytes, name: str, said: str) -> None:
        path = file(tmp_path, content, name)
        with pytest.raises(BadRequest, match=said) as caught:
            read_chat(path)
        assert str(path) in str(caught.value) and caught.value.hint

    def test_places_that_hold_no_chat(self, tmp_path: Path) -> None:
        with pytest.raises(BadRequest, match="Is a directory"):
            read_chat(tmp_path)
        with pytest.raises(NotFound, match="There is no file"):
            read_chat(tmp_path / "missing")
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(BadRequest, match="not a regular file"):
            read_chat(tmp_path / "pipe")

    def test_a_very_large_file_is_not_even_read(self, tmp_path: Path) -> None:
        with (tmp_path / "big").open("wb") as big:
            big.truncate(200 * 1024 * 1024)
        with pytest.raises(BadRequest, match="has more than"):
            read_chat(tmp_path / "big")

    def test_a_session_that_cannot_be_filled_is_not_left_half(self, tmp_path: Path) -> None:
        made = adopt_chat(read_chat(file(tmp_path, saved("v2"))), session_id="x", now_ms=1)

        def spoilt(session_id: str, branch_dir: Path) -> None:
            paths.journal_file(branch_dir).mkdir()
            fill(branch_dir, made)

        with pytest.raises(StoreError):
            create_session(
                tmp_path / "sessions",
                "x",
                preset_name="p",
                preset_text="---\nmodel: m\n---\n",
                clock=StandingClock(),
                fill=spoilt,
            )
        assert not [*(tmp_path / "sessions").iterdir()]


ORG = """:PROPERTIES:
:GPTEL_MODEL: claude-sonnet-4-5
:GPTEL_BACKEND: Claude
:GPTEL_SYSTEM: Be brief.\\nAnd kind.
:GPTEL_TEMPERATURE: 0.2
:GPTEL_TOOLS: Read Grep
:GPTEL_BOUNDS: {bounds}
:END:
*** Is there *any* =tea=?

{parts}

*** Thanks, see [[https://tea.org][this]].
"""
PARTS = (
    ("ignore", "#+begin_reasoning\nLet me look.\n#+end_reasoning\n"),
    ("ignore", '#+begin_tool (Read :file_path "tea.txt")\n'),
    ("tool", '(:name "Read" :args (:file_path "tea.txt"))\n\n,* black\n,#+title: green'),
    ("ignore", "\n#+end_tool\n"),
    ("response", "Yes:\n\n#+begin_src python :results none\ntea = '*hot*'\n#+end_src\n** More\nIt is *hot*."),
)


def org_chat() -> str:
    """Return a chat in Org as gptel saves it: its bounds count the properties they stand in."""
    printed = ""
    while True:
        text = ORG.format(bounds=printed, parts="".join(part for _, part in PARTS))
        at, roles = text.index(PARTS[0][1]) + 1, {}
        for kind, part in PARTS:
            id = ' "call_1"' if kind == "tool" else ""
            roles.setdefault(kind, []).append(f"({at} {at + len(part)}{id})")
            at += len(part)
        again = f"({' '.join(f'({kind} {chr(32).join(spans)})' for kind, spans in roles.items())})"
        if again == printed:
            return text
        printed = again


class TestOrg:
    def test_a_chat_becomes_markdown_with_its_roles(self, tmp_path: Path) -> None:
        chat = read_chat(file(tmp_path, org_chat(), "chat.org"))
        body = chat.document.body
        assert body.startswith("### Is there **any** `tea`?\n\n``` reasoning\nLet me look.\n```\n``` tool (Read")
        said = [(span.kind, span.id, body[span.start : span.end]) for span in chat.document.spans]
        assert [(kind, id) for kind, id, _ in said] == [
            ("ignore", ""), ("tool", "call_1"), ("ignore", ""), ("response", ""),
        ]  # fmt: skip
        assert said[1][2].endswith('"tea.txt"))\n\n* black\n#+title: green')
        assert said[3][2] == "Yes:\n\n```python\ntea = '*hot*'\n```\n## More\nIt is **hot**."
        assert body.endswith("\n\n### Thanks, see [this](https://tea.org).\n")

    def test_its_properties_are_its_settings(self, tmp_path: Path) -> None:
        chat = read_chat(file(tmp_path, org_chat(), "chat.org"))
        assert chat.system == "Be brief.\nAnd kind."
        assert chat.document.settings == Settings(
            model="claude-sonnet-4-5", backend="Claude", tools=("Read", "Grep"), temperature=0.2
        )

    def test_it_becomes_a_conversation(self, tmp_path: Path) -> None:
        _, conversation, _ = imported(file(tmp_path, org_chat(), "chat.org"))
        assert [message.row["role"] for message in conversation.messages.values()] == ["user", "assistant"]

    @pytest.mark.parametrize("text", ["* Heading\n", "#+title: x\n\n* Hello\n"])
    def test_without_bounds_all_is_the_users(self, tmp_path: Path, text: str) -> None:
        chat = read_chat(file(tmp_path, text, "a.org"))
        assert chat.document.spans == () and "counts as yours" in " ".join(chat.notes)

    def test_a_long_line_of_signs_that_nothing_ends_is_read_at_once(self, tmp_path: Path) -> None:
        line = " =a" * 100_000  # the suite's time limit ends what looks from each sign to the end
        assert read_chat(file(tmp_path, f"* Hi\n{line}\n", "x.org")).document.body == f"# Hi\n{line}\n"
        prompt = f"a{' ' * 1_000_000}b"
        drawer = f":PROPERTIES:\n:GPTEL_SYSTEM: {prompt} \n:END:\nHi\n"
        assert read_chat(file(tmp_path, drawer, "y.org")).system == prompt

    def test_bounds_that_fit_no_text_are_said(self, tmp_path: Path) -> None:
        text = ":PROPERTIES:\n:GPTEL_BOUNDS: ((response (60 64) (900 999)))\n:END:\n*** Hi\n\nHello.\n"
        assert "Some of its gptel bounds fit no text" in read_chat(file(tmp_path, text, "a.org")).notes
