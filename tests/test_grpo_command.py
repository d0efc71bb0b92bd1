"""GRPO from the command line: its files, its errors, its rewards, and a run that is killed and goes on as if nothing had happened."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import rlbook_lib.grpo_command as grpo_command
from rlbook_lib.engines import last_whole_checkpoint
from rlbook_lib.grpo import GRPOConfig, train_grpo
from rlbook_lib.grpo_command import main
from rlbook_lib.language_model import encode_completions, generate, load_hugging_face
from rlbook_lib.text_tasks import PromptFile, RewardError
from tests.full_disk import no_file_longer_than
from tests.tiny_llama import save_tiny_llama
from tests.two_processes import fix_completions

pytestmark = pytest.mark.filterwarnings("ignore")  # what the engine's packages say about each other
SETTINGS = """--updates 5 --checkpoint-every 2 --prompts 4 --group 4 --minibatches 2 --max-new-tokens 3
    --evaluation-prompts 8 --learning-rate 3e-3 --warmup 0 --quiet --device cpu""".split()
DIGITS = "0123456789+="


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("models") / "llama", DIGITS)


@pytest.fixture(scope="session")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "sums.jsonl"
    rows = [{"prompt": f"{a}+{b}=", "answer": str((a + b) % 10)} for a in range(9) for b in range(9)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rewards") / "own.py"
    path.write_text(
        "import math, os\n"
        "def digits(prompt, completion, answer):\n    return len(set(completion)) / 3\n"
        "def raises(prompt, completion, answer):\n    return 1 / 0\n"
        "def exits(prompt, completion, answer):\n    raise SystemExit\n"
        "def text(prompt, completion, answer):\n    return '1'\n"
        "def huge(prompt, completion, answer):\n    return 1e300\n"
        "def nan(prompt, completion, answer):\n    return math.nan\n"
        "def infinite(prompt, completion, answer):\n    return math.inf\n"
        "def later(prompt, completion, answer, calls=[]):\n"  # eight evaluations, then updates of sixteen
        "    calls.append(1)\n    return math.nan if len(calls) > 8 + 3 * 16 else 0.1 * len(completion)\n"
        "def second_process(prompt, completion, answer):\n"
        "    return math.nan if os.environ['RANK'] == '1' else 0.0\n"
    )
    return path


def arguments(llama: Path, task: Path, *more: str) -> list[str]:
    return [*SETTINGS, "--model", str(llama), "--task", str(task), *more]


@pytest.fixture
def command(llama, task, tmp_path):
    """Run the command in this process."""
    pytest.importorskip("trl", reason="an optional engine")

    def run(output: str, *more: str) -> Path:
        assert main([*arguments(llama, task, "--output", str(tmp_path / output)), *more]) == 0
        return tmp_path / output

    return run


@pytest.fixture(scope="session")
def whole(llama, task, own, tmp_path_factory):
    """A run from beginning to end, paid by a function of one's own, so that groups differ."""
    pytest.importorskip("trl", reason="an optional engine")
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert (
        main(arguments(llama, task, "--output", str(folder), "--reward", f"{own}:digits", "--reward", "rule=0.5")) == 0
    )
    return folder


def lines(path: Path) -> list[dict]:
    """The lines of a file, without the time they took."""
    timed = ("seconds", "tokens_a_second")
    return [{k: v for k, v in json.loads(line).items() if k not in timed} for line in path.read_text().splitlines()]


def weights(folder: Path) -> dict:
    from safetensors.torch import load_file

    return load_file(next(path for path in (folder / "model", folder) if path.exists()) / "model.safetensors")


def distance(one: Path, other: Path) -> float:
    """The largest difference of a weight."""
    first, second = weights(one), weights(other)
    return max(float((first[name] - second[name]).abs().max()) for name in first | second)


def same(one: Path, other: Path) -> bool:
    return distance(one, other) == 0


# ----------------------------------------------------------------------------------------------------- what it leaves


