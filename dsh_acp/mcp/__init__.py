"""MCP servers: connections, what they offer, and calls, through the official SDK.

`naming` makes tool names, `values` is what crosses this package's border, `servers` is all the
servers of one session, `connection` one of them over its lives, `stdio` a server's process.
`link`, `wire` and `translation` import the SDK, and are imported by the first connection only:
that takes a second of processor time, and most sessions have no servers.
"""
