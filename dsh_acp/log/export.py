"""A session as one archive: its log verbatim, its descendants' logs, what they attach.

The same session gives the same bytes, whenever and wherever it is exported.
"""

from collections.abc import Iterable
import io
from pathlib import Path
import re
from typing import Any, Final, cast

import msgspec

from dsh_acp import jsontext
from dsh_acp.log.attachments import Attachments
from dsh_acp.log.store import Store
from dsh_acp.messages import Audio, Image, MediaRef

_SUFFIX: Final = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/webp": "webp",
    "image/gif": "gif",
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
}
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_attached: Final = msgspec.json.Decoder(Image | Audio)


def file_name(session_id: str) -> str:
    """What to call the archive."""
    return f"dsh-session-{_safe(session_id)}.zip"


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)


def export(
    store: Store, session_id: str, attachments: Attachments, *, descendants: bool = True
) -> bytes:
    """The archive's bytes.

    Raises:
        LogError: `NOT_FOUND`; `ATTACHMENT_MISSING` or `ATTACHMENT_CORRUPT`, what the log
            names cannot be given.
    """
    import zipfile

    logs = {"session.jsonl": store.raw(session_id)}
    if descendants:
        for child in store.descendants(session_id):
            logs[f"subagents/{_safe(child)}/session.jsonl"] = store.raw(child)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, data: bytes) -> None:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o600 << 16
            info.create_system = 3
            archive.writestr(info, data)

        for name, data in logs.items():
            add(name, data)
        for ref in _attachments(logs.values()):
            suffix = _SUFFIX.get(ref.media_type, "bin")
            add(f"media/{ref.attachment_id}.{suffix}", attachments.get(ref))
    return buffer.getvalue()


def write(store: Store, session_id: str, attachments: Attachments, target: Path) -> Path:
    """Write the archive to `target`, or into it when it is a directory; where it went.

    Raises:
        LogError: as `export`.
        OSError: the file cannot be written.
    """
    path = target / file_name(session_id) if target.is_dir() else target
    path.write_bytes(export(store, session_id, attachments))
    return path


def _attachments(logs: Iterable[bytes]) -> list[MediaRef]:
    found: dict[str, MediaRef] = {}
    for log in logs:
        for line in log.split(b"\n"):
            if b'"attachmentId"' in line:
                _collect(jsontext.loads(line), found)
    return [found[key] for key in sorted(found)]


def _collect(value: Any, found: dict[str, MediaRef]) -> None:
    if isinstance(value, list):
        for item in cast(list[Any], value):
            _collect(item, found)
    elif isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        if fields.get("type") in ("image", "audio") and "attachment" in fields:
            try:
                ref = _attached.decode(jsontext.encode(fields)).attachment
            except msgspec.ValidationError:
                return
            found[ref.attachment_id] = ref
            return
        for item in fields.values():
            _collect(item, found)
