"""What a user can name: sub-agents, compaction, history, hooks, schedules, MCP servers, named agents and more."""
