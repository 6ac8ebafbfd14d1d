"""What a shell command means to the policy: how far "always" may reach, and what looks dangerous.

A grant for a command never reaches further than a reader of its words would think. Only programs
listed here are granted by their first words, and only for plain words inside the project. Anything
a shell or another program would interpret makes the whole command its own scope.
"""

import os
import re
from typing import Final

# A letter, digit or one of these means nothing to a shell, wherever it stands in a word.
_PLAIN: Final = re.compile(r"[\w@%+=:,./\-]+", re.ASCII)

_PROGRAMS: Final = frozenset(
    "basename cat cmp cut diff dirname du echo false grep head id jq ls nl od printf pwd "
    "stat tail test tr true tree uname wc which "
    "eslint mypy pyright pytest tsc vitest jest".split()
)
"""Programs that do what their name says with any plain arguments."""

_SUBCOMMANDS: Final = {
    "git": frozenset("add blame describe diff log ls-files rev-parse shortlog show status".split()),
    "cargo": frozenset("bench build check clippy doc fmt test tree".split()),
    "go": frozenset("build doc fmt list test vet".split()),
    "npm": frozenset("ls outdated test".split()),
    "pnpm": frozenset("ls outdated test".split()),
    "yarn": frozenset("list outdated test".split()),
    "ruff": frozenset({"check"}),
    "pip": frozenset("check freeze list show".split()),
    "docker": frozenset("images logs ps".split()),
    "kubectl": frozenset("describe get logs".split()),
    "dotnet": frozenset("build test".split()),
    "mvn": frozenset("compile test".split()),
    "gradle": frozenset("build check test".split()),
}
"""Programs whose second word says what they do."""

_MODULES: Final = frozenset({"pytest", "unittest", "mypy", "ruff", "pyright", "compileall"})
_PYTHONS: Final = frozenset({"python", "python3"})
_RUNNERS: Final = frozenset({"npm", "pnpm", "yarn"})

# Options that make a listed program write a file of one's choice, or run another program.
_REACHING: Final = re.compile(
    r"--(?:output|out|exec|ext-diff|textconv|pre|plugin|parser|config|rcfile|rootdir|basetemp|"
    r"confcutdir|junit|toolexec|manifest-path|target-dir|compile|files0-from|kubeconfig|context|"
    r"host|fix|write|rule|resolve-plugins|script-shell|prefix|userconfig|global|log-file|"
    r"result-log|pastebin|override-ini|init-script|setup|format|reporter|env|require|import|"
    r"unsafe|cache|install-types|build|watch|trace|generate|python|node-options|server|token|as|"
    r"proxy|index-url|extra-index|find-links|pdbcls|shell|gradle-user-home|logger|dereference).*"
    r"|-(?:b|c|f|o|p|w|C|D|H|I|P|R|exec|toolexec|overlay|modfile|vettool|ldflags|gcflags|asmflags|"
    r"gccgoflags|compiler|pkgdir|gs).*",
    re.ASCII,
)
_FOLLOWS_LINKS: Final = {
    "diff": re.compile(r"-\w*r\w*|--recursive"),
    "tree": re.compile(r"-\w*l\w*"),
    "grep": re.compile(r"-\w*R\w*"),
}
"""Options that make a program walk through symlinks that it meets."""
_ATTACHED: Final = re.compile(r"-[^=]*/.*", re.ASCII)


def scope_of(command: str) -> str:
    """What "always allow" would cover: the first words of a simple command, else all of it."""
    exact = command.strip()
    words = exact.split(" ")
    if not all(_is_plain(word) for word in words):
        return exact
    program, rest = words[0], words[1:]
    if program in _PROGRAMS:
        follows = _FOLLOWS_LINKS.get(program)
        strays = follows is not None and any(follows.fullmatch(word) for word in rest)
        return program if _stays_inside(rest) and not strays else exact
    prefix = 0
    if rest and rest[0] in _SUBCOMMANDS.get(program, ()):
        prefix = 2
    elif program in _RUNNERS and len(rest) > 1 and rest[0] == "run" and not rest[1].startswith("-"):
        prefix = 3
    elif program in _PYTHONS and len(rest) > 1 and rest[0] == "-m" and rest[1] in _MODULES:
        prefix = 3
    if prefix and _stays_inside(words[prefix:]):
        return " ".join(words[:prefix])
    return exact


def leaves(command: str, cwd: str) -> bool:
    """Whether a word of a simple command names something outside `cwd`, by way of a symlink."""
    root = os.path.realpath(cwd)
    for word in command.split():
        for part in word.split("="):
            found = os.path.realpath(f"{root}{os.sep}{part}")
            if found != root and not found.startswith(root.rstrip(os.sep) + os.sep):
                return True
    return False


def _is_plain(word: str) -> bool:
    return _PLAIN.fullmatch(word) is not None


def _stays_inside(words: list[str]) -> bool:
    """Whether no word leads out of the project or makes the program do something else."""
    for word in words:
        if ".." in word or _REACHING.fullmatch(word) or _ATTACHED.fullmatch(word):
            return False
        if any(part.startswith("/") or ":/" in part for part in word.split("=")):
            return False
    return True


_DANGERS: Final = tuple(
    (re.compile(pattern), reason)
    for reason, patterns in {
        "deletes folders with all that is in them": [
            r"\brm\s+(?:-[\w-]+\s+)*-(?:\w*[rR]\w*|-recursive)\b"
        ],
        "acts on every file that it finds": [r"\bfind\b.*\s-(?:delete|exec)\b"],
        "overwrites history on a remote": [r"\bgit\s+push\b.*(?:--force|\s-f\b|\s\+)"],
        "discards work that is not committed": [
            r"\bgit\s+reset\s+--hard",
            r"\bgit\s+clean\s+-\w*[fdx]",
            r"\bgit\s+checkout\s+(?:-f|--\s|\.)",
        ],
        "runs what it downloads": [
            r"\b(?:curl|wget)\b.*\|\s*(?:sudo\s+)?(?:\w*sh|python3?|perl|node)\b"
        ],
        "runs with another user's rights": [r"\b(?:sudo|doas|su)\s"],
        "writes to a disk device": [
            r"\b(?:mkfs(?:\.\w+)?|fdisk|wipefs)\b",
            r"\bdd\b.*\bof=/dev/",
            r">\s*/dev/(?:sd|nvme|vd|hd|disk)",
        ],
        "changes who may write": [r"\bchmod\s+(?:-\w+\s+)*(?:777|a\+w|o\+w)", r"\bchown\s+-R\b"],
        "starts processes without end": [r":\(\)\s*\{.*\|.*&\s*\}"],
        "stops the machine or everything on it": [
            r"\b(?:shutdown|reboot|halt|poweroff)\b",
            r"\bkill(?:all)?\s+(?:-\w+\s+)*-?1\b",
        ],
        "touches credentials": [
            r"(?:^|[\s'\"=])(?:~|\$HOME|/root|/home/\w+)/\.(?:ssh|aws|gnupg|netrc|kube|docker)\b"
        ],
        "runs text that is not shown": [r"\beval\b", r"\bbase64\s+(?:-d|--decode)\b.*\|"],
    }.items()
    for pattern in patterns
)


def danger(command: str) -> str | None:
    """What a person should notice before allowing `command`, as a clause; `None` for nothing."""
    found = dict.fromkeys(reason for pattern, reason in _DANGERS if pattern.search(command))
    return "this command " + ", and ".join(found) if found else None
