"""preset.md: what its author wrote survives, what is malformed is named with its line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.errors import PresetError
from pyagentd.store import presetfile
from pyagentd.store.presetfile import STANDARD_DENY, parse, read, with_paths

COMMENTED = """\
---
# Who
name: x   # the name
description: >
  folded text
  more
paths:   # where
  # reads
  read:
    - /a/**   # docs
    - '/b/**'  # more docs

  # writes
  write: []  # none yet
  deny:
  - "**/.ssh/**"

# Shell
shell_commands:
- a
temperature: 0.30
---

Body --- with a rule

---
end"""


def text(front: str, body: str = "Help.\n") -> str:
    return f"---\n{front}---\n{body}"


def paths_of(written: str) -> dict[str, list[str]]:
    return {kind: list(values) for kind, values in parse(written, Path("p.md")).front["paths"].items()}


@pytest.mark.spec("001", "preset.md YAML frontmatter")
def test_front_matter_and_body_are_told_apart_byte_for_byte():
    preset = parse(COMMENTED, Path("p.md"))
    assert list(preset.front) == ["name", "description", "paths", "shell_commands", "temperature"]
    assert preset.body == "\nBody --- with a rule\n\n---\nend"


def test_comments_order_and_quoting_survive_a_change_of_paths():
    written = with_paths(parse(COMMENTED, Path("p.md")), read=["/b/**", "/new/**"], deny=["/z/**"])
    before, after = COMMENTED.split("  read:")[0], COMMENTED.split("**/.ssh/**")[1].removeprefix('"\n')
    assert written.startswith(before)
    assert written.endswith(after)
    assert (
        "  read:\n    - '/b/**'  # more docs\n    - \"/new/**\"\n\n  # writes\n  write: []  # none yet\n" in written
    )


@pytest.mark.parametrize(
    "front",
    [
        "backend: Claude\n",
        "backend: Claude\npaths:\n",
        "paths: {}\n",
        "paths: {read: [/old/**]}\n",
        "paths:\n  read:\n  - /old/**\n# after\nmodel: m\n",
        "{backend: Claude, paths: {read: []}}\n",
        "paths:\r\n  read: []\r\nmodel: m\r\n",
        'model: "a\u2028b\x85c"\npaths:\n  read: []\nz: 1\n',
    ],
)
def test_every_form_of_the_section_is_updated(front):
    written = with_paths(parse(text(front), Path("p.md")), read=["/p/**"])
    assert paths_of(written) == {"read": ["/p/**"], "write": ["/tmp/**"], "deny": list(STANDARD_DENY)}
    assert written.endswith("---\nHelp.\n")


def test_own_write_patterns_are_kept_and_others_join_them():
    preset = parse(text("paths:\n  write: [/out/**]\n"), Path("p.md"))
    assert paths_of(with_paths(preset, read=[]))["write"] == ["/out/**"]
    assert paths_of(with_paths(preset, read=[], also_write=["/p/**", "/out/**"]))["write"] == ["/out/**", "/p/**"]


def test_an_empty_write_list_is_the_authors_choice():
    assert paths_of(with_paths(parse(text("paths:\n  write: []\n"), Path("p.md")), read=[]))["write"] == []


def test_denies_are_the_standard_four_the_presets_and_the_given():
    preset = parse(text('paths:\n  deny: ["**/.env", /secret/**]\n'), Path("p.md"))
    assert paths_of(with_paths(preset, read=[], deny=["/x/**"]))["deny"] == [*STANDARD_DENY, "/secret/**", "/x/**"]


@given(st.lists(st.text(min_size=1).filter(lambda t: t.isprintable()), unique=True))
def test_any_pattern_comes_back_as_it_was_given(patterns):
    assert paths_of(with_paths(parse(COMMENTED, Path("p.md")), read=patterns))["read"] == patterns


def test_setting_paths_twice_is_setting_them_once(tmp_path):
    file = tmp_path / "preset.md"
    file.write_text(COMMENTED)
    presetfile.change(file, lambda preset: with_paths(preset, read=["/p/**"], deny=["/d/**"]))
    once = file.read_bytes()
    presetfile.change(file, lambda preset: with_paths(preset, read=["/p/**"], deny=["/d/**"]))
    assert file.read_bytes() == once


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        ("Just text\n", 1, "No YAML frontmatter"),
        ("", 1, "No YAML frontmatter"),
        ("---\nbackend: Claude\nBody", 1, "No closing delimiter"),
        (text("backend: Claude\ndescription: a: b\n"), 3, "in quotes"),
        (text("backend: Claude\n\tmodel: x\n"), 3, "Indent with spaces"),
        (text("a: 1\nb: 2\na: 3\n"), 4, "duplicate"),
        (text("tools: [Read\n"), 3, "Malformed frontmatter"),
        (text("- a\n- b\n"), 2, "no keys"),
        (text(""), 2, "no keys"),
    ],
)
def test_malformed_front_matter_names_file_line_and_hint(content, line, said):
    with pytest.raises(PresetError) as error:
        parse(content, Path("/p/explorer.md"))
    assert error.value.message.startswith(f"/p/explorer.md:{line}: ")
    assert said in str(error.value)
    assert error.value.hint


@pytest.mark.parametrize(
    ("front", "said"),
    [
        ("a: 1\npaths:\n  write: /tmp/**\n", r":4: `paths.write` is '/tmp/\*\*'. It should be a list"),
        ("a: &x {read: []}\npaths: *x\n", ":3: paths uses a YAML alias"),
        ("paths:\n  read: &x [/a]\n  write: *x\n", ":2: paths uses a YAML alias"),
        ("paths: &x {read: []}\nmore: *x\n", ":2: paths uses a YAML alias"),
        ("a: &x {paths: {read: []}}\n<<: *x\n", ":3: A YAML merge"),
        ("a: 1\n...\n", "another document"),
    ],
)
def test_paths_that_cannot_be_updated_are_refused(front, said):
    with pytest.raises(PresetError, match=said):
        with_paths(parse(text(front), Path("p.md")), read=[])


@pytest.mark.spec("000", "Missing preset.md reports clear error")
def test_a_missing_preset_is_an_error_and_no_default(tmp_path):
    with pytest.raises(PresetError, match=f"Failed to load preset from {tmp_path}"):
        read(tmp_path / "preset.md")


def test_bytes_that_are_no_utf8_are_named_by_line(tmp_path):
    (tmp_path / "preset.md").write_bytes(b"---\na: 1\nb: \xff\n---\n")
    with pytest.raises(PresetError, match=r"preset\.md:3: this is not UTF-8"):
        read(tmp_path / "preset.md")


def test_a_byte_order_mark_does_not_hide_the_front_matter(tmp_path):
    (tmp_path / "preset.md").write_bytes(b"\xef\xbb\xbf---\na: x\n---\n")
    assert dict(presetfile.read(tmp_path / "preset.md").front) == {"a": "x"}
