"""What tools accept, and how they say no."""

import json
from pathlib import Path
import subprocess
import sys
from typing import Any

import pytest
from workbench import Workbench

from dsh_acp.errors import ToolError
from dsh_acp.tools import arguments, schemas

PREFIX = "invalid arguments: "


def parse(name: str, value: Any) -> Any:
    return arguments.parse(name, value if isinstance(value, str) else json.dumps(value))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("read", "", PREFIX + 'missing required property "file_path"'),
        (
            "bash",
            {"timeoutMs": "soon", "workdir": 5, "run_in_background": "maybe"},
            PREFIX
            + 'missing required property "command"; missing required property "description"; '
            '"timeoutMs" must be a number; "workdir" must be a string; '
            '"run_in_background" must be a boolean',
        ),
        (
            "todo_write",
            {"todos": [{"content": 1, "status": "done", "id": 3}, "x", {"content": "a"}]},
            PREFIX + '"todos[0].content" must be a string; '
            '"todos[0].status" must be one of ["pending","in_progress","completed"]; '
            '"todos[0].id" is not a declared property (additionalProperties: false); '
            '"todos[1]" must be an object; missing required property "todos[2].status"',
        ),
        ("todo_write", {"todos": "nonsense"}, PREFIX + '"todos" must be an array'),
        ("read", {"file_path": None}, PREFIX + '"file_path" must be a string'),
        ("read", {"file_path": "a", "offset": 1.5}, PREFIX + '"offset" must be an integer'),
        ("read", '["a"]', PREFIX + '"arguments" must be an object'),
        ("read", '"a"', PREFIX + '"arguments" must be an object'),
        ("read", "null", PREFIX + '"arguments" must be an object'),
        # Rules of one tool come as they are.
        ("read", {"file_path": " "}, "file_path must be a non-empty string"),
        ("read", {"file_path": "a", "offset": 0}, "offset must be a positive integer"),
        (
            "read",
            {"file_path": "", "offset": -1},
            "file_path must be a non-empty string; offset must be a positive integer",
        ),
        (
            "read",
            {"file_path": "a", "limit": 2001},
            "limit must be less than or equal to 2000",
        ),
        (
            "edit",
            {"file_path": "a", "old_string": "", "new_string": ""},
            "old_string must be a non-empty string",
        ),
        (
            "edit",
            {"file_path": "a", "old_string": "x\r\n", "new_string": "x\n"},
            "old_string and new_string must differ",
        ),
        (
            "bash",
            {"command": " ", "description": ""},
            "invalid command: expected a non-empty string; "
            "invalid description: expected a non-empty string",
        ),
        (
            "bash",
            {"command": "a", "description": "b", "timeoutMs": -3},
            "invalid timeoutMs: expected a positive number, got -3",
        ),
        (
            "bash",
            {"command": "a", "description": "b", "justification": "c"},
            "invalid escalation: justification is only valid together with sandbox_permissions",
        ),
        (
            "write",
            {"file_path": "a", "content": "b", "sandbox_permissions": "workspace-write"},
            "invalid escalation: sandbox_permissions requires a justification",
        ),
        (
            "grep",
            {"pattern": "a", "include": "!*.py"},
            'include must be a positive glob filter; negated patterns ("!…") are not supported',
        ),
        (
            "grep",
            {"pattern": "a", "include": "*.{a,b},*.c"},
            "include must be one glob, not a comma-separated list (use {a,b} alternation instead)",
        ),
        (
            "todo_write",
            {"todos": [{"content": " ", "status": "pending"}]},
            "invalid todo: `content` must be a non-empty string",
        ),
        (
            "todo_write",
            {"todos": [{"content": t, "status": "pending"} for t in ("{a}", " {a} ")]},
            'invalid todos: duplicate content "{a}"',
        ),
    ],
)
def test_every_mistake_is_named_at_once(name: str, value: Any, message: str) -> None:
    with pytest.raises(ToolError) as caught:
        parse(name, value)
    assert (str(caught.value), caught.value.code, caught.value.name) == (
        message,
        "INVALID_ARGS",
        "ToolArgsError",
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"action": listt_windows"}',
        '{"file_path":"a"}{"file_path":"b"}',
        '{"file_path":"C:\\x"}',
        '{"file_path":"a"',
        "[" * 100_000,
    ],
)
def test_broken_json_is_refused_and_never_guessed(text: str) -> None:
    with pytest.raises(ToolError) as caught:
        parse("read", text)
    assert str(caught.value).startswith(PREFIX + '"arguments" must be an object (the text is ')
    assert caught.value.code == "INVALID_ARGS"


def test_slips_that_leave_no_doubt_are_forgiven() -> None:
    read = parse("read", {"file_path": "a", "offset": "5", "limit": None, "extra": [1]})
    assert (read.offset, read.limit) == (5, None)
    assert parse("read", {"file_path": "a", "offset": 5.0}).offset == 5
    bash = parse(
        "bash", {"command": "a", "description": "b", "run_in_background": "false", "timeoutMs": "9"}
    )
    assert (bash.run_in_background, bash.timeoutMs) == (False, 9)
    todos = '[{"content": "a", "status": "pending"}]'
    assert parse("todo_write", {"todos": todos}).todos[0].content == "a"
    assert parse("job_list", "") == parse("job_list", " {} ")
    assert parse("write", '{"file_path": "a", "content": "raw\nnewline \\ud800"}').content == (
        "raw\nnewline \ufffd"
    )


def test_the_static_schemas_are_those_of_the_models() -> None:
    assert schemas.FILE.read_bytes() == schemas.generate(), "run: python -m dsh_acp.tools.schemas"


def test_tools_are_listed_in_code_unit_order(bench: Workbench) -> None:
    names = [tool.schema.name for tool in bench.tools.values()]
    assert names == sorted(names) == list(bench.tools)
    assert set(schemas.load()) == {*names, "read_image", "web_search"}


def test_schemas_use_the_plain_dialect() -> None:
    def check(node: dict[str, Any], root: bool = False) -> None:
        assert set(node) <= {
            "type", "description", "enum", "items", "properties", "required", "additionalProperties"
        }  # fmt: skip
        assert not (root and "additionalProperties" in node)
        for child in node.get("properties", {}).values():
            assert "description" in child
            check(child)
        if "items" in node:
            check(node["items"])

    for schema in schemas.load().values():
        parameters = bytes(schema.parameters)
        assert b"sandbox_permissions" not in parameters
        assert (
            parameters
            == json.dumps(
                json.loads(parameters), separators=(",", ":"), ensure_ascii=False
            ).encode()
        )
        check(json.loads(parameters), root=True)


def test_listing_the_tools_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pathlib import Path; from dsh_acp.config import Settings;"
        "from dsh_acp.tools.catalog import builtin;"
        "p = Path('x'); tools = builtin(Settings(home=p, config_path=p, config_dir=p));"
        "[tool.schema for tool in tools.values()];"
        "heavy = {'pydantic', 'difflib', 'httpx'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    root = Path(schemas.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
