"""Backends of gptel as tables of ``config.toml``: what each kind becomes, whose keys are wanted, what is written."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from pyagentd.api.models import GptelBackend, backend_table, configuration_of
from pyagentd.config import load_config
from pyagentd.errors import ConfigError
from pyagentd.store.configfile import append, table
from tests.runtime.world import Watcher, World

MODELS = ({"name": "one"}, {"name": "two"})


def backend(name: str = "Mine", **fields: Any) -> GptelBackend:
    return GptelBackend(**{"name": name, "host": "llm.example.org", "models": MODELS, **fields})


CHAT = "/v1/chat/completions"
LISTED = {"model": "one", "models": ["one", "two"]}


@pytest.mark.parametrize(
    ("fields", "table", "key"),
    [
        (
            {"type": "gptel-openai-responses", "host": "api.openai.com", "endpoint": "/v1/responses", "key": True},
            {"kind": "openai", "model": "one"},
            ("OPENAI_API_KEY", "api.openai.com"),
        ),
        (
            {"type": "gptel-anthropic", "host": "api.anthropic.com", "endpoint": "/v1/messages", "key": True},
            {"kind": "anthropic", "key_env": "ANTHROPIC_API_KEY", "model": "one"},
            None,  # that key is found by itself
        ),
        (
            {"type": "gptel-gemini", "host": "generativelanguage.googleapis.com", "endpoint": "/v1beta/models",
             "key": True},
            {"kind": "gemini", "model": "one"},
            ("GEMINI_API_KEY", "generativelanguage.googleapis.com"),
        ),
        (
            {"type": "gptel-ollama", "protocol": "http", "host": "localhost:11434", "endpoint": "/api/chat"},
            {"kind": "ollama", **LISTED},
            None,
        ),
        (
            {"type": "gptel-ollama", "protocol": "http", "host": "box:11434", "endpoint": "/api/chat"},
            {"kind": "openai-compatible", "base_url": "http://box:11434/v1", **LISTED},
            None,
        ),
        (
            {"type": "gptel-deepseek", "host": "api.deepseek.com", "endpoint": CHAT, "key": True},
            {"kind": "deepseek", **LISTED},
            ("DEEPSEEK_API_KEY", "api.deepseek.com"),
        ),
        (
            {"name": "My-Proxy 2", "endpoint": CHAT, "key": True},
            {"kind": "openai-compatible", "base_url": "https://llm.example.org/v1",
             "key_env": "PYAGENTD_KEY_MY_PROXY_2", **LISTED},
            ("PYAGENTD_KEY_MY_PROXY_2", "llm.example.org"),
        ),
        (
            {"type": "gptel-bedrock", "host": "bedrock-runtime.eu-central-1.amazonaws.com", "endpoint": ""},
            {"kind": "bedrock", "region": "eu-central-1"},
            None,
        ),
        (
            {"protocol": None, "host": "http://127.0.0.1:8080/x", "endpoint": "/chat/completions", "models": None},
            {"kind": "openai-compatible", "base_url": "http://127.0.0.1:8080/x"},
            None,
        ),
    ],
)  # fmt: skip
def test_each_kind_becomes_ours(fields: dict[str, Any], table: dict[str, Any], key: object) -> None:
    assert backend_table(backend(**fields)) == (table, key)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"type": "gptel--gh", "endpoint": CHAT}, "Copilot"),
        ({"type": "gptel-kagi"}, "no conversations"),
        ({"endpoint": "/openai/deployments/x/chat/completions?api-version=1"}, "query"),
        ({"endpoint": "/api/generate"}, "does not end in"),
    ],
)
def test_what_cannot_be_had_says_why(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=f"Mine: .*{why}"):
        backend_table(backend(**fields))


def test_only_what_is_missing_is_written_and_the_result_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[backend.known]  # mine\nkind = "ollama"\n')
    config = load_config({"PYAGENTD_CONFIG": str(file)})
    priced = ({"name": "new", "context_window": 1000, "input_cost": 0.5, "output_cost": 2}, {"name": "gpt-5"})
    text, keys, notes = configuration_of(
        [
            backend("Known", endpoint=CHAT),
            backend("Claude", type="gptel-anthropic", host="api.anthropic.com", endpoint="/v1/messages", key=True),
            backend("Copilot", type="gptel--gh"),
            backend("Own", endpoint=CHAT, models=priced, key=True),
        ],
        config,
        current="Own",
    )
    assert [note.split(":")[0] for note in notes] == ["Known", "Claude", "Copilot"]
    assert keys == [["PYAGENTD_KEY_OWN", "llm.example.org"]]
    added = tomllib.loads(text)
    assert set(added) == {"backend", "model"} and '# backend = "Own"' in text
    assert added["model"] == {"new": {"context_window": 1_000_000, "input": 0.5, "output": 2}}
    append(file, text.replace("# [default]", "[default]").replace('# backend = "Own"', 'backend = "Own"'))
    made = load_config({"PYAGENTD_CONFIG": str(file)})
    assert made.default.backend == "Own" and made.backend("own").models == ("new", "gpt-5")
    assert file.read_text().startswith("[backend.known]  # mine\n")


@pytest.mark.parametrize(
    "text",
    ["[log]\n", '[backend.x]\nkind = "what"\n', "[backend.x", '[default]\nbackend = "gone"\n', "[backend.known]\n"],
)
async def test_what_would_spoil_the_configuration_is_not_written(world: World, text: str) -> None:
    file = world.kernel.config.file
    file.write_text(before := '[backend.known]\nkind = "ollama"\n')
    with pytest.raises(ConfigError):
        await world.service().add_configuration(Watcher(), text=text)
    assert file.read_text() == before


def test_a_name_of_any_characters_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    append(file, table(("backend", 'Mine "😀"'), {"kind": "ollama", "model": "modèle 😀"}))
    assert tomllib.loads(file.read_text()) == {"backend": {'Mine "😀"': {"kind": "ollama", "model": "modèle 😀"}}}
