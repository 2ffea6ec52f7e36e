"""For every scenario of specification 000 one way to break the code that fulfils it; see ``breaks``."""

from __future__ import annotations

from functools import partial

from tests.spec.breaking import Break

_JF = "elisp/pyagentd-jf.el"
_OVERLAY = "elisp/pyagentd-display.el"
_PLACE = "elisp/pyagentd-session.el"
_SESSION = "elisp/pyagentd-session.el"
_AGENTS = "pyagentd/features/agents.py"
_HOST = "pyagentd/runtime/kernel.py"
_SUPERVISING = "pyagentd/runtime/kernel.py"
_EQUIPPING = "pyagentd/runtime/run_setup.py"
_PRESETS = "pyagentd/runtime/presets.py"
_RUN = "pyagentd/runtime/run.py"
_ANSWER = "pyagentd/runtime/run.py"
_SPAWN = "pyagentd/features/agents.py"
_PIECES = "pyagentd/api/agents.py"
_SESSIONS = "pyagentd/store/sessions.py"
_METADATA = "pyagentd/store/metadata.py"
_RENDER = "pyagentd/store/document/render.py"
_KEEPER = "pyagentd/runtime/document_sync.py"
_PATHS = "pyagentd/store/paths.py"

_of = partial(Break, spec="000")

