"""A session in motion: branches, recording, turns, runs, approvals and recovery."""
