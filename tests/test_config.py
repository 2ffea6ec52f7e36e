"""Where a configured value comes from, and what a wrong one says."""

import os
from pathlib import Path

import pytest

from pyagentd.config import BUILTIN_PROFILES, Config, ProfileSettings, Setting, load_config, runtime_dir, sessions_dir
from pyagentd.config.loading import check_config, read_toml
from pyagentd.config.tables import CompactionSettings
from pyagentd.errors import ConfigError
from pyagentd.policy.profiles import BUILTIN


def config_of(tmp_path: Path, text: str = "", **env: str) -> Config:
    file = tmp_path / "config.toml"
    if text:
        file.write_text(text, encoding="utf-8")
    return load_config({"PYAGENTD_CONFIG": str(file), **env})


def test_without_a_file_everything_has_a_default(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    assert config.log.level == "info"
    assert config.backend_override is None
    assert config.presets_dir == tmp_path / "presets"
    assert set(config.backends) == {"anthropic", "offline"}
    assert config.backends["anthropic"].key_env == "ANTHROPIC_API_KEY"
    assert all(setting.source == "default" for name, setting in config.settings.items() if name != "runtime_dir")


def test_sessions_dir_is_overridden_by_the_environment() -> None:
    assert sessions_dir({}) == Path.home() / ".gptel" / "sessions"
    assert sessions_dir({"PYAGENTD_SESSIONS_DIR": "~/elsewhere"}) == Path.home() / "elsewhere"
    with pytest.raises(ConfigError, match="home of a user who is not there"):
        sessions_dir({"PYAGENTD_SESSIONS_DIR": "~no-such-user/x"})


@pytest.mark.parametrize("table", ['[presets]\ndir = "a\\u0000b"', '[skills]\npaths = [\n"a\\u0000b"]'])
def test_a_path_with_a_zero_byte_is_told_with_its_line(tmp_path: Path, table: str) -> None:
    (tmp_path / "config.toml").write_text(table)
    with pytest.raises(ConfigError, match=r"config\.toml:\d+: .*zero byte"):
        load_config({"PYAGENTD_CONFIG": str(tmp_path / "config.toml")})


def test_agents_of_sessions_elsewhere_are_in_no_directory_that_others_share(tmp_path: Path) -> None:
    assert config_of(tmp_path).agents_dir == Path.home() / ".gptel" / "agents"
    assert config_of(tmp_path, PYAGENTD_SESSIONS_DIR="/tmp/mine").agents_dir == Path("/tmp/mine-agents")
    named = config_of(tmp_path, PYAGENTD_SESSIONS_DIR="/tmp/mine", PYAGENTD_AGENTS_DIR="/tmp/named")
    assert named.agents_dir == Path("/tmp/named")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"PYAGENTD_RUNTIME_DIR": "/r", "XDG_RUNTIME_DIR": "/x"}, Path("/r")),
        ({"XDG_RUNTIME_DIR": "/x", "XDG_STATE_HOME": "/s"}, Path("/x/pyagentd")),
        ({"XDG_STATE_HOME": "/s"}, Path("/s/pyagentd/run")),
        ({}, Path.home() / ".local/state/pyagentd/run"),
    ],
)
def test_runtime_dir_prefers_the_more_specific_variable(env: dict[str, str], expected: Path) -> None:
    assert runtime_dir(env) == expected


def test_environment_beats_file_and_file_beats_default_each_naming_itself(tmp_path: Path) -> None:
    text = '[log]\nlevel = "debug"\n\n[presets]\ndir = "mine"\n'
    config = config_of(tmp_path, text, PYAGENTD_LOG_LEVEL="error")
    assert config.log.level == "error"
    assert config.settings["log.level"].source == "environment PYAGENTD_LOG_LEVEL"
    assert config.presets_dir == tmp_path / "mine"
    assert config.settings["presets.dir"].source == f"{tmp_path}/config.toml:5"


def test_a_default_backend_must_be_one_that_is_there(tmp_path: Path) -> None:
    text = '[backend.local]\nkind = "anthropic"\nmodel = "qwen3"\n[default]\nbackend = "{}"\n'
    assert config_of(tmp_path, text.format("local")).default.backend == "local"
    assert config_of(tmp_path, text.format("Claude")).default.backend == "Claude"
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, text.format("lokal"))
    assert "config.toml:5" in str(caught.value) and "local" in str(caught.value)


def test_an_unknown_backend_says_when_the_file_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, "").backend("local")
    assert "[backend.local]" in str(caught.value) and "pyagentd stop" in str(caught.value)


