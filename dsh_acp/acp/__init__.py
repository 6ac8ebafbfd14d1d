"""The Agent Client Protocol on top of the agent: what editors talk to.

Reading order: `handshake` (which version is spoken), `updates` (log entries as what a person sees,
the one projection behind live streaming and replay), `conversation` (one session at the editor),
`sessions` (all of them), `bridge` (the connection), `server` (the process). None of these knows a
version's words. What a version adds is in its own files, none of which knows the other's:
`v1_handshake` (what is offered), `v1` (updates as frames), `v1_prompts` (how prompts are
answered), `v1_methods`; and the same for `v2`. `codec`, `dialect` and `prompts` say what a version
has to give.
"""
