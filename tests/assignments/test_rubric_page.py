"""Tests of the page for grading written answers: who may ask, what is kept, what gets into the table of grades."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading

import hostile
import pytest
from test_written import SPOOFS, notebook

from assignments.grader import drafts, overrides, questions, reports, results, rubric_page, rubrics, submissions
from assignments.grader.__main__ import main

RUBRIC = """<!-- RLBOOK-RUBRIC-small -->
# Why discount?

Half points are allowed.

## (a) Sums (12 points)

| points | the answer |
|---|---|
| 8 | $\\sum_t \\gamma^t$ is finite, *and why* |
| 4 | one of the two |
| 0 | neither |
| +4 | an example |

## (b) Certainty: 8 points

First:

| points | the answer |
|---|---|
| 5 | later is less certain |

Second, for <script>alert(1)</script>:

| points | the answer |
|---|---|
| 3 | an example |

## A model answer

Sums stay **finite**.

## Common weak answers

- None.
"""


def make(folder, small, texts, graded=None):
    """A folder of submissions with these answers, and an output folder in which they are graded."""
    output = folder / "grades"
    results.private_folder(output)
    results.write_whole(output / "settings.json", json.dumps({"assignment": "small", "seed": 1}))
    for name, text in texts.items():
        hostile.write(folder / "submitted" / name / "small.ipynb", notebook(text))
        results.store(output, results.Result(name, results.GRADED, written=True))
    return output


def desk_of(folder, assignment, anonymous=False):
    found, _ = drafts.answers(assignment, submissions.find(folder / "submitted", "small"))
    return rubric_page.Desk(assignment, folder / "grades", found, anonymous)


@pytest.fixture
def parted(small, tmp_path, monkeypatch):
    """The small assignment with a rubric of two parts."""
    monkeypatch.setattr(rubrics.Path, "read_text", reading(rubrics.Path.read_text))
    return small


def reading(read):
    return lambda path, *arguments, **options: RUBRIC if path.name == "rubric.md" else read(path, *arguments, **options)


@pytest.fixture
def served(parted, tmp_path):
    """A page that is served, for the answers that try to be something else."""
    make(tmp_path, parted, SPOOFS)
    with rubric_page.Server(desk_of(tmp_path, parted)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, method, path, body=None, token=None, **headers):
    """Status, headers and text of an answer; headers that are ``None`` are left out."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    sent = {"Host": server.host}
    if body is not None:
        sent |= {
            "Origin": f"http://{server.host}",
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
        }
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(method, f"/{server.token if token is None else token}/{path}", skip_host=True)
    for name, value in sent.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(data)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def told(server, name, points, comment="", items=None, version=None):
    """What the page sends to save."""
    number = server.desk.order[list(SPOOFS).index(name)]
    one = server.desk.one(number)
    return {
        "id": number,
        "answer": one["answer"],
        "version": one["version"] if version is None else version,
        "points": points,
        "items": items or {},
        "comment": comment,
    }


BOTH = {"(a) Sums": 8, "(b) Certainty": 5}


def test_every_rubric_of_ours_has_parts_with_items():
    for name in questions.names():
        assignment = questions.load(name)
        rubric = rubrics.load(assignment)
        assert len(rubric.parts) >= 3 and all(part.items for part in rubric.parts), name
        for part in rubric.parts:
            best = max([item.points for item in part.items if not item.adds], default=0)
            assert best + sum(item.points for item in part.items if item.adds) == part.points, (name, part.title)
        assert len(rubric.reference) > 500 and len(rubric.question) > 500
        assert "RLBOOK" not in f"{rubric.reference}{rubric.question}{rubric.remarks}"
        assert "<code>\\" not in f"{rubric.reference}{rubric.question}", f"{name}: a formula that cannot be read"


