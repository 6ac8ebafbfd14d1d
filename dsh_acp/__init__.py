"""A coding agent in your editor whose every model request is proved from a durable log.

Reading order: `messages` (the vocabulary), `log` (what happened and what follows from it),
`agent` (the loop that turns input into requests and calls), `llm` and `tools` (the two things it
reaches for), `acp` over `wire` (the editor's side), `snapshot` (recorded sessions as tests),
`commands` (everything a person types).
"""

__version__ = "0.1.0"
