"""Spans and numbers as a collector gets them: an OTLP receiver in this process, and a daemon that sends to it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from gzip import decompress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.server import ModelServer
from tests.server.answers import answer, refusal, tool_use

trace = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
metrics = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")

SECRET = "sk-ant-abcdefghijklmnopqrstuvwxyz"


class Collector(ThreadingHTTPServer):
    """Keeps what OTLP over HTTP brings."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receive)
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.services: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def named(self, name: str) -> list[Any]:
        return [span for span in list(self.spans) if span.name == name]

    def one(self, name: str) -> Any:
        (span,) = self.named(name)
        return span

    def runs(self) -> int:
        """How many runs the newest numbers count."""
        if "pyagentd.runs" not in self.metrics:
            return 0
        return sum(int(point.as_int or point.as_double) for point in self.metrics["pyagentd.runs"].sum.data_points)


class _Receive(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        data = decompress(data) if self.headers.get("content-encoding") == "gzip" else data
        if self.path == "/v1/traces":
            for resource in trace.ExportTraceServiceRequest.FromString(data).resource_spans:
                self.server.services.add(attributes(resource.resource)["service.name"])
                for scope in resource.scope_spans:
                    self.server.spans += scope.spans
        elif self.path == "/v1/metrics":
            for resource in metrics.ExportMetricsServiceRequest.FromString(data).resource_metrics:
                for scope in resource.scope_metrics:
                    self.server.metrics |= {metric.name: metric for metric in scope.metrics}
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def is_below(below: Any, above: Any) -> bool:
    return below.parent_span_id == above.span_id and below.trace_id == above.trace_id


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def sending(system: System, model_server: ModelServer, collector: Collector) -> System:
    system.use_server(model_server.url)
    system.env |= {"OTEL_BSP_SCHEDULE_DELAY": "200"}
    configure(system, collector)
    return system


def configure(system: System, collector: Collector, more: str = "") -> None:
    (system.home / "config.toml").write_text(
        f'[telemetry]\nenabled = true\nendpoint = "{collector.url}"\ninterval = 0.3\n{more}'
    )


def ask(system: System, prompt: str, *more: str) -> str:
    session, _ = system.new("watched", preset="build")
    system.ok("send", session, prompt, "--allow", "tool:.*", *more)
    return session


def test_a_trace_leads_from_the_session_to_the_tools_of_its_agents(
    sending: System, model_server: ModelServer, collector: Collector
) -> None:
    (sending.project / "a.md").write_text("one\n")
    read = tool_use("Read", file_path=str(sending.project / "a.md"))
    spawn = tool_use("PersistentAgent", preset="explorer", description="look", prompt="Look.")
    model_server.say(refusal(529), answer(spawn), answer(read), "It says one.", "Done.")
    session = ask(sending, "Look, somebody.")
    wait_for(lambda: collector.named("session"), "the trace")
    root, agent = collector.one("session"), collector.one("execute_tool PersistentAgent")
    outer, inner = collector.one("invoke_agent build"), collector.one("invoke_agent explorer")
    tool = collector.one("execute_tool Read")
    assert not root.parent_span_id and is_below(outer, root) and is_below(agent, outer) and is_below(inner, agent)
    assert is_below(tool, inner)
    chats = [span for span in collector.spans if span.name.startswith("chat ")]
    assert sorted(is_below(span, outer) for span in chats) == [False, False, True, True]
    assert all(is_below(span, outer) or is_below(span, inner) for span in chats)
    assert attributes(outer)["gen_ai.conversation.id"] == session and attributes(outer)["pyagentd.outcome"] == "done"
    assert {attributes(span)["gen_ai.provider.name"] for span in chats} == {"anthropic"}
    assert all(attributes(span)["gen_ai.usage.input_tokens"] > 0 for span in chats)
    first = min(chats, key=lambda span: span.start_time_unix_nano)
    assert [event.name for event in first.events] == ["retry"]
    assert collector.services == {"pyagentd"}

    wanted = {"gen_ai.client.token.usage", "gen_ai.client.operation.duration", "pyagentd.asks.waiting"}
    wait_for(lambda: wanted <= collector.metrics.keys(), "the numbers")
    # The numbers are sent again and again; the first that came may be older than the end of the second run.
    wait_for(lambda: collector.runs() == 2, "the two runs")
    points = collector.metrics["gen_ai.client.operation.duration"].histogram.data_points
    assert sum(point.count for point in points) == 4


def test_a_request_beside_any_run_leaves_no_run_open(
    sending: System, model_server: ModelServer, collector: Collector
) -> None:
    model_server.say("Hi.", "Greeted.", "Bye.")
    session = ask(sending, "Hello.")
    sending.ok("context", "save", session)
    sending.ok("send", session, "Goodbye.")
    wait_for(lambda: len(collector.named("session")) == 2, "both traces")
    runs = collector.named("invoke_agent build")
    chats = [span for span in collector.spans if span.name.startswith("chat ")]
    assert [sum(is_below(chat, run) for chat in chats) for run in runs] == [1, 1]
    assert len({attributes(run)["pyagentd.run.id"] for run in runs}) == 2


def test_what_was_said_is_not_sent_unless_wanted(
    sending: System, model_server: ModelServer, collector: Collector
) -> None:
    model_server.say(answer(tool_use("Glob", pattern="*.nothing")), "The answer is forty-two.")
    ask(sending, "What is the secret number?")
    wait_for(lambda: collector.named("session"), "the trace")
    everything = "".join(map(str, collector.spans))
    assert "secret number" not in everything and "forty-two" not in everything and "nothing" not in everything


@pytest.mark.cold
def test_what_is_wanted_passes_the_users_function(
    sending: System, model_server: ModelServer, collector: Collector
) -> None:
    (sending.home / "mine.py").write_text(
        "def redact(name, text):\n"
        "    if name == 'gen_ai.tool.call.result': raise ValueError\n"
        "    return None if name == 'gen_ai.system_instructions' else text.replace('Ada', 'A.')\n"
    )
    sending.env["PYTHONPATH"] += f":{sending.home}"
    configure(sending, collector, 'capture_content = true\nredact = "mine:redact"\n')
    model_server.say(answer(tool_use("Glob", pattern="*.nothing")), f"Ada has {SECRET}.")
    ask(sending, "Who is Ada?")
    wait_for(lambda: collector.named("session"), "the trace")
    chats = [attributes(span) for span in collector.spans if span.name.startswith("chat ")]
    (asked, *_) = json.loads(chats[0]["gen_ai.input.messages"])
    assert asked["role"] == "user" and "Who is A.?" in asked["parts"][-1]["content"]
    (said,) = json.loads(chats[1]["gen_ai.output.messages"])
    assert said["finish_reason"] == "end_turn" and said["parts"][0]["content"].startswith("A. has ")
    tool = attributes(collector.one("execute_tool Glob"))
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"pattern": "*.nothing"}
    assert "gen_ai.tool.call.result" not in tool and "gen_ai.system_instructions" not in chats[0]
    everything = "".join(map(str, collector.spans))
    assert "Ada" not in everything and SECRET not in everything


