"""Sub-agents: spawned as sessions of their own, waited for or left in the background, and their results."""