def test_a_backend_of_the_file_is_added_to_the_built_in_ones(tmp_path: Path) -> None:
    text = '[backend.local]\nkind = "anthropic"\nbase_url = "http://127.0.0.1:1"\nkey_env = "K"\nmodel = "qwen3"\n'
    local = config_of(tmp_path, text).backend("local")
    assert (local.kind, local.base_url, local.key_env, local.model) == (
        "anthropic",
        "http://127.0.0.1:1",
        "K",
        "qwen3",
    )


def test_anthropic_base_url_redirects_anthropic_but_no_backend_with_an_address_of_its_own(tmp_path: Path) -> None:
    text = '[backend.local]\nkind = "anthropic"\nbase_url = "http://127.0.0.1:1"\n'
    config = config_of(tmp_path, text, ANTHROPIC_BASE_URL="http://127.0.0.1:2")
    assert config.backend("anthropic").base_url == "http://127.0.0.1:2"
    assert config.backend("local").base_url == "http://127.0.0.1:1"
    assert config.settings["backend.anthropic.base_url"].source == "environment ANTHROPIC_BASE_URL"


def test_the_environment_sent_with_a_prompt_counts_for_that_backend(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    assert config.backend("anthropic").base_url is None
    assert config.backend("anthropic", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:3"}).base_url == "http://127.0.0.1:3"


def test_a_preset_may_call_anthropic_what_gptel_calls_it(tmp_path: Path) -> None:
    assert config_of(tmp_path).backend("Claude").name == "anthropic"
    assert config_of(tmp_path).backend("Anthropic").name == "anthropic"
    mine = config_of(tmp_path, '[backend.Claude]\nkind = "offline"\n')
    assert mine.backend("Claude").kind == "offline"


def test_an_unknown_backend_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'olama'; known: anthropic, bedrock, .* mine, .* ollama"):
        config_of(tmp_path, '[backend.mine]\nkind = "offline"\n').backend("olama")
    with pytest.raises(ConfigError, match=r"'olama'; known: anthropic, .* ollama"):
        config_of(tmp_path, '[default]\nbackend = "olama"\n')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[log]\nlevel = "info"\nlevel = \n', ":3: "),
        ('\n[log]\nlevel = "loud"\n', ":3: `log.level` is 'loud'. It should be one of debug"),
        ("[log]\nlevel = 3\n", ":2: `log.level` is 3."),
        ('[presets]\ndir = "~no-such-user/x"\n', ":2: `presets.dir`: '~no-such-user/x' begins with the home"),
        ('[skills]\npaths = ["~no-such-user"]\n', ":2: `skills.paths`: '~no-such-user' begins with the home of a"),
        ('[logs]\nlevel = "info"\n', ":1: unknown key `logs`. Did you mean `log`?"),
        ('[log]\ncolour = "red"\n', ":2: unknown key `colour` in `log`. Known: level"),
        ("log = 3\n", ":1: `log` is 3. It should be keys and values"),
        ('[backend.x]\nbase_url = "u"\n', ":1: `backend.x.kind` is missing. It should be one of anthropic, offline"),
        ('[backend.x]\nkind = "gpt"\n', ":2: `backend.x.kind` is 'gpt'. It should be one of anthropic, offline"),
        (
            '[backend.x]\nkind = "offline"\nkey = "sk"\n',
            ":3: unknown key `key` in `backend.x`. Did you mean `key_env`?",
        ),
        ('\nbackend.x.kid = "a"\n', ":2: unknown key `kid` in `backend.x`. Did you mean `kind`?"),
        ('\nbackend.x.model = "a"\n', ":2: `backend.x.kind` is missing"),
        (
            '[hooks]\ntool.before = [\n  {command = ["x"]},\n  {command = ["x"], timout = 3},\n]\n',
            ":4: unknown key `timout` in `hooks.tool.before[2]`. Did you mean `timeout`?",
        ),
        ("[backend]\nx = 1\n", ":2: `backend.x` is 1. It should be keys and values"),
        ('[profile.p]\nallow = ["tool:("]\n', ":2: `profile.p.allow`: 'tool:(' is not a regular expression"),
        ('[profile.p]\nask = []\nallow = [\n  "tool:x",\n  "tool:[",\n]\n', ":5: `profile.p.allow`: 'tool:[' is no"),
        ('[profile.p]\nallow = ["tool:\\\\d:(",\n]\n', r":2: `profile.p.allow`: 'tool:\\d:(' is no"),
        ('[profile.p]\nallow = "tool:x"\n', ":2: `profile.p.allow` is 'tool:x'. It should be a list of texts"),
        ("[profile.p]\nallow = [1]\n", ":2: `profile.p.allow`: entry 1 is 1. It should be a list of texts"),
        ('[profile.p]\ndeny = ["tool:x"]\n', ":2: unknown key `deny` in `profile.p`. Known: allow, ask"),
        ('[profile.locked]\nallow = ["tool:x"]\n', ":1: `profile.locked`: the profile locked is built in"),
        ("[profile]\np = 1\n", ":2: `profile.p` is 1. It should be keys and values"),
        ('[profile."a.b"]\nallow = []\n', "'a.b' is not a name of a profile"),
        ("[model.m]\nwindow = 1\n", ":2: unknown key `window` in `model.m`. Did you mean `context_window`?"),
        (
            '[model."a.b:7"]\n\ninput = "1"\noutput = 1\n',
            ":3: `model.a.b:7.input` is '1'. It should be a number from 0",
        ),
        ("[model.m]\ninput = -1\noutput = 2\n", ":2: `model.m.input` is -1. It should be a number from 0"),
        ("[model.m]\ninput = nan\noutput = 2\n", ":2: `model.m.input` is nan. It should be a number from 0"),
        (
            "[model.m]\nmax_output = 0\n",
            ":2: `model.m.max_output` is 0. It should be a whole number of tokens above 0",
        ),
        ("[model.m]\ncontext_window = true\n", ":2: `model.m.context_window` is true. It should be a whole number"),
        ("[model.m]\ninput = 3\n", ":1: `model.m`: there is a price for one of input and output only. Give both"),
        ("[model]\nm = 3\n", ":2: `model.m` is 3. It should be keys and values"),
        ("[log]\nlevel = debug\n", ":2: Invalid value. Write a text in quotation marks"),
        ("[log]\nlevel = 'info'\nx", ":3: Expected '=' after a key in a key/value pair"),
    ],
)
def test_a_wrong_file_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, text)
    assert str(tmp_path / "config.toml") in str(caught.value)
    assert message in str(caught.value)


