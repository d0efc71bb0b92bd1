r"""The live formula of a lesson: which of its symbols answer to a pointer, a finger and the keyboard, and what they are called.

The formula's source in the notebook stays as it is; here its symbols get marks that ``live_formula.js`` looks for. It lights a symbol with
the artists of the nearest explorer that bear its key (``gid="ratio"``) and with its names in the nearest cell that has one. An explorer with
``terms=`` writes its numbers into ``numbers``, where ``@ratio`` is a symbol of the table and ``@q2{Q(\to)}`` a term of its own, lit with ``q``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape

# Key: how formulas write the symbol, what it is, its names in code.
SYMBOLS: dict[str, tuple[str, str, str]] = {
    "advantage": (r"\hat A_t | \hat A_i | \hat A_{i,t}", "advantage: better than expected?", "A adv advantages a_k"),
    "answer": (r"\pi^*(o \mid q)", "best chance of the answer", "optima rlhf_optimum"),
    "base": (r"J(\pi_{\text{old}})", "return of the old policy", "truth"),
    "baseline": (r"b^*(s)", "best baseline", "best"),
    "better": (r"\pi'(a\mid s)", "chance of the action, improved policy", "better greedy"),
    "chance": (r"\Pr(a \succ b)", "chance that a is preferred to b", "bradley_terry_probability"),
    "clipped": (r"\mathrm{clip}(\rho_t(\theta), 1-\varepsilon, 1+\varepsilon)", "the ratio, held in its range", "clip"),
    "cross": (r"\mathrm H[p, q]", "cost with the code for q", "paid cross_entropy"),
    "discount": (r"\gamma", "discount", "gamma"),
    "entropy": (r"\mathrm H[p]", "cost with the best code", "own entropy entropy_by_hand"),
    "epsilon": (r"\varepsilon", "clip range", "epsilon eps"),
    "error": (r"\delta_t | \delta_{t+l}", "TD error: target minus estimate", "delta"),
    "estimate": (r"V(s_t)", "present estimate", "V"),
    "gain": (
        r"\mathbb E_{s \sim d^{\text{old}},\; a \sim \pi_{\text{new}}} \big[ A^{\text{old}}(s, a) \big]",
        "mean advantage of the new actions",
        "advantages",
    ),
    "gradient": (
        r"\nabla J(\theta) | \nabla\, \mathbb E_{x \sim p_\theta}[f(x)]",
        "direction that improves the policy",
        "gradient exact grad",
    ),
    "horizon": (r"\frac{1}{1-\gamma}", "steps that count", "gamma"),
    "kl": (
        r"\mathrm{KL}(p \,\Vert\, q) | \mathrm{KL}\big( \pi_\theta(\cdot \mid q) \,\Vert\, \pi_{\text{ref}}(\cdot \mid q) \big)",
        "divergence",
        "kl kl_divergence",
    ),
    "landing": (r"P(s' \mid s, a)", "chance of the landing place", "P transitions"),
    "live": (r"(1 - d)", "0 at an end, else 1", "terminated"),
    "mean": (r"\hat{\mathbb E}_t", "average over the batch", "mean"),
    "meanpay": (r"r(s, a)", "reward of the step, on average", "r r_pi"),
    "meanscore": (r"\bar R", "mean score of the group", "mean"),
    "newvalue": (r"V^{\pi'}(s)", "value under the improved policy", "values"),
    "next": (r"V^\pi(s')", "value of the landing place", "V next_values"),
    "nextbest": (r"\max_{a'} Q_{\theta'}(s', a')", "best next value, by the copy", "next_q"),
    "norm": (r"Z(q)", "makes the chances sum to 1", "weights"),
    "objective": (r"L^{\mathrm{CLIP}}(\theta) | J(\theta)", "what is climbed", "clip_objective rlhf_objective J"),
    "oldvalue": (r"V^{\pi}(s)", "value under the present policy", "V"),
    "p": (r"p(x)", "chance of the word", "p p_row"),
    "policy": (
        r"\pi(a \mid s) | \pi_\theta(a) | \pi_\theta(\cdot \mid q) | x \sim p_\theta",
        "chance of the action",
        "policy coin p",
    ),
    "price": (r"\beta_{\text{ref}}", "price of leaving the reference", "beta"),
    "q": (r"q(x)", "chance that the code was made for", "q q_row"),
    "quality": (r"Q^{\pi}(s,a) | Q^\pi(s,a)", "value of the action", "Q r"),
    "ratio": (r"\rho_t(\theta)", "ratio: new over old probability", "rho ratio"),
    "reference": (
        r"\pi_{\text{ref}}(\cdot \mid q) | \pi_{\text{ref}}(o \mid q)",
        "frozen reference policy",
        "reference",
    ),
    "return": (r"G_0(\tau)", "return of the whole run", "whole_return G_0"),
    "pay": (r"r", "reward of the step", "reward"),
    "payoff": (r"f(x)", "what the sample pays", "PAYS"),
    "reward": (r"R(s, a, s')", "reward of the step", "R rewards"),
    "score": (r"r_\psi(q, o) | r(a) | R_i", "score of the answer", "judge score scores r"),
    "size": (r"\lVert \nabla \log \pi_\theta(a \mid s) \rVert^2", "squared length of the score", "size"),
    "slope": (
        r"\nabla \log \pi_\theta(a_t \mid s_t) | \nabla \log p_\theta(x)",
        "push toward the action taken",
        "score grad_log_pi scores",
    ),
    "spread": (r"s", "spread of the scores: standard deviation", "std"),
    "step": (r"\alpha", "step size", "alpha"),
    "strength": (r"p_a", "strength of answer a", "strength"),
    "rival": (r"p_b", "strength of answer b", ""),
    "surrogate": (r"L(\pi_{\text{new}})", "what the old states promise", "tangent said"),
    "target": (r"y", "what is learned toward", "y dqn_targets"),
    "value": (r"V^\pi(s)", "value of the state: the backup", "V backup"),
    "weight": (r"(\gamma\lambda)^l", "how much a later error counts", "weights lam"),
}
# Label of a formula, or its source where it has none: keys of its symbols, and how it is written in numbers.
FORMULAS: dict[str, tuple[str, str]] = {
    r"J(\theta) = \sum_a \pi_\theta(a)\, r(a) .": ("objective policy score", ""),
    "eq-bellman-v": (
        "value policy landing reward meanpay discount next",
        r"@policy0{\pi(\uparrow)}\,(@q0{q_\uparrow}) + @policy1{\pi(\downarrow)}\,(@q1{q_\downarrow}) + "
        r"@policy2{\pi(\leftarrow)}\,(@q2{q_\leftarrow}) + @policy3{\pi(\rightarrow)}\,(@q3{q_\rightarrow}) = @value",
    ),
    "eq-policy-improvement": ("better quality oldvalue newvalue", ""),
    "eq-td-update": ("estimate step error", ""),
    "eq-dqn-target": ("target pay discount live nextbest", ""),
    "eq-log-derivative": (
        "gradient policy payoff slope",
        " + ".join(
            rf"@policy{k}{{p_{k}}} \cdot (@payoff{k}{{f_{k}}}) \cdot (@slope{k}{{\nabla \log p_{k}}})"
            for k in (1, 2, 3)
        )
        + r" = @gradient{\nabla\, \mathbb E[f]}",
    ),
    "eq-policy-gradient-trajectory": ("gradient return slope", ""),
    "eq-optimal-baseline": (
        "baseline size quality",
        r"(@size1{w_1} \cdot @quality1{Q_1} + @size2{w_2} \cdot @quality2{Q_2}) / (@size1{w_1} + @size2{w_2}) = @baseline",
    ),
    "eq-gae": (
        "advantage weight error",
        " + ".join(rf"@weight{l}{{(\gamma\lambda)^{l}}}\,(@error{l}{{\delta_{l}}})" for l in range(5))
        + " = @advantage",
    ),
    "eq-kl": (
        "kl cross entropy p q",
        r"@p1{p(\rightarrow)} \log_2 \tfrac{@p1{p(\rightarrow)}}{@q1{q(\rightarrow)}} + 2 \cdot @p2{p(\uparrow)} \log_2 \tfrac{@p2{p(\uparrow)}}{@q2{q(\uparrow)}} = @kl \text{ bits}",
    ),
    "eq-surrogate": ("surrogate base horizon gain", r"@base + @horizon \cdot (@gain{\mathbb E[A]}) = @surrogate"),
    "eq-clip-objective": (
        "objective mean ratio advantage clipped epsilon",
        r"\text{good: } \min(@ratio \cdot @advantage1,\, @clipped{\mathrm{clip}(\rho)} \cdot @advantage1) = @objective1{L_t^{\mathrm{CLIP}}} \qquad "
        r"\text{bad: } \min(@ratio \cdot (@advantage2),\, @clipped{\mathrm{clip}(\rho)} \cdot (@advantage2)) = @objective2{L_t^{\mathrm{CLIP}}}",
    ),
    "eq-bradley-terry": (
        "chance strength rival",
        r"\Pr(A \succ B) = \tfrac{@strength1{p_A}}{@strength1{p_A} + @rival1{p_B}} = @chance1 \qquad "
        r"\Pr(A \succ C) = \tfrac{@strength1{p_A}}{@strength1{p_A} + @rival2{p_C}} = @chance2",
    ),
    "eq-rlhf-objective": ("objective score price kl policy reference", ""),
    "eq-rlhf-optimum": (
        "answer norm reference score price",
        r"\text{133: } @reference1 \cdot e^{@score1{r_\psi} / @price - @norm{\log Z}} = @answer1 \qquad "
        r"\text{1333333: } @reference2 \cdot e^{@score2{r_\psi} / @price - @norm{\log Z}} = @answer2",
    ),
    "eq-group-advantage": (
        "advantage score meanscore spread",
        r"\text{right: } \tfrac{@score1{R} - @meanscore}{@spread} = @advantage1 \qquad "
        r"\text{wrong: } \tfrac{@score2{R} - @meanscore}{@spread} = @advantage2",
    ),
}
TERM = re.compile(r"@([a-z]+)(\d*)(?:\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\})?")


def formula_of(label: str | None, tex: str) -> tuple[str, str] | None:
    return FORMULAS.get(label or " ".join(tex.split()))


def marked(tex: str, keys: str) -> str:
    """The source with a mark around each symbol; of two symbols that begin alike the longer one goes first."""
    forms = {form: key for key in keys.split() for form in SYMBOLS[key][0].split(" | ")}
    longest = sorted(forms, key=len, reverse=True)
    # not as a bare script, where one sign must stand, and a command's name ends where its letters end
    any_form = "|".join(
        (r"(?<![a-zA-Z\\])" if form[0].isalpha() else "")
        + re.escape(form)
        + (r"(?![a-zA-Z])" if form[-1].isalpha() else "")
        for form in longest
    )

    def mark(found: re.Match[str]) -> str:
        key = forms[found[0]]
        inside = marked(found[0], " ".join(other for other in keys.split() if other != key))
        return rf"\htmlData{{live={key}}}{{{inside}}}"

    return re.sub(rf"(?<![_^])(?:{any_form})", mark, tex) if forms else tex


def in_numbers(template: str) -> str:
    def slot(found: re.Match[str]) -> str:
        key, number, letters = found.groups()
        letters = letters or SYMBOLS[key][0].split(" | ")[0]
        return rf"{{\htmlData{{live={key},term={key}{number}}}{{{letters}}}}}"  # in braces: spaces stay outside of what changes

    return TERM.sub(slot, template)


def names(keys: str, numbers: str, typeset: Callable[[str], str]) -> str:
    """What stands where: a button for each symbol; and the line of numbers, which waits for its explorer."""
    buttons = "".join(
        f'<button type="button" data-live="{key}" data-code="{code}">{escape(said)}</button>'
        for key, (_, said, code) in ((key, SYMBOLS[key]) for key in keys.split())
    )
    seen = typeset(in_numbers(numbers)).partition("</math></span>")[2].removesuffix("</span>") if numbers else ""
    line = f'<p class="live-line katex" hidden>{seen}</p>' if numbers else ""
    return (
        f'<div class="live-names"><details><summary>what stands where</summary><div>{buttons}</div></details>'
        f"<output></output>{line}</div>"
    )