def test_a_run_leaves_settings_metrics_samples_and_a_model(whole, llama):
    rows = lines(whole / "metrics.jsonl")
    assert [row["update"] for row in rows] == [0, 1, 2, 3, 4, 5, 5]
    assert {"evaluation_accuracy", "evaluation_reward"} < rows[0].keys() == rows[-1].keys()
    numbers = """reward accuracy length truncated zero_variance entropy clipped clipped_low clipped_high gradient_norm loss
        learning_rate tokens reward_digits reward_rule""".split()
    assert set(numbers) == rows[1].keys() - {"update"}
    for row in rows[1:-1]:
        assert row["reward"] == pytest.approx(row["reward_digits"] + 0.5 * row["reward_rule"], abs=1e-6)
        assert row["accuracy"] == pytest.approx(row["reward_rule"])  # strict, beside whatever else is paid
    assert max(row["gradient_norm"] for row in rows[1:-1]) > 0 and rows[4]["tokens"] > rows[1]["tokens"]
    assert [row["update"] for row in lines(whole / "samples.jsonl")] == [2] * 4 + [4] * 4
    assert (whole / "curves.png").stat().st_size > 9000
    settings = json.loads((whole / "settings.json").read_text())
    assert settings["config"]["group"] == 4 and settings["processes"] == 1
    model = load_hugging_face(str(whole / "model"))
    assert generate(model, ["1+2="], max_new_tokens=3, greedy=True).texts
    before = load_hugging_face(str(llama))
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))


def test_a_run_that_was_cut_off_ends_as_if_nothing_had_happened(whole, command, own, tmp_path, monkeypatch):
    note, paid = grpo_command._Folder.note, ["--reward", f"{own}:digits", "--reward", "rule=0.5"]

    def dies(self, update, logs):
        note(self, update, logs)
        if update == 3:
            raise RuntimeError("the lights go out")

    with monkeypatch.context() as patch:
        patch.setattr(grpo_command._Folder, "note", dies)
        with pytest.raises(RuntimeError, match="lights"):
            command("cut", *paid)
    cut = tmp_path / "cut"
    with (cut / "metrics.jsonl").open("a") as file:
        file.write('{"update": 4, "rew')  # a kill in the middle of a line
    torn = cut / "checkpoint-6"  # and one in the middle of a checkpoint
    torn.mkdir()
    (torn / "trainer_state.json").write_text('{"global_st')
    command("cut", *paid)
    assert lines(cut / "metrics.jsonl") == lines(whole / "metrics.jsonl")
    assert lines(cut / "samples.jsonl") == lines(whole / "samples.jsonl")
    assert same(cut, whole)


def test_after_ctrl_c_the_run_goes_on_and_no_line_is_missing(whole, llama, task, own, tmp_path, monkeypatch, capsys):
    sample = grpo_command._Folder.sample
    words = arguments(
        llama, task, "--output", str(tmp_path / "cut"), "--reward", f"{own}:digits", "--reward", "rule=0.5"
    )

    def interrupted(self, *what):
        sample(self, *what)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(grpo_command._Folder, "sample", interrupted)
        assert main(words) == 130
    assert "goes on from the last checkpoint" in capsys.readouterr().err
    assert lines(tmp_path / "cut" / "metrics.jsonl")[-1]["update"] == 2
    assert main(words) == 0
    assert lines(tmp_path / "cut" / "metrics.jsonl") == lines(whole / "metrics.jsonl")


