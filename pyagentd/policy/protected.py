"""What no tool may touch, whatever a preset or a person's grant says (DESIGN §7).

A session's own records decide what the agent may do next, so a tool that could write them could give itself any
right. Credentials are worse read than written: what a model has seen has left the machine. The patterns go by shape
and so hold for a session outside the sessions root and for any user's home; a daemon adds its own places.
"""

from __future__ import annotations

_RECORDS = (
    "session.md",
    "preset.md",
    "scope-plan.yml",
    "branch-metadata.yml",
    "messages.jsonl",
    "requests*.jsonl",
    "agent.json",
    "tools.org",
    "system-prompts.org",
)

SESSION_RECORDS = tuple(f"**/branches/*/{inner}{name}" for name in _RECORDS for inner in ("", "agents/**/"))

HOOKS = ("**/.pyagentd/hooks.toml", "**/.pyagentd/hooks/**")
"""What a project has asked before its agents act: an agent must not put it to sleep."""

GIT = (
    "**/.git",  # as a file it says where the repository is
    "**/.git/**/commondir",
    "**/.git/**/config",
    "**/.git/**/config.worktree",
    "**/.git/**/hooks/**",
)
"""What git runs programs by, later and outside: a tool that writes files does not write these; git itself may."""

CREDENTIALS = (
    "**/.authinfo*",
    "**/.netrc",
    "**/.git-credentials",
    "**/.pgpass",
    "**/.pypirc",
    "**/.ssh",
    "**/.ssh/**",
    "**/.gnupg",
    "**/.gnupg/**",
    "**/.aws",
    "**/.aws/**",
    "**/.password-store",
    "**/.password-store/**",
    "**/.config/gcloud/**",
    "**/.config/gh/hosts.yml",
    "**/.config/git/credentials",
    "**/.docker/config.json",
    "**/.kube/config",
    "**/.azure/**",
    "**/.vault-token",
    "**/.my.cnf",
    "**/.cargo/credentials*",
    "**/.gem/credentials",
    "**/.terraform.d/credentials.tfrc.json",
    "**/.local/share/keyrings/**",
    "**/.pyagentd-snapshots",  # what files of other projects were, among them perhaps secret ones
    "**/.pyagentd-snapshots/**",
    # Of this process and of others of the user: variables hold keys, and what is open or in memory has no path.
    "/proc/*/environ",
    "/proc/*/mem",
    "/proc/*/fd/**",
    "/proc/*/map_files/**",
    "/proc/*/task/*/environ",
    "/proc/*/task/*/mem",
    "/proc/*/task/*/fd/**",
)

COMMAND_DEVICES = frozenset(
    {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/stdin", "/dev/stdout", "/dev/stderr"}
)
"""What any command may redirect from and to: it is the command's own, or nothing is kept there."""
