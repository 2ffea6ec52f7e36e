"""Taking turns back, bringing them back, asking again, and forks."""
