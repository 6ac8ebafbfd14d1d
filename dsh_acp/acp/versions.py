"""The protocol versions; each is imported when a connection first speaks it."""

from collections.abc import Mapping

from dsh_acp.acp.dialect import Dialect
from dsh_acp.acp.sessions import Sessions
from dsh_acp.wire.jsonrpc import Handler


def dialect(version: int) -> Dialect:
    """How a version tells of sessions."""
    if version == 1:
        from dsh_acp.acp.v1_prompts import Version1

        return Version1()
    from dsh_acp.acp.v2_prompts import Version2

    return Version2()


def handlers(version: int, sessions: Sessions) -> Mapping[str, Handler]:
    """The methods of a version, over `sessions`."""
    if version == 1:
        from dsh_acp.acp import v1_methods

        return v1_methods.handlers(sessions)
    from dsh_acp.acp import v2_methods

    return v2_methods.handlers(sessions)
