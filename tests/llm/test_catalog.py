"""What is known of a model, who says it, and what its tokens cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyagentd.cli.app import main
from pyagentd.config import Config, load_config
from pyagentd.errors import ConfigError
from pyagentd.llm.catalog import UNKNOWN_WINDOW, Prices, catalogue_of, facts, words
from pyagentd.messages import Usage

PRESETS = Path(__file__).parents[2] / "presets"


def config_of(directory: Path, text: str = "") -> Config:
    file = directory / "config.toml"
    file.write_text(text, encoding="utf-8")
    return load_config({"PYAGENTD_CONFIG": str(file)})


@pytest.mark.parametrize("preset", sorted(PRESETS.glob("*.md")), ids=lambda path: path.stem)
def test_every_model_that_a_shipped_preset_names_is_in_the_table(preset: Path, tmp_path: Path) -> None:
    line = next(line for line in preset.read_text(encoding="utf-8").splitlines() if line.startswith("model:"))
    known = facts(line.partition(":")[2].strip(), config_of(tmp_path))
    assert known.window_known and known.prices is not None


def test_a_snapshot_of_a_model_is_that_model(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    assert facts("claude-opus-4-5-20251101", config) == facts("claude-opus-4-5", config)
    assert facts("claude-sonnet-4-5-latest", config) == facts("claude-sonnet-4-5", config)


def test_an_unknown_model_has_no_price_and_a_window_that_is_said_to_be_a_guess(tmp_path: Path) -> None:
    unknown = facts("qwen3", config_of(tmp_path))
    assert unknown.prices is None
    assert (unknown.context_window, unknown.window_known) == (UNKNOWN_WINDOW, False)


def test_what_the_user_states_wins_key_by_key(tmp_path: Path) -> None:
    text = '[model."claude-opus-4-5"]\ncontext_window = 50_000\n\n[model."qwen2.5:7b"]\ninput = 1\noutput = 2\n'
    config = config_of(tmp_path, text)
    mine, shipped = facts("claude-opus-4-5-20251101", config), facts("claude-opus-4-5", config_of(tmp_path))
    assert mine.context_window == 50_000
    assert (mine.max_output, mine.prices) == (shipped.max_output, shipped.prices)
    assert facts("qwen2.5:7b", config).prices == Prices(input=1, output=2, cache_read=1, cache_write=1)


def test_a_price_of_the_user_is_one_price_for_prompts_of_every_length(tmp_path: Path) -> None:
    assert facts("claude-haiku-5-5", config_of(tmp_path)).prices.long is not None  # type: ignore[union-attr]
    mine = facts("claude-haiku-5-5", config_of(tmp_path, '[model."claude-haiku-5-5"]\ninput = 2\noutput = 3\n'))
    assert mine.prices is not None
    assert mine.prices.of(Usage(input=1_000_000, output=1_000_000)) == 5


def test_each_kind_of_token_has_its_price_and_reasoning_is_output() -> None:
    prices = Prices(input=1, output=10, cache_read=0.1, cache_write=2)
    million = 1_000_000
    assert prices.of(Usage(input=million)) == 1
    assert prices.of(Usage(output=million)) == prices.of(Usage(reasoning=million)) == 10
    assert prices.of(Usage(cache_read=million)) == pytest.approx(0.1)
    assert prices.of(Usage(cache_write=million)) == 2


def test_a_long_prompt_costs_the_long_price_whatever_kind_its_tokens_are(tmp_path: Path) -> None:
    prices = facts("claude-haiku-5-5", config_of(tmp_path)).prices
    assert prices is not None
    assert prices.of(Usage(cache_read=100_000, output=1_000_000)) == pytest.approx(0.001 + 0.5)
    assert prices.of(Usage(cache_read=100_001, output=1_000_000)) == pytest.approx(0.00500005 + 2.5)


def test_the_offline_model_costs_nothing_whatever_it_is_called(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    offline = facts("claude-opus-4-5", config, backend="offline").prices
    assert offline is not None and offline.of(Usage(input=5, output=5)) == 0
    assert facts("claude-opus-4-5", config, backend="anthropic").prices == facts("claude-opus-4-5", config).prices


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        ("[model.m]\ncontext_window = 100_000\nmax_output = 8_000\n", 92_000),
        ("[model.m]\ncontext_window = 100_000\nmax_output = 64_000\n", 80_000),
        ("[model.m]\ncontext_window = 10_000\n", 0),
    ],
)
def test_the_usable_part_of_a_window_leaves_room_for_the_answer(tmp_path: Path, text: str, usable: int) -> None:
    assert facts("m", config_of(tmp_path, text)).usable() == usable


# The catalogue

LITELLM = {
    "sample_spec": {"mode": "one of chat, embedding"},
    "opus-9": {"litellm_provider": "anthropic", "mode": "chat", "max_input_tokens": 1000,
               "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6,
               "supports_vision": True, "supports_function_calling": True},
    "groq/llama-9": {"litellm_provider": "groq", "mode": "chat", "max_input_tokens": 8000, "max_output_tokens": 500},
    "llama-9": {"litellm_provider": "deepseek", "mode": "chat", "max_input_tokens": 64_000},
    "deepseek/llama-9": {"litellm_provider": "deepseek", "mode": "chat", "max_input_tokens": "many",
                         "input_cost_per_token": 5e-7, "output_cost_per_token": 1.5e-6, "supports_reasoning": True},
    "ada": {"litellm_provider": "openai", "mode": "embedding", "max_input_tokens": 8000},
    "elsewhere/x": {"litellm_provider": "elsewhere", "mode": "chat", "max_input_tokens": 8000},
    "broken": "no table",
}  # fmt: skip


def test_other_providers_models_are_known_too(tmp_path: Path) -> None:
    known = facts("gpt-5", config_of(tmp_path), backend="openai")
    assert known.window_known and known.output_known and known.prices is not None
    assert {"tools", "images", "thinking"} <= set(known.abilities)
    assert words(known.to_wire()).startswith("272k context, $1.25 in, $10 out, tools")
    assert words(facts("qwen3", config_of(tmp_path)).to_wire()) == ""


def test_a_catalogue_is_made_of_the_table_of_litellm() -> None:
    assert catalogue_of(json.dumps(LITELLM)) == {
        "groq/llama-9": {"context_window": 8000, "max_output": 500, "provider": "groq"},
        "llama-9": {"input": 0.5, "output": 1.5, "abilities": ["thinking"], "provider": "deepseek"},
        "opus-9": {
            "context_window": 1000,
            "input": 1.0,
            "output": 2.0,
            "abilities": ["tools", "images"],
            "provider": "anthropic",
        },
    }
    for wrong in ("[]", "{}", "<html>", "[" * 100_000):
        with pytest.raises(ConfigError, match="not a table of models"):
            catalogue_of(wrong)


def test_a_person_renews_the_catalogue_and_it_wins_over_what_is_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, own = tmp_path / "table.json", tmp_path / "own"
    own.mkdir()
    table.write_text(json.dumps(LITELLM))
    monkeypatch.setenv("PYAGENTD_CONFIG", str(own / "config.toml"))
    assert main(["models", "--catalogue", str(table)]) == 0
    assert "catalogue.json knows 3 models now" in capsys.readouterr().out
    assert main(["models", "--catalogue", str(table), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(own / "catalogue.json"), "models": 3}
    config = config_of(own, '[model."opus-9"]\nmax_output = 7\n')
    mine = facts("opus-9", config)
    assert (mine.context_window, mine.max_output) == (1000, 7)
    assert facts("llama-9", config, backend="groq").context_window == 8000  # who sells it says what it can
    assert facts("llama-9", config).prices is not None
    assert facts("gpt-5", config).window_known  # what it does not know is known from elsewhere


def test_a_catalogue_that_cannot_be_read_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYAGENTD_CONFIG", str(tmp_path / "config.toml"))
    for source in (str(tmp_path / "absent"), "http://127.0.0.1:1/table.json"):
        assert main(["models", "--catalogue", source]) != 0
        assert "Nothing has changed" in capsys.readouterr().err
    assert not (tmp_path / "catalogue.json").exists()
    (tmp_path / "catalogue.json").write_text("{")  # broken by hand
    assert facts("gpt-5", config_of(tmp_path)).window_known


def test_a_model_of_the_catalogue_that_somebody_edited_to_nonsense_is_as_shipped(tmp_path: Path) -> None:
    edited = {"gpt-5": {"context_window": "400k"}, "gpt-5-mini": {"abilities": 3}, "mine": {"context_window": 9}}
    (tmp_path / "catalogue.json").write_text(json.dumps(edited))
    config = config_of(tmp_path)
    assert facts("gpt-5", config).usable() > 200_000 and facts("gpt-5-mini", config).abilities
    assert facts("mine", config).context_window == 9
