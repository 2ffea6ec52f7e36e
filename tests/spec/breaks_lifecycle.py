"""For every scenario of specification 003 one way to break the code that fulfils it; see ``breaks``."""

from __future__ import annotations

from functools import partial

from tests.spec.breaking import Break

_FEATURES = "pyagentd/features"
_CREATING = f"{_FEATURES}/named_agents.py"
_DESTROYING = f"{_FEATURES}/named_agents.py"
_CONTEXTS = f"{_FEATURES}/contexts.py"
_SELFEDIT = f"{_FEATURES}/self_edit.py"
_DOCS = "pyagentd/runtime/presets.py"
_OVERLAY = "pyagentd/runtime/presets.py"
_MAKING = "pyagentd/store/named_agents.py"
_FILES = "pyagentd/store/contexts.py"
_AGENTS = "pyagentd/store/db/agents.py"
_HOST = "pyagentd/runtime/kernel.py"
_TASKS = "pyagentd/features/tasks.py"
_TELLING = "pyagentd/features/tasks.py"

_of = partial(Break, spec="003")

BREAKS_OF_LIFECYCLES = [
    _of(
        "Creation flow 1: the name is validated",
        "pyagentd/store/named_agents.py",
        "    return _NAME.fullmatch(text) is not None",
        "    return _NAME.match(text) is not None",
    ),
    _of(
        "Creation flow 2: the template is copied",
        _MAKING,
        "                atomic.copy_tree(entry, draft)",
        "            pass",
    ),
    _of(
        "Creation flow 3: the workspace is a git repository",
        f"{_FEATURES}/named_agents.py",
        '        ("commit", "--quiet",',
        '        ("status", "--short",',
    ),
    _of(
        "Creation flow 4: overrides are merged into agent.json",
        _MAKING,
        "        values = {**read(draft).values, **material.values, ",
        "        values = {**material.values, **read(draft).values, ",
    ),
    _of(
        "Creation flow 5: the agent is registered",
        _CREATING,
        "        await asyncio.to_thread(agents.register, kernel.state, row)\n",
        "",
    ),
    _of(
        "Creation flow 6: its conversation is opened",
        _CREATING,
        "        branch.record_session(workspace_root=named_agents.workspace_dir(ref.session_dir), agent=DEFAULT"
        "_PRESET)",
        "        pass",
    ),
    _of(
        "Creation flow 7: it is welcomed",
        _CREATING,
        "permissions: {shown}. {system}",
        "permissions: {shown}.",
    ),
    _of(
        "Template Contents",
        "pyagentd/installation.py",
        "package.parent / name\n",
        'package.parent / "presets"\n',
    ),
    _of(
        "Post-Creation State",
        _MAKING,
        "    for made in (docs_dir, saved_dir, workspace_dir):",
        "    for made in (layout.docs_dir, layout.workspace_dir):",
    ),
    _of("System Prompt", _OVERLAY, '        fields["body"] = file.system_prompt.strip()', "        pass"),
    _of(
        "Documentation",
        _DOCS,
        '            sections.append(f"# {DOCS_DIR}/{name}',
        '            left_out.append(f"# {name}',
    ),
    _of("Documentation: path traversal", _DOCS, '    if not resolved.startswith(f"{jail}/"):', "    if False:"),
    _of("Permission Profile", _SELFEDIT, 'permissions, confirm="always"', "permissions, confirm=True"),
    _of(
        "Permission Profile: an invalid one is rejected",
        _SELFEDIT,
        "            resolve_profile(read_profile(new, profiles, ",
        "            (lambda _: None)((new, profiles, ",
    ),
    _of(
        "Model", _OVERLAY, '        backend, _, fields["model"] = file.model.rpartition("/")', '        backend = ""'
    ),
    _of("Self-Edit Audit Trail", _SELFEDIT, '{"old": _short(self.old), "new"', '{"old": None, "new"'),
    _of(
        "Active Session: none yet",
        _CONTEXTS,
        "is_new = branch.key not in self._last",
        "is_new = False",
    ),
    _of(
        "Active Session: continued",
        "pyagentd/store/document/reconcile.py",
        "for n, (role, parts) in messages)",
        "for n, (role, parts) in list(messages)[-1:])",
    ),
    _of(
        "Idle Timer: reset",
        _CONTEXTS,
        "        self._last[branch.key] = branch.ref, self.kernel.clock.now()\n        if is_new:",
        "        self._last.setdefault(branch.key, (branch.ref, self.kernel.clock.now()))\n        if is_new:",
    ),
    _of(
        "Idle Timer 1: summary",
        _CONTEXTS,
        "        text = await self._describe(branch, live.messages, options)\n        async with",
        "        text = first_words(live.messages)\n        async with",
    ),
    _of(
        "Idle Timer 2: saved",
        _CONTEXTS,
        'self._write(branch, live, text, "idle_timeout")',
        'self._write(branch, live, text, "shutdown")',
    ),
    _of(
        "Idle Timer 3: cleared",
        _CONTEXTS,
        "            await self._history.clear_held(branch, notice=notice)\n",
        "",
    ),
    _of("Idle Timer 4: notice", _CONTEXTS, "Use /context restore {row.id[: contexts.ID]} to resume.", "It is gone."),
    _of(
        "Manual Save: with a description",
        _CONTEXTS,
        "        text = one_line(description) or await self._describe",
        "        text = await self._describe",
    ),
    _of(
        "Manual Save: summary without a description",
        _CONTEXTS,
        "one_line(description) or await self._describe(branch, live.messages, options)",
        "one_line(description) or first_words(live.messages)",
    ),
    _of(
        "Manual Save: the context is not cleared",
        _CONTEXTS,
        '        return await self._write(branch, live, text, "manual_save")',
        '        await self.clear(branch)\n        return await self._write(branch, live, text, "manual_save")',
    ),
    _of(
        "Manual Clear",
        _CONTEXTS,
        "            changed = await self._history.clear_held(branch)\n        self.cleared",
        "            changed = await self._history.rewind_held(branch)\n        self.cleared",
    ),
    _of(
        "Context Restore 1: looked up by id",
        f"{_FEATURES}/contexts.py",
        "agents.find_context, self.kernel.state, id, owner.name)",
        "agents.find_context, self.kernel.state, id, None)",
    ),
    _of(
        "Context Restore 2: history loaded from the file",
        f"{_FEATURES}/contexts.py",
        "    messages = list(messages_of(entries))\n",
        "    messages = list(messages_of(entries))[:1]\n",
    ),
    _of(
        "Context Restore 3: the context is replaced",
        _CONTEXTS,
        '            if hidden.continuation(branch.conversation, ""):',
        "            if False:",
    ),
    _of(
        "Context Restore 4: notice",
        _CONTEXTS,
        '        branch.say(f"Context restored:',
        '        str(f"Context restored:',
    ),
    _of("Context History", "pyagentd/store/db/agents.py", "ORDER BY saved_at DESC", "ORDER BY saved_at"),
    _of("Session File Format", _FILES, '        "message_count": context.message_count,\n', ""),
    _of(
        "Session File Format: triggers",
        _FILES,
        '        "trigger": context.trigger,',
        '        "trigger": "manual_save",',
    ),
    _of(
        "Task Tracking",
        _TASKS,
        "            task = await asyncio.to_thread(tasks.put, self.kernel.state, task, most=MOST)",
        '            task = replace(task, id="task_001")',
    ),
    _of(
        "Task Tracking: completed or failed with its exit code",
        "pyagentd/features/tasks.py",
        '        return "completed" if self.exit_code == 0 and not self.reason else "failed"',
        '        return "completed"',
    ),
    _of("Viewing Tasks: /tasks", _TELLING, '"Recently completed:", *', "*"),
    _of("Viewing Tasks: /status", "pyagentd/api/background.py", 'f"Permissions: {', 'f"Profile: {'),
    _of(
        "Destruction Flow 1: the active session is saved",
        _DESTROYING,
        'archive.keep(branch, "destroy")',
        'archive.keep(branch, "shutdown")',
    ),
    _of("Destruction Flow 2: its conversation is closed", _DESTROYING, "stop=kernel.abort", "stop=None"),
    _of(
        "Destruction Flow 3: status destroyed, records preserved",
        _DESTROYING,
        'kernel.state, name, "destroyed", now_ms',
        'kernel.state, name, "idle", now_ms',
    ),
    _of(
        "Destruction Flow 4: files are deleted",
        _DESTROYING,
        "            files = await asyncio.to_thread(_removed, place)",
        '            files = "trashed"',
    ),
    _of(
        "Destruction Flow 5: deregistered",
        _DESTROYING,
        "    kernel.departed.add(place)\n    files: Files",
        "    files: Files",
    ),
    _of("File Preservation", _DESTROYING, '"leave" if keep_files else "remove"', '"remove"'),
    _of(
        "Re-creation: agent.json is merged",
        _MAKING,
        "    change(place, {**material.values, ",
        "    write(place, {**material.values, ",
    ),
    _of(
        "Re-creation: the workspace is preserved",
        _MAKING,
        "        if target.exists() or target.is_symlink():\n            continue\n        if entry.is_dir()",
        "        if target.exists():\n            atomic.discard(target)\n        if entry.is_dir()",
    ),
    _of(
        "Re-creation: saved sessions are reachable",
        _CREATING,
        "    kernel.departed.discard(ref.session_dir)\n",
        "",
    ),
    _of(
        "Re-creation: the name is free without files",
        _AGENTS,
        "    db.execute(\"DELETE FROM agents WHERE name = ? AND status = 'destroyed'\", (name,))\n",
        "",
    ),
    _of(
        "State Diagram: CREATED to IDLE",
        _CREATING,
        'ref, status="idle", intent=row.intent)',
        'ref, status="created", intent=row.intent)',
    ),
    _of(
        "State Diagram: IDLE to ACTIVE by a message",
        _CONTEXTS,
        "kernel.bus.on(RunStarted, lambda started: self._touch(started.branch), of=kernel.named)",
        "kernel.bus.on(RunStarted, lambda started: None)",
    ),
    _of(
        "State Diagram: IDLE to ACTIVE by a restore",
        _CONTEXTS,
        "        self._touch(branch)\n        self.kernel.bus.tell",
        "        self.kernel.bus.tell",
    ),
    _of(
        "State Diagram: ACTIVE to IDLE by /context clear",
        _CONTEXTS,
        "        self.cleared(branch)\n        branch.say",
        "        branch.say",
    ),
    _of(
        "State Diagram: ACTIVE to IDLE by the idle timeout",
        _CONTEXTS,
        "idle_out(branch, seconds=idle_s):\n                    self.cleared(branch)\n",
        "idle_out(branch, seconds=idle_s):\n                    pass\n",
    ),
    _of(
        "State Diagram: ACTIVE to DESTROYED",
        _HOST,
        '                branch.publish(Event("deleted", branch.key, 0, facts))\n',
        "",
    ),
    _of(
        "State Diagram: IDLE to DESTROYED",
        _DESTROYING,
        "        await planned.forget(place)\n",
        "",
    ),
    _of(
        "Persistence: Agent configuration",
        f"{_FEATURES}/named_agents.py",
        '    audit_change(kernel, name, f"config:{key}", ',
        '    audit_change(kernel, name, "config", ',
    ),
    _of(
        "Persistence: Active conversation",
        _CONTEXTS,
        "            row = row or await self._write(branch, live, first_words(live.messages), trigger)\n",
        "            if row is None:\n                return False\n",
    ),
    _of(
        "Persistence: Saved sessions",
        "pyagentd/store/named_agents.py",
        "saved_dir = paths.place_in(SAVED_DIR)",
        "saved_dir = paths.place_in(DOCS_DIR)",
    ),
    _of(
        "Persistence: Session metadata",
        "pyagentd/api/history.py",
        "found = await saved.known(agent) if agent else",
        "found = [] if agent else",
    ),
    _of(
        "Persistence: Audit log",
        _DESTROYING,
        '    audit_change(kernel, row.name, "destroy",',
        '    str((host, row.name, "destroy"),',
    ),
    _of(
        "Persistence: Agent registry",
        _AGENTS,
        "WHERE ? OR status != 'destroyed' ORDER BY name",
        "WHERE ? AND status != 'destroyed' ORDER BY name",
    ),
    _of(
        "Persistence: Workspace files",
        _DESTROYING,
        "    if place.is_dir():  # a daemon",
        "    if False:  # a daemon",
    ),
    _of(
        "Persistence: Agent docs",
        _MAKING,
        "    _fill(place, material.template)\n",
        "    atomic.discard(layout.docs_dir(place))\n    _fill(place, material.template)\n",
    ),
    _of(
        "Persistence: Server defaults",
        f"{_FEATURES}/named_agents.py",
        "    kernel.state.put(key, value)",
        "    DEFAULTS[key] = value",
    ),
    _of(
        "Persistence: Available models cache",
        "pyagentd/store/modellists.py",
        'FILE_NAME = "available_models.json"',
        'FILE_NAME = "models.json"',
    ),
    _of(
        "Graceful Shutdown 1: active sessions are saved",
        _CONTEXTS,
        '                        await self.keep(branch, "shutdown")\n',
        "                        pass\n",
    ),
    _of("Graceful Shutdown 2: idle timers are cancelled", _CONTEXTS, "            self._task.cancel()\n", ""),
    _of("Graceful Shutdown 3: connections are closed", _HOST, "            self.state.close()", "            pass"),
    _of(
        "Restart: agents are loaded idle",
        _CONTEXTS,
        "                        self.cleared(branch)\n",
        "                        pass\n",
    ),
]