def test_a_full_disk_ends_the_run_with_one_sentence_and_the_same_command_goes_on(
    whole, command, own, tmp_path, monkeypatch
):
    note, paid = grpo_command._Folder.note, ["--reward", f"{own}:digits", "--reward", "rule=0.5"]
    for update, kind, size, words, kept in (
        (4, "reward", 100_000, "checkpoint-8", {4}),  # the weights fit, the optimizer does not
        (5, "reward", 20_000, "checkpoint-10", {4, 8}),  # not even the weights
        (5, "eval_reward", 3_000, "model.part", {8, 10}),
    ):
        with contextlib.ExitStack() as disk, monkeypatch.context() as patch:

            def fills(self, now, logs, when=(update, kind), size=size, disk=disk):
                note(self, now, logs)
                if now == when[0] and when[1] in logs:
                    disk.enter_context(no_file_longer_than(size))

            patch.setattr(grpo_command._Folder, "note", fills)
            with pytest.raises(SystemExit, match=f"^grpo_command: .*{words} cannot be written .* goes on") as caught:
                command("full", *paid)
        assert "\n" not in str(caught.value)
        assert {int(path.name.split("-")[1]) for path in (tmp_path / "full").glob("checkpoint-*")} == kept
    command("full", *paid)
    assert lines(tmp_path / "full" / "metrics.jsonl") == lines(whole / "metrics.jsonl")
    assert same(tmp_path / "full", whole)


def test_memory_and_time_are_told_before_anything_starts(command, capsys, monkeypatch):
    monkeypatch.setattr(grpo_command._Folder, "note", lambda self, update, logs: 1 / 0)  # the first evaluation
    with pytest.raises(ZeroDivisionError):
        command("run")
    said = capsys.readouterr().out
    assert "21,536 parameters, 21,536 of them learn; 1 process(es), cpu. Memory of each, about: " in said
    assert re.search(r"about: [0-9.]+ MB \(models 0.34 MB", said)  # 16 bytes a weight
    assert re.search(
        r"Time, the computing alone, about: [0-9.]+ s an update \(writing [0-9.]+, learning [0-9.]+\)", said
    )


# ------------------------------------------------------------------------------------------------------- what is refused


def test_a_folder_of_another_run_or_in_use_is_left_alone(whole, llama, task, own):
    before = (whole / "metrics.jsonl").read_bytes()
    words = arguments(llama, task, "--output", str(whole), "--reward", f"{own}:digits", "--reward", "rule=0.5")
    with pytest.raises(SystemExit, match="other settings \\(config\\)"):
        main([*words, "--group", "2"])
    with pytest.raises(SystemExit, match="other settings \\(reward\\)"):
        main([*words, "--reward", f"{own}:nan"])
    other = grpo_command._Folder(whole)
    other.open(json.loads((whole / "settings.json").read_text()))
    with pytest.raises(SystemExit, match="whole is in use: another command writes there"):
        main(words)
    other.close()
    assert main(words) == 0  # nothing left to do
    assert (whole / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--model nowhere", "--model nowhere is no folder"),
        ("--task nowhere.jsonl", "nowhere.jsonl"),
        ("--group 1", "group is 1"),
        ("--minibatches 3", "minibatches is 3"),
        ("--ddof 0", "ddof is 0, which TRL does not have"),
        ("--beta 0.1 --kl k1", "kl is 'k1', which TRL does not have"),
        ("--prompts 90", "prompts is 90; expected at most"),
        ("--checkpoint-every 0", "checkpoint_every is 0"),
        ("--reward own.py", "--reward own.py: expected rule, or file.py:function"),
        ("--reward nowhere.py:own", "nowhere.py is no file of Python; expected rule, or file.py:function"),
        (
            f"--reward {__file__}:lines",
            "lines takes (path: pathlib.Path) -> list[dict]; expected lines(prompt, completion",
        ),
        ("--reward rule=much", "the weight is 'much'"),
        ("--reward rule=inf", "the weight is 'inf'"),
        ("--reward rule --reward rule=2", "two have the same name"),
    ],
)
def test_what_cannot_work_is_said_in_one_line_before_anything_is_written(task, tmp_path, more, words):
    """Without the engine, too: it is imported last."""
    with pytest.raises(SystemExit, match=f"^grpo_command: .*{re.escape(words)}") as caught:
        main([*arguments(tmp_path, task, "--output", str(tmp_path / "run")), *more.split()])
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            "--max-new-tokens 62",
            "the prompt '0+0=' has 4 tokens and its answer may have 62 (--max-new-tokens); expected at",
        ),
        ("--chat", "the tokenizer has no chat template"),
        ("--trl num_generations=3", "num_generations follows from --group"),
        ("--trl num_generation=3", "expected name=value, an argument of trl.GRPOConfig"),
        ("--trl reward_weights=[2]", "reward_weights follows from --reward"),
        ("--trl warmup_steps=9", "warmup_steps follows from --warmup"),
        ("--trl output_dir=elsewhere", "output_dir follows from --output"),
        ("--trl top_p=0.9 --vllm", "top_p is 0.9 with vLLM"),
    ],
)
def test_what_the_engine_or_the_model_cannot_do_is_said_at_once(command, tmp_path, more, words):
    with pytest.raises(SystemExit, match=re.escape(words)):
        command("run", *more.split())
    assert not (tmp_path / "run").exists()


