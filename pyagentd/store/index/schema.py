"""The tables of ``state.db`` as migrations: version n is reached by running the first n scripts.

A script that was released is never changed. What a table derives from the sessions' files may be dropped and made
anew by a later script, since it is filled again by itself; ``settings``, ``audit``, ``schedules``, ``agents``,
``contexts`` and ``tasks`` may not.

``chat_sessions``, ``chat_messages`` and ``chat_parts`` have the columns of neighbours B.2 and some of our own. A row
of ``chat_sessions`` is a branch or an agent; its ``id`` is the directory below the sessions root (absolute for a
session elsewhere), because ids of messages and agents repeat in the branches of a session.
"""

from __future__ import annotations

OWNED = ("settings", "audit", "schedules", "deliveries", "agents", "contexts", "tasks")  # nobody else has their rows

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

    CREATE TABLE chat_sessions (
      id TEXT PRIMARY KEY,
      agent TEXT NOT NULL,
      workspace_root TEXT,
      model_json TEXT NOT NULL,
      parent_id TEXT,
      parent_message_id TEXT,
      permissions_json TEXT NOT NULL DEFAULT '[]',
      metadata_json TEXT NOT NULL DEFAULT '{}',
      prompt_tokens INTEGER NOT NULL DEFAULT 0,
      completion_tokens INTEGER NOT NULL DEFAULT 0,
      reasoning_tokens INTEGER NOT NULL DEFAULT 0,
      cache_read INTEGER NOT NULL DEFAULT 0,
      cache_write INTEGER NOT NULL DEFAULT 0,
      total_tokens INTEGER NOT NULL DEFAULT 0,
      cost_usd REAL NOT NULL DEFAULT 0,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      archived_at INTEGER,
      title TEXT NOT NULL,
      session_id TEXT NOT NULL,
      branch_name TEXT NOT NULL,
      is_agent INTEGER NOT NULL,
      preset TEXT,                     -- as the metadata says, like the next
      created TEXT,
      plan_stamp TEXT NOT NULL,        -- the three files as they were read: mtime in ns, size, inode
      journal_stamp TEXT NOT NULL,
      document_stamp TEXT NOT NULL,
      bookmark_json TEXT NOT NULL,     -- how far messages.jsonl was read
      run_json TEXT NOT NULL,          -- the last row of the last run, or null
      reread INTEGER NOT NULL          -- 1: reading what is new is not enough, the log does not have all
    ) WITHOUT ROWID;
    CREATE INDEX chat_sessions_agent ON chat_sessions (agent, updated_at);
    CREATE INDEX chat_sessions_workspace ON chat_sessions (workspace_root, updated_at);
    CREATE INDEX chat_sessions_parent ON chat_sessions (parent_id);
    CREATE INDEX chat_sessions_archived ON chat_sessions (archived_at);

    CREATE TABLE chat_messages (
      session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
      id TEXT NOT NULL,
      role TEXT NOT NULL,
      metadata_json TEXT NOT NULL,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      removed INTEGER NOT NULL,        -- 1: the user removed it from the document
      pieces TEXT NOT NULL,            -- hashes of what the document should show of it
      PRIMARY KEY (session_id, id)
    ) WITHOUT ROWID;
    CREATE INDEX chat_messages_created ON chat_messages (session_id, created_at);

    CREATE TABLE chat_parts (
      session_id TEXT NOT NULL,
      id TEXT NOT NULL,
      message_id TEXT NOT NULL,
      "index" INTEGER NOT NULL,
      type TEXT NOT NULL,
      data_json TEXT NOT NULL,
      tool_call_id TEXT,
      tool_state TEXT,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      streamed TEXT NOT NULL,          -- text that came after data_json was recorded
      edited TEXT,                     -- what the user put in its place
      removed INTEGER NOT NULL,
      PRIMARY KEY (session_id, id),
      FOREIGN KEY (session_id, message_id) REFERENCES chat_messages (session_id, id) ON DELETE CASCADE
        DEFERRABLE INITIALLY DEFERRED
    ) WITHOUT ROWID;
    CREATE INDEX chat_parts_message ON chat_parts (session_id, message_id, "index");
    CREATE INDEX chat_parts_call ON chat_parts (tool_call_id);

    CREATE TABLE texts (               -- what can be found; its id is the row of the index
      id INTEGER PRIMARY KEY,
      session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
      message_id TEXT,                 -- with its part; null: a title, or text that only the document has
      part_id TEXT,
      origin TEXT NOT NULL,            -- the same in every copy of a text
      role TEXT NOT NULL,
      kind TEXT NOT NULL,
      hidden INTEGER NOT NULL,
      created_at INTEGER NOT NULL,
      text TEXT                        -- null: it is that of the part
    );
    CREATE INDEX texts_place ON texts (session_id, message_id);
    CREATE INDEX texts_origin ON texts (origin);

    CREATE VIRTUAL TABLE texts_index USING fts5 (
      text, content = '', tokenize = "unicode61 remove_diacritics 2"
    );
    """,
    """
    CREATE TABLE audit (               -- every decision about a tool call; nobody's copy, and never changed
      id INTEGER PRIMARY KEY,
      at_ms INTEGER NOT NULL,          -- epoch
      session TEXT NOT NULL,           -- id of the session at the root of the tree
      branch_dir TEXT NOT NULL,        -- of the branch or agent that acted, as chat_sessions.id
      agent TEXT,                      -- the agent's id; null: the session itself
      run_id TEXT NOT NULL,
      tool TEXT NOT NULL,
      action TEXT NOT NULL,
      decision TEXT NOT NULL,          -- allow, ask_approved, ask_denied, deny
      rule TEXT NOT NULL,              -- what decided: "scope", "grant REGEX", "protected"...
      reason TEXT NOT NULL,            -- of a denial, as the model was told; what the human said
      by TEXT                          -- the client through which a human decided; null: a rule did
    );
    CREATE INDEX audit_session ON audit (session, id);
    CREATE INDEX audit_branch ON audit (branch_dir, id);

    CREATE TABLE pending (             -- branches with something that waits; found again by opening them
      branch_dir TEXT NOT NULL,        -- as chat_sessions.id
      kind TEXT NOT NULL,              -- ask, background
      id TEXT NOT NULL,
      created_at INTEGER NOT NULL,     -- epoch ms
      data_json TEXT NOT NULL DEFAULT '{}',
      PRIMARY KEY (branch_dir, kind, id)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE schedules (           -- turns that begin by themselves; nobody's copy
      id TEXT PRIMARY KEY,
      branch_dir TEXT NOT NULL,        -- whose turns, as chat_sessions.id
      source TEXT NOT NULL,            -- schedule: a person made it; self-schedule: the agent itself
      text TEXT NOT NULL,              -- what the message says
      reason TEXT NOT NULL,            -- of a self-schedule
      kind TEXT NOT NULL,              -- at, every, cron
      value TEXT NOT NULL,             -- ISO 8601 in UTC, seconds, or a cron expression
      zone TEXT NOT NULL,              -- of a cron expression: an IANA name; "": that of the machine
      auth_subject TEXT NOT NULL,      -- who made it
      options_json TEXT NOT NULL,      -- of the run: {env, allow}
      created_at INTEGER NOT NULL,     -- epoch ms, like the next
      next_at INTEGER NOT NULL,
      expires_at INTEGER,              -- fires once more then, and is gone; null: never
      fired INTEGER NOT NULL DEFAULT 0,
      last_at INTEGER,
      last_error TEXT NOT NULL DEFAULT ''
    ) WITHOUT ROWID;
    CREATE INDEX schedules_next ON schedules (next_at);
    CREATE INDEX schedules_branch ON schedules (branch_dir);

    CREATE TABLE deliveries (          -- what triggers brought, for their limits and against doubles
      source TEXT NOT NULL,
      delivery_id TEXT NOT NULL,
      branch_dir TEXT NOT NULL,
      at_ms INTEGER NOT NULL,
      message_id TEXT NOT NULL,
      PRIMARY KEY (branch_dir, source, delivery_id)
    ) WITHOUT ROWID;
    CREATE INDEX deliveries_at ON deliveries (at_ms);
    """,
    """
    CREATE TABLE agents (              -- named agents, destroyed ones too; nobody's copy, as are the next two
      name TEXT PRIMARY KEY,
      dir TEXT NOT NULL,               -- absolute
      session_id TEXT NOT NULL,
      channel_id TEXT,                 -- of agent.json, like the next two: as it was last read
      model TEXT,
      permissions TEXT NOT NULL,       -- a profile's name, or a profile as JSON
      created_at TEXT NOT NULL,        -- ISO 8601
      status TEXT NOT NULL,            -- created, idle, active, destroyed
      changed_at INTEGER NOT NULL      -- epoch ms, of the status
    ) WITHOUT ROWID;

    CREATE TABLE contexts (            -- conversations that were saved, of named agents and of sessions
      id TEXT PRIMARY KEY,
      agent_name TEXT NOT NULL,        -- or the session's id
      description TEXT NOT NULL,
      saved_at TEXT NOT NULL,          -- ISO 8601
      message_count INTEGER NOT NULL,
      file_path TEXT NOT NULL,         -- absolute
      trigger TEXT NOT NULL,           -- idle_timeout, manual_save, shutdown, context_clear, destroy
      first_seq INTEGER,               -- rows of messages.jsonl that it holds
      last_seq INTEGER
    ) WITHOUT ROWID;
    CREATE INDEX contexts_agent ON contexts (agent_name, saved_at);

    CREATE TABLE tasks (               -- commands that run behind a conversation
      branch_dir TEXT NOT NULL,        -- of the branch or agent that began it, as chat_sessions.id
      id TEXT NOT NULL,                -- task_001, anew in each agent_name
      agent_name TEXT NOT NULL,        -- or the session's id
      command TEXT NOT NULL,
      cwd TEXT NOT NULL,
      started_at TEXT NOT NULL,        -- ISO 8601, like the other time
      pid INTEGER NOT NULL,
      pid_started INTEGER NOT NULL,    -- the kernel's start time of the process, in ticks since boot
      status TEXT NOT NULL,            -- running, completed, failed, killed, lost
      exit_code INTEGER,
      ended_at TEXT,
      output_path TEXT NOT NULL,       -- absolute
      wake INTEGER NOT NULL,           -- 1: its end begins a turn
      tool_call_id TEXT,
      PRIMARY KEY (agent_name, id)
    ) WITHOUT ROWID;
    CREATE INDEX tasks_status ON tasks (status);

    ALTER TABLE audit ADD COLUMN detail TEXT;  -- JSON: what was changed, old and new
    ALTER TABLE audit ADD COLUMN user TEXT;    -- who triggered or approved it, where that is known
    """,
    """
    ALTER TABLE agents ADD COLUMN intent TEXT; -- what was begun and has not ended; null: nothing
    """,
    """
    CREATE TABLE served (              -- who answered; "" is not known
      id INTEGER PRIMARY KEY,
      provider TEXT NOT NULL,
      model TEXT NOT NULL,
      UNIQUE (provider, model)
    );
    CREATE TABLE requests (            -- what the provider counted, of every request of every answer
      at_ms INTEGER NOT NULL,          -- epoch
      origin INTEGER NOT NULL,         -- with at_ms the same in every copy of it
      copied INTEGER NOT NULL,         -- 1: another session has had it first
      session_id TEXT NOT NULL,
      message_id TEXT NOT NULL,
      served INTEGER NOT NULL REFERENCES served (id),
      longer INTEGER NOT NULL,         -- than so many tokens was its prompt
      input INTEGER NOT NULL,
      output INTEGER NOT NULL,
      reasoning INTEGER NOT NULL,
      cache_read INTEGER NOT NULL,
      cache_write INTEGER NOT NULL,
      PRIMARY KEY (at_ms, origin, copied, session_id, message_id),
      FOREIGN KEY (session_id, message_id) REFERENCES chat_messages (session_id, id) ON DELETE CASCADE
        DEFERRABLE INITIALLY DEFERRED
    ) WITHOUT ROWID;
    CREATE INDEX requests_message ON requests (session_id, message_id);
    ALTER TABLE chat_sessions ADD COLUMN spent_json TEXT NOT NULL DEFAULT '[]';  -- sums of its requests
    UPDATE chat_sessions SET journal_stamp = '', reread = 1;  -- all logs are read once more
    """,
)
