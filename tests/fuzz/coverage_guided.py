"""Fuzzes every parser with atheris, each in a process of its own; `make fuzz` runs it.

usage: coverage_guided.py RUNS [TARGET…]      the exit code is 1 when one crashed or hung
"""

from pathlib import Path
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]
TIMEOUT_S = 10
"""One input that takes so long is a hang."""


def fuzz(name: str, runs: str, corpus: str) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris  # pyright: ignore[reportMissingImports]

    with atheris.instrument_imports(include=["dsh_acp"]):
        from fuzz_targets import TARGETS

    target = TARGETS[name]
    tokens = Path(corpus, "tokens")
    escaped = ("".join(f"\\x{byte:02x}" for byte in token) for token in target.tokens)
    tokens.write_text("".join(f'"{token}"\n' for token in escaped if len(token) < 250), "utf-8")
    seeds = Path(corpus, "seeds")
    seeds.mkdir()
    for number, seed in enumerate(target.seeds):
        (seeds / str(number)).write_bytes(seed)
    options = [f"-runs={runs}", f"-timeout={TIMEOUT_S}", "-max_len=4096", "-print_final_stats=1"]
    options += [f"-dict={tokens}", f"-artifact_prefix={corpus}/", "-verbosity=1"]
    atheris.Setup([sys.argv[0], *options, str(seeds)], target.run)
    atheris.Fuzz()


def main(runs: str, names: list[str]) -> int:
    from fuzz_targets import TARGETS

    failed = 0
    for name in names or list(TARGETS):
        with tempfile.TemporaryDirectory() as corpus:
            since = time.monotonic()
            ran = subprocess.run(
                [sys.executable, __file__, "--one", name, runs, corpus],
                capture_output=True,
                check=False,
            )
            seconds = time.monotonic() - since
            done = f"{runs} runs in {seconds:.0f} s" if ran.returncode == 0 else "FAILED"
            sys.stdout.write(f"{name:12} {done}\n")
            if ran.returncode:
                failed += 1
                sys.stdout.write(ran.stderr.decode("utf-8", "replace")[-3000:])
                for path in Path(corpus).glob("[ct]*-*"):
                    sys.stdout.write(f"{path.name}: {path.read_bytes()!r}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        fuzz(*sys.argv[2:])
    sys.exit(main(sys.argv[1], sys.argv[2:]))
