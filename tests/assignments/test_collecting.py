"""Tests of ``collect``: what Canvas and Moodle pack, made up after their documented names, and hostile archives."""

import csv
import os
import stat
import struct
import zipfile
from datetime import datetime

import hostile
import pytest

from assignments.grader import archives, collecting, late, submissions
from assignments.grader.__main__ import main

PAPER = b'{"cells": []}'


def zipped(path, files, when=(2026, 9, 30, 12, 0, 0)):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(
                name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name, when), data, zipfile.ZIP_DEFLATED
            )
    return path


def placed(folder, files):
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def tree(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows(output, name="collected"):
    with open(f"{output}.{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def run(*arguments):
    return main([str(argument) for argument in arguments], hostile.HOME)


CANVAS = {
    "doejane_LATE_12345_6789012_small-1.ipynb": b"late",
    "leebo_77_900_small.ipynb": b"first",
    "leebo_77_901_small-1.ipynb": b"second",
    "leebo_77_902_notes_1_2.ipynb": b"notes",
    "muellerjorg_88_903_my_answer_1_2.ipynb": b"other name",
    "textonly_99_904_essay.pdf": b"%PDF",
    "anon_Ab1cD_905_01_small.ipynb": b"hidden",
    "anon_Zz9_LATE_906_small.ipynb": b"hidden and late",
    "readme.txt": b"?",
}


@pytest.mark.parametrize("make", [zipped, placed])
def test_canvas(make, tmp_path):
    source = make(tmp_path / "submissions", CANVAS)
    done = collecting.collect("canvas", source, "small", tmp_path / "out")
    assert tree(tmp_path / "out") == {
        "12345/small.ipynb": b"late",
        "77/small.ipynb": b"second",
        "88/small.ipynb": b"other name",
        "99/no_notebook.txt": b"essay.pdf\n",
        "Ab1cD/small.ipynb": b"hidden",
        "Zz9/small.ipynb": b"hidden and late",
    }
    assert done.late == {"12345": None, "77": 0, "88": 0, "99": 0, "Ab1cD": 0, "Zz9": None}
    found = {row["student"]: row for row in rows(tmp_path / "out")}
    assert (found["12345"]["late"], found["77"]["late"], found["12345"]["when"]) == ("yes", "", "")
    assert (
        found["77"]["file"] == "leebo_77_901_small-1.ipynb"
        and found["77"]["remark"] == "leebo. 3 notebooks: this one was taken."
    )
    assert "should be named small.ipynb" in found["88"]["remark"] and "No notebook." in found["99"]["remark"]
    taken = "Of leebo (77), another notebook: left out; taken was small-1.ipynb."
    assert rows(tmp_path / "out", "unmatched") == [
        {"name": "leebo_77_900_small.ipynb", "what": taken},
        {"name": "leebo_77_902_notes_1_2.ipynb", "what": taken},
        {"name": "readme.txt", "what": "Not a name as canvas makes it: left out."},
    ]
    survey = submissions.survey(tmp_path / "out", "small")
    assert len(survey.submissions) == 6 and not survey.unmatched
    assert [one.student for one in survey.submissions if one.problem] == ["99"]


MOODLE = {
    "Jane Doe_1234567_assignsubmission_file/small.ipynb": b"jane",
    "Bo Lee_22_assignsubmission_file_/work/small.ipynb": b"bo",
    "Bo Lee_22_assignsubmission_file_/work/zz.ipynb": b"scratch",
    "Jo O'Neil_33_assignsubmission_file_my small.ipynb": b"flat",
    "Text Only_44_assignsubmission_onlinetext/onlinetext.html": b"<p>",
    "Participant_55_assignsubmission_file/small.ipynb": b"blind",
    "stray.ipynb": b"?",
}
WORKSHEET = (
    "\ufeffIdentifier,Full name,Email address,Status,Grade,Last modified (submission)\n"
    'Participant 1234567,Jane Doe,jane@x.org,Submitted,,"Thursday, 1 October 2026, 11:59 PM"\n'
    'Participant 22,Bo Lee,bo@x.org,Submitted,,"Friday, 2 October 2026, 12:01\u202fAM"\n'
    "Participant 33,Jo O'Neil,jo@x.org,Submitted,,gestern\nParticipant 66,No Body,no@x.org,,,-\n"
)


@pytest.mark.parametrize("make", [zipped, placed])
def test_moodle_with_a_worksheet(make, tmp_path):
    source = make(tmp_path / "submissions", MOODLE)
    (tmp_path / "worksheet.csv").write_text(WORKSHEET, "utf-8")
    due = late.read_due("2026-10-01")
    done = collecting.collect(
        "moodle", source, "small", tmp_path / "out", worksheet=tmp_path / "worksheet.csv", due=due
    )
    assert tree(tmp_path / "out") == {
        "1234567/small.ipynb": b"jane",
        "22/small.ipynb": b"bo",
        "33/small.ipynb": b"flat",
        "44/no_notebook.txt": b"onlinetext.html\n",
        "55/small.ipynb": b"blind",
    }
    assert done.late == {"1234567": 0, "22": 1}
    found = {row["student"]: row for row in rows(tmp_path / "out")}
    assert (
        found["22"]["when"] == "2026-10-02 00:01:00" and found["22"]["late"] == "1" and found["1234567"]["late"] == ""
    )
    assert "cannot be read: gestern" in found["33"]["remark"]
    assert [name for name in found if collecting.UNKNOWN_TIME in found[name]["remark"]] == ["33", "44", "55"]
    course = submissions.read_roster(tmp_path / "out.course.csv")
    assert course["22"] == {"name": "Bo Lee", "email": "bo@x.org"} and list(course) == ["1234567", "22", "33", "66"]
    with pytest.raises(ValueError, match="due: give --worksheet"):
        collecting.collect("moodle", source, "small", tmp_path / "out", due=due)


def test_the_roster_names_the_students(tmp_path):
    source = zipped(tmp_path / "moodle.zip", MOODLE)
    (tmp_path / "worksheet.csv").write_text(WORKSHEET, "utf-8")
    roster = {"jane": {"email": "JANE@x.org"}, "bo": {"name": "Bo Lee"}, "participant": {}, "zoe": {}}
    collecting.collect("moodle", source, "small", tmp_path / "out", roster, tmp_path / "worksheet.csv")
    assert set(os.listdir(tmp_path / "out")) == {"jane", "bo", "33", "44", "participant"}
    assert ("33", "Not on the list of the course.") in [
        tuple(row.values()) for row in rows(tmp_path / "out", "unmatched")
    ]
    assert not (tmp_path / "out.course.csv").exists()
    source = zipped(tmp_path / "canvas.zip", {"doejane_5_6_small.ipynb": PAPER, "leebo_7_8_small.ipynb": PAPER})
    (tmp_path / "gradebook.csv").write_text(
        'Student,ID,SIS Login ID,Section\nPoints Possible,,,\n"Lee, Bo",7,bl7,S1\n', "utf-8"
    )
    collecting.collect(
        "canvas",
        source,
        "small",
        tmp_path / "two",
        {"jane": {"id": "5"}, "bo": {"sis_login_id": "bl7"}},
        tmp_path / "gradebook.csv",
    )
    assert set(os.listdir(tmp_path / "two")) == {"jane", "bo"}


def test_nobody_gets_anothers_work(tmp_path):
    """Two of one name, and a name that two of the roster have, are nobody's."""
    files = {f"Jane Doe_{number}_assignsubmission_file/small.ipynb": b"%d" % number for number in (1, 2)}
    source = zipped(tmp_path / "a.zip", files | {"Al Bo_3_assignsubmission_file/small.ipynb": b"3"})
    collecting.collect(
        "moodle",
        source,
        "small",
        tmp_path / "out",
        {"jd": {"name": "Jane Doe"}, "a": {"name": "Al Bo"}, "b": {"name": "Al Bo"}},
    )
    assert tree(tmp_path / "out") == {"1/small.ipynb": b"1", "2/small.ipynb": b"2", "3/small.ipynb": b"3"}
    assert len(rows(tmp_path / "out", "unmatched")) == 3
    source = zipped(
        tmp_path / "b.zip", {"leebo_77_1_small.ipynb": b"bo", "x_5_1_small.ipynb": b"x"}
    )  # numbers of different kinds
    roster = {"leebo": {"sis_user_id": "77"}, "y": {"id": "5", "name": "Y"}, "5": {}}
    collecting.collect("canvas", source, "small", tmp_path / "two", roster)
    assert set(os.listdir(tmp_path / "two")) == {"77", "5"}
    rows_of = {row["student"]: row["remark"] for row in rows(tmp_path / "two")}
    assert "x." in rows_of["5"]


def test_a_folder_of_folders(tmp_path):
    joined, apart = "Jos\u00e9", "Jose\u0301"
    files = {
        f"{apart}/small.ipynb": b"a",
        f"{joined}/small.ipynb": b"b",
        "ben/x/old.ipynb": b"old",
        "ben/new.ipynb": b"new",
        "dan.ipynb": b"d",
    }
    source = placed(tmp_path / "in", files | {"stray.pdf": b"", ".DS_Store": b""})
    os.utime(source / "ben/x/old.ipynb", (1e9, 1e9))
    os.utime(source / "dan.ipynb", (datetime(2026, 10, 3, 1).timestamp(),) * 2)
    done = collecting.collect("folder", source, "small", tmp_path / "out", due=late.read_due("2026-10-01 18:00"))
    assert tree(tmp_path / "out") == {
        f"{joined}/small.ipynb": b"b",
        f"{joined} (2)/small.ipynb": b"a",
        "ben/small.ipynb": b"new",
        "dan/small.ipynb": b"d",
    }
    assert done.late["dan"] == 2 and [name for name, _ in done.unmatched] == ["stray.pdf", "ben/x/old.ipynb"]
    with pytest.raises(ValueError, match="worksheet: only"):
        collecting.collect("folder", source, "small", tmp_path / "out", worksheet=tmp_path / "x.csv")


def test_again_changes_nothing_and_a_new_file_replaces(tmp_path, capsys):
    source = zipped(tmp_path / "a.zip", CANVAS)
    out = tmp_path / "out"
    arguments = ("collect", "canvas", source, "small", out, "--due", "2026-10-01", "--grades", tmp_path / "grades")
    assert run(*arguments) == 0
    said = capsys.readouterr().out
    assert (
        "6 students, 5 notebooks, 0 unchanged" in said
        and "3 remarks about what was not matched" in said
        and "2 late" in said
        and "replace each ?" in said
    )
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.rglob("*") if path.is_file()}
    tables = [(tmp_path / f"out.{name}.csv").read_bytes() for name in ("collected", "unmatched")]
    assert run(*arguments) == 0
    assert "new" not in (said := capsys.readouterr().out) and "6 unchanged" in said
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.rglob("*") if path.is_file()}
    assert tables == [(tmp_path / f"out.{name}.csv").read_bytes() for name in ("collected", "unmatched")]
    zipped(source, CANVAS | {"leebo_77_999_small-2.ipynb": b"third"})
    assert run(*arguments) == 0
    assert (
        "leebo (77): replaced, small.ipynb\n" in capsys.readouterr().out
        and (out / "77/small.ipynb").read_bytes() == b"third"
    )
    assert stat.S_IMODE(out.stat().st_mode) == 0o700 and stat.S_IMODE((out / "77/small.ipynb").stat().st_mode) == 0o600
    zipped(source, {"leebo_77_1000_other.pdf": b""})
    assert run(*arguments) == 0
    assert "is still there" in rows(out)[0]["remark"] and (out / "77/small.ipynb").read_bytes() == b"third"


