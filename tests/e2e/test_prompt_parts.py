"""What a person puts into a prompt, in a real Emacs with a real daemon: a picture, a file, a region."""

from __future__ import annotations

import base64

from tests.e2e.conftest import System
from tests.e2e.test_conversation import open_session
from tests.server import ModelServer, answer, tool_use

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
IDLE = "(eq (plist-get pyagentd-status :state) 'idle)"


def test_a_picture_a_file_and_a_region_reach_the_model(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    look = tool_use("Read", file_path="src/tea.py")
    model_server.say(answer("I look.", look), answer("Tea:\n\n``` python\nboil()\n```"))
    (system.project / "src").mkdir()
    (system.project / "src" / "tea.py").write_text("one\ntwo\n")
    (system.home / "cup.png").write_bytes(PNG)
    _, branch = system.new("tea")
    emacs = system.emacs()
    open_session(emacs, branch)
    emacs.eval('(progn (goto-char (point-max)) (insert "Look @tea") t)')
    emacs.wait("(pyagentd-complete--get 'agents pyagentd-attach-root)")
    emacs.eval(f'(progn (insert " ") (pyagentd-media-drop "file://{system.home}/cup.png" nil) t)')
    emacs.eval(
        f'(with-current-buffer (find-file-noselect "{system.project}/src/tea.py")'
        " (pyagentd-add--region (point-min) (line-end-position 1)) (pyagentd-add--buffer) t)"
    )
    emacs.eval("(progn (goto-char (point-max)) (pyagentd-send) t)")
    emacs.wait(f'(and {IDLE} (string-search "boil()" (buffer-string)) t)')
    picture, said = model_server.requests[0].messages[0]["content"]
    assert base64.b64decode(picture["source"]["data"]) == PNG
    assert "From `src/tea.py`, line 1:\n\n``` python\none\n```" in said["text"] and "@src/tea.py" in said["text"]
    assert model_server.requests[1].messages[0]["content"][0]["type"] == "image"
    copied = "(progn (goto-char (point-max)) (pyagentd-copy-code) (substring-no-properties (current-kill 0)))"
    assert emacs.eval(copied) == "boil()"
    folded = "(seq-some (lambda (o) (overlay-get o 'pyagentd-folded)) (overlays-in 1 (point-max)))"
    assert emacs.eval(f"(progn (pyagentd-fold--find 1 (point-max)) {folded})")
    assert emacs.eval("(caar (pyagentd-turns-index))").startswith("1  Look @tea")