def test_parts_and_items_of_a_rubric(parted):
    rubric = rubrics.load(parted)
    a, b = rubric.parts
    assert [(part.title, part.points) for part in rubric.parts] == [("(a) Sums", 12), ("(b) Certainty", 8)]
    assert [(item.points, item.adds) for item in a.items] == [(8, False), (4, False), (0, False), (4, True)]
    assert [(item.points, item.adds) for item in b.items] == [(5, True), (3, True)]  # 5 + 3 = 8: both are added
    assert "<math" in a.items[0].html and "<em>and why</em>" in a.items[0].html
    assert (
        b.html.index("First")
        < b.html.index('data-from="0" data-to="1"')
        < b.html.index("Second")
        < b.html.index('data-from="1" data-to="2"')
    )
    assert "<script" not in b.html and "&lt;script" in b.html
    assert (
        "<strong>finite</strong>" in rubric.reference and "Half points" in rubric.remarks and "None." in rubric.remarks
    )


def test_a_rubric_without_parts_is_one_and_wrong_sums_are_said(small, monkeypatch):
    rubric = rubrics.load(small)
    assert [(part.title, part.points) for part in rubric.parts] == [
        ("Why discount?", 20)
    ] and "20 points" in rubric.remarks
    monkeypatch.setattr(rubrics.Path, "read_text", lambda path, *_, **__: "## One (7 points)\n")
    with pytest.raises(ValueError, match="7 points, but written has 20"):
        rubrics.load(small)


def test_nothing_without_the_token_the_host_and_the_origin(served):
    body = told(served, "ann", BOTH)
    for token in ("", "x" * 32, served.token[:-1], served.token + "x", "é"):
        quoted = "%C3%A9" if token == "é" else token
        assert ask(served, "GET", "overview", token=quoted)[0] == 404
        assert ask(served, "POST", "save", body, token=quoted)[0] == 404
    for host in (
        "example.org",
        f"localhost:{served.server_port}",
        "127.0.0.1",
        f"127.0.0.1:{served.server_port}.example.org",
        "",
        None,
    ):
        assert ask(served, "GET", "overview", Host=host)[0] == 421
        assert ask(served, "POST", "save", body, Host=host)[0] == 421
    for origin in (
        None,
        "null",
        "http://example.org",
        f"http://localhost:{served.server_port}",
        f"https://{served.host}",
        "http://127.0.0.1",
    ):
        assert ask(served, "POST", "save", body, Origin=origin)[0] == 403
        assert ask(served, "POST", "export", {}, Origin=origin)[0] == 403
    assert ask(served, "POST", "save", body, Content_Type="text/plain")[0] == 403
    assert (
        not list((served.desk.output / "drafts").glob("*.json")) and not overrides.path_of(served.desk.output).exists()
    )
    assert ask(served, "POST", "save", body)[0] == 200  # the same with all three


def test_it_listens_on_this_machine_only_and_says_nothing_else(served):
    assert served.server_address[0] == "127.0.0.1" and len(served.token) >= 32
    status, headers, text = ask(served, "GET", "")
    assert status == 200 and served.token not in text
    policy = headers["Content-Security-Policy"]
    assert (
        "default-src 'none'" in policy
        and "unsafe" not in policy
        and "http" not in policy
        and "frame-ancestors 'none'" in policy
    )
    assert (
        headers["Referrer-Policy"] == "no-referrer"
        and headers["Cache-Control"] == "no-store"
        and headers["X-Content-Type-Options"] == "nosniff"
    )
    assert not [name for name in headers if name.lower().startswith("access-control")]
    for name in ("", "rubric.css", "rubric.js"):
        assert "http://" not in ask(served, "GET", name)[2] and "https://" not in ask(served, "GET", name)[2]
    for path in (
        "rubric.py",
        "../rubric_page.py",
        "..%2fresults",
        "answer/",
        "answer/0",
        "answer/../overview",
        "settings.json",
    ):
        assert ask(served, "GET", path)[::2] == (404, "")
    assert ask(served, "GET", "save")[0] == 404 and ask(served, "POST", "overview", {})[0] == 404
    assert ask(served, "PUT", "save", {})[0] == 501