def test_a_file_that_cannot_be_read_is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b"[log]\n# M\xfcller\n")
    with pytest.raises(ConfigError, match=r"config.toml:2: this is not UTF-8. Save the file in UTF-8"):
        load_config({"PYAGENTD_CONFIG": str(file)})
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigError) as caught:
        load_config({"PYAGENTD_CONFIG": str(file)})
    assert str(caught.value) == f"{file}: cannot be read (Is a directory)"


def test_an_impossible_variable_is_reported_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"environment PYAGENTD_LOG_LEVEL: `log\.level` is 'loud'"):
        config_of(tmp_path, PYAGENTD_LOG_LEVEL="loud")
    for variable in ("PYAGENTD_LOG_LEVEL", "PYAGENTD_TITLES", "PYAGENTD_CONFINEMENT", "PYAGENTD_SESSIONS_DIR"):
        with pytest.raises(ConfigError, match=rf"environment {variable}: .*/x\\udcff"):
            config_of(tmp_path, **{variable: os.fsdecode(b"/x\xff")})


def test_a_client_without_an_address_does_not_inherit_the_one_the_daemon_was_started_with(tmp_path: Path) -> None:
    config = config_of(tmp_path, "", ANTHROPIC_BASE_URL="http://127.0.0.1:2")
    assert config.backend("anthropic").base_url == "http://127.0.0.1:2"
    assert config.backend("anthropic", {"PATH": "/bin"}).base_url is None


def test_titles_are_made_unless_file_or_environment_say_otherwise(tmp_path: Path) -> None:
    assert config_of(tmp_path).titles.enabled is True
    configured = config_of(tmp_path, '[titles]\nenabled = false\nmodel = "small"\n')
    assert (configured.titles.enabled, configured.titles.model) == (False, "small")
    assert configured.settings["titles.enabled"].source.endswith("config.toml:2")
    overridden = config_of(tmp_path, "[titles]\nenabled = false\n", PYAGENTD_TITLES="on")
    assert (overridden.titles.enabled, overridden.titles.model) == (True, "")
    assert overridden.settings["titles.enabled"].source == "environment PYAGENTD_TITLES"


def test_confinement_is_tried_unless_file_or_environment_say_otherwise(tmp_path: Path) -> None:
    assert config_of(tmp_path).shell.confinement == "auto"
    assert config_of(tmp_path, '[shell]\nconfinement = "landlock"\n').shell.confinement == "landlock"
    assert (
        config_of(tmp_path, '[shell]\nconfinement = "landlock"\n', PYAGENTD_CONFINEMENT="off").shell.confinement
        == "off"
    )
    with pytest.raises(
        ConfigError, match=r"config.toml:2: `shell.confinement` is 'jail'. It should be one of auto, bubblewrap"
    ):
        config_of(tmp_path, '[shell]\nconfinement = "jail"\n')


def test_a_value_is_shown_under_the_key_it_is_written_with(tmp_path: Path) -> None:
    shown = config_of(tmp_path, "[telemetry]\ninterval = 5\n").settings
    assert shown["telemetry.interval"] == Setting("5.0", f"{tmp_path / 'config.toml'}:2")
    assert "telemetry.interval_s" not in shown


