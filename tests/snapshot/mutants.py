"""Does the kit notice? One-line faults in bridge, loop, log and version 2, each played once.

    python tests/snapshot/mutants.py [-k NAME] [-j JOBS]

Each fault is made in a copy of the tree in a temporary folder, where `dsh-acp snapshot check` then
runs until the first scenario fails. A fault that no scenario notices survives. Exit code 0 when at
most two do. A fault whose line is no longer in the source is an error: write it anew.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS_ALLOWED = 2


class Fault(NamedTuple):
    """In `file`, the first occurrence of `old` becomes `new`.

    Scenarios with `near` in their name are played first; all are, when those do not notice.
    """

    name: str
    near: str
    file: str
    old: str
    new: str


FAULTS = (
    # the bridge
    Fault("max-tokens-hidden", "max-tokens", "acp/prompts.py", '"max_tokens"', '"end_turn"'),
    Fault("refusal-hidden", "refusal", "acp/prompts.py", 'return "refusal"', 'return "end_turn"'),
    Fault(
        "cancel-keeps-queue",
        "cancel-queue",
        "acp/conversation.py",
        "abort(USER)",
        "abort(USER, keep_inbox=True)",
    ),
    Fault(
        "auth-error-hidden", "error-auth", "acp/prompts.py", "AUTH_REQUIRED if", "INTERNAL_ERROR if"
    ),
    Fault(
        "modes-forgotten", "handshake", "acp/v1_methods.py", 'result["modes"] =', 'result["mode"] ='
    ),
    Fault("steering-queued", "steer", "acp/sessions.py", '.get("steer")', '.get("stir")'),
    Fault(
        "wrong-version",
        "handshake",
        "acp/handshake.py",
        "if version <= asked",
        "if version >= asked",
    ),
    Fault("unknown-session-code", "unknown", "acp/errors.py", "= -32002", "= -32602"),
    Fault(
        "odd-answer-allows",
        "unknown-option",
        "acp/permission.py",
        '(chosen, "reject_once")',
        '(chosen, "allow_once")',
    ),
    Fault(
        "failed-command-green",
        "bash-failure",
        "acp/calls.py",
        "is_error or _exited_badly(card)",
        "is_error",
    ),
    Fault(
        "thoughts-spoken",
        "reasoning",
        "acp/projection.py",
        '"agent" if kind == "text" else "thought"',
        '"agent"',
    ),
    Fault(
        "new-file-has-old-text", "write-new", "acp/cards.py", "if diff.old is not None:", "if True:"
    ),
    Fault(
        "unknown-mode-accepted",
        "set-mode",
        "acp/options.py",
        "if mode_id not in",
        "if mode_id in ()  and mode_id not in",
    ),
    Fault(
        "options-not-announced",
        "set-mode",
        "acp/voice.py",
        "is_new_mode = not before or",
        "is_new_mode = False and",
    ),
    Fault(
        "unsaved-buffer-ignored",
        "editor-buffer",
        "acp/world.py",
        "return _buffered(_with_endings_of(buffer, on_disk.data))",
        "return on_disk",
    ),
    Fault(
        "terminal-not-released",
        "editor-terminal",
        "acp/terminals.py",
        '"release", of_terminal',
        '"output", of_terminal',
    ),
    Fault(
        "list-ignores-directory",
        "session-list",
        "acp/listing.py",
        "None if cwd is None else os.path.normpath(cwd)",
        "None",
    ),
    # the loop
    Fault(
        "two-prompts-one-turn",
        "queue-prompts",
        "agent/inbox.py",
        '"next-turn", 0, 1)',
        '"next-turn", 0, 2)',
    ),
    Fault(
        "cancelled-call-unanswered",
        "cancel-tool",
        "agent/calls.py",
        "self._record(slot, BEFORE_DISPATCH, ())",
        "pass",
    ),
    Fault(
        "cut-answer-goes-on", "max-tokens", "agent/loop.py", '== "max-tokens":', '== "max_tokens":'
    ),
    Fault(
        "interruption-unmarked",
        "cancel-stream",
        "agent/loop.py",
        "interrupted=True",
        "interrupted=UNSET",
    ),
    Fault(
        "outside-unasked",
        "permission-outside",
        "agent/policy.py",
        "if not is_inside(path, roots)",
        "if not path",
    ),
    Fault(
        "plan-mode-writes",
        "preset-plan",
        "agent/policy.py",
        "if plan and changes_something:",
        "if False:",
    ),
    Fault(
        "remembered-no-allows",
        "reject-always",
        "agent/policy.py",
        '"reject" if grant.decision == "reject" else "allow"',
        '"allow"',
    ),
    Fault("retries-miscounted", "retry", "agent/recovery.py", "retry=used + 1", "retry=used + 2"),
    Fault(
        "resume-unmarked", "session-resume", "agent/request.py", 'else "resume"', 'else "initial"'
    ),
    Fault(
        "contexts-lost",
        "hook-context",
        "agent/execution.py",
        "contexts.extend(answer.contexts)",
        "pass",
    ),
    # version 2
    Fault(
        "v2-idle-without-reason",
        "text-turn",
        "acp/v2_prompts.py",
        'return {"stopReason": outcome}',
        "return {}",
    ),
    Fault(
        "v2-receipt-of-another",
        "text-turn",
        "acp/v2_prompts.py",
        'settle({"messageId": message.id})',
        'settle({"messageId": "m"})',
    ),
    Fault(
        "v2-error-swallowed",
        "error-quota",
        "acp/v2_prompts.py",
        'return {"stopReason": "error", "error": error}',
        'return {"stopReason": "end_turn"}',
    ),
    Fault(
        "v2-question-unsaid",
        "bash-command",
        "acp/v2_prompts.py",
        'return self._say("requires_action")',
        'return b""',
    ),
    Fault(
        "v2-exit-forgotten",
        "bash-failure",
        "acp/v2.py",
        "{} if view is None else _exit_status(view)",
        "{}",
    ),
    Fault(
        "v2-new-file-modified",
        "write-new-file",
        "acp/patches.py",
        'change["operation"] = "add"',
        'change["operation"] = "modify"',
    ),
    # the log
    Fault("crash-called-complete", "crash-mid", "log/repair.py", '"interrupted"}', '"completed"}'),
    Fault(
        "outcome-called-unstarted",
        "crash-mid-tool",
        "log/repair.py",
        "started = call_seq is not None",
        "started = False",
    ),
    Fault(
        "fork-forgets-its-seed",
        "session-fork",
        "log/store.py",
        "seed_length=boundary + 1",
        "seed_length=boundary",
    ),
)


def plant(fault: Fault, tree: Path) -> None:
    """Make the fault in `tree`.

    Raises:
        LookupError: its line is not there any more.
    """
    path = tree / "dsh_acp" / fault.file
    text = path.read_text("utf-8")
    if fault.old not in text:
        raise LookupError(f"{fault.old!r} is not in {fault.file} any more")
    path.write_text(text.replace(fault.old, fault.new, 1), "utf-8")


def copy_tree(tree: Path) -> None:
    """What a check needs, without what it writes."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("dsh_acp", "fixtures"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tree)


