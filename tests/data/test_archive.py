"""Archives of strangers: what is honest comes out as it went in; what is hostile leaves nothing behind."""

import gzip
import io
import os
import struct
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kws_s5.data.archive import unpack
from kws_s5.errors import UserError

HONEST = {"yes/a_nohash_0.wav": b"RIFF" * 50, "no/b c.wav": b"", "ja/ü.wav": b"x", "testing_list.txt": b"yes/a\n"}


def tar_of(path: Path, *infos: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz", format: int = tarfile.PAX_FORMAT):
    with tarfile.open(path, mode, format=format) as archive:
        for info, data in infos:
            archive.addfile(info, io.BytesIO(data))
    return path


def entry(name: str, data: bytes = b"data", kind: bytes = tarfile.REGTYPE, link: str = ""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data) if kind == tarfile.REGTYPE else 0
    return info, data


def zip_of(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_refused(archive: Path, reason: str, **limits) -> None:
    """One line that names the archive and the reason, and no trace in the folder around it."""
    around = archive.parent
    before = sorted(p.relative_to(around) for p in around.rglob("*"))
    with pytest.raises(UserError, match=reason) as error:
        unpack(archive, around / "out", **limits)
    assert str(archive) in str(error.value) and "\n" not in str(error.value)
    assert sorted(p.relative_to(around) for p in around.rglob("*")) == before


@pytest.mark.parametrize("mode", ["w:gz", "w:"])
@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_honest_tars_come_out_whole(tmp_path, mode, format):
    folders = [entry(name, kind=tarfile.DIRTYPE) for name in ("./", "./yes", "empty/")]
    files = [entry("./" + name, data) for name, data in HONEST.items()]
    archive = tar_of(tmp_path / "a.tar", *folders, *files, mode=mode, format=format)
    assert tree(unpack(archive, tmp_path / "out")) == HONEST
    assert (tmp_path / "out/empty").is_dir()


def test_honest_zips_and_long_names_come_out_whole(tmp_path):
    assert tree(unpack(zip_of(tmp_path / "a.zip", HONEST), tmp_path / "out")) == HONEST
    name = "deep/" * 20 + "n" * 200
    assert tree(unpack(tar_of(tmp_path / "b.tar.gz", entry(name)), tmp_path / "long")) == {name: b"data"}


def test_large_members_and_many_members_come_out_whole(tmp_path):
    files = {f"w/{i}": os.urandom(i * 700 % 1100) for i in range(600)} | {"big": os.urandom(2_500_000)}
    archive = tar_of(tmp_path / "a.tar.gz", *(entry(*item) for item in files.items()))
    assert tree(unpack(archive, tmp_path / "out")) == files


@pytest.mark.parametrize("name", ["/etc/evil", "../evil", "a/../../evil", "..", "C:/evil", "C:evil"])
def test_names_that_leave_the_folder_are_refused(tmp_path, name):
    assert_refused(tar_of(tmp_path / "a.tar.gz", entry("good"), entry(name)), "outside the folder")
    assert_refused(zip_of(tmp_path / "a.zip", {"good": b"", name: b"x"}), "outside the folder")


def test_a_zip_member_without_a_name_is_refused(tmp_path):
    raw = zip_of(tmp_path / "a.zip", {"good": b"x"}).read_bytes()
    (tmp_path / "a.zip").write_bytes(raw.replace(b"good", b"\0ood"))  # names end at the first NUL
    assert_refused(tmp_path / "a.zip", "fetch it again")


@pytest.mark.parametrize("name", ["..\\evil", "a\nb", "\x1b[2Jboo", "d/" * 33 + "x", "\udcff.wav"])
def test_names_that_mislead_are_refused(tmp_path, name):
    info, data = entry(name)
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:
        tar.addfile(info, io.BytesIO(data))
    assert_refused(tmp_path / "a.tar", "name")


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE],
)
@pytest.mark.parametrize("link", ["/etc/passwd", "../..", "good"])
def test_links_and_devices_are_refused(tmp_path, kind, link):
    infos = entry("good"), entry("bad", kind=kind, link=link), entry("bad/x")
    assert_refused(tar_of(tmp_path / "a.tar.gz", *infos), "link")


def test_writing_through_a_link_is_impossible(tmp_path):
    (tmp_path / "victim").mkdir()
    infos = entry("a", kind=tarfile.SYMTYPE, link=str(tmp_path / "victim")), entry("a/evil")
    assert_refused(tar_of(tmp_path / "a.tar.gz", *infos), "link")
    link = zipfile.ZipInfo("a")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "victim")
    assert_refused(tmp_path / "a.zip", "link")