def test_impossible_input_is_refused_and_named(served):
    for change, said in [
        ({"points": {"(a) Sums": 13}}, "expected a number from 0 to 12"),
        ({"points": {"(a) Sums": -1}}, "from 0 to 12"),
        ({"points": {"(a) Sums": float("nan")}}, "from 0 to 12"),
        ({"points": {"(a) Sums": True}}, "from 0 to 12"),
        ({"points": {"(a) Sums": "8"}}, "from 0 to 12"),
        ({"points": {"(c)": 1}}, "one of (a) Sums, (b) Certainty"),
        ({"points": []}, "expected values by part"),
        ({"items": {"(a) Sums": [4]}}, "expected numbers of its 4 items"),
        ({"items": {"(a) Sums": "a"}}, "expected numbers of its 4 items"),
        ({"comment": "x" * 4001}, "at most 4000"),
        ({"comment": None}, "at most 4000"),
    ]:
        status, _, text = ask(served, "POST", "save", told(served, "ann", BOTH) | change)
        assert status == 400 and said in json.loads(text)["error"]
    for body in (b"", b"{", b"[]", b"[" * 50_000, b"\xff"):
        assert ask(served, "POST", "save", body)[0] == 400
    assert ask(served, "POST", "save", b" " * 100_001)[0] == 413
    assert ask(served, "POST", "save", {}, Content_Length=None)[0] == 413
    assert ask(served, "POST", "save", told(served, "ann", BOTH) | {"id": "nobody"})[0] == 404
    assert not list((served.desk.output / "drafts").glob("*.json"))


def test_every_change_is_kept_and_a_second_window_is_told(served):
    path = drafts.path_of(served.desk.output, "ann")
    comment = ""
    for letter in "A < b, \"c\" & 'd' é":
        comment += letter
        status, _, text = ask(served, "POST", "save", told(served, "ann", {"(a) Sums": 8}, comment))
        assert status == 200 and json.loads(text)["done"] is False
        assert json.loads(path.read_text("utf-8"))["comment"] == comment
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    old = ask(served, "POST", "save", told(served, "ann", BOTH, "from another window", version=3))
    assert old[0] == 409 and "another window" in json.loads(old[2])["error"]
    assert json.loads(path.read_text("utf-8"))["comment"] == comment
    status, _, text = ask(served, "POST", "save", told(served, "ann", BOTH, comment, {"(a) Sums": [0]}))
    assert json.loads(text) == {"version": len(comment) + 1, "done": True} and served.desk.counted() == (1, len(SPOOFS))
    again = rubric_page.Desk(served.desk.assignment, served.desk.output, list(served.desk.ids.values()))
    one = again.one(again.order[0])
    assert (one["points"], one["items"], one["comment"], one["changed"]) == (BOTH, {"(a) Sums": [0]}, comment, False)


def test_answers_are_handed_over_as_text(served):
    overview = json.loads(ask(served, "GET", "overview")[2])
    assert [row["label"] for row in overview["answers"]] == list(SPOOFS) and not any(
        row["done"] for row in overview["answers"]
    )
    texts = {
        row["label"]: json.loads(ask(served, "GET", f"answer/{row['id']}")[2])["text"] for row in overview["answers"]
    }
    assert texts["dan"] == SPOOFS["dan"]
    assert "\u202e" not in texts["eve"] and "\x1b" not in texts["eve"] and "\\u202e" in texts["eve"]
    assert ask(served, "GET", f"answer/{overview['answers'][3]['id']}")[1]["Content-Type"] == "application/json"


def test_huge_answers_pictures_and_what_cannot_be_read(parted, tmp_path):
    make(tmp_path, parted, {"big": "x" * 3_000_000, "empty": "YOUR ANSWER HERE", "pic": ""})
    cell = notebook("") | {"cells": [notebook("")["cells"][0] | {"attachments": {"a.png": {}, "b.png": {}}}]}
    hostile.write(tmp_path / "submitted" / "pic" / "small.ipynb", cell)
    hostile.write(tmp_path / "submitted" / "bad" / "small.ipynb", b"{")
    found, said = drafts.answers(parted, submissions.find(tmp_path / "submitted", "small"))
    assert [one.student for one in found] == ["big", "pic"] and [one.pictures for one in found] == [0, 2]
    assert len(said) == 2 and "bad" in said and "No answer was found." in said.values()
    desk = desk_of(tmp_path, parted)
    one = desk.one(desk.order[0])
    assert len(one["text"]) == rubric_page.SHOWN and one["more"] == 3_000_000 - rubric_page.SHOWN


