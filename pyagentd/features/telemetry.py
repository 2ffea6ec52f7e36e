"""Counts what runs cost and how long they take, and sends it to an OpenTelemetry collector if that is configured.

Names are those of OpenTelemetry's conventions for generative AI (docs/observability.md). Texts of messages and tools
are sent only with ``capture_content``, after the user's ``redact`` function.
"""

import asyncio
import json
import logging
import pkgutil
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyagentd import __version__
from pyagentd.config.tables import TelemetryTable
from pyagentd.errors import ConfigError, PyagentdError
from pyagentd.installation import extra
from pyagentd.llm.backend import ModelRequest, PartFinished, RetryNotice, StepFinished, StreamItem
from pyagentd.log import correlate, mask_secrets
from pyagentd.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import Feature, RunEnded, RunStarted
from pyagentd.runtime.run import Run, RunSettings
from pyagentd.store import paths
from pyagentd.tools.invoke import Envelope

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder

log = logging.getLogger(__name__)

_FLUSH_S = 3.0  # for the collector, when the daemon stops

_COUNTERS = {
    "pyagentd.runs": "Runs that ended, by outcome",
    "pyagentd.requests": "Requests to models, by model and outcome",
    "pyagentd.request.seconds": "Seconds that requests to models took, by model",
    "pyagentd.tokens": "Tokens, by model and type",
    "pyagentd.cost": "Cost of requests in US dollars, by model",
    "pyagentd.retries": "Requests that were sent again, by model",
    "pyagentd.tool.calls": "Tool calls, by tool and outcome",
}
_GAUGES = {
    "pyagentd.runs.active": "Runs in flight",
    "pyagentd.asks.waiting": "Approvals and questions that wait for a human",
    "pyagentd.branches.open": "Branches and agents in memory",
}

_Labels = tuple[tuple[str, str], ...]


class Telemetry(Feature):
    """The counters and spans of the daemon."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self._counted: Counter[tuple[str, _Labels]] = Counter()
        self._spans: _Spans | None = None
        table = kernel.config.telemetry
        if table.enabled:
            try:
                self._spans = _Spans(table, self)
            except PyagentdError as error:  # telemetry must not fail the daemon
                log.error("telemetry is off: %s", error)
        if (spans := self._spans) is not None:
            kernel.bus.on(RunStarted, lambda started: spans.run(started.branch))
        kernel.bus.on(RunEnded, self._on_run_ended)

    async def close(self) -> None:
        """Send the rest to the collector."""
        if self._spans is not None:
            correlate(dict)
            await asyncio.to_thread(self._spans.close)

    def settings_for(self, run: "RunBuilder", settings: RunSettings) -> RunSettings:
        """Return the settings of a run with its tool calls watched, and watch its requests."""
        run.watchers.append(partial(_Request, self, run))
        settings = replace(settings, around=partial(self._around, run.branch))
        if (spans := self._spans) is None:
            return settings
        return replace(settings, ready=partial(_ready, spans, run.branch, settings.ready))

    # -- numbers -------------------------------------------------------------------------------------------------

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a counter of ``_COUNTERS``."""
        self._counted[name, tuple(labels.items())] += value  # type: ignore[assignment]  # floats are counted as well

    def counted(self, name: str) -> Iterator[tuple[Mapping[str, str], float]]:
        """Yield labels and value of each series of a counter."""
        for (each, labels), value in list(self._counted.items()):  # another thread reads it
            if each == name:
                yield dict(labels), value

    def gauges(self) -> Mapping[str, float]:
        """Return the current values of ``_GAUGES``."""
        kernel = self.kernel
        return {
            "pyagentd.runs.active": len(kernel.runs),
            "pyagentd.asks.waiting": len(kernel.asks.all()),
            "pyagentd.branches.open": len(kernel.all_opened),
        }

    def prometheus(self) -> str:
        """Return all metrics in Prometheus' text format."""
        lines: list[str] = []
        for name, help in _COUNTERS.items():
            lines += _series(f"{_plain(name)}_total", "counter", help, self.counted(name))
        for name, value in self.gauges().items():
            lines += _series(_plain(name), "gauge", _GAUGES[name], [({}, value)])
        return "".join(f"{line}\n" for line in lines)

    # -- events --------------------------------------------------------------------------------------------------

    def _on_run_ended(self, ended: RunEnded) -> None:
        self.count("pyagentd.runs", outcome=ended.outcome.reason)
        if self._spans is not None:
            self._spans.run_ended(ended)

    async def _around(self, branch: LiveBranch, call: ToolCall, made: Awaitable[Envelope]) -> Envelope:
        """Count a tool call, in a span."""
        envelope = await (made if self._spans is None else self._spans.tool(branch, call, made))
        outcome = "denied" if envelope.denied else "ok" if envelope.ok else "error"
        self.count("pyagentd.tool.calls", tool=call.name, outcome=outcome)
        return envelope


