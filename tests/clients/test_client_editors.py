"""Editors whose ACP plug-ins no package registry has: what stands in their way, in words."""

import pytest

EDITORS = {
    "Neovim": "CodeCompanion, avante and agentic.nvim",
    "Emacs": "agent-shell, with acp.el and shell-maker",
}


@pytest.mark.parametrize("editor", EDITORS)
def test_an_editor_with_its_plug_in_prompts_allows_denies_cancels_and_loads(editor: str) -> None:
    pytest.skip(f"{editor}: neither Debian nor npm nor PyPI has {EDITORS[editor]}")