def test_anonymous_means_that_no_name_gets_out(parted, tmp_path):
    names = [f"student{number:02}" for number in range(20)]
    make(tmp_path, parted, dict.fromkeys(names, "An answer."))
    desk = desk_of(tmp_path, parted, anonymous=True)
    sent = json.dumps(desk.overview()) + "".join(json.dumps(desk.one(name)) for name in desk.order)
    assert "student0" not in sent and "student1" not in sent
    order = [desk.ids[name].student for name in desk.order]
    assert sorted(order) == names != order
    assert desk_of(tmp_path, parted, anonymous=True).order == desk.order  # the same at the next start
    assert sorted(desk_of(tmp_path, parted).order) == desk.order  # and the drafts are the same ones


def graded_by_hand(output, assignment):
    return {
        one.result.student: (one.written, one.notes)
        for one in reports.grades(output, assignment)
        if one.written is not None
    }


def test_export_and_what_stays(served):
    output, assignment = served.desk.output, served.desk.assignment
    overrides.add(output, assignment, list(SPOOFS), "eve", "written", 3, "by hand")
    overrides.add(output, assignment, list(SPOOFS), "ann", "q1", 1, "a reason")
    assert served.desk.one(served.desk.order[4])["table"] == {"points": 3, "note": "by hand"}
    ask(served, "POST", "save", told(served, "ann", BOTH, "=1+1\n\nGood\u202e."))
    ask(served, "POST", "save", told(served, "bob", {"(a) Sums": 2.5}))
    assert json.loads(ask(served, "POST", "export", {})[2]) == {"entered": 1, "same": 0, "open": 6}
    note = "(a) Sums: 8 of 12; (b) Certainty: 5 of 8. =1+1 Good ."
    assert graded_by_hand(output, assignment) == {"ann": (13, ("a reason", note)), "eve": (3, ("by hand",))}
    assert note in (output / "grades.csv").read_text("utf-8") and "13 of 20" in (
        output / "feedback" / "ann.html"
    ).read_text("utf-8")
    assert served.desk.one(served.desk.order[0])["table"] is None
    # what a person changes in the table afterwards stays, until the points on the page change
    overrides.add(output, assignment, list(SPOOFS), "ann", "written", 14, "after an appeal")
    assert json.loads(ask(served, "POST", "export", {})[2]) == {"entered": 0, "same": 1, "open": 6}
    assert graded_by_hand(output, assignment)["ann"][0] == 14
    assert served.desk.one(served.desk.order[0])["table"] == {"points": 14, "note": "after an appeal"}
    ask(served, "POST", "save", told(served, "ann", BOTH | {"(b) Certainty": 0}))
    assert json.loads(ask(served, "POST", "export", {})[2])["entered"] == 1
    assert graded_by_hand(output, assignment)["ann"][0] == 8
    # grading again writes new results and leaves the decisions
    results.store(output, results.Result("ann", results.TIMEOUT, written=True))
    reports.write_all(output, assignment)
    assert graded_by_hand(output, assignment)["ann"][0] == 8


def test_a_damaged_table_is_said_and_nothing_is_exported(served):
    ask(served, "POST", "save", told(served, "ann", BOTH))
    path = overrides.path_of(served.desk.output)
    path.write_text("student,question,points\nnobody,written,1\n")
    status, _, text = ask(served, "POST", "export", {})
    assert (
        status == 400
        and "overrides.csv, line 2" in text
        and path.read_text() == "student,question,points\nnobody,written,1\n"
    )
    assert drafts.load(served.desk.output, served.desk.ids[served.desk.order[0]]).exported is None


