"""What is kept of output, and what a model reads of it."""

from pathlib import Path

from hypothesis import given, settings, strategies as st
import pytest

from dsh_acp.tools.output import Tail, decode, from_boundary, readable, to_boundary
from dsh_acp.tools.shell import render
from dsh_acp.tools.tool import CommandEnd


def ended(stdout: bytes = b"", stderr: bytes = b"", **how: object) -> str:
    settings = {"exit_code": 0, "signal": None, **how}
    return render(CommandEnd(stdout=stdout, stderr=stderr, **settings), 5000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ended(b"hi\n"), "hi\n"),
        (ended(b"hi"), "hi"),
        (ended(), "(no output)"),
        (ended(stderr=b"bad\n"), "[stderr]\nbad\n"),
        (ended(b"hi", b"bad"), "hi\n[stderr]\nbad"),
        (ended(exit_code=3), "(no output)\n[exit code: 3]"),
        (ended(b"hi", exit_code=3), "hi\n[exit code: 3]"),
        (ended(b"hi\n", exit_code=None, signal="SIGKILL"), "hi\n[killed by signal: SIGKILL]"),
        (
            ended(b"1\n", exit_code=None, signal="SIGTERM", timed_out=True),
            "1\n[timed out after 5000ms]\n[killed by signal: SIGTERM]",
        ),
        (
            ended(b"tail", b"bad", stdout_truncated=True, full_stdout="/s/f", exit_code=1),
            "tail\n[output truncated; full output: /s/f]\n[stderr]\nbad\n[exit code: 1]",
        ),
        (
            ended(b"", b"bad", stderr_truncated=True),
            "[stderr]\nbad\n[output truncated; full output: (unavailable)]",
        ),
        # A stop may cut the last character; an end by itself does not.
        (
            ended("a读".encode()[:3], exit_code=None, signal="SIGTERM"),
            "a\n[killed by signal: SIGTERM]",
        ),
        (ended(b"\xff"), "\ufffd"),
    ],
)  # fmt: skip
def test_the_text_of_a_command_that_ended(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\x1b[31mred\x1b[0m\r10%\r100%\n", "red\n100%\n"),
        ("10%\r55%\r100%\n", "100%\n"),
        ("⠋ Installing\r⠙ Installing\rDone\n", "Done\n"),
        ("[=>   ] 1/3\r[==>  ] 2/3\r[===>] 3/3\ndone\n", "[===>] 3/3\ndone\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("\r\x1b[Kline\n", "line\n"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "textlink"),
        ("\x1b(B\x1b[?25lx\x1b[2J\x1b[1;1H\x1bcy\x07\x00", "xy"),
        ("N\bNA\bAM\bME\bE", "NAME"),
        ("\x1b]0;never closed\nnext", "\nnext"),
        ("plain\ttext é读😀\n", "plain\ttext é读😀\n"),
        ("\x9b1mx\x85y", "xy"),
        ("", ""),
    ],
)
def test_a_model_reads_no_terminal_control(raw: str, text: str) -> None:
    assert readable(raw) == text


@settings(max_examples=200)
@given(st.text())
def test_readable_text_stays_as_it_is(text: str) -> None:
    once = readable(text)
    assert readable(once) == once
    assert not set(once) & set(map(chr, [*range(9), 11, 12, 13, *range(14, 32), *range(127, 160)]))


@pytest.mark.parametrize("char", ["é", "读", "😀"])
@pytest.mark.parametrize("limit", [*range(1, 13), 65_536])
def test_a_kept_tail_begins_on_a_character(char: str, limit: int) -> None:
    data = (char * 40_000).encode()
    for size in range(1, 8):
        tail = Tail(None, limit)
        for start in range(0, len(data), 9_999 + size):
            tail.feed(data[start : start + 9_999 + size])
        assert data.endswith(tail.kept)
        assert limit - 3 <= len(tail.kept) <= limit
        assert tail.kept.decode() == char * (limit // len(char.encode()))
        assert tail.truncated
        assert tail.full is None


@settings(max_examples=100)
@given(st.text(st.sampled_from("aé读😀")), st.integers(0, 40))
def test_cuts_fall_on_characters(text: str, at: int) -> None:
    data = text.encode()
    head, tail = to_boundary(data[:at]), from_boundary(data[at:])
    assert text.startswith(head.decode())
    assert text.endswith(tail.decode())
    assert len(head) + len(tail) + 4 >= len(data)
    assert to_boundary(data) == from_boundary(data) == data


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=40)), st.integers(1, 60))
def test_what_is_cut_is_kept_in_a_file(parts: list[bytes], limit: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "new" / "spill"
        tail = Tail(file, limit)
        for part in parts:
            tail.feed(part)
        tail.close()
        whole = b"".join(parts)
        assert whole.endswith(tail.kept)
        assert tail.truncated == (len(whole) > limit) == file.exists()
        assert tail.full == (str(file) if tail.truncated else None)
        if tail.truncated:
            assert file.read_bytes() == whole
            assert file.stat().st_mode & 0o77 == 0


def test_a_disk_that_refuses_costs_only_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    tail = Tail(tmp_path / "file" / "spill", 4)
    tail.feed(b"123456")
    assert (tail.kept, tail.truncated, tail.full) == (b"3456", True, None)


def test_binary_output_is_counted_not_shown() -> None:
    assert decode(bytes(range(256)) * 10) == "(binary output: 2560 bytes not shown)"
    assert decode(b"caf\xe9\n") == "caf\ufffd\n"
