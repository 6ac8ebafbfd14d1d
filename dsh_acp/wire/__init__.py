"""JSON-RPC 2.0 over lines of text; knows no method of any protocol.

`frames` is the protocol as values, without IO. `stdio` moves lines through file descriptors.
`jsonrpc` joins the two into a peer that answers and asks.
"""