# --- hostile sources


def link(name, target=b"/etc/passwd"):
    info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return {info: target}


def test_names_that_point_out_stay_out(tmp_path):
    box = tmp_path / "box"
    box.mkdir()
    names = [
        "../evil/small.ipynb",
        "/abs/small.ipynb",
        "a/../../evil/small.ipynb",
        "C:/x/small.ipynb",
        "..\\evil\\small.ipynb",
        "x/..\\..\\small.ipynb",
    ]
    source = zipped(
        box / "a.zip", {name: PAPER for name in names} | link("ada/small.ipynb") | {"bob/small.ipynb": PAPER}
    )
    done = collecting.collect("folder", source, "small", box / "out")
    assert tree(box / "out") == {"bob/small.ipynb": PAPER} and os.listdir(tmp_path) == ["box"]
    assert len(done.unmatched) == 7 and {what.split(":")[0] for _, what in done.unmatched} == {
        "The name points out of the archive",
        "A link, or something else that is no file",
    }


@pytest.mark.parametrize("system", collecting.SYSTEMS)
def test_students_names_become_one_folder(system, tmp_path):
    out = tmp_path / "box" / "out"
    nasty = ["..", "a.ipynb", ".git", ".", "a\nb", "=1+1", "x" * 300, "\u202egnp", "con"]
    for number, name in enumerate(nasty):
        path = {
            "canvas": f"{name}_{number}_1_small.ipynb",
            "moodle": f"{name}_{number}_assignsubmission_file/small.ipynb",
            "folder": f"{name}/small.ipynb",
        }
        source = zipped(tmp_path / f"{number}.zip", {path[system]: PAPER})
        collecting.collect(system, source, "small", out, {"../../up": {"id": "3"}, "ok": {"id": "4"}})
        for row in rows(out):
            assert "\n" not in row["student"] and not row["student"].startswith("=")
    made = [path.relative_to(out).parts for path in out.rglob("*") if path.is_file()]
    assert len(made) >= 5 and all(len(parts) == 2 and parts[1] == "small.ipynb" for parts in made)
    assert sorted(os.listdir(tmp_path / "box")) == ["out", "out.collected.csv", "out.unmatched.csv"]


