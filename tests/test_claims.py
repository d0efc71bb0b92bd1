"""General sentences of the book: each stands on its page as its claim quotes it, runs, and is named when it falls."""

import ast
import builtins
import contextlib
import json
import symtable
import sys
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))

import claims  # noqa: E402
from test_named_sections import markdown  # noqa: E402

ALL = list(claims.claims())
IDS = [f"{page}-{claim.__name__}" for page, claim in ALL]

# more than a CPU-second a seed: these are left to `make claims`
LONG = """
    rewards_take_more_examples too_low_a_guess_does_not_explore a_ring_does_not
    the_best_order_depends_on_whether_a_cell_waits ten_walks_are_enough larger_steps_want_fewer a_falling_step_settles
    sarsa_comes_to_rest_near_its_own_table sarsa_earns_more_on_the_cliff small_steps_long_traces the_step_closes_most_of_the_gap many_units_need_fewer_steps
    before_training_no_size_is_any_good most_starts_draw_the_wave bends_move_where_the_dots_ask_for_it
    beyond_a_tenth_runs_fall
    the_truth_has_fallen_where_the_surrogate_peaks the_region_keeps_most_of_the_gain_at_a_fraction_of_the_divergence
    most_ties_are_the_same_text too_short_is_marked_down_and_wrong_digits_are_not a_ruler_ranks_about_as_well
    some_too_long_answers_pass
    imitation_takes_over_what_most_teachers_do the_plain_direction_is_one_push_for_all_states
""".split()


@pytest.mark.parametrize(("page", "claim"), ALL, ids=IDS)
def test_a_claim_quotes_its_page(page, claim):
    assert len(claims.sentence(claim)) > 20
    assert claims.sentence(claim) in " ".join(markdown(page).split())


@pytest.mark.parametrize(("page", "claim"), ALL, ids=IDS)
def test_a_claim_holds_on_a_seed_of_its_own(page, claim):
    if claim.__name__ not in LONG:  # the cells of the others are read below
        assert claim(16)
    plt.close("all")  # a page's cells draw, too


def test_the_long_claims_are_all_there():
    assert set(LONG) <= {claim.__name__ for _, claim in ALL}


def asked_cells():
    """Every call of `cells` in a claim: its file and line, the page and the cells' ids."""
    for path in sorted((claims.CHAPTERS / "claims").glob("*.py")):
        tree, constants = ast.parse(path.read_text("utf-8")), {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                with contextlib.suppress(ValueError):
                    constants[node.targets[0].id] = ast.literal_eval(node.value)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "cells":
                asked = ", ".join(ast.unparse(argument) for argument in node.args)
                yield f"{path.name}, line {node.lineno}", eval(f"[{asked}]", constants)


def given_and_used(source):
    """The names that a cell defines, and the global ones it reads, in its functions too.

    Functions that are handed to `explore` are left out: claims run cells with figures left out.
    """
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if getattr(getattr(node, "func", None), "id", "") == "explore"]
    drawing = {argument.id for call in calls for argument in call.args if isinstance(argument, ast.Name)}
    kept = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in drawing)]
    tables, given, used = [symtable.symtable(ast.unparse(ast.Module(kept, [])), "cell", "exec")], set(drawing), set()
    for table in tables:
        tables += table.get_children()
        given |= {s.get_name() for s in table.get_symbols() if s.is_assigned() and table.get_type() == "module"}
        given |= {s.get_name() for s in table.get_symbols() if s.is_imported()}
        used |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and s.is_global()}
    return given, used


@pytest.mark.parametrize(("place", "asked"), [pytest.param(*found, id=found[0]) for found in asked_cells()])
def test_the_cells_that_a_claim_asks_for_need_no_others(place, asked):
    page, *ids = asked
    found = json.loads((claims.CHAPTERS / f"{page}.ipynb").read_text("utf-8"))["cells"]
    code = {cell["id"]: "".join(cell["source"]) for cell in found if cell["cell_type"] == "code"}
    given = set(dir(builtins)) | {"display", "explore", "show"}
    for name in (next(iter(code)), *ids):
        defined, used = given_and_used(code[name])
        given |= defined
        assert used <= given, f"{place}: cell {name} uses {sorted(used - given)}, which no cell before it defines"


def test_a_name_that_no_cell_gives_is_seen():
    given, used = given_and_used("a = b\ndef f(x):\n    return x + a + c\ndef draw():\n    return d\nexplore(draw)")
    assert (given, used) == ({"a", "f", "draw"}, {"a", "b", "c", "draw", "explore"})
    given, used = given_and_used("import numpy as np\nf = lambda x: [np.log(y + z) for y in x]")
    assert used - given == {"z"}


def test_a_sentence_that_falls_is_named_with_its_seeds(tmp_path, capsys):
    (tmp_path / "01_page.py").write_text(
        'def odd(seed):\n    """Every seed is odd."""\n    return seed % 2 == 1\n', "utf-8"
    )
    assert claims.run(claims.claims(tmp_path), [1, 2, 3, 4]) == ["01_page: Every seed is odd."]
    assert "FALLS on [2, 4] 2 of 4 seeds" in capsys.readouterr().out
    assert claims.run(claims.claims(tmp_path), [1, 3]) == []


def test_a_cell_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="01_what_is_rl has no code cells \\['nowhere'\\]"):
        claims.cells("01_what_is_rl", "nowhere")