async def _ready(spans: "_Spans", branch: LiveBranch, before: Callable[[], Awaitable[None]] | None) -> None:
    """Make the span of a run current in its task, for its log lines."""
    spans.enter(branch)
    if before is not None:
        await before()


def _plain(name: str) -> str:
    return name.replace(".", "_")


def _series(name: str, kind: str, help: str, values: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        shown = ",".join(f"{key}={json.dumps(text, ensure_ascii=False)}" for key, text in labels.items())
        yield f"{name}{{{shown}}} {value:.10g}" if shown else f"{name} {value:.10g}"


class _Request:
    """Counts one request and makes its span; see ``RequestWatch``."""

    def __init__(self, telemetry: Telemetry, run: "RunBuilder", request: ModelRequest) -> None:
        self._telemetry = telemetry
        self._model = request.model
        self._provider = run.provider
        self._began = time.monotonic()
        self._stop: StepFinished | None = None
        self._first_s: float | None = None
        self._parts: list[Part] = []
        self._span: Span | None = None
        self.inside: Callable[[], AbstractContextManager[object]] | None = None
        if (spans := telemetry._spans) is not None:
            self._span = spans.step(run.branch, request, self._provider)
            self.inside = partial(spans.current, self._span)

    def see(self, batch: Sequence[StreamItem]) -> None:
        """Note the parts, retries, end and first-token time of a request."""
        for item in batch:
            if isinstance(item, StepFinished):
                self._stop = item
            elif isinstance(item, PartFinished):
                self._parts.append(item.part)
            elif isinstance(item, RetryNotice):
                self._telemetry.count("pyagentd.retries", model=self._model)
                if self._span is not None:
                    self._span.add_event("retry", {"attempt": item.attempt, "delay_s": item.delay_s})
                continue
            if self._first_s is None:
                self._first_s = time.monotonic() - self._began

    def end(self, error: PyagentdError | None) -> None:
        """Count the request, and end its span."""
        took_s = time.monotonic() - self._began
        code, message = ("aborted", "") if error is None else (error.code, str(error))
        if self._span is not None:
            self._end_span(self._span, took_s, code, message)
        count, model, stop = self._telemetry.count, self._model, self._stop
        count("pyagentd.requests", model=model, outcome="ok" if stop is not None else code)
        count("pyagentd.request.seconds", took_s, model=model)
        if stop is None:
            return
        usage = stop.usage
        for kind in ("input", "output", "reasoning", "cache_read", "cache_write"):
            if number := getattr(usage, kind):
                count("pyagentd.tokens", number, model=model, type=kind)
        prices = self._telemetry.kernel.model_facts(model, self._provider).prices
        if prices is not None and (cost := prices.of(usage)):
            count("pyagentd.cost", cost, model=model)

    def _end_span(self, span: "Span", took_s: float, code: str, message: str) -> None:
        """End the span; ``code`` and ``message`` are the error of a request that did not finish."""
        spans, stop = self._telemetry._spans, self._stop
        assert spans is not None, "it has a span"
        about = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": self._model,
            "gen_ai.provider.name": self._provider,
        }
        if stop is None:
            spans.set_error(span, code, message)
            spans.duration.record(took_s, {**about, "error.type": code})
            span.end()
            return
        usage = stop.usage
        read = usage.input + usage.cache_read + usage.cache_write
        output = usage.output + usage.reasoning
        span.set_attributes(
            {
                "gen_ai.response.finish_reasons": [stop.stop_reason],
                "gen_ai.usage.input_tokens": read,
                "gen_ai.usage.output_tokens": output,
                "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
                "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
                "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
            }
        )
        if self._first_s is not None:
            span.set_attribute("gen_ai.response.time_to_first_chunk", self._first_s)
            spans.first.record(self._first_s, about)
        answer = Message(role="assistant", parts=tuple(self._parts))
        spans.text(span, "gen_ai.output.messages", lambda: _messages([answer], [stop.stop_reason]))
        span.end()
        spans.duration.record(took_s, about)
        spans.tokens.record(read, {**about, "gen_ai.token.type": "input"})
        spans.tokens.record(output, {**about, "gen_ai.token.type": "output"})