def test_one_setting_turns_off_all_that_asks_a_model_unasked(tmp_path: Path) -> None:
    assert config_of(tmp_path).privacy.extra_requests is True
    quiet = config_of(tmp_path, "[privacy]\nextra_requests = false\n[titles]\nenabled = true\n")
    assert (quiet.privacy.extra_requests, quiet.titles.enabled, quiet.compaction.auto) == (False, False, False)
    for name in ("privacy.extra_requests", "titles.enabled", "compaction.auto"):
        assert quiet.settings[name].source.endswith("config.toml:2")
    assert config_of(tmp_path, PYAGENTD_EXTRA_REQUESTS="off").titles.enabled is False
    with pytest.raises(ConfigError, match="PYAGENTD_EXTRA_REQUESTS"):
        config_of(tmp_path, PYAGENTD_EXTRA_REQUESTS="perhaps")


@pytest.mark.parametrize(("text", "env"), [('[titles]\nenabled = "no"\n', {}), ("", {"PYAGENTD_TITLES": "perhaps"})])
def test_a_switch_that_is_neither_on_nor_off_is_an_error(tmp_path: Path, text: str, env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"config.toml:2: `titles.enabled`|PYAGENTD_TITLES"):
        config_of(tmp_path, text, **env)


def test_a_profile_of_the_file_is_known_by_its_name_and_says_where_it_is_from(tmp_path: Path) -> None:
    text = "[profile.docs]\nallow = [\"tool:view:.*\", 'tool:create_file:docs/\\w+']\n\n[profile.none]\n"
    config = config_of(tmp_path, text)
    assert config.profiles["docs"] == ProfileSettings(allow=("tool:view:.*", r"tool:create_file:docs/\w+"))
    assert config.profiles["none"] == ProfileSettings()
    assert config.settings["profile.docs.allow"].source == f"{tmp_path}/config.toml:2"
    (tmp_path / "config.toml").unlink()
    assert config_of(tmp_path).profiles == {}


def test_the_names_of_built_in_profiles_are_known_here_too() -> None:
    assert set(BUILTIN_PROFILES) == set(BUILTIN)


def test_compaction_has_defaults_and_is_configured_key_by_key(tmp_path: Path) -> None:
    assert config_of(tmp_path).compaction == CompactionSettings()
    config = config_of(tmp_path, '[compaction]\nmodel = "small"\ntail_budget_pct = 0.5\nauto = false\n')
    assert config.compaction == CompactionSettings(model="small", tail_budget_pct=0.5, auto=False)
    assert config.settings["compaction.auto"] == Setting("false", f"{config.file}:4")
    assert config.settings["compaction.tail_turns"] == Setting("2", "default")


@pytest.mark.parametrize(
    "line", ["auto = 1", "tail_turns = 0", "tail_turns = true", "tail_budget_pct = 1.0", "turns = 2"]
)
def test_an_impossible_value_of_compaction_is_reported_with_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=r"config.toml:2: "):
        config_of(tmp_path, f"[compaction]\n{line}\n")


def test_the_file_in_the_documentation_can_be_read() -> None:
    page = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text("utf-8").partition("\n| variable")[0]
    example = "\n".join(line[4:] for line in page.splitlines() if line.startswith("    "))
    check_config(read_toml(Path("config.toml"), example))


@pytest.mark.parametrize("address", ["http://[", "http://", "https:///x", "ftp://x", "http://host:port/", "x"])
def test_what_is_no_address_is_reported_with_its_line(tmp_path: Path, address: str) -> None:
    for table in ("telemetry]\nendpoint", "web]\nsearch_url"):
        with pytest.raises(ConfigError, match=r"config.toml:2: .* It should be an address"):
            config_of(tmp_path, f'[{table} = "{address}"\n')
    (problem,) = config_of(tmp_path, f'[mcp.x]\nurl = "{address}"\n').mcp_problems  # the others can be used
    assert "config.toml:2: " in problem and "It should be an address" in problem


@pytest.mark.parametrize("address", ["https://x.example/y", "http://[::1]:80/", "http://${HOST}:${PORT}/", "${ALL}"])
def test_variables_may_stand_in_the_address_of_a_server(tmp_path: Path, address: str) -> None:
    (server,) = config_of(tmp_path, f'[mcp.x]\nurl = "{address}"\n').mcp
    assert server.url == address


@pytest.mark.parametrize("address", ["", "${ALL}", "https://${HOST}:${PORT}/"])
def test_variables_stand_in_no_other_address(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="search_url"):
        config_of(tmp_path, f'[web]\nsearch = "searxng"\nsearch_url = "{address}"\n')
