"""The Agent Client Protocol on top of the agent: what editors talk to.

Reading order: `methods` and `handshake` (what is offered), `updates` (log entries as what a person
sees, the one projection behind live streaming and replay), `v1` (that as frames), `conversation`
(one session at the editor), `bridge` (all of them, and the methods), `server` (the process).
"""
