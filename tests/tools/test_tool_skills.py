"""Skills on disk: which there are, and what the model reads of one."""

from pathlib import Path

from hypothesis import given, settings, strategies as st
import pytest
from workbench import Workbench

from dsh_acp.tools import frontmatter
from dsh_acp.tools.skills import Shelf

HEAD = "---\nname: {name}\ndescription: {description}\n{more}---\n{body}"


def put(
    root: Path, name: str, description: str = "does it", more: str = "", body: str = "Do it."
) -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    text = HEAD.format(name=name, description=description, more=more, body=body)
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        ("name: a\ndescription: b: c", {"name": "a", "description": "b: c"}),
        ("Name: 'a'\n# note: x\n- b: c", {"name": "a"}),
        ('description: "one"\nlist:\n  - x\n  - y', {"description": "one", "list": "- x - y"}),
        ("description: >-\n  one\n  two\nname: a", {"description": "one two", "name": "a"}),
        ("description: |\n  one\n  two", {"description": "one\ntwo"}),
        ("description: one\n  two", {"description": "one two"}),
    ],
)
def test_the_head_of_a_file_is_read(head: str, fields: dict[str, str]) -> None:
    for newline in ("\n", "\r\n"):
        text = f"---\n{head}\n---\nBody\n".replace("\n", newline)
        assert frontmatter.split(text) == (fields, "Body\n")


@settings(max_examples=100)
@given(st.text(st.sampled_from("ab: |>-\n'\"#\t"), max_size=40))
def test_any_text_has_a_head_or_none(text: str) -> None:
    fields, body = frontmatter.split(f"---\n{text}")
    assert all(key == key.strip().lower() for key in fields)
    assert body == f"---\n{text}" or body in text


def test_the_projects_skills_come_before_the_users(tmp_path: Path) -> None:
    put(tmp_path / "project/.agents/skills", "deploy", "first")
    put(tmp_path / "project/.claude/skills", "deploy", "second")
    put(tmp_path / "project/.claude/skills", "test")
    put(tmp_path / "config/skills", "test", "third")
    put(tmp_path / "config/skills", "audit", "many   words\n  more")
    shelf = Shelf(str(tmp_path / "project"), tmp_path / "config")
    assert [(s.name, s.description) for s in shelf.skills().values()] == [
        ("audit", "many words more"),
        ("deploy", "first"),
        ("test", "does it"),
    ]


def test_what_is_no_skill_is_left_out(tmp_path: Path) -> None:
    root = tmp_path / "project/.agents/skills"
    put(root, "good")
    put(root, "Bad Name")
    (root / "empty").mkdir()
    (root / "file").write_text("x", encoding="utf-8")
    outside = put(tmp_path, "outside")
    (root / "link").symlink_to(outside)
    assert list(Shelf(str(tmp_path / "project"), tmp_path).skills()) == ["good"]


def test_a_changed_skill_is_read_again(tmp_path: Path) -> None:
    root = tmp_path / ".agents/skills"
    shelf = Shelf(str(tmp_path), tmp_path / "config")
    assert not shelf.skills()
    put(root, "a", "one")
    assert shelf.skills()["a"].description == "one"
    put(root, "a", "longer")
    assert shelf.skills()["a"].description == "longer"


async def test_the_model_reads_instructions_and_where_they_lie(bench: Workbench) -> None:
    folder = put(bench.folder / ".agents/skills", "deploy", body="Run `a && b` <first>.\n")
    assert await bench.text("skill", name="deploy") == (
        '<skill_content name="deploy">\n<skill_resources>\n'
        f"Base directory for this skill: {folder}\n"
        "Relative paths in the instructions are meant from there.\n"
        "</skill_resources>\n\n<skill_instructions>\nRun `a &amp;&amp; b` &lt;first&gt;.\n"
        "</skill_instructions>\n</skill_content>"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../x", 'invalid skill name "../x"'),
        ("other", 'skill "other" is unknown or no longer available'),
        ("private", 'skill "private" is not available for model invocation'),
    ],
)
async def test_a_skill_that_cannot_be_loaded_says_why(
    bench: Workbench, name: str, message: str
) -> None:
    put(bench.folder / ".agents/skills", "private", more="disable-model-invocation: true\n")
    assert (await bench.refusal("skill", name=name)).message == message


def test_the_card_names_the_skill(bench: Workbench) -> None:
    card = bench.call_card("skill", name="deploy")
    assert (card.title, card.kind) == ("Load skill deploy", "read")
    assert card.raw_input == {"name": "deploy"}