def test_names_that_are_not_text(tmp_path):
    source = placed(tmp_path / "in", {"ann/small.ipynb": b"a"})
    try:
        os.makedirs(os.fsencode(source) + b"/caf\xe9")
    except OSError:
        pytest.skip("this file system takes text only")
    with open(os.fsencode(source) + b"/caf\xe9/small.ipynb", "wb") as file:
        file.write(b"c")
    collecting.collect("folder", source, "small", tmp_path / "out")
    assert tree(tmp_path / "out") == {"ann/small.ipynb": b"a", "caf\\xe9/small.ipynb": b"c"}
    assert [one.student for one in submissions.find(tmp_path / "out", "small")] == ["ann", "caf\\xe9"]


def test_links_are_not_followed(tmp_path):
    (tmp_path / "secret.ipynb").write_bytes(b"secret")
    source, out = placed(tmp_path / "in", {"ann/small.ipynb": b"ann", "eve/small.ipynb": b"eve"}), tmp_path / "out"
    (source / "bob").mkdir()
    (source / "bob" / "small.ipynb").symlink_to(tmp_path / "secret.ipynb")
    (source / "cyn").symlink_to(tmp_path)
    os.mkfifo(source / "bob" / "pipe.ipynb")
    (tmp_path / "elsewhere").mkdir()
    out.mkdir()
    (out / "ann").symlink_to(tmp_path / "elsewhere")
    (out / "eve").mkdir()
    (out / "eve" / "small.ipynb").symlink_to(tmp_path / "secret.ipynb")
    done = collecting.collect("folder", source, "small", out)
    assert not list((tmp_path / "elsewhere").iterdir()) and (tmp_path / "secret.ipynb").read_bytes() == b"secret"
    assert (out / "eve" / "small.ipynb").read_bytes() == b"eve" and not (out / "eve" / "small.ipynb").is_symlink()
    assert sorted(name for name, _ in done.unmatched) == ["ann", "bob/pipe.ipynb", "bob/small.ipynb", "cyn"]
    for name in ("pipe.ipynb", "small.ipynb"):
        with pytest.raises(OSError):
            archives.open_file(source, f"bob/{name}")


