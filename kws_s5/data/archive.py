"""Unpacks tar, tar.gz and zip archives of strangers: whole or not at all, and never outside the chosen folder.

Only plain files and folders are taken. Links, devices, absolute names, ``..``, names given twice, encrypted members
and anything beyond the limits are refused with one line, and then nothing is left behind.

The standard library's ``data`` filter is asked too, but does less: it knows no zip files and no limits on bytes,
members or headers, accepts links that stay inside, changes absolute names in silence, and cannot see that an archive
was cut short.
"""

import gzip
import os
import re
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kws_s5.atomic import new_folder
from kws_s5.data.tar_stream import TarStream
from kws_s5.errors import UserError

MAX_BYTES = 16 * 2**30
MAX_MEMBERS = 1_000_000
MAX_RATIO = 100.0  # unpacked bytes per archive byte: sound packs to about a half, bombs reach a thousand
FREE_BYTES = 32 * 2**20  # up to this size the ratio does not matter: digital silence packs well
MAX_DEPTH = 32
BLOCK = 2**20
# Everything the standard readers raise for a damaged or malicious file; RuntimeError includes RecursionError.
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


@dataclass
class Member:
    """One entry of an archive, told in the same words whatever its format."""

    name: str
    kind: str  # "file", "folder", or what it is instead
    size: int  # bytes, as the archive claims
    blocks: Callable[[], Iterator[bytes]]


def unpack(
    archive: str | Path,
    folder: str | Path,
    *,
    max_bytes: int = MAX_BYTES,
    max_members: int = MAX_MEMBERS,
    max_ratio: float = MAX_RATIO,
) -> Path:
    """Unpacks ``archive`` into the new or empty ``folder`` and returns it; the folder appears when all is there.

    Args:
        max_bytes: limit on the unpacked size in bytes, counted while unpacking (claims are not believed).
        max_members: limit on the number of files and folders.
        max_ratio: limit on unpacked bytes per archive byte, once more than 32 MiB were unpacked.

    Raises:
        UserError: not an archive, damaged, dangerous or too large; ``folder`` not empty; disk full.
    """
    archive, folder = Path(archive), Path(folder)
    try:
        budget = int(min(max_bytes, max(FREE_BYTES, max_ratio * archive.stat().st_size)))
        with new_folder(folder) as temporary, _members(archive, budget) as members:
            _write_all(members, temporary, budget, max_members)
    except UserError as error:
        raise UserError(f"{archive}: {error}; nothing was unpacked, fetch it again from a source you trust") from None
    except FileExistsError:
        raise UserError(f"{folder} exists and is not empty: choose another folder or remove it") from None
    except OSError as error:
        raise UserError(f"{archive}: cannot be unpacked into {folder} ({error.strerror or error})") from None
    except BROKEN as error:
        raise UserError(f"{archive}: damaged or not a tar, tar.gz or zip archive ({error}); fetch it again") from None
    return folder


def _write_all(members: Iterator[Member], folder: Path, budget: int, max_members: int) -> None:
    written = count = 0
    for count, member in enumerate(members, 1):
        if count > max_members:
            raise UserError(f"more than {max_members} members")
        target = folder.joinpath(*safe_parts(member.name))
        if member.kind not in ("folder", "file"):
            raise UserError(f"member {member.name!r} is {member.kind}, not a plain file")
        try:
            written += _place(member, target, budget - written)
        except (FileExistsError, NotADirectoryError):
            raise UserError(f"member {member.name!r} is there twice") from None
    if not count:
        raise UserError("it is empty")


def _place(member: Member, target: Path, budget: int) -> int:
    if member.kind == "folder":
        target.mkdir(parents=True, exist_ok=True)
        return 0
    if not 0 <= member.size <= budget:
        raise UserError(f"unpacks to more than the {budget} bytes left of the limit (member {member.name!r})")
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with open(target, "xb") as file:
        for block in member.blocks():
            written += len(block)
            if written > budget:
                raise UserError(f"unpacks to more than the {budget} bytes left of the limit (member {member.name!r})")
            file.write(block)
    if written != member.size:
        raise UserError(f"member {member.name!r} has {written} bytes instead of {member.size}")
    return written


def safe_parts(name: str) -> list[str]:
    """The parts of a member's relative POSIX name; UserError for one that could leave the folder or mislead."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:", name):
        raise UserError(f"member {name!r} points outside the folder")
    if "\\" in name or not name.isprintable() or len(parts) > MAX_DEPTH or (os.name == "nt" and ":" in name):
        raise UserError(f"member {name[:200]!r} has a name that is not safe")  # unprintable: also not UTF-8
    return parts


@contextmanager
def _members(archive: Path, budget: int) -> Iterator[Iterator[Member]]:
    with open(archive, "rb") as file:
        magic = file.read(4)
        file.seek(0)
        if magic[:2] == b"PK":
            with zipfile.ZipFile(file) as bundle:
                yield (_zip_member(bundle, info) for info in bundle.infolist())
        elif magic[:2] == b"\x1f\x8b":
            with gzip.open(file) as plain:
                yield _tar_members(plain, budget)
        else:
            yield _tar_members(file, budget)


def _zip_member(bundle: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    if not info.filename:  # the standard reader stumbles over it
        raise zipfile.BadZipFile("a member has no name")
    unix_kind = stat.S_IFMT(info.external_attr >> 16)
    if info.is_dir():
        kind = "folder"
    elif info.flag_bits & 1:
        kind = "encrypted"
    elif unix_kind not in (0, stat.S_IFREG):
        kind = "a link or a device"
    elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        kind = "packed in an unusual way"
    else:
        kind = "file"

    def blocks() -> Iterator[bytes]:
        with bundle.open(info) as file:
            yield from iter(lambda: file.read(BLOCK), b"")

    return Member(info.filename, kind, info.file_size, blocks)


def _tar_members(plain: BinaryIO, budget: int) -> Iterator[Member]:
    stream = TarStream(plain, 2 * budget + BLOCK)  # headers and padding may take as much again
    with tarfile.open(fileobj=stream, mode="r:") as bundle:
        while info := bundle.next():
            bundle.members.clear()  # else every header stays in memory
            yield _tar_member(info, stream)
    if not stream.at_end_marker:  # tarfile takes a damaged header for the end
        raise tarfile.ReadError("it ends too early")
    stream.drain()  # reaches the checksum at the end of a gzip file


def _tar_member(info: tarfile.TarInfo, stream: TarStream) -> Member:
    kind = "a link, a device or a sparse file"
    if info.isdir() or (info.isreg() and not info.issparse()):
        kind = "folder" if info.isdir() else "file"
        safe_parts(info.name)
        if hasattr(tarfile, "data_filter"):
            tarfile.data_filter(info, os.devnull)  # the standard library's own opinion, as a second guard
    return Member(info.name, kind, info.size, lambda: stream.blocks(info.size, BLOCK))


def has_room(folder: Path, n_bytes: int) -> bool:
    """Whether the disk of ``folder`` (or of its nearest existing parent) has ``n_bytes`` free."""
    existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    return shutil.disk_usage(existing).free >= n_bytes
