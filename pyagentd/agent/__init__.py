"""The run: a conversation's loop over model and tools, its recording, and the agents it spawns."""
