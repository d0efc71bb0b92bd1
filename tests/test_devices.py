"""Tests of ``rlbook_lib.devices``: what is here is said truly, and a GPU run has three outcomes."""

import json
import math
import time

import numpy as np
import pytest
import torch

from rlbook_lib import devices
from rlbook_lib.devices import (
    Throughput,
    choose_device,
    describe_machine,
    gpu_run,
    make_record,
    peak_memory,
    read_record,
    use_threads,
)

CPU = torch.device("cpu")


def experiment(device):
    return {
        "config": {"copies": 4},
        "seeds": [3, 4],
        "curve": {"env_steps": [1, 2], "return": [0.5, 1.5]},
        "summary": {"best": float(torch.ones(3, device=device).sum())},
    }


@pytest.fixture
def recordings(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "RECORDINGS", tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return tmp_path


def stored(folder, **changes):
    """A recording as a GPU would have left it."""
    record = {
        **make_record("toy", experiment, CPU),
        "device": "Some GPU",
        "rehearsal": False,
        "date": "2026-01-02",
        "seconds": 12.3,
        **changes,
    }
    (folder / "toy.json").write_text(json.dumps(record))
    return record


def test_the_device_is_a_gpu_if_there_is_one(monkeypatch):
    assert choose_device("cpu") == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device() == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ValueError, match="name is 'cuda:2'; expected .*cpu, cuda, cuda:0, cuda:1"):
        choose_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device() == CPU
    for name in ("cuda", "cuda:0", "gpu", ""):
        with pytest.raises(ValueError, match=rf"name is '{name}'; expected .* this machine has \(cpu\)"):
            choose_device(name)


def test_threads_are_set():
    before = torch.get_num_threads()
    use_threads(2)
    assert torch.get_num_threads() == 2
    use_threads()
    assert torch.get_num_threads() == 1
    use_threads(before)


def test_the_machine_is_described_in_plain_data():
    machine = describe_machine()
    assert json.loads(json.dumps(machine)) == machine
    assert machine["torch"] == torch.__version__ and machine["numpy"] == np.__version__
    assert all(machine.values())


def test_a_device_may_be_given_by_name_and_one_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Throughput("cpu").device == CPU and describe_machine("cpu") == describe_machine(CPU)
    for call in (describe_machine, peak_memory, Throughput):
        with pytest.raises(ValueError, match="'cuda'; expected .* this machine has"):
            call("cuda")


def test_peak_memory_grows_with_what_was_used():
    before = peak_memory()
    block = np.ones(before // 8 + 8_000_000)  # more than everything so far, and 64 million bytes
    assert peak_memory() >= before + 8 * 8_000_000
    del block


def test_throughput_counts_items_per_second():
    start = time.perf_counter()  # before the counter's own start, so that ours is the longer
    counter = Throughput()
    counter.add(3)
    counter.add(4)
    time.sleep(0.05)
    read = counter.read()
    elapsed = time.perf_counter() - start
    assert read["items"] == 7
    assert 0.05 <= read["seconds"] <= elapsed
    assert read["per_second"] == pytest.approx(7 / read["seconds"])


# ---------------------------------------------------------------------- recorded runs


def test_without_a_recording_the_page_says_so(recordings, capsys):
    def never(device):
        raise AssertionError("nobody asked for it")

    assert gpu_run("toy", never, summary=lambda record: "never said") is None
    assert capsys.readouterr().out == "Not recorded yet: toy. With RLBOOK_GPU=1 this cell runs on a GPU.\n"


def test_unasked_the_recorded_run_is_shown(recordings, capsys):
    record = stored(recordings)
    assert gpu_run("toy", experiment, summary=lambda r: f"best {r['summary']['best']}") == record
    assert capsys.readouterr().out == "Recorded run: on Some GPU, 2026-01-02, in 12 s, seeds 3, 4.\nbest 3.0\n"


def test_who_asks_runs_the_experiment_on_the_gpu(recordings, monkeypatch, capsys):
    stored(recordings)
    monkeypatch.setenv("RLBOOK_GPU", "1")
    monkeypatch.setattr(devices, "choose_device", lambda name: CPU)  # stands in for the GPU
    record = gpu_run("toy", experiment)
    assert record["device"] == describe_machine()["device"]
    assert record["curve"] == experiment(CPU)["curve"]
    assert capsys.readouterr().out.startswith(f"Run here, on {record['device']}, in ")


def test_who_asks_where_there_is_no_gpu_is_told(recordings, monkeypatch):
    monkeypatch.setenv("RLBOOK_GPU", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="name is 'cuda'; expected .* this machine has"):
        gpu_run("toy", experiment)


def test_a_record_says_how_it_was_made():
    record = make_record("toy", experiment, CPU)
    assert {name: record[name] for name in experiment(CPU)} == experiment(CPU)
    assert record["name"] == "toy" and record["rehearsal"] is True
    assert {"python", "torch", "numpy"} <= record["versions"].keys()
    assert len(record["date"]) == 10 and record["seconds"] >= 0 and record["peak_memory"] > 0


@pytest.mark.parametrize(
    "result, said",
    [
        ({"config": {}}, "seeds"),
        (None, "dict"),
        ({**experiment(CPU), "summary": {"best": math.nan}}, "NaN"),
        ({**experiment(CPU), "curve": np.zeros(3)}, "as 'curve'; expected a dict"),
        ({**experiment(CPU), "config": {"size": np.float32(3)}}, "plain data"),
        ({**experiment(CPU), "seeds": 3}, "3 as 'seeds'; expected a list"),
        (
            {**experiment(CPU), "curve": {"a": [1], "b": [1, 2]}},
            "lengths {'a': 1, 'b': 2}; expected equally long lists",
        ),
        ({**experiment(CPU), "curve": {"a": 1}}, "equally long lists"),
    ],
)
def test_an_experiment_must_return_plain_data(result, said):
    with pytest.raises(ValueError, match=said):
        make_record("toy", lambda device: result, CPU)


@pytest.mark.parametrize("name", ["", "../toy", "Toy", "a b"])
def test_a_name_is_a_plain_word(name):
    with pytest.raises(ValueError, match="name"):
        gpu_run(name, experiment)


def test_a_recording_that_cannot_be_trusted_is_refused(recordings):
    path = recordings / "toy.json"
    for content, said in (("{", "damaged"), ("[]", "not a recorded run"), ("{}", "not a recorded run")):
        path.write_text(content)
        with pytest.raises(ValueError, match=f"toy.json.*{said}"):
            gpu_run("toy", experiment)
    stored(recordings, rehearsal=True)
    with pytest.raises(ValueError, match="toy.json.*rehearsal"):
        gpu_run("toy", experiment)


def test_every_stored_recording_can_be_read():
    for path in devices.RECORDINGS.glob("*.json"):
        assert read_record(path)["name"] == path.stem


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_described_and_measured():
    record = make_record("toy", experiment, torch.device("cuda"))
    assert record["device"] == torch.cuda.get_device_name() and not record["rehearsal"]
    assert peak_memory("cuda") > 0
