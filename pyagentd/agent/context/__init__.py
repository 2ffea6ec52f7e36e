"""How full the model's window is, and what a conversation cost."""