def test_a_package_that_an_argument_wants_is_named_and_the_folder_stays_free(command):
    with pytest.raises(SystemExit, match="^grpo_command: .*swanlab"):
        command("run", "--trl", "report_to=swanlab")
    command("run")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1: '{'; expected a JSON object"),
        ('{"prompt": "", "answer": "1"}', "texts"),
        ('{"prompt": "1", "answer": "one"}', "expected a number"),
        ('{"prompt": "1", "answer": "1"}', "has no prompt for the"),
    ],
)
def test_a_task_file_that_cannot_be_used_is_named(tmp_path, line, words):
    (tmp_path / "task.jsonl").write_text(line + "\n")
    with pytest.raises(SystemExit, match=words):
        main(arguments(tmp_path, tmp_path / "task.jsonl", "--output", str(tmp_path / "run"), "--rule", "last number"))


@pytest.mark.parametrize("name", ["settings.json", "metrics.jsonl"])
def test_a_damaged_file_is_named(tmp_path, name):
    (tmp_path / name).write_text("\0}\n{}\n")
    folder = grpo_command._Folder(tmp_path)
    with pytest.raises(ValueError, match=f"{name}.* is damaged"):
        folder.open({})
        folder.go_on(0, None, True)
    folder.close()
    assert (tmp_path / name).read_text() == "\0}\n{}\n"


# ------------------------------------------------------------------------------------------------------------ rewards


@pytest.mark.parametrize(
    ("program", "words"),
    [("def f(:", "SyntaxError"), ("import nowhere", "ModuleNotFoundError"), ("import sys; sys.exit()", "SystemExit")],
)
def test_a_file_of_rewards_that_does_not_run_is_named(tmp_path, program, words):
    path = tmp_path / "own.py"
    path.write_text(program)
    with pytest.raises(ValueError, match=rf"own.py cannot be loaded: {words}"):
        grpo_command._reward(f"{path}:f", None)


def test_numbers_of_numpy_and_torch_are_rewards(task):
    prompts, row = PromptFile(task), {"plain": ["1+2="], "completions": ["3"], "completion_ids": [[5, 1]]}
    for number in (True, 1, np.float32(1), np.int64(1), torch.tensor(1.0)):
        assert grpo_command._called(prompts, "own", lambda p, c, a, paid=number: paid, {1})(**row) == [1.0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raised ZeroDivisionError"),
        ("exits", "raised SystemExit"),
        ("nan", "returned nan"),
        ("infinite", "returned inf"),
        ("huge", "returned 1e\\+300"),
        ("text", "returned '1'"),
    ],
)
def test_a_reward_that_is_no_number_names_the_prompt_by_its_line(task, own, name, words):
    prompts = PromptFile(task)
    called = grpo_command._called(prompts, *grpo_command._reward(f"{own}:{name}", prompts)[:2], {1})
    with pytest.raises(RewardError, match=f"{words}.*prompt in line 12, '1\\+2=', completion '4'"):
        called(plain=["1+2="], completions=["4"], completion_ids=[[6, 1]])


