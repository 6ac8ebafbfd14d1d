import json

from hypothesis import given, settings, strategies as st
import pytest

from dsh_acp.commands import jsonc

ZED = """\
// Zed settings
{
  "theme": "One Dark", // dark at night
  /* fonts */
  "buffer_font_size": 15,
  "agent_servers": {
    // mine
    "other": { "command": "other" }, // keep
  },
}
"""


def test_comments_and_everything_else_stay_where_they_are():
    entry = {"type": "custom", "command": "dsh-acp", "args": []}
    merged = jsonc.merge(ZED, {"agent_servers": {"dsh-acp": entry}})
    kept = iter(merged.splitlines())
    assert all(line in kept for line in ZED.splitlines())
    assert jsonc.parse(merged)["agent_servers"]["dsh-acp"] == entry
    assert '{ "command": "other" }, // keep\n    "dsh-acp": {\n      "type": "custom",' in merged


def test_merging_twice_changes_nothing_more():
    change = {"agent_servers": {"dsh-acp": {"command": "dsh-acp"}}}
    once = jsonc.merge(ZED, change)
    assert jsonc.merge(once, change) == once


def test_what_the_person_set_stays_and_only_named_keys_are_replaced():
    text = '{"a": {"command": "old", "env": {"K": "mine"}}}'
    change = {"a": {"command": "new", "env": {"K": "ours"}, "args": []}}
    merged = jsonc.merge(text, change, frozenset({"command"}))
    assert jsonc.parse(merged) == {"a": {"command": "new", "env": {"K": "mine"}, "args": []}}


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        ("", '{\n  "k": 1\n}\n'),
        ("{}", '{\n  "k": 1\n}'),
        ("{ }\n", '{\n  "k": 1\n}\n'),
        ("{\n  // nothing yet\n}\n", '{\n  // nothing yet\n  "k": 1\n}\n'),
        ('{"a": 1}', '{"a": 1, "k": 1}'),
        ('{"a": 1,}', '{"a": 1, "k": 1,}'),
        ('{\n\t"a": 1\n}\n', '{\n\t"a": 1,\n\t"k": 1\n}\n'),
        ('{\r\n    "a": 1\r\n}\r\n', '{\r\n    "a": 1,\r\n    "k": 1\r\n}\r\n'),
        ('{\n  "a": 1 // one\n}\n', '{\n  "a": 1, // one\n  "k": 1\n}\n'),
        ('{\n  "a": 1, // one\n}\n', '{\n  "a": 1, // one\n  "k": 1,\n}\n'),
        ('{ "a": 1,\n  "b": 2 }', '{ "a": 1,\n  "b": 2,\n  "k": 1\n}'),
        ('\ufeff{"a": 1}', '\ufeff{"a": 1, "k": 1}'),
    ],
)
def test_a_new_member_looks_like_its_neighbours(text, merged):
    assert jsonc.merge(text, {"k": 1}) == merged


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1, column 2"),
        ('{\n  "a" 1}', "line 2, column 7: a colon was expected"),
        ('{"a": 1 "b": 2}', "a comma or } was expected"),
        ("[1 2]", "a comma or ] was expected"),
        ("[1]", "an object was expected"),
        ("{} x", "nothing more was expected"),
        ('{"a": nope}', "a value was expected"),
        ('{"a": "\\q"}', "valid escapes"),
        ("{a: 1}", "double quotes"),
        ('{"a": /* open', "a value was expected"),
        ('{"k": []}', "k is not an object"),
        ("[" * 400, "nested too deeply"),
    ],
)
def test_what_is_not_json_is_told_with_its_place(text, said):
    with pytest.raises(jsonc.JsoncError, match=said.replace("}", r"\}").replace("]", r"\]")):
        jsonc.merge(text, {"k": {"x": 1}})


keys = st.text('abk"\\/ é', min_size=1, max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('a/*"\n,}', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
trivia = st.sampled_from(["", " ", "\n", "\n  ", " // c,}\n", "/* c */", "\n\t/* }\n */ ", "\r\n"])


@st.composite
def written(draw, value):
    """Text for `value` with comments, spaces and trailing commas anywhere they may be."""
    gap = lambda: draw(trivia)  # noqa: E731
    if isinstance(value, dict):
        parts = [
            f"{gap()}{json.dumps(key)}{gap()}:{gap()}{draw(written(item))}{gap()}"
            for key, item in value.items()
        ]
    elif isinstance(value, list):
        parts = [f"{gap()}{draw(written(item))}{gap()}" for item in value]
    else:
        return json.dumps(value)
    comma = "," + gap() if parts and draw(st.booleans()) else ""
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}{','.join(parts)}{comma}{gap()}{right}"


@settings(deadline=None)
@given(data=st.data(), old=st.dictionaries(keys, values, max_size=4))
def test_any_text_keeps_its_values_and_comments(data, old):
    text = data.draw(written(old))
    assert jsonc.parse(text) == old
    change = {"new key": {"x": data.draw(values)}}
    merged = jsonc.merge(text, change)
    assert jsonc.parse(merged) == {**old, **change}
    for comment in ("// c", "/* c */", "/* }"):
        assert merged.count(comment) >= text.count(comment)
    assert jsonc.merge(merged, change) == merged