class _Spans:
    """Sends the daemon's spans and metrics to a collector.

    A trace has the runs of a session and of the agents below it, from its first run until none is in flight.

    Raises:
        NotInstalled: The extra ``otel`` is missing.
        ConfigError: The redaction function cannot be loaded.
    """

    def __init__(self, table: TelemetryTable, telemetry: Telemetry) -> None:
        # Not at the top of the module: importing the SDK takes a quarter of a second, and most daemons do not need
        # it.
        with extra("otel", "Telemetry"):
            from opentelemetry import context, trace
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.metrics import CallbackOptions, Observation
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        self._api, self._context = trace, context
        self._table = table
        self._redact = _import_function(table.redact) if table.capture_content and table.redact else None
        base = table.endpoint.rstrip("/")
        about = {"service.version": __version__, "service.instance.id": uuid4().hex}
        resource = Resource.create({**about, "service.name": table.service_name})
        spans = OTLPSpanExporter(endpoint=f"{base}/v1/traces" if base else None)
        self._tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._tracing.add_span_processor(BatchSpanProcessor(spans))
        self._tracer = self._tracing.get_tracer("pyagentd", __version__)
        numbers = OTLPMetricExporter(endpoint=f"{base}/v1/metrics" if base else None)
        reader = PeriodicExportingMetricReader(numbers, export_interval_millis=1000 * table.interval_s)
        self._metering = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        meter = self._metering.get_meter("pyagentd", __version__)
        self.duration = meter.create_histogram("gen_ai.client.operation.duration", "s", "Duration of requests")
        self.first = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", "From request to first token"
        )
        self.tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of requests")

        def observe(name: str, options: CallbackOptions) -> Iterator[Observation]:
            for labels, value in telemetry.counted(name):
                yield Observation(value, labels)

        def gauge(name: str, options: CallbackOptions) -> Iterator[Observation]:
            yield Observation(telemetry.gauges()[name])

        for name, description in _COUNTERS.items():
            meter.create_observable_counter(name, [partial(observe, name)], description=description)
        for name, description in _GAUGES.items():
            meter.create_observable_gauge(name, [partial(gauge, name)], description=description)
        self._runs: dict[str, Span] = {}  # by the branch's key
        self._sessions: dict[str, tuple[Span, set[str]]] = {}  # by the top branch's key; and which branches run
        correlate(self._ids)

    def close(self) -> None:
        """End all open spans and send everything, for ``_FLUSH_S`` seconds at most."""
        for span in (*self._runs.values(), *(span for span, _ in self._sessions.values())):
            span.add_event("the daemon ended")
            span.end()
        sending = threading.Thread(target=self._flush, name="telemetry", daemon=True)
        sending.start()
        sending.join(_FLUSH_S)  # the SDK itself waits half a minute for an unreachable collector

    def _flush(self) -> None:
        self._tracing.shutdown()
        self._metering.shutdown()

    def current(self, span: "Span") -> Any:
        """Return a context in which ``span`` is the current one."""
        return self._api.use_span(span, record_exception=False, set_status_on_exception=False)

    def enter(self, branch: LiveBranch) -> None:
        """Make the span of a branch's run current in this task, until the task ends."""
        self._context.attach(self._api.set_span_in_context(self.run(branch)))

    def run(self, branch: LiveBranch) -> "Span":
        """Return the span of a branch's run; the first call creates it."""
        if (known := self._runs.get(branch.key)) is not None:
            return known
        conversation, ref = branch.conversation, branch.ref
        top = paths.root_of(ref)
        if top.key not in self._sessions:
            self._sessions[top.key] = self._begin("session", None, {"gen_ai.conversation.id": top.session_id}), set()
        session, running = self._sessions[top.key]
        running.add(branch.key)
        above = self._api.get_current_span()
        if not ref.is_agent or not above.is_recording():
            parent = self._runs.get(str(ref.branch_dir.parent.parent)) if ref.is_agent else None
            above = parent or session
        facts = conversation.session
        agent = str(facts.get("agent") or ref.session_id)
        mission = type(branch.run) not in (Run, type(None))  # such as a mission
        operation = "invoke_workflow" if mission else "invoke_agent"
        last = conversation.last_run
        self._runs[branch.key] = span = self._begin(
            f"{operation} {agent}",
            above,
            {
                "gen_ai.operation.name": operation,
                "gen_ai.conversation.id": ref.session_id,
                "gen_ai.workflow.name" if mission else "gen_ai.agent.name": agent,
                "pyagentd.run.id": str(last.data["id"]) if last else "",
                "pyagentd.branch": ref.branch_name,
            },
        )
        return span

    def run_ended(self, ended: RunEnded) -> None:
        """End the span of a run, and that of its session if no other run is in flight there."""
        branch, outcome = ended.branch, ended.outcome
        if (span := self._runs.pop(branch.key, None)) is None:
            return
        span.set_attribute("pyagentd.outcome", outcome.reason)
        if outcome.reason == "error":
            self.set_error(span, outcome.code, outcome.message)
        answer = Message(role="assistant", parts=(Text(text=outcome.text),))
        self.text(span, "gen_ai.output.messages", lambda: _messages([answer], [outcome.reason]))
        span.end()
        top = paths.root_of(branch.ref).key
        session, running = self._sessions[top]
        running.discard(branch.key)
        if not running:
            session.end()
            del self._sessions[top]

    def step(self, branch: LiveBranch, request: ModelRequest, provider: str) -> "Span":
        """Start the span of a request to a model."""
        from opentelemetry.trace import SpanKind

        span = self._begin(
            f"chat {request.model}",
            self._runs.get(branch.key),  # None for a request outside a run, such as for a description
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider,
                "gen_ai.request.model": request.model,
                "gen_ai.request.max_tokens": request.max_tokens,
                "gen_ai.request.stream": True,
                "gen_ai.conversation.id": branch.ref.session_id,
                "pyagentd.purpose": request.purpose,
                **({} if request.temperature is None else {"gen_ai.request.temperature": request.temperature}),
            },
            kind=SpanKind.CLIENT,
        )
        self.text(span, "gen_ai.system_instructions", lambda: [{"type": "text", "content": request.system}])
        self.text(span, "gen_ai.input.messages", lambda: _messages(request.messages))
        return span

    async def tool(self, branch: LiveBranch, call: ToolCall, made: Awaitable[Envelope]) -> Envelope:
        """Make a tool call in a span."""
        span = self._begin(
            f"execute_tool {call.name}",
            self.run(branch),
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call.name,
                "gen_ai.tool.call.id": call.id,
                "gen_ai.tool.type": "function",
            },
        )
        self.text(span, "gen_ai.tool.call.arguments", lambda: dict(call.input))
        try:
            with self.current(span):
                envelope = await made
            if not envelope.ok:
                self.set_error(span, "denied" if envelope.denied else "tool", "")
            self.text(span, "gen_ai.tool.call.result", lambda: envelope.text)
            return envelope
        finally:
            span.end()

    # -- inside --------------------------------------------------------------------------------------------------

    def _begin(self, name: str, above: "Span | None", attributes: Mapping[str, Any], **more: Any) -> "Span":
        around = self._context.Context()  # the caller's current span must not become the parent
        if above is not None:
            around = self._api.set_span_in_context(above, around)
        return self._tracer.start_span(name, context=around, attributes=attributes, **more)

    def set_error(self, span: "Span", code: str, message: str) -> None:
        span.set_attribute("error.type", code or "error")
        description = self._redact_text("error.message", message) if self._table.capture_content and message else None
        span.set_status(self._api.StatusCode.ERROR, description)

    def text(self, span: "Span", name: str, content: Callable[[], Any]) -> None:
        """Set a text as an attribute, if ``capture_content`` is on."""
        if not self._table.capture_content:
            return
        made = content()
        text = made if isinstance(made, str) else json.dumps(made, ensure_ascii=False, default=str)
        if (redacted := self._redact_text(name, text)) is not None:
            span.set_attribute(name, redacted)

    def _redact_text(self, name: str, text: str) -> str | None:
        """Return a text with secrets masked and redacted; None if the redaction fails."""
        text = mask_secrets(text)
        if self._redact is None:
            return text
        try:
            redacted = self._redact(name, text)
        except Exception:  # the user's own code; after an error nothing is sent
            log.exception("telemetry: redaction by %s failed for %s", self._table.redact, name)
            return None
        return redacted if isinstance(redacted, str) else None

    def _ids(self) -> Mapping[str, str]:
        """Return trace and span id for a log line."""
        about = self._api.get_current_span().get_span_context()
        if not about.is_valid:
            return {}
        return {
            "trace_id": self._api.format_trace_id(about.trace_id),
            "span_id": self._api.format_span_id(about.span_id),
        }


def _import_function(name: str) -> Callable[[str, str], object]:
    """Import the function ``MODULE:NAME``.

    Raises:
        ConfigError: It cannot be imported.
    """
    try:
        return pkgutil.resolve_name(name)  # type: ignore[no-any-return]
    except Exception as error:  # the user's own module
        raise ConfigError(
            f"[telemetry] redact = {name!r} cannot be loaded: {error}", hint="Write MODULE:FUNCTION"
        ) from error


def _messages(messages: Iterable[Message], finish: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return messages in the form of OpenTelemetry's conventions."""
    entries: list[dict[str, Any]] = [
        {"role": each.role, "parts": [_part(part) for part in each.parts]} for each in messages
    ]
    for each, reason in zip(entries, finish, strict=False):
        each["finish_reason"] = reason
    return entries


def _part(part: object) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "content": text}
        case Reasoning(text=text):
            return {"type": "reasoning", "content": text}
        case ToolCall(id=id, name=name, input=given):
            return {"type": "tool_call", "id": id, "name": name, "arguments": dict(given)}
        case ToolResult(id=id, text=text):
            return {"type": "tool_call_response", "id": id, "response": text}
    return {"type": type(part).__name__.lower()}
