"""The project's backends answer missions, with tokens, cost and errors that have a name."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pyagentd.config import Config, load_config
from pyagentd.errors import ContextOverflow, ProviderError, TransientProviderError, UserError
from pyagentd.llm.anthropic import AnthropicBackend, server
from pyagentd.llm.backend import Backend
from pyagentd.llm.factory import BackendSettings, close_backends
from pyagentd.messages import Usage
from pyagentd.mission import LLMError, Model, ModelNotFound, adelegate, configure, cost_of, models, priced
from pyagentd.mission.options import Request
from pyagentd.mission.registry import models_from_config, resolve
from tests.server import ModelServer, refusal

SONNET = "claude-sonnet-4-5"


def asked(text: str = "hi", **more: Any) -> Request:
    request: Request = {
        "system": "be brief",
        "messages": [{"role": "user", "content": text}],
        "turn": 1,
        "prompt": text,
        "tool_names": [],
        "llm_opts": {},
    }
    return {**request, **more}  # type: ignore[typeddict-item]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    return load_config()


@pytest_asyncio.fixture
async def backend(model_server: ModelServer) -> AsyncIterator[Backend]:
    made = AnthropicBackend(server(api_key="k", base_url=model_server.url, timeout_s=10))
    yield made
    await made.close()


async def test_text_tokens_and_cost_come_back(model_server: ModelServer, backend: Backend, config: Config) -> None:
    model_server.say("(+ 1 2)")
    answer = await models.ask(backend, SONNET, asked(), config=config)
    assert answer["content"] == "(+ 1 2)"
    assert answer["tokens"]["input"] > 0 and answer["tokens"]["output"] > 0
    assert answer["cost_usd"] == cost_of(SONNET, answer["tokens"], config)


async def test_the_region_of_a_cloud_counts_for_missions_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text('[backend.bedrock]\nkind = "bedrock"\nregion = "eu-west-1"\n')
    config = load_config({"PYAGENTD_CONFIG": str(tmp_path / "config.toml")})
    made: list[BackendSettings] = []

    def make(name: str, settings: BackendSettings) -> Backend:
        made.append(settings)
        raise UserError("enough")

    monkeypatch.setattr(models, "make_backend", make)
    with pytest.raises(LLMError, match="enough"):
        await Model("claude-haiku-4-5", backend="bedrock", config=config).ask(asked())
    assert made[0].region == "eu-west-1"


async def test_the_request_is_what_the_mission_asks(model_server: ModelServer, backend: Backend) -> None:
    model_server.say("ok")
    await models.ask(backend, SONNET, asked("how much?"), {"max_tokens": 77, "temperature": 0.5})
    body = model_server.requests[0].body
    assert body["model"] == SONNET and body["max_tokens"] == 77 and body["temperature"] == 0.5
    assert "be brief" in str(body["system"]) and "how much?" in str(body["messages"])
    assert "tools" not in body or not body["tools"]


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (429, "rate_limit_error", "rate_limit"),
        (529, "overloaded_error", "server_error"),
        (500, "api_error", "server_error"),
        (401, "authentication_error", "client_error"),
        (400, "invalid_request_error", "client_error"),
    ],
)
async def test_a_refusal_has_the_name_of_its_class(
    model_server: ModelServer, backend: Backend, status: int, kind: str, reason: str
) -> None:
    model_server.say(refusal(status, kind, "No"))
    with pytest.raises(LLMError) as caught:
        await models.ask(backend, SONNET, asked())
    assert caught.value.reason == reason
    assert caught.value.final is (reason == "client_error")
    assert len(model_server.requests) == 1, "repeating is the mission's"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TransientProviderError("The model's server could not be reached in time"), "timeout"),
        (TransientProviderError("The model's server went silent"), "timeout"),
        (TransientProviderError("The connection broke off"), "server_error"),
        (ProviderError("No"), "client_error"),
        (ContextOverflow("Too long"), "client_error"),
    ],
)
def test_the_class_of_an_error_is_read_off_it(error: ProviderError, reason: str) -> None:
    assert models.error_class(error) == reason


def test_a_model_is_a_synchronous_callback(config: Config) -> None:
    answer = Model("offline-model", backend="offline", config=config)(asked("hello"))
    assert answer["content"] and answer["tokens"]["output"] > 0


def test_what_the_offline_backend_says_costs_nothing_whatever_model_it_is_called(config: Config) -> None:
    assert Model(SONNET, backend="offline", config=config)(asked("hello"))["cost_usd"] == 0


async def test_a_model_can_be_awaited(config: Config) -> None:
    answer = await Model("offline-model", backend="offline", config=config).ask(asked("hello"))
    assert answer["content"]
    await close_backends()


def test_without_a_key_the_error_says_so(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(LLMError, match="No API key") as caught:
        Model(SONNET, config=config)(asked())
    assert caught.value.reason == "config_error"


def test_a_model_shows_no_configuration(config: Config) -> None:
    assert repr(Model("m", config=config)).startswith("Model(model='m', backend='anthropic'")
    assert "config" not in repr(Model("m", config=config))


def test_prices_are_those_of_the_catalog(config: Config) -> None:
    cost = cost_of(SONNET, Usage(input=1_000_000, output=1_000_000), config)
    assert cost is not None and cost > 1
    assert cost_of(SONNET, {"input": 500_000, "output": 500_000}, config) == pytest.approx(cost / 2, rel=0.6)
    assert cost_of("nobody-knows-this-one", {"input": 1}, config) is None


@pytest.mark.spec("004", "Cost Budget Option")
def test_a_callback_that_reports_tokens_gets_a_price(config: Config) -> None:
    def llm(request: Request) -> Any:
        return {"content": "x", "tokens": {"input": 1000, "output": 1000}}

    assert priced(llm, SONNET, config)(asked())["cost_usd"] == cost_of(
        SONNET, {"input": 1000, "output": 1000}, config
    )
    assert "cost_usd" not in priced(llm, "nobody-knows-this-one", config)(asked())
    assert priced(lambda request: "text", SONNET, config)(asked()) == "text"
    assert priced(lambda request: {"content": "x", "cost_usd": 1.0}, SONNET, config)(asked())["cost_usd"] == 1.0


def callback(request: Request) -> str:
    return "ok"


@pytest.mark.spec("004", "LLM Registry")
@pytest.mark.parametrize(
    ("llm", "models", "expected"),
    [
        (callback, {}, callback),
        ("haiku", {"haiku": callback}, callback),
        ("cheap", {"cheap": "haiku", "haiku": callback}, callback),
        ("caller", {}, callback),
        ("caller", {"caller": len}, len),
        ("haiku", {"haiku": "claude-haiku-4-5"}, Model("claude-haiku-4-5")),
        (
            "haiku",
            {"haiku": {"model": "claude-haiku-4-5", "max_tokens": 1000}},
            Model("claude-haiku-4-5", max_tokens=1000),
        ),
        ({"model": "m", "backend": "offline"}, {}, Model("m", backend="offline")),
    ],
)
def test_a_name_stands_for_what_the_registry_says(llm: Any, models: dict[str, Any], expected: Any) -> None:
    assert resolve(llm, models, caller=callback) == expected


@pytest.mark.spec("004", "Error reason model_not_found")
@pytest.mark.parametrize(
    ("llm", "models", "said"),
    [
        ("haiku", {}, 'No model is registered as "haiku"; known: none'),
        ("haku", {"haiku": callback}, 'did you mean "haiku"'),
        ("a", {"a": "b", "b": "a"}, "stands for itself"),
        ("caller", {}, "no mission is calling"),
    ],
)
def test_a_name_nobody_registered_is_told(llm: str, models: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelNotFound, match=said) as caught:
        resolve(llm, models)
    assert caught.value.reason == "model_not_found"


@pytest.mark.parametrize("llm", [3, None, {"backend": "offline"}, {"model": "m", "key": "sk-1"}])
def test_what_is_no_model_is_refused(llm: Any) -> None:
    with pytest.raises(UserError):
        resolve(llm)


def test_a_registry_for_the_process_stands_behind_the_missions_own() -> None:
    try:
        configure({"haiku": callback, "other": len})
        assert resolve("haiku") is callback
        assert resolve("haiku", {"haiku": len}) is len
    finally:
        configure({})
    with pytest.raises(ModelNotFound):
        resolve("haiku")


def test_the_configuration_names_models(config: Config) -> None:
    haiku = replace(config.backends["anthropic"], name="haiku", model="claude-haiku-4-5")
    told = replace(config, backends={**config.backends, "haiku": haiku})
    assert models_from_config(told) == {"haiku": Model("claude-haiku-4-5", backend="haiku")}


@pytest_asyncio.fixture
async def served(model_server: ModelServer, config: Config, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Model]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    there = replace(config.backends["anthropic"], base_url=model_server.url)
    yield Model(SONNET, config=replace(config, backends={"anthropic": there}))


@pytest.mark.spec("004", "Cost Budget Option")
async def test_a_mission_over_the_network_says_what_it_cost(model_server: ModelServer, served: Model) -> None:
    model_server.say("I would (guess) so.", '```clojure\n(call "return" {:sum (+ ctx/a 2)})\n```')
    step = await adelegate("Add", llm=served, signature="(a :int) -> {sum :int}", context={"a": 1})
    assert step.value == {"sum": 3}, step.fail
    assert step.usage.cost_usd > 0 and step.usage.total_tokens > 0 and step.usage.llm_requests == 2
    assert step.usage.cost_usd == pytest.approx(sum(turn.usage.cost_usd for turn in step.trace))
    model_server.say("(memory/put :a 1)", '(call "return" 1)')
    step = await adelegate("Add", llm=served, max_cost_usd=0.000001)
    assert step.fail is not None and step.fail.reason == "max_cost_exceeded", step


async def test_what_fails_for_now_is_tried_again_and_no_more_often_than_asked(
    model_server: ModelServer, served: Model
) -> None:
    busy = refusal(529, "overloaded_error", "Overloaded")
    model_server.say(busy, '(call "return" 1)')
    step = await adelegate("Go", llm=served, llm_retry={"base_ms": 0})
    assert step.value == 1 and step.usage.llm_requests == 2
    model_server.say(refusal(400, "invalid_request_error", "No"), '(call "return" 1)')
    step = await adelegate("Go", llm=served, llm_retry={"base_ms": 0})
    assert step.fail is not None and step.fail.reason == "llm_error" and "No" in step.fail.message
