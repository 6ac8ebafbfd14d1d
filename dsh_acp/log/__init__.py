"""What happened in a session, and everything that follows from it.

Reading order: `payloads` and `plugin_payloads` (what an event can say), `events` (the envelope and
the table of types), `surface`, `relations`, `header` (the folds), `history` (entries with their
folds), `session_log` (the writer), `store` (files), `audit` (the same folds again, independently).
"""
