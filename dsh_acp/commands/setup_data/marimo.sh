#!/bin/sh
# marimo connects to five fixed agents over WebSocket; this one takes the place of one of them.
# Choose that agent in marimo's panel: claude is on port 3017, gemini on 3019, codex on 3021.
# Needs Node.js. In marimo, switch on the experimental setting external_agents first.
# Whoever reaches the port can use the agent, and answers its questions: end this after use.
exec npx -y stdio-to-ws "@COMMAND@" --port "${1:-3017}"
