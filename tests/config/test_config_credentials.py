import stat

from hypothesis import given, settings, strategies as st
import pytest

from dsh_acp.config.credentials import Credentials
from dsh_acp.errors import ConfigError


class FakeKeyring:
    def __init__(self, broken: bool = False) -> None:
        self.entries: dict[tuple[str, str], str] = {}
        self.broken = broken

    def get_password(self, service: str, username: str, /) -> str | None:
        self._check()
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str, /) -> None:
        self._check()
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str, /) -> None:
        self._check()
        del self.entries[service, username]

    def _check(self) -> None:
        if self.broken:
            raise RuntimeError("the keyring is locked")


def test_without_a_keyring_the_key_goes_to_a_file_that_only_its_owner_reads(tmp_path):
    store = Credentials(tmp_path / "new", keyring=lambda: None)
    assert store.put("deepseek", "sk-1") == "file"
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    again = Credentials(tmp_path / "new", keyring=lambda: None).get("deepseek")
    assert again is not None and again.reveal() == "sk-1"
    assert [path.name for path in store.path.parent.iterdir()] == ["credentials.json"]


def test_a_keyring_keeps_the_key_out_of_the_file(tmp_path):
    ring = FakeKeyring()
    store = Credentials(tmp_path, keyring=lambda: ring)
    assert store.put("openai", "sk-2") == "keyring"
    assert "sk-2" not in store.path.read_text(encoding="utf-8")
    found = store.get("openai")
    assert found is not None and found.reveal() == "sk-2"
    assert store.remove("openai") and ring.entries == {} and store.names() == ()


def test_a_keyring_that_refuses_falls_back_to_the_file(tmp_path):
    store = Credentials(tmp_path, keyring=lambda: FakeKeyring(broken=True))
    assert store.put("openai", "sk-3") == "file"
    found = store.get("openai")
    assert found is not None and found.reveal() == "sk-3"


def test_a_keyring_that_went_away_is_a_note_and_not_a_failure(tmp_path):
    Credentials(tmp_path, keyring=FakeKeyring).put("openai", "sk-4")
    store = Credentials(tmp_path, keyring=lambda: None)
    assert store.get("openai") is None
    assert store.notes == [
        "the key of openai is in the system keyring, but it is not available here"
    ]


def test_moving_a_key_from_file_to_keyring_leaves_nothing_in_the_file(tmp_path):
    Credentials(tmp_path, keyring=lambda: None).put("openai", "sk-old")
    store = Credentials(tmp_path, keyring=FakeKeyring)
    store.put("openai", "sk-new")
    assert "sk-old" not in store.path.read_text(encoding="utf-8")


def test_forgetting_what_was_never_stored_says_so(tmp_path):
    assert Credentials(tmp_path, keyring=lambda: None).remove("openai") is False
    assert not (tmp_path / "credentials.json").exists()


def test_a_damaged_file_is_a_note(tmp_path):
    store = Credentials(tmp_path, keyring=lambda: None)
    store.path.write_text("{", encoding="utf-8")
    assert store.get("openai") is None
    assert "is not a file of stored keys" in store.notes[0]


def test_a_directory_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot write"):
        Credentials(tmp_path / "file" / "conf", keyring=lambda: None).put("openai", "k")


@settings(max_examples=40)
@given(keys=st.dictionaries(st.text(min_size=1, max_size=8), st.text(min_size=1), max_size=4))
def test_whatever_is_stored_comes_back(tmp_path_factory, keys):
    directory = tmp_path_factory.mktemp("keys")
    store = Credentials(directory, keyring=lambda: None)
    for name, key in keys.items():
        store.put(name, key)
    assert set(store.names()) == set(keys)
    assert {name: secret.reveal() for name in keys if (secret := store.get(name))} == keys
