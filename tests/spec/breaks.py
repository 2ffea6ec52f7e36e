"""For every scenario one way to break the code that fulfils it: a small change that its tests must notice."""

from __future__ import annotations

from tests.spec.breaking import Break
from tests.spec.breaks_agents import BREAKS_OF_AGENTS
from tests.spec.breaks_conversation import BREAKS_OF_CONVERSATIONS
from tests.spec.breaks_lifecycle import BREAKS_OF_LIFECYCLES
from tests.spec.breaks_missions import BREAKS_OF_MISSIONS
from tests.spec.breaks_signatures import BREAKS_OF_SIGNATURES

_SESSIONS = "pyagentd/store/sessions.py"
_METADATA = "pyagentd/store/metadata.py"
_REGISTRY = "pyagentd/store/registry.py"
_PATHS = "pyagentd/store/paths.py"
_SESSION_EL = "elisp/pyagentd-session.el"
_AUTOSAVE_EL = "elisp/pyagentd-session.el"
_BLOCK_EL = "elisp/pyagentd-session.el"
_VISIT_EL = "elisp/pyagentd-session.el"

BREAKS = [
    Break(
        "Valid session directory structure",
        _SESSIONS,
        '    atomic.write_text(paths.session_file(directory), "", fsync=False)\n',
        "    pass\n",
    ),
    Break(
        "Current branch symlink",
        _PATHS,
        "    if current.parent == home and has_conversation(current):",
        "    if False and (",
    ),
    Break(
        "Session ID generation",
        "pyagentd/store/paths.py",
        'return f"{slugify(name)}-{stamp}"',
        'return f"{stamp}-{slugify(name)}"',
    ),
    Break("Session ID immutability", _PATHS, "    if is_dated(name):\n", "    if False:\n"),
    Break(
        "scope-plan.yml required fields", _METADATA, '"created": created, "updated": created}', '"created": created}'
    ),
    Break(
        "preset.md YAML frontmatter",
        _METADATA,
        "for key, value in front.items()}",
        'for key, value in front.items() if key != "model"}',
    ),
    Break("Backward compatibility with agent_type", _METADATA, 'metadata["preset"] = metadata["agent_type"]', "pass"),
    Break(
        "Registry lookup performance",
        _REGISTRY,
        "        return present[0] if len(present) == 1 else None",
        "        return None",
    ),
    Break(
        "Filesystem as source of truth",
        _REGISTRY,
        "if paths.has_conversation(ref.branch_dir)]\n        return present[0]",
        "]\n        return present[0]",
    ),
    Break(
        "Registry initialization from disk",
        _REGISTRY,
        "        if paths.has_conversation(place):\n            entry, agents",
        "        if True:\n            entry, agents",
    ),
    Break(
        "Standalone session creation",
        _SESSIONS,
        'f"{paths.BRANCHES_DIR}/{paths.MAIN_BRANCH}")',
        'f"{paths.BRANCHES_DIR}")',
    ),
    Break(
        "Activities-integrated session creation",
        _METADATA,
        '{"activity_org_file": activity_org_file} if activity_org_file is not None else {}',
        "{}",
    ),
    Break(
        "Opening existing session via find-file",
        _SESSION_EL,
        "          pyagentd-autosave-enabled t)\n",
        "          pyagentd-autosave-enabled nil)\n",
    ),
    Break(
        "Opening session with Local Variables",
        _VISIT_EL,
        "    (add-to-list 'inhibit-local-variables-regexps regexp)\n",
        "",
    ),
    Break("Fast guard for non-session files", _VISIT_EL, "    (when (pyagentd-visiting-p)\n", "    (progn\n"),
    Break(
        "Manual save via C-x C-s",
        _BLOCK_EL,
        "           (and bounds (list (pyagentd-block--print 'gptel--bounds bounds)))))",
        "           nil))",
    ),
    Break(
        "System message isolation",
        _BLOCK_EL,
        "                 (member name pyagentd-block--system)))",
        "                 ))",
    ),
    Break(
        "Auto-save after idle time",
        _AUTOSAVE_EL,
        "        (pyagentd-session-save))\n      (if (or (not (buffer-modified-p))",
        "        nil)\n      (if (or (not (buffer-modified-p))",
    ),
    Break(
        "Disabling auto-save",
        _AUTOSAVE_EL,
        "(when (and pyagentd-autosave-enabled (> pyagentd-autosave-idle-time 0))",
        "(when pyagentd-autosave-enabled",
    ),
    Break(
        "Auto-save buffer-local control",
        _AUTOSAVE_EL,
        "(when (and pyagentd-autosave-enabled (> pyagentd-autosave-idle-time 0))",
        "(when (> pyagentd-autosave-idle-time 0)",
    ),
    Break(
        "Reading session metadata",
        _METADATA,
        "    metadata = _read(paths.scope_plan_file(branch_dir))\n",
        "    metadata = _read(paths.branch_metadata_file(branch_dir))\n",
    ),
    Break(
        "Reading preset configuration", _METADATA, 'str(key).replace("-", "_"): _plain', "str(key).upper(): _plain"
    ),
    Break(
        "Type checking for agent sessions",
        "elisp/pyagentd-jf.el",
        ':type)\n         "agent")',
        ':type)\n         "branch")',
    ),
    Break("Discovering all sessions", _REGISTRY, 'if not e.name.startswith(".")', "if True"),
    Break(
        "Discovering branches within a session",
        "pyagentd/store/metadata.py",
        "if paths.has_conversation(place)]",
        "]",
    ),
    Break(
        "Comprehensive branch discovery with agents",
        "elisp/pyagentd-session.el",
        "(pyagentd-place--conversations\n                                    (pyagentd-place-agents branch-dir))",
        "nil",
    ),
    Break(
        "Logging session creation",
        _SESSIONS,
        '_log.info("Created session directory',
        '_log.debug("Made session directory',
    ),
    Break(
        "Logging registry initialization",
        _REGISTRY,
        '_log.info("Initialized registry',
        '_log.debug("Initialized registry',
    ),
    Break("Logging metadata parsing errors", _METADATA, '_log.error("Failed to parse', '_log.info("Could not parse'),
    Break(
        "Logging level filtering",
        "elisp/pyagentd-core.el",
        "  (when (memq level (memq pyagentd-log-level pyagentd-core--levels))",
        "  (progn",
    ),
    Break("Duplicate save hook detection", _SESSION_EL, "      (when (> count 1)\n", "      (when nil\n"),
    Break(
        "Duplicate Local Variables cleanup",
        _BLOCK_EL,
        "          (pyagentd-block--cut start)\n",
        "",
    ),
    Break(
        "Directory structure validation",
        _PATHS,
        "    return os.path.isdir(directory / BRANCHES_DIR)  # noqa: PTH112 - Path raises where nobody may look",
        "    return directory.is_dir()",
    ),
    Break(
        "Buffer initialization sets all variables",
        _SESSION_EL,
        "          pyagentd--branch-name (plist-get place :branch-name)\n",
        "",
    ),
    Break(
        "Buffer-local variables mark session initialization",
        _SESSION_EL,
        "  (unless (or (bound-and-true-p pyagentd-mode)\n",
        "  (unless (or nil\n",
    ),
    Break(
        "Computing branch directory path",
        _PATHS,
        "    return branches_dir(session_dir) / branch_name",
        "    return session_dir / branch_name",
    ),
    Break(
        "Computing context file path",
        _PATHS,
        "session_file = place_in(SESSION_FILE)",
        "session_file = place_in(PRESET_FILE)",
    ),
    Break(
        "File name constants",
        _PATHS,
        "preset_file = place_in(PRESET_FILE)",
        'preset_file = place_in("config.md")',
    ),
]

BREAKS += BREAKS_OF_AGENTS
BREAKS += BREAKS_OF_CONVERSATIONS
BREAKS += BREAKS_OF_LIFECYCLES
BREAKS += BREAKS_OF_MISSIONS
BREAKS += BREAKS_OF_SIGNATURES
