"""Any EPC client works: python-epc's ``EPCClient``, and epc.el as distributed, by TCP and by unix socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sexpdata
from epc.handler import EPCError, ReturnError

from pyagentd.events import Event
from pyagentd.wire.scripting import epc_client
from pyagentd.wire.sexp import decode
from tests.wire.conftest import Daemon, run_emacs, without_socket

TIMEOUT = 10


@pytest.mark.parametrize("tcp", [False, True])
async def test_python_epc_calls_and_is_answered(daemon: Daemon, tcp: bool) -> None:
    if tcp:
        without_socket(daemon)

    def work() -> None:
        with epc_client(daemon.runtime_dir) as client:
            text = 'quotes " and \\\\ and é 🎉\\n'
            answer = client.call_sync("echo", [{"value": [1, 2.5, text, True, None]}], timeout=TIMEOUT)
            assert answer == [sexpdata.Symbol(":value"), [1, 2.5, text, True, []]]
            with pytest.raises(ReturnError) as caught:
                client.call_sync("fails", [{"how": "busy"}], timeout=TIMEOUT)
            assert caught.value.args[0][:2] == [sexpdata.Symbol("busy"), "A run is in flight"]
            with pytest.raises(EPCError):
                client.call_sync("nothing", [], timeout=TIMEOUT)
            methods = client.methods_sync(timeout=TIMEOUT)
            assert [sexpdata.Symbol("echo"), "(:value)", "Answer with what was given."] in methods

    await asyncio.to_thread(work)


async def test_python_epc_hears_events(daemon: Daemon) -> None:
    heard: list[Any] = []
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    leave = asyncio.Event()

    def events(batch: Any) -> None:
        heard.append(batch)
        loop.call_soon_threadsafe(arrived.set)

    def work() -> None:
        with epc_client(daemon.runtime_dir) as client:
            client.register_function(events)
            client.call_sync("waits", [], timeout=TIMEOUT)
            asyncio.run_coroutine_threadsafe(leave.wait(), loop).result(TIMEOUT)

    working = asyncio.create_task(asyncio.to_thread(work))
    await daemon.operations.started.wait()
    daemon.client.push(Event("insert", "b", 3, ("text", ("tool", "id"))))
    daemon.operations.release.set()
    await arrived.wait()
    leave.set()
    await working
    assert heard == [[[sexpdata.Symbol("insert"), "b", 3, "text", [sexpdata.Symbol("tool"), "id"]]]]


STOCK_EPC = """
(require 'epc)
(setq deferred:tick-time 0.001 epc:accept-process-timeout 5)
(set-language-environment "UTF-8")
(defun connect-tcp (port) (epc:start-epc-debug port))
(defun connect-unix (path)
  (let* ((p (make-network-process :name "d" :buffer (epc:make-procbuf " *d*") :family 'local :service path
                                  :coding 'binary :noquery t))
         (c (make-epc:connection :name "d" :process p :buffer (process-buffer p) :channel (cc:signal-channel "d"))))
    (set-process-filter p (lambda (p m) (epc:process-filter c p m)))
    (set-process-sentinel p (lambda (p e) (epc:process-sentinel c p e)))
    (epc:init-epc-layer (make-epc:manager :server-process nil :commands '("unix") :port 0 :connection c))))
(defun outcome (f) (condition-case err (funcall f) (error (list 'signalled (format "%S" err)))))
(setq coding-system-for-write 'utf-8-unix)
"""


@pytest.mark.parametrize("tcp", [False, True])
async def test_stock_epc_el_calls_is_answered_and_hears_events(daemon: Daemon, tcp: bool) -> None:
    where = f"(connect-tcp {daemon.runtime.port})" if tcp else f'(connect-unix "{daemon.runtime.socket}")'
    script = f"""{STOCK_EPC}
    (let ((m {where}) heard answers)
      (epc:define-method m 'events (lambda (batch) (push batch heard) nil))
      (push (epc:call-sync m 'hello '((:proto 1 :human t :token "{daemon.runtime.token}" :client "epc.el"))) answers)
      (push (epc:call-sync m 'echo '((:value (1 2.5 "é 🎉 \\"quoted\\"" t nil sym)))) answers)
      (push (outcome (lambda () (epc:call-sync m 'fails '((:how "busy"))))) answers)
      (push (outcome (lambda () (epc:call-sync m 'nothing '(nil)))) answers)
      (push (epc:sync m (epc:query-methods-deferred m)) answers)
      (epc:call-deferred m 'waits '(nil))
      (with-timeout (20 (error "No events")) (while (null heard) (accept-process-output nil 0.01)))
      (push (epc:call-sync m 'echo '((:value after))) answers)
      (let (print-length print-level) (prin1 (list (nreverse answers) heard)))
      (epc:stop-epc m))
    """
    emacs = asyncio.create_task(run_emacs(script, load=("epc", "deferred", "ctable", "concurrent")))
    started = asyncio.create_task(daemon.operations.started.wait())
    await asyncio.wait([emacs, started], return_when=asyncio.FIRST_COMPLETED)
    for client in daemon.server.clients:
        client.push(Event("insert", "b", 1, ('é "text"\n', "response")))
        client.push(Event("run", "b", 2, ({"phase": "finished"},)))
    daemon.operations.release.set()
    started.cancel()

    (greeting, echo, fails, nothing, methods, after), heard = decode(await emacs)
    assert greeting[:2] == [":proto", 1]
    assert echo == [":value", [1, 2.5, 'é 🎉 "quoted"', True, None, "sym"]]
    assert fails[0] == nothing[0] == "signalled"
    assert "A run is in flight" in fails[1]
    assert "No such method" in nothing[1]
    assert ["waits", "()", ""] in [[str(part or "") for part in method] for method in methods]
    assert after == [":value", "after"]
    assert heard == [[["insert", "b", 1, 'é "text"\n', "response"], ["run", "b", 2, [":phase", "finished"]]]]