def test_a_name_given_twice_is_refused(tmp_path):
    assert_refused(tar_of(tmp_path / "a.tar.gz", entry("x"), entry("./x")), "twice")
    assert_refused(tar_of(tmp_path / "b.tar.gz", entry("x"), entry("x/y")), "twice")
    assert_refused(tar_of(tmp_path / "c.tar.gz", entry("x/y"), entry("x")), "twice")
    assert_refused(tar_of(tmp_path / "d.tar.gz", entry("x"), entry("x", kind=tarfile.DIRTYPE)), "twice")
    assert_refused(tar_of(tmp_path / "e.tar.gz", entry(".")), "twice")
    with pytest.warns(UserWarning), zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x", "1"), archive.writestr("x", "2")
    assert_refused(tmp_path / "a.zip", "twice")


def test_bombs_stop_at_the_limits_without_filling_memory(tmp_path):
    zeros = bytes(50 * 2**20)
    tar = tar_of(tmp_path / "a.tar.gz", entry("zeros", zeros))
    bomb = zip_of(tmp_path / "a.zip", {"zeros": zeros})
    del zeros
    tracemalloc.start()
    assert_refused(tar, "more than")
    assert_refused(bomb, "more than")
    assert_refused(tar, "more than", max_bytes=1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20
    assert unpack(tar, tmp_path / "trusted", max_ratio=2000).is_dir()


def test_too_many_members_are_refused(tmp_path):
    assert_refused(tar_of(tmp_path / "a.tar.gz", *(entry(str(i), b"") for i in range(11))), "members", max_members=10)
    assert_refused(zip_of(tmp_path / "a.zip", {str(i): b"" for i in range(11)}), "members", max_members=10)


def test_a_zip_that_lies_about_its_size_is_refused(tmp_path):
    data = zip_of(tmp_path / "a.zip", {"x": bytes(10**6)}).read_bytes()
    (tmp_path / "a.zip").write_bytes(data.replace(struct.pack("<I", 10**6), struct.pack("<I", 10)))
    assert_refused(tmp_path / "a.zip", "bytes|CRC")


def test_an_absurd_header_is_not_read_into_memory(tmp_path):
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 7 * 2**30
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(4096)))
    assert_refused(tmp_path / "a.tar.gz", "header")
    info.type, info.size = tarfile.REGTYPE, -1024
    (tmp_path / "b.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    assert_refused(tmp_path / "b.tar", "fetch it again")


def test_chained_headers_do_not_overflow_the_stack(tmp_path):
    block = tarfile.TarInfo.create_pax_global_header({"comment": "x"})
    (tmp_path / "a.tar").write_bytes(block * 5000 + bytes(1024))
    assert_refused(tmp_path / "a.tar", "fetch it again")


def test_truncation_anywhere_is_noticed(tmp_path):
    for name, make in (("a.tar.gz", tar_of), ("a.tar", tar_of), ("a.zip", zip_of)):
        path = tmp_path / name
        if make is tar_of:
            tar_of(path, *(entry(*item) for item in HONEST.items()), mode="w:gz" if name.endswith("gz") else "w:")
        else:
            zip_of(path, HONEST)
        whole = path.read_bytes()
        end = len(whole.rstrip(b"\0")) if name == "a.tar" else len(whole) - 1
        for cut in sorted({*range(0, end, max(1, end // 40)), end}):
            path.write_bytes(whole[:cut])
            assert_refused(path, "fetch it again")
        path.unlink()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_altered_bytes_give_a_whole_folder_or_one_error(tmp_path, data):
    path, out = tmp_path / "fuzz", tmp_path / "out"
    if data.draw(st.booleans()):
        zip_of(path, HONEST)
    else:
        tar_of(path, *(entry(*item) for item in HONEST.items()), mode=data.draw(st.sampled_from(["w:", "w:gz"])))
    raw = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=4)):
        raw[at] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    try:
        unpack(path, out)
    except UserError as error:
        assert "\n" not in str(error) and not out.exists()
    else:
        assert all(p.is_file() or p.is_dir() for p in out.rglob("*"))
        for p in sorted(out.rglob("*"), reverse=True):
            p.rmdir() if p.is_dir() else p.unlink()
        out.rmdir()
    assert os.listdir(tmp_path) == ["fuzz"]


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"PK\3\4", b"\x1f\x8b", b"not an archive", bytes(3), bytes(512), bytes(1024), b"RIFF" * 300]
)
def test_what_is_no_archive_gives_one_error(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert_refused(tmp_path / "a", "fetch it again")


def test_a_folder_in_use_is_left_alone(tmp_path):
    archive = tar_of(tmp_path / "a.tar.gz", entry("x"))
    (tmp_path / "out").mkdir()
    assert tree(unpack(archive, tmp_path / "out")) == {"x": b"data"}  # an empty one is used
    (tmp_path / "out/mine").write_text("precious")
    with pytest.raises(UserError, match="not empty"):
        unpack(archive, tmp_path / "out")
    assert tree(tmp_path / "out") == {"x": b"data", "mine": b"precious"}
    with pytest.raises(UserError, match="No such file"):
        unpack(tmp_path / "missing.zip", tmp_path / "out2")
