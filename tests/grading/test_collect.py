"""Whose file is it: folders, single notebooks and zips as learning-management systems make them; and hostile zips."""

import io
import os
import struct
import zipfile

import pytest

from s13lib.errors import InputError
from s13lib.grading import collect as module
from s13lib.grading.collect import collect

N = b"{}"


def zipped(members, method=zipfile.ZIP_DEFLATED):
    """A zip of (name or ZipInfo, bytes)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, raw in members:
            archive.writestr(name, raw)
    return out.getvalue()


def found(*names, id_pattern=None):
    return [(file.learner, file.refusal) for file in collect(map(str, names), id_pattern)]


def learners(path, members, id_pattern=None):
    path.write_bytes(zipped([(name, N) for name in members]))
    return [learner for learner, refusal in found(path, id_pattern=id_pattern) if not refusal]


# ---- whose


@pytest.mark.parametrize(
    ("member", "learner"),
    [
        ("Ada Lovelace_1234567_assignsubmission_file_/5_two_lanes.ipynb", "Ada Lovelace_1234567"),
        ("Ada Lovelace_1234567_assignsubmission_file/5_two_lanes.ipynb", "Ada Lovelace_1234567"),
        ("Ada Lovelace_1234567_assignsubmission_file_5_two_lanes.ipynb", "Ada Lovelace_1234567"),
        ("张 伟_42_assignsubmission_file_/deep/er/x.ipynb", "张 伟_42"),
        ("lovelaceada_12345_678901_5_two_lanes.ipynb", "lovelaceada_12345"),
        ("lovelaceada_LATE_12345_678901_5_two_lanes-1.ipynb", "lovelaceada_12345"),
        ("alice/5_two_lanes.ipynb", "alice"),
        ("alice/ps1/5_two_lanes.ipynb", "alice"),
        ("alice.ipynb", "alice"),
        ("alice\\5_two_lanes.ipynb", "alice"),
        ("./alice/5_two_lanes.ipynb", "alice"),
    ],
)
def test_the_learner_is_in_the_path(tmp_path, member, learner):
    assert learners(tmp_path / "export.zip", [member]) == [learner]


def test_names_in_utf8_that_do_not_say_so(tmp_path):
    raw = bytearray(zipped([("张伟/x.ipynb", N)]))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(signature) + offset + 1] &= ~8
    (tmp_path / "export.zip").write_bytes(raw)
    assert found(tmp_path / "export.zip") == [("张伟", "")]


def test_what_is_no_submission_is_left_out(tmp_path):
    members = [
        "a/x.ipynb",
        "a/.ipynb_checkpoints/x.ipynb",
        "__MACOSX/a/._x.ipynb",
        "a/._x.ipynb",
        "a/readme.txt",
        "a/d/",
    ]
    assert learners(tmp_path / "export.zip", members) == ["a"]


@pytest.mark.parametrize(
    ("pattern", "learner"),
    [("^(?P<id>[a-z]+)_([0-9]+)", "ada"), ("_([0-9]+)_", "77"), ("[0-9]+", "77"), ("^(x)?ada", "ada_77_5")],
)
def test_a_pattern_finds_the_learner(tmp_path, pattern, learner):
    assert learners(tmp_path / "export.zip", ["ada_77_5.ipynb"], pattern) == [learner]


def test_a_path_that_the_pattern_does_not_match_is_refused(tmp_path):
    (tmp_path / "x.ipynb").write_bytes(N)
    assert found(tmp_path, id_pattern="[0-9]+") == [("x", "Its path does not match --id-pattern.")]


def test_folders_and_single_files(tmp_path):
    for name in ("bob/5_two_lanes.ipynb", "bob/deep/1_bucket_memory.ipynb", "carol.ipynb", ".hidden/x.ipynb"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(N)
    (tmp_path / "dave.zip").write_bytes(zipped([("5_two_lanes.ipynb", N)]))
    assert sorted(learner for learner, _ in found(tmp_path)) == ["bob", "bob", "carol", "dave"]
    assert found(tmp_path / "carol.ipynb") == [("carol", "")]
    # the folder is the learner's where the file is called as it was handed out
    assert [learner for learner, _ in found(tmp_path / "bob")] == ["bob", "deep"]


def test_a_zip_that_a_learner_made_in_the_zip_of_the_class(tmp_path):
    inner = zipped([("5_two_lanes.ipynb", N), ("sub/1_bucket_memory.ipynb", N)])
    outer = [("lovelaceada_12345_678901_work.zip", inner), ("Bob_7_assignsubmission_file_/my.zip", inner)]
    (tmp_path / "class.zip").write_bytes(zipped(outer))
    assert [learner for learner, _ in found(tmp_path / "class.zip")] == ["Bob_7"] * 2 + ["lovelaceada_12345"] * 2


# ---- what is refused


def test_hostile_members_are_refused_and_the_others_kept(tmp_path):
    link = zipfile.ZipInfo("eve/link.ipynb")
    link.external_attr = 0o120777 << 16
    members = [
        ("ada/x.ipynb", N),
        ("../../etc/evil.ipynb", N),
        ("/etc/evil.ipynb", N),
        ("C:/evil.ipynb", N),
        (link, b"/etc/passwd"),
    ]
    path = tmp_path / "class.zip"
    path.write_bytes(zipped(members))
    refusals = [refusal for _, refusal in found(path)]
    assert sorted(refusals) == sorted(
        ["", *["Its path in the archive leads outside the archive."] * 3, "It is a symbolic link in the archive."]
    )


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(tmp_path):
    (tmp_path / "class.zip").write_bytes(zipped([("ada/x.ipynb", N), ("ada/x.ipynb", b"[]")]))
    assert [refusal for _, refusal in found(tmp_path / "class.zip")][1].startswith("The archive holds it twice")


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    (tmp_path / "class.zip").write_bytes(zipped([("ada/x.ipynb", bytes(40 << 20)), ("bob/x.ipynb", N)]))
    assert [refusal[:20] for _, refusal in found(tmp_path / "class.zip")] == ["It is larger than 32", ""]
    monkeypatch.setattr(module, "MOST_UNPACKED", 1 << 20)
    assert "unpacks to more than" in found(tmp_path / "class.zip")[-1][1]
    monkeypatch.setattr(module, "MOST_MEMBERS", 1)
    assert "more than 1 files" in found(tmp_path / "class.zip")[0][1]


def test_zips_are_opened_two_deep(tmp_path):
    raw = zipped([("5_two_lanes.ipynb", N)])
    for _ in range(2):
        raw = zipped([("again.zip", raw)])
    (tmp_path / "class.zip").write_bytes(raw)
    assert [refusal for _, refusal in found(tmp_path / "class.zip")] == ["It is a zip inside a zip inside a zip."]


def test_an_encrypted_member_is_refused(tmp_path):
    raw = bytearray(zipped([("ada/x.ipynb", N)]))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = raw.index(signature) + offset
        raw[place : place + 2] = struct.pack("<H", 1)
    (tmp_path / "class.zip").write_bytes(raw)
    assert [refusal for _, refusal in found(tmp_path / "class.zip")] == ["It is encrypted in the archive."]


@pytest.mark.parametrize("cut", [0, 10, -30, "crc"])
def test_a_damaged_zip_is_refused(tmp_path, cut):
    raw = bytearray(zipped([("ada/x.ipynb", b"{}" * 999)], zipfile.ZIP_STORED))
    if cut == "crc":
        raw[200] ^= 255
    (tmp_path / "class.zip").write_bytes(raw if cut == "crc" else raw[:cut])
    ((_, refusal),) = found(tmp_path / "class.zip")
    assert "damaged" in refusal


@pytest.mark.skipif(os.name != "posix", reason="links and pipes as on POSIX")
def test_links_and_pipes_in_a_folder_are_refused(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("{}")
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "link.ipynb").symlink_to(secret)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.ipynb")
    assert found(folder) == [(name, "It is no plain file but a link or a device.") for name in ("link", "pipe")]


def test_a_notebook_that_is_too_large_is_refused(tmp_path):
    with (tmp_path / "big.ipynb").open("wb") as file:
        file.truncate(200 << 20)
    ((_, refusal),) = found(tmp_path)
    assert refusal.startswith("It is larger than 32 MiB")


@pytest.mark.parametrize(
    ("name", "words"),
    [("missing", "does not exist"), ("x.txt", "must be a folder, a notebook or a zip"), ("", "does not exist")],
)
def test_a_name_that_is_nothing_is_an_error(tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(InputError, match=words):
        found(name)


def test_a_bad_pattern_is_an_error():
    with pytest.raises(InputError, match="no regular expression"):
        found(id_pattern="(")