BREAKS_OF_AGENTS = [
    _of(
        "Parent session requirement enforced",
        _JF,
        '  (unless pyagentd--session-dir\n    (user-error "Pers',
        '  (unless t\n    (user-error "Pers',
    ),
    _of(
        "Tool parameters validated",
        "pyagentd/tools/spec.py",
        '"required": list(required),',
        '"required": list(required)[:1],',
    ),
    _of("Optional path inheritance from parent", _AGENTS, '(wanted.read or ["/**"])', "wanted.read"),
    _of(
        "Meta tool bypasses scope validation",
        "pyagentd/policy/guard.py",
        '        case "meta":\n            return None\n',
        '        case "meta":\n            return "it may not"\n',
    ),
    _of("Async and confirm flags respected", _SPAWN, "        confirm=True,\n", "        confirm=False,\n"),
    _of(
        "Agent directory created under parent branch",
        _SESSIONS,
        "home = paths.agents_dir(parent.branch_dir)",
        "home = paths.agents_dir(parent.session_dir)",
    ),
    _of(
        "Preset template copied to agent directory",
        _SESSIONS,
        "    atomic.write_text(paths.preset_file(directory), preset_text, fsync=False)\n",
        "    atomic.write_text(paths.preset_file(directory), preset_text[:-2])\n",
    ),
    _of(
        "Paths written to agent preset",
        "pyagentd/store/presetfile.py",
        '"**/runtime/**", "**/.env", "**/node_modules/**")',
        '"**/runtime/**", "**/node_modules/**")',
    ),
    _of("Inherited paths from parent", _AGENTS, "        own = self.reads()\n", '        own = ("/**",)\n'),
    _of(
        "scope-plan.yml created with agent metadata",
        _METADATA,
        '"parent_session_id": parent_session_id}',
        '"parent_session_id": session_id}',
    ),
    _of(
        "Empty session.md created",
        _SESSIONS,
        '    atomic.write_text(paths.session_file(directory), "", fsync=False)\n',
        '    atomic.write_text(paths.session_file(directory), "### ")\n',
    ),
    _of(
        "No current symlink for agents",
        _SESSIONS,
        '    atomic.write_text(paths.session_file(directory), "", fsync=False)\n',
        '    atomic.write_text(paths.session_file(directory), "", fsync=False)\n'
        '    atomic.replace_link(paths.current_link(directory), ".")\n',
    ),
    _of(
        "Agent session ID format",
        "pyagentd/store/paths.py",
        "fallback='agent')}-{stamp}-{slugify(description, fallback='task')}",
        "fallback='agent')}-{slugify(description, fallback='task')}-{stamp}",
    ),
    _of(
        "Preset loaded from file, not memory",
        _PRESETS,
        "if cached is None or cached[0] != signature:",
        "if cached is None:",
    ),
    _of(
        "Buffer-local session variables set before preset",
        _SESSION,
        "          pyagentd--session-dir (plist-get place :session-dir)\n"
        "          pyagentd--branch-name (plist-get place :branch-name)\n",
        "          pyagentd--branch-name (plist-get place :branch-name)\n"
        "          pyagentd--session-dir (plist-get place :session-dir)\n",
    ),
    _of(
        "Tools captured from agent buffer context",
        "pyagentd/runtime/run_setup.py",
        "permitted = self.permitted(wanted)",
        "permitted = self.permitted(known)",
    ),
    _of(
        "Backend, model, system message from preset YAML",
        "pyagentd/policy/presets.py",
        '    model: Text = ""  # "": the backend\'s own\n',
        '    model: str = field(default="", metadata=INSIDE)\n',
    ),
    _of(
        "Parent configuration never leaked",
        _PRESETS,
        "        file = paths.preset_file(ref.branch_dir)\n",
        "        file = paths.preset_file(ref.branch_dir.parent.parent if ref.is_agent else ref.branch_dir)\n",
    ),
    _of(
        "gptel-with-preset isolation",
        _EQUIPPING,
        "preset = turn.answered_by(preset_with_overrides(self._answering_preset(), override))",
        "preset = turn.answered_by(self.kernel.presets.of_branch(self.branch.ref))",
    ),
    _of(
        "Prompt inserted to buffer before request",
        _RENDER,
        "        return text if is_agent else PROMPT_PREFIX + text\n",
        "        return PROMPT_PREFIX + text\n",
    ),
    _of(
        "gptel-request initiated with context",
        _AGENTS,
        '"description": str(session.get("description") or ""),',
        '"description": "",',
    ),
    _of(
        "WAIT state updates overlay",
        _OVERLAY,
        "      (run-at-time pyagentd-overlay-wait-delay nil",
        "      (run-at-time 999 nil",
    ),
    _of(
        "TOOL state updates overlay with count",
        _AGENTS,
        'facts["count"] + len(tools)',
        "len(tools)",
    ),
    _of(
        "String responses dual-duty behavior",
        _ANSWER,
        "                        self._texts.append(item.text)\n",
        "                        self._texts.append(item.text[1:])\n",
    ),
    _of(
        "Completion deletes overlay and invokes callback",
        _AGENTS,
        'child[1]["state"] = "finished"',
        'child[1]["state"] = "wait"',
    ),
    _of(
        "Auto-save triggers after each response",
        "pyagentd/runtime/document_sync.py",
        "            self._live.insert(insert)\n        self._schedule()\n",
        "            self._live.insert(insert)\n",
    ),
    _of(
        "FSM handlers chained with core handlers",
        _OVERLAY,
        "      (dolist (handler handlers)\n",
        "      (dolist (handler (reverse handlers))\n",
    ),
    _of("Overlay created at marker position", _OVERLAY, "    (overlay-put overlay 'gptel-persistent-agent t)\n", ""),
    _of("Overlay displays task description", _OVERLAY, "(capitalize preset)", "preset"),
    _of("Overlay synchronized with FSM states", _OVERLAY, '"Calling Tools..."', '"Waiting..."'),
    _of(
        "Final result accumulated from responses",
        _ANSWER,
        '            self._texts.append("\\n\\n")',
        '            self._texts.append("")',
    ),
    _of(
        "Parent callback receives string result",
        _JF,
        "(funcall done (plist-get answer :text))",
        "(funcall done answer)",
    ),
    _of(
        "Overlay validity checked before updates",
        _OVERLAY,
        "  (when (overlay-buffer overlay)\n    (overlay-put overlay 'after-string",
        "  (when t\n    (overlay-put overlay 'after-string",
    ),
    _of(
        "Overlay deleted on all completion paths",
        _AGENTS,
        "child = self._children.pop(branch.key, None)",
        "child = self._children.get(branch.key)",
    ),
    _of(
        "Auto-save hook registered at creation",
        _JF,
        "            #'jf/gptel--auto-save-session-buffer nil t))",
        "            #'jf/gptel--auto-save-session-buffer))",
    ),
    _of(
        "Every API response triggers buffer save",
        _KEEPER,
        "            while self._is_due:\n                size",
        "            while False:\n                size",
    ),
    _of(
        "Tool results included in conversation",
        _RENDER,
        '    result = data.get("output", "") if',
        '    result = "" if',
    ),
    _of(
        "Session registered in global registry",
        "pyagentd/store/registry.py",
        "            entry, agents = known.get(place), tuple(_agent_entries(place, known))\n",
        "            entry, agents = known.get(place), ()\n",
    ),
    _of(
        "Conversation history fully preserved",
        _RENDER,
        "            self._feed_tool(part_id, data)\n",
        "            pass\n",
    ),
    _of(
        "Session resumable via find-file",
        "elisp/pyagentd-session.el",
        '"/\\\\(?:branches\\\\|agents\\\\)/',
        '"/\\\\(?:branches\\\\)/',
    ),
    _of(
        "scope-plan.yml updated timestamp is NOT managed by auto-save",
        _SUPERVISING,
        "            branch.finish_run(run.id, outcome)\n        except Exception",
        "            branch.finish_run(run.id, outcome)\n"
        "            __import__('pyagentd.store.metadata').store.metadata.touch_scope_plan(\n"
        "                branch.ref.branch_dir, self.clock.now()\n            )\n"
        "        except Exception",
    ),
    _of(
        "Network/API error cleanup",
        _SPAWN,
        'text=f"Error: {kind}\\n{_plist(outcome)}"',
        'text=f"{kind}\\n{_plist(outcome)}"',
    ),
    _of("User abort handled gracefully", _SPAWN, '"User aborted agent"', '"aborted"'),
    _of("Missing preset.md reports clear error", _JF, '"Failed to load preset from %s"', '"No preset in %s"'),
    _of(
        "Parent validation failure prevents creation",
        _JF,
        '"PersistentAgent requires parent persistent session"',
        '"Not a session"',
    ),
    _of(
        "Filesystem errors logged and reported",
        _SPAWN,
        '            log.error("agent %s: %s"',
        '            log.debug("agent %s: %s"',
    ),
    _of(
        "Exception handling in callback",
        _RUN,
        "        code, message = told_of(error)\n",
        '        code, message = "internal", ""\n',
    ),
    _of(
        "Overlay always cleaned up",
        _AGENTS,
        "        stack.callback(self._agents.end, branch)\n",
        "        del stack\n",
    ),
    _of(
        "Agent directory created via filesystem module",
        _PIECES,
        "sessions.build_directory(paths.agents_dir(parent.branch_dir), name)",
        "sessions.build_directory(parent.branch_dir, name)",
    ),
    _of(
        "Preset template copied via filesystem helper",
        _PIECES,
        "atomic.write_text(paths.preset_file(place), text)",
        "atomic.write_text(paths.preset_file(place), text.strip())",
    ),
    _of("Preset loaded via metadata module", _PIECES, '{**front, "system": ', '{**front, "body": '),
    _of(
        "Session metadata read from scope-plan.yml",
        _JF,
        "'session-metadata branch-dir (pyagentd-place-scope-plan branch-dir)",
        '\'session-metadata branch-dir (concat branch-dir "/scope.yml")',
    ),
    _of(
        "Session registered via registry module",
        _PLACE,
        "                 :branch-name branch-name :branch-dir branch-dir\n                 :buffer buffer)",
        "                 :branch-name branch-name :branch-dir branch-dir)",
    ),
    _of(
        "Logging via logging module",
        _PIECES,
        '_log.info("Created agent directory',
        '_log.debug("Created agent directory',
    ),
    _of(
        "Path resolution via constants",
        _PLACE,
        '(expand-file-name "preset.md" branch-dir)',
        '(expand-file-name "config.md" branch-dir)',
    ),
    _of(
        "Agent scope loaded from preset.md",
        "pyagentd/policy/guard.py",
        'action, "read", action.paths, paths.read, context.readable',
        'action, "read", action.paths, paths.write, context.readable',
    ),
    _of(
        "Preset.md updated with path controls",
        _PIECES,
        "with_paths(preset, read=allowed, deny=denied)",
        "with_paths(preset, read=allowed, write_default=(), deny=denied)",
    ),
    _of("Agent inherits parent allowed paths", _JF, "for key in '(:paths ", "for key in '("),
    _of(
        "scope-plan.yml contains metadata only",
        _METADATA,
        '"preset": preset, **activity}',
        '"preset": preset, "paths": "all", **activity}',
    ),
    _of(
        "Agent tools validated against agent scope",
        "pyagentd/runtime/run_setup.py",
        "preset, above = presets.of_branch(ref),",
        "preset, above = presets.of_branch(ancestors[-1] if ancestors else ref),",
    ),
    _of(
        "Custom FSM handlers registered",
        _OVERLAY,
        "    (TOOL pyagentd-overlay-indicate-tool-call",
        "    (TOOL ignore",
    ),
    _of(
        "gptel-request executes async",
        _JF,
        "      (pyagentd-rpc-call-async\n       'agent-result (list :branch (plist-get agent :branch))\n"
        "       :success (lambda (answer) (funcall done (plist-get answer :text)))\n",
        "      (funcall done (plist-get (pyagentd-rpc-call 'agent-result\n"
        "                                (list :branch (plist-get agent :branch))) :text))\n      (ignore\n",
    ),
    _of(
        "gptel-post-response-functions hook used",
        _JF,
        "    (pyagentd-run-functions 'gptel-post-response-functions",
        "    (ignore 'gptel-post-response-functions",
    ),
    _of(
        "gptel-with-preset creates clean scope",
        _EQUIPPING,
        "            temperature=plan.preset.temperature,\n",
        "            temperature=None,\n",
    ),
    _of(
        "gptel-include-tool-results preserves tools",
        "pyagentd/store/document/reconcile.py",
        "        return [(_recorded_call(part), pruned_result(result) if part.id in self.pruned else result)]\n",
        "        return []\n",
    ),
    _of(
        "Tool registered via gptel-make-tool",
        _SPAWN,
        '"preset": {"type": "string", "enum": list(names)',
        '"preset": {"type": "string", "enum": list(names)[:1]',
    ),
    _of(
        "Parent session required",
        _JF,
        '    (user-error "PersistentAgent requires',
        '    (message "PersistentAgent requires',
    ),
    _of(
        "Buffer-local vars set before preset scope",
        _SESSION,
        "          pyagentd--session-dir (plist-get place :session-dir)\n",
        "",
    ),
    _of(
        "Tool results included",
        _RENDER,
        '        self._put(tool_body(data), ("tool", data["toolCallId"]), part_id)\n',
        "",
    ),
    _of(
        "Auto-save triggers on response",
        _KEEPER,
        "                    await self._write()\n                except StoreError as error:",
        "                    await asyncio.sleep(3600)\n                except StoreError as error:",
    ),
    _of(
        "Prompt inserted to buffer, request reads from buffer",
        _HOST,
        "run_id, prompt.view, settings)",
        "run_id, prompt.view[:-1], settings)",
    ),
    _of(
        "Tools captured in agent buffer context",
        "pyagentd/runtime/run_setup.py",
        "permitted = self.permitted(wanted)",
        "permitted = list(self.kernel.presets.of_branch(self.top).tools)",
    ),
    _of(
        "Overlay cleaned up on all paths",
        _OVERLAY,
        "  (mapc (lambda (pair) (delete-overlay (cdr pair))) pyagentd-overlay--table)",
        "  (mapc #'ignore pyagentd-overlay--table)",
    ),
    _of(
        "Zero configuration inheritance",
        _EQUIPPING,
        "preset.max_tokens or DEFAULT_MAX_TOKENS",
        "preset.max_tokens or 777",
    ),
    _of(
        "Agent directory under parent branch",
        _PATHS,
        "agents_dir = place_in(AGENTS_DIR)",
        "agents_dir = place_in(BRANCHES_DIR)",
    ),
    _of("Agents do not branch", "pyagentd/store/branching.py", "    if parent.is_agent:\n", "    if False:\n"),
]