def test_a_mission_is_a_workflow(sending: System, model_server: ModelServer, collector: Collector) -> None:
    model_server.say('```clojure\n(do (call "Glob" {:pattern "*.md"}) (call "return" 3))\n```')
    assert sending.ok("mission", "Count.", "--signature", ":int", "--tools", "Glob").strip() == "3"
    wait_for(lambda: collector.named("session"), "the trace")
    (mission,) = (span for span in collector.spans if span.name.startswith("invoke_workflow "))
    assert is_below(collector.one("execute_tool Glob"), mission) and is_below(mission, collector.one("session"))


def test_the_log_names_the_trace_and_a_collector_that_is_gone_costs_nothing(
    sending: System, model_server: ModelServer, collector: Collector
) -> None:
    configure(sending, collector, '[[hooks.tool.before]]\ncommand = ["true"]\n')  # what it says is logged
    collector.shutdown()
    collector.server_close()
    model_server.say(answer(tool_use("Glob", pattern="*.md")), "Hello.")
    assert "Hello." in sending.ok("show", ask(sending, "Hi."))
    sending.ok("stop")
    log = (sending.runtime / "daemon.log").read_text()
    traced = [line for line in log.splitlines() if "trace_id=" in line]
    assert traced and all(re.search(r"trace_id=[0-9a-f]{32} span_id=[0-9a-f]{16}", line) for line in traced)


def test_numbers_are_counted_without_a_collector(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    model_server.say(answer(tool_use("Glob", pattern="*.md")), "None.", refusal(400))
    ask(system, "Look.")
    session, _ = system.new("other", preset="build")
    assert system.run("send", session, "Fail.").returncode != 0
    told = system.ok("status", "--metrics")
    numbers = dict(line.rsplit(" ", 1) for line in told.splitlines() if not line.startswith("#"))
    assert numbers['pyagentd_runs_total{outcome="done"}'] == "1"
    assert numbers['pyagentd_runs_total{outcome="error"}'] == "1"
    assert numbers['pyagentd_tool_calls_total{tool="Glob",outcome="ok"}'] == "1"
    assert numbers["pyagentd_asks_waiting"] == "0" and numbers["pyagentd_runs_active"] == "0"
    assert sum(float(value) for name, value in numbers.items() if name.startswith("pyagentd_requests_total")) == 3
    assert [line for line in told.splitlines() if line.startswith("# TYPE pyagentd_cost")]