def test_a_reward_that_breaks_late_stops_the_run_and_loses_nothing(command, own, tmp_path):
    with pytest.raises(SystemExit, match="^grpo_command: the reward 'later' returned nan.*prompt in line"):
        command("run", "--reward", f"{own}:later")
    assert [row["update"] for row in lines(tmp_path / "run" / "metrics.jsonl")] == [0, 1, 2, 3]
    assert last_whole_checkpoint(tmp_path / "run").name == "checkpoint-4"


def test_what_did_not_end_earns_nothing_by_either_end_token(task):
    prompts = PromptFile(task)
    rows = {
        "plain": ["1+2="] * 5,
        "completions": ["3", "3", "3", [{"role": "assistant", "content": "3"}], "3"],
        "completion_ids": [[5, 1], [5], [5, 9], [5, 9], []],
    }
    for paid, wanted in ((0.5, [0.5, 0, 0.5, 0.5, 0]), (-0.5, [-0.5] * 5)):
        assert grpo_command._called(prompts, "own", lambda p, c, a, paid=paid: paid, {1, 9})(**rows) == wanted
    rule = grpo_command._reward("rule=2", prompts)
    assert rule[2] == 2 and grpo_command._called(prompts, *rule[:2], {1, 9})(**rows) == [1, 0, 1, 1, 0]


# --------------------------------------------------------------------------------------------------------- chat templates