def test_points_for_an_earlier_answer_do_not_count(served, tmp_path):
    ask(served, "POST", "save", told(served, "ann", BOTH))
    hostile.write(tmp_path / "submitted" / "ann" / "small.ipynb", notebook("Another answer."))
    desk = desk_of(tmp_path, served.desk.assignment)
    assert desk.one(desk.order[0])["changed"] and desk.counted()[0] == 0 and desk.export()["entered"] == 0
    desk.save(told(served, "ann", BOTH) | {"answer": desk.ids[desk.order[0]].hash})
    assert not desk.one(desk.order[0])["changed"] and desk.export()["entered"] == 1
    status, _, text = ask(
        served, "POST", "save", told(served, "ann", BOTH) | {"answer": served.desk.ids[served.desk.order[0]].hash[::-1]}
    )
    assert status == 409 and "another one was handed in" in text


def test_a_damaged_draft_is_said(served):
    results.write_whole(drafts.path_of(served.desk.output, "ann"), "{")
    status, _, text = ask(served, "GET", f"answer/{served.desk.order[0]}")
    assert status == 400 and "ann.json" in text and "is damaged" in text


def test_the_command_survives_a_kill(small, tmp_path):
    """The program itself is killed right after a change was confirmed, and goes on where it was."""
    output = make(tmp_path, small, {"ann": "An answer.", "bob": "Another one."})
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"  # a shell's background job ignores it
    code += " sys.path.insert(0, sys.argv.pop(1)); import hostile; from assignments.grader.__main__ import main;"
    code += " sys.exit(main(sys.argv[1:], hostile.HOME))"
    command = [
        sys.executable,
        "-c",
        code,
        os.path.dirname(hostile.__file__),
        "rubric",
        str(tmp_path / "submitted"),
        "small",
        "--output",
        str(output),
    ]

    def start():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=hostile.ROOT)
        address = process.stdout.readline().split()[-1]
        _, _, host, token, _ = address.split("/")
        server = type("Server", (), {"server_port": int(host.split(":")[1]), "host": host, "token": token})
        return process, server, json.loads(ask(server, "GET", "overview")[2])

    process, server, overview = start()
    ann = overview["answers"][0]["id"]
    one = json.loads(ask(server, "GET", f"answer/{ann}")[2])
    said = {
        "id": ann,
        "answer": one["answer"],
        "version": 0,
        "points": {"Why discount?": 17.5},
        "items": {},
        "comment": "Well said.",
    }
    assert ask(server, "POST", "save", said)[0] == 200
    assert (
        main(["rubric", str(tmp_path / "submitted"), "small", "--output", str(output)], hostile.HOME) == 2
    )  # one at a time
    process.kill()
    process.communicate()
    process, server, overview = start()
    assert [row["done"] for row in overview["answers"]] == [True, False]
    assert json.loads(ask(server, "GET", f"answer/{ann}")[2])["comment"] == "Well said."
    assert json.loads(ask(server, "POST", "export", {})[2])["entered"] == 1
    process.send_signal(signal.SIGINT)
    said, complaints = process.communicate(timeout=60)
    assert process.returncode == 0 and "1 of 2 graded" in said and complaints == ""
    assert graded_by_hand(output, small) == {"ann": (17.5, ("Well said.",))}


def test_a_student_without_a_result_is_told(small, tmp_path, capsys, monkeypatch):
    output = make(tmp_path, small, {"ann": "An answer."})
    hostile.write(tmp_path / "submitted" / "zoe" / "small.ipynb", notebook("An answer."))
    shown = []
    monkeypatch.setattr(rubric_page, "serve", lambda desk, port: shown.extend(desk.ids.values()))
    assert main(["rubric", str(tmp_path / "submitted"), "small", "--output", str(output)], hostile.HOME) == 0
    assert [one.student for one in shown] == ["ann"] and "zoe: It has no result yet" in capsys.readouterr().err
    assert main(["rubric", str(tmp_path / "submitted"), "small", "--output", str(tmp_path / "new")], hostile.HOME) == 2
