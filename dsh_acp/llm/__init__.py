"""Whoever serves models, behind one seam.

Reading order: `provider` (the seam), `registry` (which providers there are). For Chat
Completions: `openai`, `dialects`, `chat_body` over `bodies` (requests), `chat_stream` over `sse`,
`chat_wire`, `chat_answer`, `call_fragments`, `content_filter` and `leaked_calls` (answers). For
Anthropic: `anthropic`, `anthropic_body`, `anthropic_stream`. Connections: `endpoint`, `http`;
what goes wrong: `failures`, `waiting`, `retry`. Models without a network: `replay`, `local`;
without a model: `fake`.
"""
