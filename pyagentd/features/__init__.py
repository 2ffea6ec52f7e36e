"""What a user can name: sub-agents, compaction, history, hooks, schedules, servers of tools, named agents and more."""
