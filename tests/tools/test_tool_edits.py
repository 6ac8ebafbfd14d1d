"""Finding what an edit means, and showing what it did."""

from hypothesis import given, settings, strategies as st
import pytest

from dsh_acp.tools import diffs, edits


def applied(text: str, old: str, new: str) -> list[str]:
    found: list[str] = []
    for plan in edits.plan(text, old, new):
        result = text
        for change in reversed(plan.changes):
            result = result[: change.start] + change.text + result[change.end :]
        found.append(result)
    return found


@pytest.mark.parametrize(
    ("text", "old", "new", "results"),
    [
        ("a b a", "a", "c", ["c b a", "a b c"]),
        ("aaa", "aa", "b", ["ba"]),
        # A literal match anywhere means that nothing else is looked for.
        ("“x”\n\"x\"\n", '"x"', "y", ["“x”\ny\n"]),
        ("say “x”\n", 'say "x"', 'say "z"', ["say “z”\n"]),
        ("a\u00a0= 1 – 2\n", "a = 1 - 2", "a = 1 - 3", ["a\u00a0= 1 – 3\n"]),
        ("“x” “x”\n", '"x"', "y", []),
        ("  foo()  \n  bar()\n", "foo()\nbar()\n", "foo()\nbaz()\n", ["  foo()  \n  baz()\n"]),
        ("\tfoo()\n\t\tbar()\n", "foo()\n    bar()", "foo()\n    baz()\n        qux()",
         ["\tfoo()\n\t\tbaz()\n\t\t    qux()\n"]),
        ("if a:\n    foo()\nif b:\n    foo()\n", "foo( )", "bar()", []),
        ("if a:\n    foo(1)\nif b:\n    foo(1)\n", "  foo(1)\n  x", "bar()", []),
        ("x:\n    foo(1)\ny:\n    foo(1)\n", "\tfoo(1)", "bar", []),
        ("one\n    two\nthree\n", "one\ntwo\nthree", "one\ntwo\nfour", []),
        ("a\n  gone()\nb\n", "\tgone()\n", "", ["a\nb\n"]),
        ("xy\n", "\txy", "z", []),
    ],
)  # fmt: skip
def test_what_an_edit_means(text: str, old: str, new: str, results: list[str]) -> None:
    assert applied(text, old, new) == results


@settings(max_examples=100)
@given(st.text("ab \n\t", max_size=20), st.text("ab \n", min_size=1, max_size=8), st.text("abc\n"))
def test_a_literal_match_is_replaced_literally(text: str, old: str, new: str) -> None:
    found = applied(text, old, new)
    if old in text:
        assert len(found) == text.count(old)
        assert found[0] == text.replace(old, new, 1)


def hunk_texts(old: str, new: str) -> list[tuple[str, str]]:
    return [(hunk.old, hunk.new) for hunk in diffs.hunks(old, new)]


def test_a_hunk_has_three_lines_of_context() -> None:
    old = "".join(f"{n}\n" for n in range(1, 31))
    new = old.replace("\n10\n", "\nten\n").replace("\n25\n", "\n")
    assert hunk_texts(old, new) == [
        ("7\n8\n9\n10\n11\n12\n13", "7\n8\n9\nten\n11\n12\n13"),
        ("22\n23\n24\n25\n26\n27\n28", "22\n23\n24\n26\n27\n28"),
    ]
    assert [hunk.line for hunk in diffs.hunks(old, new)] == [7, 22]


@pytest.mark.parametrize(
    ("old", "new", "hunks"),
    [
        ("a\r\nb\r\n", "a\nb\n", []),
        ("a\r\nb\r\nc\r\n", "a\nB\nc\n", [("a\nb\nc", "a\nB\nc")]),
        ("", "a\n", [("", "a")]),
        ("a\n", "", [("a", "")]),
        ("a\nb", "a\nb\n", [("a\nb", "a\nb\n")]),
        ("a\nb\n", "a\nc\n", [("a\nb", "a\nc")]),
        ("a\n" * 600_000, "b", []),
    ],
)
def test_small_and_odd_differences(old: str, new: str, hunks: list[tuple[str, str]]) -> None:
    assert hunk_texts(old, new) == hunks


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from("abcde"), max_size=30),
    st.lists(st.sampled_from("abcdef"), max_size=30),
)
def test_hunks_applied_in_order_give_the_new_text(old: list[str], new: list[str]) -> None:
    before, after = "".join(f"{x}\n" for x in old), "".join(f"{x}\n" for x in new)
    result: list[str] = []
    rest = old
    for hunk in diffs.hunks(before, after):
        wanted = hunk.old.split("\n") if hunk.old else []
        # Lines up to the hunk are common to both, so its place in the new text finds it.
        lead = hunk.line - 1 - len(result)
        assert rest[lead : lead + len(wanted)] == wanted
        result += rest[:lead] + (hunk.new.split("\n") if hunk.new else [])
        rest = rest[lead + len(wanted) :]
    assert result + rest == new
