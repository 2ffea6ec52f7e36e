"""Named agents on disk: sessions with a configuration file, documents and a workspace of their own (SPEC 003, DD-32).

``names`` says what an agent may be called, ``layout`` what its directory holds, ``agentfile`` reads and writes
``agent.json``, ``making`` makes the directory. Which agents there are is a table of ``state.db``: see
``store.index.agents``.
"""