@pytest.mark.parametrize(
    ("chat", "switches", "shown"),
    [
        (
            "ChatML",
            {"enable_thinking": False},
            "<|im_start|>user\n1+2=<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        ),
        (
            "headers",
            {},
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n1+2=<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
    ],
)
def test_both_engines_show_an_instruct_model_its_template_and_stop_at_each_of_its_ends(
    command, task, tmp_path, monkeypatch, chat, switches, shown
):
    trl = pytest.importorskip("trl", reason="an optional engine")
    folder = save_tiny_llama(tmp_path / chat, DIGITS + "\nuseraintkh<>/", chat)
    model, written, asked = load_hugging_face(str(folder)), [], []
    tokenizer, sampled = model.tokenizer.tokenizer, trl.GRPOTrainer._generate_single_turn

    def spied(self, prompt_ids, *more, **named):
        out = sampled(self, prompt_ids, *more, **named)
        asked.extend(prompt_ids)
        written.extend(out[0])
        return out

    monkeypatch.setattr(trl.GRPOTrainer, "_generate_single_turn", spied)
    given = ["--trl", f"chat_template_kwargs={json.dumps(switches)}"] if switches else []
    command("run", "--chat", "--updates", "2", "--max-new-tokens", "12", "--model", str(folder), *given)
    assert {tokenizer.decode(row) for row in asked} <= {shown.replace("1+2=", p) for p in PromptFile(task).answers}
    shown_file = tmp_path / "shown.jsonl"
    with shown_file.open("w") as file:
        for prompt, answer in PromptFile(task).answers.items():
            message = [{"role": "user", "content": prompt}]
            prompt = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True, **switches)
            print(json.dumps({"prompt": prompt, "answer": answer}), file=file)
    prompts = PromptFile(shown_file, max_new_tokens=12)
    ours = encode_completions(model, list(prompts.answers), ["3"] * len(prompts.answers))
    read = {tuple(row[mask].tolist()) for row, mask in zip(ours.prompt_tokens, ours.prompt_mask)}
    assert {tuple(row) for row in asked} <= read and len(asked[0]) < len(shown)  # special tokens are one each
    ends = {row[-1] for row in written if row[-1] in (1, 2)}
    assert ends == {1, 2} == set(model.tokenizer.ends)  # the turn's end, and the text's
    rows = lines(tmp_path / "run" / "metrics.jsonl")
    assert [row["update"] for row in rows] == [0, 1, 2, 2]
    assert all(0 < row["truncated"] < 1 for row in rows if "truncated" in row)

    # the book's own loop
    found = generate(model, list(prompts.answers) * 4, max_new_tokens=12, seed=0)
    last = found.tokens.gather(1, found.lengths[:, None] - 1)[:, 0]
    assert set(last[found.finished].tolist()) == {1, 2} and not set(last[~found.finished].tolist()) & {1, 2}
    assert model.tokenizer.decode([9, 2, 9]) == model.tokenizer.decode([9, 1, 9]) == model.tokenizer.decode([9])
    done = train_grpo(
        model,
        prompts,
        GRPOConfig(updates=2, prompts=4, group=4, minibatches=1),
        seed=0,
        reward=lambda prompt, text, finished: finished * len(text),
    )
    assert (done.history["gradient_norm"] > 0).all()


def test_a_base_model_whose_answers_no_template_could_end_is_refused(command, tmp_path):
    """A base model of Qwen's: its template ends a turn by a token that is no end of the model's."""
    model = load_hugging_face(str(save_tiny_llama(tmp_path / "base", DIGITS + "\nuseraintkh<>/", "ChatML")))
    model.model.generation_config.eos_token_id, model.tokenizer.tokenizer.eos_token = 2, "<|endoftext|>"
    model.save(tmp_path / "base")
    with pytest.raises(SystemExit, match="ends a turn with no eos_token_id of generation_config.json"):
        command("run", "--chat", "--model", str(tmp_path / "base"))


# ---------------------------------------------------------------------------------------- several processes, and a kill


def started(processes: int, words: list[str], module: str = "rlbook_lib.grpo_command") -> subprocess.Popen:
    """The real command, in one process or under torchrun, with no way to a network."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    run = ["-m", "torch.distributed.run", "--master-port", str(port), "--nproc-per-node", str(processes)]
    way = [*(run if processes > 1 else []), "-m", module]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen([sys.executable, *way, *words], env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_killed_process_goes_on(command, llama, task, own, tmp_path):
    words = arguments(llama, task, "--updates", "30", "--reward", f"{own}:digits", "--output")
    victim, saved = started(1, [*words, str(tmp_path / "killed")]), tmp_path / "killed" / "checkpoint-8"
    while not saved.exists():
        assert victim.poll() is None, victim.communicate()[1]
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    for name in ("killed", "whole"):
        assert main([*words, str(tmp_path / name)]) == 0
    assert lines(tmp_path / "killed" / "metrics.jsonl") == lines(tmp_path / "whole" / "metrics.jsonl")
    assert same(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.parametrize("normalize", ["sequence", "token"])
def test_accumulated_gradients_are_those_of_the_whole(command, own, monkeypatch, normalize):
    fix_completions(monkeypatch.setattr)
    more = ["--updates", "3", "--normalize", normalize, "--reward", f"{own}:digits"]
    one, four = command("one", *more, "--rows-at-once", "8"), command("four", *more, "--rows-at-once", "2")
    assert 0 < distance(one, four) < 3e-5


@pytest.mark.slow
@pytest.mark.parametrize("normalize", ["sequence", "token"])
def test_two_processes_train_as_one(command, llama, task, own, tmp_path, monkeypatch, normalize):
    # one minibatch: two would be made of other answers
    more = [
        *"--updates 3 --minibatches 1 --beta 0.05 --normalize".split(),
        normalize,
        "--reward",
        f"{own}:digits",
        "--output",
    ]
    run = started(2, arguments(llama, task, *more, str(tmp_path / "two")), "tests.two_processes")
    said = run.communicate(timeout=300)[1]
    assert run.returncode == 0, said
    fix_completions(monkeypatch.setattr)
    one = command("one", *more[:-1])
    assert 0 < distance(one, tmp_path / "two") < 3e-5 < distance(one, llama)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [0, 4])
def test_two_processes_end_with_the_same_model_and_go_on(command, llama, task, own, tmp_path, lora):
    more = ["--lora-rank", str(lora), "--reward", f"{own}:digits", "--output", str(tmp_path / "two")]
    done = started(2, arguments(llama, task, *more))
    said = done.communicate(timeout=300)[1]
    assert done.returncode == 0, said
    rows = lines(tmp_path / "two" / "metrics.jsonl")
    assert [row["update"] for row in rows] == [0, 1, 2, 3, 4, 5, 5]
    assert max(row["gradient_norm"] for row in rows[1:-1]) > 0
    assert (tmp_path / "two" / "checkpoint-10" / "rng_state_1.pth").exists()
    assert generate(load_hugging_face(str(tmp_path / "two" / "model")), ["1+2="], max_new_tokens=3).texts
    before, again = (tmp_path / "two" / "metrics.jsonl").read_bytes(), started(2, arguments(llama, task, *more))
    assert again.wait(timeout=300) == 0 and (tmp_path / "two" / "metrics.jsonl").read_bytes() == before
    with pytest.raises(SystemExit, match="other settings \\(processes\\)"):
        command("two", *more[:4])


@pytest.mark.slow
def test_a_reward_that_breaks_in_one_of_two_processes_stops_both(llama, task, own, tmp_path):
    pytest.importorskip("trl", reason="an optional engine")
    run = started(2, arguments(llama, task, "--reward", f"{own}:second_process", "--output", str(tmp_path / "two")))
    said = run.communicate(timeout=300)[1]
    assert run.returncode != 0 and "the reward 'second_process' returned nan" in said


@pytest.mark.slow
@pytest.mark.parametrize("more", ["--lora-rank 4 --beta 0.05", "--dtype bfloat16", "--scale leave_one_out"])
def test_adapters_a_reference_and_half_precision_train_what_they_should(command, llama, own, more):
    folder = command("run", *more.split(), "--reward", f"{own}:digits", "--learning-rate", "1e-6")
    before, after = load_hugging_face(str(llama)).state_dict(), load_hugging_face(str(folder / "model")).state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == ({name for name in before if "proj" in name} if "lora" in more else set(before))
    assert all(after[name].dtype == torch.float32 for name in after)
    rows = lines(folder / "metrics.jsonl")[1:-1]
    assert all("kl" in row for row in rows) == ("beta" in more)
    assert all(row["reward"] <= 1 for row in rows)  # not the stretched one


@pytest.mark.slow
def test_the_page_runs_as_it_is_printed(tmp_path):
    """All of it, from making the model to two processes with adapters; then the answers of the models that it left."""
    pytest.importorskip("trl", reason="an optional engine")
    page = json.loads((Path(__file__).parent.parent / "chapters" / "appendix_scale.ipynb").read_text("utf-8"))
    text = "\n".join("".join(cell["source"]) for cell in page["cells"] if cell["cell_type"] == "markdown")
    blocks = re.findall(
        r"^```(|python)\n(.*?)^```$", re.sub(r"^```\{.*?^```$", "", text, flags=re.M | re.S), re.M | re.S
    )
    shell = []
    for kind, block in blocks:
        if kind == "" and "pip install" not in block:
            shell.append(block)
        for word, name in (
            ("LlamaForCausalLM", "make_model.py"),
            ("def short", "rewards.py"),
            ("evaluate_accuracy", "evaluate.py"),
        ):
            if word in block:
                (tmp_path / name).write_text(block)
    assert len(shell) == 3
    shell.append("python evaluate.py > evaluated")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # python, torchrun
    environment = os.environ | {"PATH": path, "HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(shell)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Time, the computing alone, about") == 3
    before, after = (tmp_path / "evaluated").read_text().splitlines()
    assert before.startswith("my-model 0.") and after.startswith("run/model 0.")
    rewards = [row["reward"] for row in lines(tmp_path / "run" / "metrics.jsonl") if "reward" in row]
    assert sum(rewards[-5:]) > 1.2 * sum(rewards[:5])
    row = lines(tmp_path / "short" / "metrics.jsonl")[1]
    assert row["reward"] == pytest.approx(row["reward_rule"] + 0.1 * row["reward_short"], abs=1e-6)
    for name in ("run", "short", "two"):
        answers = generate(
            load_hugging_face(str(tmp_path / name / "model")), ["1+2=", "4+9="], max_new_tokens=4, greedy=True
        )
        assert all(answers.finished.tolist()) and all(text.isdigit() for text in answers.texts)
