"""Names of remote tools."""

from random import Random
import re

from hypothesis import given, strategies as st

from dsh_acp.mcp import naming

NAMES = st.lists(st.text(max_size=80), max_size=8)


@given(NAMES, NAMES)
def test_every_name_is_valid_for_model_apis_and_unique(
    servers: list[str], tools: list[str]
) -> None:
    labels = naming.labels(servers)
    found = [name for label in labels.values() for name in naming.tool_names(label, tools).values()]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in found)
    assert all(name.startswith("mcp__") for name in found)
    assert len(set(found)) == len(set(servers)) * len(set(tools))


@given(NAMES, st.randoms())
def test_names_do_not_depend_on_the_order_of_answers(tools: list[str], random: Random) -> None:
    shuffled = [*tools]
    random.shuffle(shuffled)
    assert naming.tool_names("s", tools) == naming.tool_names("s", shuffled)


@given(NAMES, st.text(min_size=1, max_size=40))
def test_the_parts_of_a_name_can_be_told_again(servers: list[str], tool: str) -> None:
    for label in naming.labels(servers).values():
        name = naming.tool_names(label, [tool])[tool]
        parts = naming.parts(name)
        assert parts is not None
        assert parts[0] == label


def test_ordinary_names_stay_as_they_are() -> None:
    assert naming.labels(["github"]) == {"github": "github"}
    assert naming.tool_names("github", ["get_issue", "a-b"]) == {
        "get_issue": "mcp__github__get_issue",
        "a-b": "mcp__github__a-b",
    }


def test_a_clean_name_is_kept_when_another_would_become_the_same() -> None:
    found = naming.tool_names("s", ["read file", "read_file"])
    assert found["read_file"] == "mcp__s__read_file"
    assert re.fullmatch(r"mcp__s__read_file-[0-9a-f]{6}", found["read file"])


def test_long_names_are_cut_and_still_differ() -> None:
    found = naming.tool_names("server", ["x" * 100 + "a", "x" * 100 + "b"])
    first, second = found.values()
    assert len(first) == len(second) == 64
    assert first != second


def test_other_tools_have_no_parts() -> None:
    assert naming.parts("read") is None
    assert naming.parts("mcp__only") is None
    assert naming.parts("mcp__server__tool__x") == ("server", "tool__x")
