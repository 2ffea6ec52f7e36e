"""Commands that run behind a conversation: they outlive turn, client and daemon (SPEC 003 Running Tasks)."""