def test_huge_archives_are_refused(tmp_path, monkeypatch):
    source = zipped(tmp_path / "a.zip", {f"{name}/small.ipynb": b"0" * 1_000_000 for name in "abcd"})
    assert source.stat().st_size < 10_000
    for name, value, word in (("MAX_FILES", 3, "more than 3 files"), ("MAX_ARCHIVE", 100, "larger than")):
        with monkeypatch.context() as patch, pytest.raises(ValueError, match=f"source: {word}"):
            patch.setattr(archives, name, value)
            collecting.collect("folder", source, "small", tmp_path / "out")
    monkeypatch.setattr(collecting, "MAX_BYTES", 900_000)
    done = collecting.collect("folder", source, "small", tmp_path / "big")
    assert "not copied" in done.rows[0][-1] and set(tree(tmp_path / "big")) == {
        f"{name}/no_notebook.txt" for name in "abcd"
    }
    monkeypatch.setattr(collecting, "MAX_TOTAL", 2_000_000)
    with pytest.raises(ValueError, match="source: more than 2 MB of notebooks"):
        collecting.collect("folder", source, "small", tmp_path / "out")


def test_damaged_and_lying_archives(tmp_path, capsys):
    source = zipped(
        tmp_path / "a.zip", {"a/small.ipynb": b"A" * 100, "b/small.ipynb": b"B" * 100, "c/small.ipynb": b"C"}
    )
    data = bytearray(source.read_bytes())
    data[data.index(b"a/small.ipynb") + 13] ^= 0xFF  # its content
    place = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 4)  # the list says of b: encrypted, and 4 GB
    data[place + 8] |= 1
    data[place + 24 : place + 28] = struct.pack("<I", 0xFFFFFFF0)
    source.write_bytes(data)
    done = collecting.collect("folder", source, "small", tmp_path / "out")
    assert (tmp_path / "out/c/small.ipynb").read_bytes() == b"C" and (tmp_path / "out/a/no_notebook.txt").exists()
    assert "Cannot be read" in done.rows[0][-1] and done.unmatched == [("b/small.ipynb", "Encrypted: left out.")]
    for content in (b"", b"no zip", data[:60]):
        source.write_bytes(content)
        assert run("collect", "folder", source, "small", tmp_path / "out") == 2
        assert "is not a zip" in capsys.readouterr().err
    assert run("collect", "folder", tmp_path / "nothing", "small", tmp_path / "out") == 2
    assert run("collect", "folder", tmp_path / "out", "small", tmp_path / "out" / "in") == 2
    assert run("collect", "folder", source, "small", tmp_path / "out", "--due", "soon") == 2
    assert "due: got 'soon'" in capsys.readouterr().err


