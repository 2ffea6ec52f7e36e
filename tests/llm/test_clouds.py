"""Credentials, regions and projects of Bedrock and Vertex."""

import os

import pytest

from pyagentd.config import load_config
from pyagentd.errors import ConfigError, NoKey
from pyagentd.llm.factory import BackendSettings, close_backends, make_backend
from tests.llm.requests import collect, request, said
from tests.server import ModelServer

pytest.importorskip("boto3")
pytest.importorskip("google.auth")

NOTHING = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    "AWS_CONFIG_FILE": "/nonexistent",
    "GOOGLE_APPLICATION_CREDENTIALS": "/nonexistent",
}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "CLOUD_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    for name, value in NOTHING.items():
        monkeypatch.setenv(name, value)


async def ask(kind: str, server: ModelServer, **given: str) -> str:
    try:
        backend = make_backend("x", BackendSettings(kind=kind, base_url=server.url, **given))  # type: ignore[arg-type]
        return said(await collect(backend, request()))
    finally:
        await close_backends()


async def test_aws_credentials_sign_the_request(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    assert await ask("bedrock", model_server, region="eu-west-1") == "ok"
    signed = model_server.last.headers["authorization"]
    assert signed.startswith("AWS4-HMAC-SHA256 Credential=AKIATEST/") and "/eu-west-1/bedrock/" in signed
    assert "not-a-secret" not in str(model_server.last)


async def test_a_token_is_sent_as_it_is(model_server: ModelServer) -> None:
    for kind, given in (("bedrock", {"region": "eu-west-1"}), ("vertex", {"project": "p"})):
        assert await ask(kind, model_server, api_key="token", **given) == "ok"
        assert model_server.last.headers["authorization"] == "Bearer token"


@pytest.mark.parametrize(
    ("kind", "given", "hint"),
    [("bedrock", {"region": "eu-west-2"}, "aws configure"), ("vertex", {"project": "p"}, "gcloud auth")],
)
async def test_without_credentials_it_says_how_to_get_some(
    kind: str, given: dict[str, str], hint: str, model_server: ModelServer
) -> None:
    with pytest.raises(NoKey, match="No credentials") as caught:
        await ask(kind, model_server, **given)
    assert hint in caught.value.hint and not model_server.requests


@pytest.mark.parametrize(("kind", "missing"), [("bedrock", "region ="), ("vertex", "project =")])
async def test_what_a_cloud_must_know_is_said(kind: str, missing: str, model_server: ModelServer) -> None:
    with pytest.raises(ConfigError) as caught:
        await ask(kind, model_server, api_key="token")
    assert missing in caught.value.hint


def test_their_names_need_no_configuration_and_no_key() -> None:
    config = load_config({})
    bedrock, vertex = config.backend("bedrock"), config.backend("Vertex")
    assert (bedrock.kind, bedrock.key_env, bedrock.needs_key) == ("bedrock", "AWS_BEARER_TOKEN_BEDROCK", False)
    assert (vertex.kind, vertex.key_env, vertex.needs_key) == ("vertex", None, False)
