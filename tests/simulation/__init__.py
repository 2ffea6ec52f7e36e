"""Random schedules of what people, networks and machines do to a conversation, in virtual time; see ``schedule``.

``python -m tests.simulation --schedules 2000 --seed 1`` runs many; one that fails is run again with its own number.
"""