def test_the_zip_of_another_system_is_an_error_that_says_so(tmp_path, capsys):
    assert run("collect", "moodle", zipped(tmp_path / "a.zip", CANVAS), "small", tmp_path / "out") == 1
    assert "another system's? Then say `collect canvas` or `collect folder`" in capsys.readouterr().err


def test_several_notebooks_of_one_student_are_told(tmp_path, capsys):
    assert run("collect", "canvas", zipped(tmp_path / "a.zip", CANVAS), "small", tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "1 handed in several notebooks" in said
    assert "--due writes the table of late work" in said and "replace each ?" not in said  # there is no table yet


def test_a_source_that_is_not_there_is_said_to_be_missing(tmp_path, capsys):
    assert run("collect", "canvas", tmp_path / "nowhere.zip", "small", tmp_path / "out") != 0
    assert "there is no" in (said := capsys.readouterr().err) and "expected a zip or a folder" in said


def test_other_tables_are_refused_as_worksheets(tmp_path):
    source = zipped(tmp_path / "a.zip", CANVAS)
    for text in ("", "Kennung,Name\n1,a\n", "\xff"):
        (tmp_path / "w.csv").write_text(text, "latin-1")
        with pytest.raises(ValueError, match="worksheet"):
            collecting.collect("canvas", source, "small", tmp_path / "out", worksheet=tmp_path / "w.csv")


# --- attacks: names and archives that a student made


@pytest.mark.parametrize("make", [zipped, placed])
@pytest.mark.parametrize(
    "name",
    [
        "Ada_42_assignsubmission_file_small.ipynb",
        "_42_assignsubmission_file_small.ipynb",
        "a_42_assignsubmission_file_",
    ],
)
def test_the_name_of_a_file_files_nothing_under_another_student(make, name, tmp_path):
    """Moodle puts the student's number before the name of the file, which the student chooses."""
    own = "Eve Doe_77_assignsubmission_file_"
    source = make(tmp_path / "source", {f"{own}{name}": b"eve", "Ada_42_assignsubmission_file_small.ipynb": b"ada"})
    collecting.collect("moodle", source, "small", tmp_path / "out")
    assert (tmp_path / "out" / "42" / "small.ipynb").read_bytes() == b"ada" and (tmp_path / "out" / "77").is_dir()
    for place, path in enumerate([f"{own}/Ada_42_assignsubmission_file_/small.ipynb", f"{own}/{name}/small.ipynb"]):
        source = make(tmp_path / f"source{place}", {path: b"eve"})
        collecting.collect("moodle", source, "small", tmp_path / f"out{place}")
        assert list(tree(tmp_path / f"out{place}")) == ["77/small.ipynb"]


def test_a_student_named_anon_is_as_late_as_others(tmp_path):
    source = zipped(
        tmp_path / "source",
        {
            "anon_LATE_77_900_small.ipynb": b"",
            "eve_LATE_78_901_ada_42_1_small.ipynb": b"",
            "anon_Ab1_LATE_9_small.ipynb": b"",
        },
    )
    done = collecting.collect("canvas", source, "small", tmp_path / "out")
    assert done.late == {"77": None, "78": None, "Ab1": None}


def method(path, number):
    """Change what an archive says of its first file: how it is packed."""
    data = bytearray(path.read_bytes())
    for signature, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = data.index(signature) + place
        data[at : at + 2] = struct.pack("<H", number)
    path.write_bytes(data)


@pytest.mark.parametrize("number", [12, 14, 93, 99])
def test_odd_ways_of_packing_stop_nobody(number, tmp_path):
    """Of LZMA's dictionary, up to 4 GB, an archive says the size; what its errors are is another matter again."""
    source = zipped(
        tmp_path / "source.zip",
        {"eve_77_1_small.ipynb": b"\x09\x04\x05\x00\x5d\xff\xff\xff\xff" * 9, "ada_42_2_small.ipynb": b"ada"},
    )
    method(source, number)
    collecting.collect("canvas", source, "small", tmp_path / "out")
    assert tree(tmp_path / "out") == {"42/small.ipynb": b"ada"}
    assert rows(tmp_path / "out", "unmatched") == [
        {"name": "eve_77_1_small.ipynb", "what": "Packed in a way that no course system uses: left out."}
    ]


def test_names_cannot_write_on_the_terminal_or_add_lines(tmp_path, capsys):
    """Neither what is printed nor the tables hold a name as it came."""
    names = {"=cmd|' /C calc'!A0": b"1", "eve\x1b[2J\x1b]0;": b"2", "a\nada": b"3", "\u202eeve": b"4"}
    source = placed(tmp_path / "source", {f"{name}/small.ipynb": data for name, data in names.items()})
    assert run("collect", "folder", source, "small", tmp_path / "out") == 0
    said = capsys.readouterr().out + (tmp_path / "out.collected.csv").read_text("utf-8")
    assert not {one for one in said if not one.isprintable()} - {"\n"} and "\nada" not in said
    assert all(
        line.startswith(("'=", "\"'="))
        for line in (tmp_path / "out.collected.csv").read_text("utf-8").splitlines()
        if "calc" in line
    )
    assert len(rows(tmp_path / "out")) == 4


def test_an_entry_without_a_name_stops_nobody(tmp_path):
    source = zipped(tmp_path / "source", {"?eve_77_1_small.ipynb": b"eve", "ada_42_2_small.ipynb": b"ada"})
    source.write_bytes(source.read_bytes().replace(b"?eve", b"\0eve"))
    collecting.collect("canvas", source, "small", tmp_path / "out")
    assert tree(tmp_path / "out") == {"42/small.ipynb": b"ada"} and [
        row["what"] for row in rows(tmp_path / "out", "unmatched")
    ] == ["An entry without a name: left out."]
