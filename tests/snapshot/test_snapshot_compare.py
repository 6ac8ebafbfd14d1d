"""The first difference, named."""

from dsh_acp.snapshot.compare import compare, first_difference


def lines(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


def test_equal_lists_have_no_difference():
    assert compare("f", lines("{}"), lines("{}")) is None


def test_a_changed_field_is_named_with_both_values():
    one = (
        '{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","kind":"%s"}}}'
    )
    found = compare("f", lines("{}", one % "read"), lines("{}", one % "edit"))
    assert found is not None
    assert (found.line, found.label) == (2, "session/update tool_call")
    assert found.path == "params.update.kind"
    assert (found.expected, found.got) == ('"read"', '"edit"')
    assert "f:2 (session/update tool_call) differs at params.update.kind" in str(found)


def test_a_missing_line_and_an_extra_line_are_told_from_a_changed_one():
    a, b, c = '{"type":"a"}', '{"type":"b"}', '{"type":"c"}'
    missing = compare("f", lines(a, b, c), lines(a, c))
    assert missing is not None and (missing.what, missing.line, missing.label) == (
        "missing",
        2,
        "b",
    )
    extra = compare("f", lines(a, c), lines(a, b, c))
    assert extra is not None and (extra.what, extra.line, extra.label) == ("extra", 2, "b")
    assert "did not come" in str(missing) and "came unexpectedly" in str(extra)


def test_further_differences_are_counted():
    found = compare("f", lines("1", "2", "3"), lines("4", "5", "6"))
    assert found is not None and found.more == 2


def test_a_path_leads_through_lists_and_missing_keys():
    assert first_difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == ("a[1].b", 2, 3)
    path, left, right = first_difference({"a": 1}, {"a": 1, "b": 2})
    assert (path, repr(left), right) == ("b", "(nothing)", 2)
    assert first_difference([1], [1, 2])[0] == "[1]"


def test_the_order_of_keys_is_a_difference():
    found = compare("f", lines('{"a":1,"b":2}'), lines('{"b":2,"a":1}'))
    assert found is not None and "order of keys" in found.path


def test_a_long_value_is_cut():
    found = compare("f", lines(f'{{"a":"{"x" * 5000}"}}'), lines('{"a":""}'))
    assert found is not None and found.expected.endswith("(5002 characters)")
