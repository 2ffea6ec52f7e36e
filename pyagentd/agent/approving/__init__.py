"""May it: the decision joined with questions to a human, what they allowed for longer, what is trusted."""