def check(folder: str, jobs: int, *more: str) -> tuple[bool, str]:
    """Run the check in a tree: whether it is green, and else what it said first."""
    argv = [sys.executable, "-m", "dsh_acp", "snapshot", "check", "-x", "-j", str(jobs), *more]
    env = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    return done.returncode == 0, lines[0] if lines else done.stderr.strip()[-200:]


def try_fault(fault: Fault, jobs: int) -> tuple[str, float]:
    """The first line that noticed the fault, or "" when nothing did; and the seconds it took."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        try:
            plant(fault, tree)
        except LookupError as exc:
            sys.stderr.write(f"{fault.name}: {exc}\n")
            return "", 0
        for part in (["-k", fault.near], []):
            is_green, words = check(folder, jobs, *part)
            if not is_green:
                return words or "exit code", time.monotonic() - started
    return "", time.monotonic() - started


def main(argv: Sequence[str] | None = None) -> int:
    """Play the faults; 1 when too many survive."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-k", default="", metavar="NAME", help="only faults with this in the name")
    parser.add_argument("-j", type=int, default=4, metavar="JOBS", help="agents at a time")
    parser.add_argument("-p", type=int, default=1, metavar="N", help="faults at a time")
    options = parser.parse_args(argv)
    chosen = [fault for fault in FAULTS if options.k in fault.name]
    survivors: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy_tree(Path(folder))
        is_green, words = check(folder, options.j)
    if not is_green:
        sys.stderr.write(f"without any fault the check is not green: {words}\n")
        return 2
    with ThreadPoolExecutor(options.p) as pool:
        results = pool.map(lambda fault: try_fault(fault, options.j), chosen)
        for fault, (noticed, seconds) in zip(chosen, results, strict=True):
            survivors += [] if noticed else [fault.name]
            words = noticed or "SURVIVED"
            sys.stdout.write(f"{fault.name:28} {seconds:5.1f} s  {words}\n")
            sys.stdout.flush()
    caught = len(chosen) - len(survivors)
    sys.stdout.write(f"{caught} of {len(chosen)} noticed\n")
    return 1 if len(survivors) > SURVIVORS_ALLOWED else 0


if __name__ == "__main__":
    sys.exit(main())
