"""What a person, a program or an agent says: handed in at one door, queued while a run goes on, begun in its turn."""
