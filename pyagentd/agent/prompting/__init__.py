"""What the model is told before the conversation: the system prompt, instructions of a project, skills."""
