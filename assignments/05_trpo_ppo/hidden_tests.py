"""Hidden tests of assignment 5: KL divergence, the trust-region step, and PPO."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch

from assignments.grader.comparing import WRONG_SHAPE, close, judged
from assignments.grader.edits import edit
from assignments.grader.questions import Assignment, Case, Mistake, Question, Written

HIDDEN_MARKER = "RLBOOK-HIDDEN-05_trpo_ppo"


# ------------------------------------------------------------------------------------- q1: divergence and entropy


def drive_q1(function, logits_old, logits_new, what):
    import torch

    old = torch.tensor(logits_old)
    new = torch.tensor(logits_new, requires_grad="gradient" in what)
    kl, entropy = function(old, new)
    if "gradient" in what:
        (kl if what == "gradient" else entropy).backward()
        return new.grad
    return {"kl": kl, "entropy": entropy}[what]


def kl_and_entropy_summed(logits_old, logits_new):
    """Reference: row by row, with sums of cross-entropy and entropy in place of the ratio."""
    kls, entropies = [], []
    for row_old, row_new in zip(logits_old, logits_new):
        log_z = torch.logsumexp(row_new, 0)
        cross, own, h = 0.0, 0.0, 0.0
        for z, p in zip(row_new, torch.softmax(row_old, 0)):
            if p > 0:
                cross = cross + p * (log_z - z)
                own = own - p * torch.log(p)
        for z in row_new:
            if torch.isfinite(z):
                h = h + torch.exp(z - log_z) * (log_z - z)
        kls.append(cross - own)
        entropies.append(h)
    return torch.stack(kls).mean(), torch.stack(entropies).mean()


def kl_and_entropy_where(logits_old, logits_new):
    log_p, log_q = torch.log_softmax(logits_old, -1), torch.log_softmax(logits_new, -1)
    p, q = log_p.exp(), log_q.exp()
    kl = torch.where(p > 0, p * (log_p - log_q), torch.zeros_like(p)).sum(-1)
    entropy = -torch.where(q > 0, q * log_q, torch.zeros_like(q)).sum(-1)
    return kl.mean(), entropy.mean()


def kl_and_entropy_xlogy(logits_old, logits_new):
    p, q = logits_old.softmax(dim=1), logits_new.softmax(dim=1)
    log_q = torch.log_softmax(logits_new, dim=1).masked_fill((p == 0) & (q == 0), 0.0)
    kl = (torch.special.xlogy(p, p) - p * log_q.masked_fill(p == 0, 0.0)).sum() / len(p)
    return kl, torch.special.entr(q).sum() / len(p)


def kl_and_entropy_masked(logits_old, logits_new):
    p = torch.softmax(logits_old, -1)
    log_p, log_q = torch.log_softmax(logits_old, -1), torch.log_softmax(logits_new, -1)
    can = p > 0
    kl = (p[can] * (log_p[can] - log_q[can])).sum() / p.shape[0]
    log_q = log_q[torch.isfinite(log_q)]
    return kl, -(log_q.exp() * log_q).sum() / p.shape[0]


def cases_q1(rng):
    cases = []

    def table(states, actions, scale=1.0):
        return rng.normal(size=(states, actions)) * scale

    for _ in range(3):
        shape = int(rng.integers(3, 7)), int(rng.integers(2, 6))
        cases.append(Case((table(*shape), table(*shape), "kl"), "divergence"))
        cases.append(Case((table(*shape), table(*shape), "entropy"), "entropy"))
    cases.append(Case((table(1, 4), table(1, 4), "kl"), "divergence"))
    states, actions = int(rng.integers(3, 6)), int(rng.integers(3, 6))
    cases.append(Case((table(states, actions), table(states, actions), "gradient"), "gradient"))

    old, new = table(states, actions), table(states, actions)  # neither can: adds 0 to both
    old[0, 1] = new[0, 1] = -np.inf
    cases += [Case((old, new, what), "impossible actions") for what in ("kl", "entropy")]
    old = table(states, actions)  # only the old one cannot: adds 0
    old[1, 0] = -np.inf
    cases.append(Case((old, table(states, actions), "kl"), "impossible actions"))
    new = table(states, actions)  # the old one can, the new one cannot
    new[2, 2] = -np.inf
    cases.append(Case((table(states, actions), new, "kl"), "impossible actions"))

    shift = rng.choice([-1.0, 1.0], size=(states, 1)) * rng.uniform(800.0, 1500.0, size=(states, 1))
    for what in ("kl", "entropy"):
        cases.append(Case((table(states, actions) + shift, table(states, actions) - shift, what), "large logits"))
    cases.append(Case((table(states, actions), table(states, actions), "gradient of the entropy"), "gradient"))
    return cases


Q1 = Question(
    name="q1",
    title="KL divergence and entropy",
    function="kl_and_entropy",
    parts={"divergence": 5, "entropy": 3, "gradient": 2, "impossible actions": 3, "large logits": 1},
    reference=kl_and_entropy_summed,
    cases=cases_q1,
    driver=drive_q1,
    compare=close(1e-5, 1e-7),
    alternatives=(kl_and_entropy_where, kl_and_entropy_xlogy, kl_and_entropy_masked),
    mistakes=(
        Mistake(
            edit(kl_and_entropy_where, "p > 0, p * (log_p - log_q)", "q > 0, q * (log_q - log_p)"),
            "the divergence is the wrong way round, KL(new || old). In step control the old policy comes"
            " first: its probabilities weigh the terms, because it took the data.",
        ),
        Mistake(
            edit(kl_and_entropy_where, "q > 0, q * log_q", "p > 0, p * log_p"),
            "the entropy is that of the old policy. Asked for is the entropy of the new one, the policy that"
            " is being changed.",
        ),
        Mistake(
            edit(kl_and_entropy_where, "q > 0, q * log_q", "p > 0, p * log_q"),
            "the logarithms of the new policy are weighed with the probabilities of the old one. That is the"
            " cross-entropy; the entropy of the new policy takes both from the new policy.",
        ),
        Mistake(
            edit(kl_and_entropy_where, "kl.mean(), entropy.mean()", "kl.sum(), entropy.sum()"),
            "the states are added up. Sum over actions, but take the mean over states: otherwise a larger"
            " batch looks like a larger step.",
        ),
        Mistake(
            edit(
                kl_and_entropy_where, "kl.mean(), entropy.mean()", "kl.mean() / p.shape[1], entropy.mean() / p.shape[1]"
            ),
            "the mean is taken over all entries of the table, actions included. The sum over actions is"
            " already an expectation; only the states are averaged.",
        ),
        Mistake(
            edit(
                kl_and_entropy_where,
                "kl.mean(), entropy.mean()",
                "kl.mean() / math.log(2), entropy.mean() / math.log(2)",
            ),
            "the result is in bits. The book counts in nats: natural logarithms throughout.",
        ),
        Mistake(
            edit(
                kl_and_entropy_where,
                "torch.where(p > 0, p * (log_p - log_q), torch.zeros_like(p))",
                "(p * (log_p - log_q))",
                "torch.where(q > 0, q * log_q, torch.zeros_like(q))",
                "(q * log_q)",
            ),
            "zero times infinity became NaN. An action that cannot happen adds nothing; computers do not know"
            " this limit, so such entries have to be taken out (for example with torch.where).",
        ),
        Mistake(
            edit(
                kl_and_entropy_where,
                "log_p - log_q",
                "torch.log(p + 1e-10) - torch.log(q + 1e-10)",
                "q * log_q",
                "q * torch.log(q + 1e-10)",
            ),
            "a small constant inside the logarithm hides the infinite case. If the old policy can take an"
            " action that the new one cannot, the divergence is inf, not just large.",
        ),
        Mistake(
            edit(kl_and_entropy_where, "p > 0", "(p > 0) & (q > 0)"),
            "all actions that one of the two policies cannot take are dropped. That is right where the old"
            " policy cannot take them. Where only the new one cannot, the divergence is inf.",
        ),
        Mistake(
            edit(
                kl_and_entropy_where,
                "torch.log_softmax(logits_old, -1)",
                "(logits_old.exp() / logits_old.exp().sum(-1, keepdim=True)).log()",
                "torch.log_softmax(logits_new, -1)",
                "(logits_new.exp() / logits_new.exp().sum(-1, keepdim=True)).log()",
            ),
            "exp of a large logit overflows, and exp of a very negative one vanishes. Use a stable"
            " log-softmax, which subtracts the largest logit of each row first.",
        ),
        Mistake(
            edit(kl_and_entropy_where, "logits_old, -1", "logits_old, 0", "logits_new, -1", "logits_new, 0"),
            "the softmax runs over the states. Each row is one state, so probabilities must sum to one along"
            " the last axis.",
        ),
        Mistake(
            edit(kl_and_entropy_where, "entropy = -", "entropy = "),
            "the entropy has the wrong sign. Logarithms of probabilities are negative, entropy is not: there"
            " is a minus in front of the sum.",
        ),
        Mistake(
            edit(kl_and_entropy_where, "kl.mean(), entropy.mean()", "kl.mean().detach(), entropy.mean().detach()"),
            "no gradient flows to the new logits. Return tensors that are still connected to them: no"
            " .item(), .detach(), .numpy() or torch.no_grad() on the way.",
        ),
        Mistake(
            edit(kl_and_entropy_where, "return kl.mean(), entropy.mean()", "return entropy.mean(), kl.mean()"),
            "the two results are returned in the other order: first the divergence, then the entropy.",
        ),
    ),
)


# ------------------------------------------------------------------------------------------ q2: conjugate gradient


def drive_q2(function, matrix, b, iterations, tolerance, what):
    import torch

    a, right = torch.tensor(matrix), torch.tensor(b)
    calls = []

    def matvec(v):
        calls.append(1)
        if len(calls) > 200:
            raise ValueError("too many products")
        return a @ v

    x = function(matvec, right, iterations, tolerance)
    return {"x": x, "x and products": {"x": x, "products": calls}, "b": right}[what]


def judge_q2(result):
    return {**result, "products": len(result["products"])} if isinstance(result, dict) else result


def conjugate_gradient_krylov(matvec, b, iterations=10, tolerance=1e-8):
    """Reference: the best point of the Krylov space in the A-norm, from an orthonormal basis of it."""
    x, basis, images, residual = torch.zeros_like(b), [], [], b.clone()
    for _ in range(iterations):
        if torch.linalg.norm(residual) <= tolerance * torch.linalg.norm(b):
            break
        new = residual.clone()
        for _ in range(2):  # Gram-Schmidt, twice
            for q in basis:
                new = new - (q @ new) * q
        basis.append(new / torch.linalg.norm(new))
        images.append(matvec(basis[-1]))
        q, aq = torch.stack(basis, 1), torch.stack(images, 1)
        y = torch.linalg.solve(q.T @ aq, q.T @ b)
        x, residual = q @ y, b - aq @ y
    return x


def conjugate_gradient_loop(matvec, b, iterations=10, tolerance=1e-8):
    x, r, p = torch.zeros_like(b), b.clone(), b.clone()
    k = 0
    while k < iterations and r.norm() > tolerance * b.norm():
        ap = matvec(p)
        alpha = r.dot(r) / p.dot(ap)
        x += alpha * p
        new = r - alpha * ap
        p = new + new.dot(new) / r.dot(r) * p
        r, k = new, k + 1
    return x


def conjugate_gradient_other_formulas(matvec, b, iterations=10, tolerance=1e-8):
    y = 0 * b
    e = b - y
    u = e
    limit = tolerance**2 * torch.sum(b * b)
    for _ in range(iterations):
        if torch.sum(e * e) <= limit:
            return y
        fu = matvec(u)
        curvature = torch.sum(u * fu)
        eta = torch.sum(u * e) / curvature
        y = y + eta * u
        e = e - eta * fu
        u = e - torch.sum(e * fu) / curvature * u
    return y


def conjugate_gradient_writes_into_b(matvec, b, iterations, tolerance):
    x, r, p = torch.zeros_like(b), b, b.clone()
    first = float(b.norm())
    for _ in range(iterations):
        if r.norm() <= tolerance * first:
            break
        ap = matvec(p)
        before = float(r @ r)
        alpha = before / (p @ ap)
        x += alpha * p
        r -= alpha * ap
        p = r + (r @ r) / before * p
    return x


def cases_q2(rng):
    def symmetric(eigenvalues):
        q, _ = np.linalg.qr(rng.normal(size=(len(eigenvalues), len(eigenvalues))))
        return (q * eigenvalues) @ q.T

    def residuals(matrix, b):
        """Relative residuals after 0, 1, 2, ... iterations."""
        a, right = torch.tensor(matrix), torch.tensor(b)
        points = [conjugate_gradient_other_formulas(lambda v: a @ v, right, k, 1e-30) for k in range(len(b))]
        return np.array([float((right - a @ x).norm() / right.norm()) for x in points])

    cases = []
    for _ in range(3):
        n, k = int(rng.integers(6, 12)), int(rng.integers(2, 5))
        cases.append(
            Case((symmetric(rng.uniform(0.2, 8.0, n)), rng.normal(size=n), k, 1e-12, "x"), "so many iterations")
        )
    cases.append(Case((np.array([[rng.uniform(0.5, 3.0)]]), rng.normal(size=1), 1, 1e-12, "x"), "so many iterations"))

    for distinct in rng.permutation([2, 3])[:2]:  # as many iterations as there are different eigenvalues
        n = int(rng.integers(7, 12))
        values = np.resize(np.cumsum(rng.uniform(1.0, 3.0, distinct)), n)
        cases.append(
            Case((symmetric(values), rng.normal(size=n), n, 1e-7, "x and products"), "stops when it is close enough")
        )
    found = 0
    while found < 2:  # tolerances well between two residuals, lengths of b far from 1
        n = int(rng.integers(9, 13))
        matrix, b = symmetric(np.geomspace(1.0, rng.uniform(20.0, 60.0), n)), rng.normal(size=n)
        size = residuals(matrix, b)
        k = int(rng.integers(4, 7))
        tolerance = float(np.sqrt(size[k - 1 : k + 1].prod()))
        early = np.sqrt(tolerance)
        if size[:k].min() > 1.4 * tolerance and size[k] < tolerance / 1.4 and size[: k - 1].min() < early:
            b = b * [1e3, 1e-3][found]
            cases.append(Case((matrix, b, n - 1, tolerance, "x and products"), "stops when it is close enough"))
            found += 1
    n = int(rng.integers(3, 6))
    cases.append(Case((symmetric(rng.uniform(0.5, 2.0, n)), np.zeros(n), n, 1e-8, "x"), "nothing to solve"))
    n = int(rng.integers(4, 8))
    cases.append(Case((symmetric(rng.uniform(0.2, 8.0, n)), rng.normal(size=n), 3, 1e-12, "b"), "b stays as it is"))
    return cases


Q2 = Question(
    name="q2",
    title="Conjugate gradients",
    function="conjugate_gradient",
    parts={"so many iterations": 5, "stops when it is close enough": 5, "nothing to solve": 2, "b stays as it is": 1},
    reference=conjugate_gradient_krylov,
    cases=cases_q2,
    driver=drive_q2,
    compare=judged(judge_q2, close(1e-5, 1e-9)),
    alternatives=(conjugate_gradient_loop, conjugate_gradient_other_formulas),
    mistakes=(
        Mistake(
            edit(conjugate_gradient_loop, "new + new.dot(new) / r.dot(r) * p", "new"),
            "every step goes along the residual alone; that is steepest descent, which zig-zags. The new"
            " direction is the new residual plus a multiple of the last direction.",
        ),
        Mistake(
            edit(conjugate_gradient_loop, "new.dot(new) / r.dot(r)", "r.dot(r) / new.dot(new)"),
            "the factor of the last direction is upside down. It is the squared length of the new residual"
            " over that of the old one, small when progress is fast.",
        ),
        Mistake(
            edit(conjugate_gradient_loop, "r - alpha", "r + alpha"),
            "the residual moves the wrong way. It is b - A x: when x grows by a multiple of u, the same"
            " multiple of A u is taken off the residual.",
        ),
        Mistake(
            edit(conjugate_gradient_loop, "tolerance * b.norm()", "tolerance"),
            "the residual is compared with the tolerance itself. The tolerance is relative: it is multiplied"
            " by the length of b, so that the unit of b does not matter.",
        ),
        Mistake(
            edit(conjugate_gradient_loop, "r.norm() > tolerance * b.norm()", "r.dot(r) > tolerance * b.dot(b)"),
            "a squared length is compared with a tolerance that is not squared. The loop then ends much too"
            " early: square both sides or neither.",
        ),
        Mistake(
            edit(conjugate_gradient_loop, " and r.norm() > tolerance * b.norm()", ""),
            "the loop always runs to the last iteration. Where the residual is already 0 it divides 0 by 0;"
            " and each product with the Fisher matrix that is not needed costs time.",
        ),
        Mistake(
            edit(
                conjugate_gradient_loop,
                "r.norm() > tolerance * b.norm()",
                "(k == 0 or r.norm() > tolerance * b.norm())",
            ),
            "the first look at the residual comes after the first product. If b is 0 there is nothing to"
            " solve, and the first step divides 0 by 0: check before each iteration.",
        ),
        Mistake(
            edit(conjugate_gradient_loop, "k = 0", "k = 1"),
            "one iteration is missing. `iterations` counts products with the matrix, and the first step is"
            " one of them.",
        ),
        Mistake(
            edit(conjugate_gradient_loop, "    k = 0", "    r, k = r - matvec(x), 0"),
            "one product too many: A times the starting point is computed. The start is 0, so its residual is"
            " b, and that costs nothing.",
        ),
        Mistake(
            conjugate_gradient_writes_into_b,
            "the caller's b is changed. The residual starts as the same tensor as b and is then updated in"
            " place: start from a copy, or do not use -= .",
        ),
        Mistake(
            edit(conjugate_gradient_loop, "k < iterations", "k <= iterations"),
            "there is one iteration too many: `iterations` counts the products with the matrix.",
        ),
    ),
)


# -------------------------------------------------------------------------------------- q3: Fisher-vector products


def drive_q3(function, observations, weights, vector, damping, what):
    import torch

    parameters = [torch.tensor(w).requires_grad_() for w in weights]
    seen, v = torch.tensor(observations), torch.tensor(vector)

    def log_probs():
        hidden = seen
        for i, w in enumerate(parameters):
            hidden = hidden @ w if w.ndim == 2 else hidden + w
            if w.ndim == 1 and i + 1 < len(parameters):
                hidden = torch.tanh(hidden)
        return torch.log_softmax(hidden, -1)

    old = log_probs().detach()

    def kl_function():
        return (old.exp() * (old - log_probs())).sum(-1).mean()

    function(kl_function, parameters, v, damping)
    product = function(kl_function, parameters, v, damping)  # the second call must not see the first one
    traces = {"gradients": [p.grad for p in parameters], "parameters": parameters}
    return product if what == "product" else traces


def judge_q3(result):
    """The reference leaves no gradients behind, and the parameters as they were."""
    if not isinstance(result, dict):
        return result
    return {**result, "gradients": [gradient is not None for gradient in result["gradients"]]}


def fisher_vector_product_differences(kl_function, parameters, vector, damping):
    """Reference: the slope of the gradient along the vector, by central differences."""
    size = 1e-4 / float(vector.norm())
    gradients = []
    for sign in (1.0, -1.0):
        start, kept = 0, [p.detach().clone() for p in parameters]
        with torch.no_grad():
            for p in parameters:
                p += sign * size * vector[start : start + p.numel()].reshape(p.shape)
                start += p.numel()
        parts = torch.autograd.grad(kl_function(), parameters)
        gradients.append(torch.cat([g.reshape(-1) for g in parts]))
        with torch.no_grad():
            for p, before in zip(parameters, kept):
                p.copy_(before)
    return (gradients[0] - gradients[1]) / (2 * size) + damping * vector


def fisher_vector_product_double(kl_function, parameters, vector, damping=0.0):
    first = torch.autograd.grad(kl_function(), parameters, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in first])
    second = torch.autograd.grad(flat, parameters, grad_outputs=vector)
    return torch.cat([g.reshape(-1) for g in second]) + damping * vector


def fisher_vector_product_pieces(kl_function, parameters, vector, damping=0.0):
    first = torch.autograd.grad(kl_function(), parameters, create_graph=True)
    pieces = torch.split(vector, [p.numel() for p in parameters])
    dot = sum((g * v.view_as(g)).sum() for g, v in zip(first, pieces))
    second = torch.autograd.grad(dot, parameters)
    return torch.cat([(h + damping * v.view_as(h)).flatten() for h, v in zip(second, pieces)])


def fisher_vector_product_whole_matrix(kl_function, parameters, vector, damping=0.0):
    first = torch.autograd.grad(kl_function(), parameters, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in first])
    rows = []
    for entry in flat:
        row = torch.autograd.grad(entry, parameters, retain_graph=True)
        rows.append(torch.cat([r.reshape(-1) for r in row]))
    return torch.stack(rows) @ vector + damping * vector


fisher_vector_product_backward = edit(
    fisher_vector_product_double,
    "second = torch.autograd.grad(flat, parameters, grad_outputs=vector)",
    "flat.backward(vector)",
    "g.reshape(-1) for g in second",
    "p.grad.reshape(-1) for p in parameters",
)


def cases_q3(rng):
    cases = []

    def one(layers, damping, part):
        n, d, actions = int(rng.integers(4, 9)), int(rng.integers(2, 5)), int(rng.integers(3, 5))
        observations = rng.normal(size=(n, d))
        if layers == 1:
            weights = [rng.normal(size=(d, actions))]
        else:
            hidden = int(rng.integers(3, 6))
            weights = [
                rng.normal(size=(d, hidden)),
                rng.normal(size=hidden),
                rng.normal(size=(hidden, actions)),
                rng.normal(size=actions),
            ]
        vector = rng.normal(size=sum(w.size for w in weights))
        cases.append(Case((observations, weights, vector, damping, "product"), part))
        if part == "damping":
            cases.append(Case((observations, weights, vector, damping, "traces"), "leaves no trace"))

    for _ in range(2):
        one(1, 0.0, "one tensor")
        one(2, 0.0, "several tensors")
        one(int(rng.integers(1, 3)), float(rng.uniform(0.05, 0.5)), "damping")
    return cases


Q3 = Question(
    name="q3",
    title="Fisher-vector products",
    function="fisher_vector_product",
    parts={"one tensor": 4, "several tensors": 5, "damping": 2, "leaves no trace": 2},
    reference=fisher_vector_product_differences,
    cases=cases_q3,
    driver=drive_q3,
    compare=judged(judge_q3, close(1e-5, 1e-7)),
    alternatives=(fisher_vector_product_double, fisher_vector_product_pieces, fisher_vector_product_whole_matrix),
    mistakes=(
        Mistake(
            edit(fisher_vector_product_double, " + damping * vector", ""),
            "the damping is left out. It adds `damping` times the vector to the product.",
        ),
        Mistake(
            edit(
                fisher_vector_product_double,
                "return torch.cat([g.reshape(-1) for g in second]) + damping * vector",
                "return (1 + damping) * torch.cat([g.reshape(-1) for g in second])",
            ),
            "the damping multiplies the product F v, which makes the whole matrix larger. It belongs to the"
            " identity matrix, so it multiplies the vector.",
        ),
        Mistake(
            edit(fisher_vector_product_double, "damping * vector", "damping"),
            "the damping is added to every entry as it is. It stands on the diagonal of a matrix, so it has"
            " to be multiplied by the vector.",
        ),
        Mistake(
            fisher_vector_product_backward,
            "backward() adds to what is already in .grad, so that the second product contains the first one."
            " Use torch.autograd.grad for both derivatives: it returns them and stores nothing.",
        ),
        Mistake(
            edit(
                fisher_vector_product_backward,
                "    first",
                "    for p in parameters:\n        p.grad = None\n    first",
            ),
            "the product is right, but it is left behind in .grad of the parameters, where the next"
            " backward() adds to it. Use torch.autograd.grad, which stores nothing.",
        ),
        Mistake(
            edit(fisher_vector_product_double, "torch.cat([g.reshape(-1) for g in second])", "flat * (flat @ vector)"),
            "the first derivative of the KL is multiplied with itself. At the old policy that derivative is"
            " zero. The Fisher matrix is the second derivative: differentiate the product of gradient and"
            " vector once more.",
        ),
        Mistake(
            edit(
                fisher_vector_product_double,
                "grad_outputs=vector",
                "grad_outputs=torch.ones_like(vector)",
                "second])",
                "second]) * vector",
            ),
            "the vector comes in too late: the sum of the gradient is differentiated, and then multiplied by"
            " the vector. Multiply the gradient by the vector first, sum, and differentiate that number.",
        ),
        Mistake(
            edit(
                fisher_vector_product_whole_matrix,
                "torch.stack(rows) @ vector",
                "torch.stack(rows).diagonal() * vector",
            ),
            "only the diagonal of the matrix is used. The other entries, which couple the parameters, belong"
            " to the product as well.",
        ),
        Mistake(
            edit(fisher_vector_product_double, ", create_graph=True", ""),
            "the first derivative is taken without keeping its graph, so that it cannot be differentiated"
            " again. torch.autograd.grad has an argument for that.",
        ),
        Mistake(
            edit(
                fisher_vector_product_double,
                "g.reshape(-1) for g in first",
                "(g.T if g.ndim == 2 else g).reshape(-1) for g in first",
                "g.reshape(-1) for g in second",
                "(g.T if g.ndim == 2 else g).reshape(-1) for g in second",
            ),
            "matrices are flattened column by column. The vector holds the entries of each tensor row by row,"
            " as reshape(-1) gives them.",
        ),
        Mistake(
            edit(fisher_vector_product_double, "+ damping", "- damping"),
            "the damping is subtracted. It is added: it makes the matrix safe to invert.",
        ),
        Mistake(
            edit(
                fisher_vector_product_double, "torch.cat([g.reshape(-1) for g in second]) + damping * vector", "second"
            ),
            "the product comes back in the shapes of the parameters. It is one long vector, like the one that came in.",
        ),
    ),
)


# --------------------------------------------------------------------------------------- q4: the trust-region step


def drive_q4(function, matrix, direction, outcomes, logits, advantages, delta, factor, tries):
    """Outcomes are prescribed one by one, or (where there are none) those of a table of logits."""
    import torch

    f, y, calls = torch.tensor(matrix), torch.tensor(direction), []
    prescribed = torch.tensor(outcomes)

    def evaluate(step):
        calls.append(1)
        if len(calls) > 100:
            raise ValueError("too many tries")
        if len(prescribed):
            gain, kl = prescribed[min(len(calls), len(prescribed)) - 1]
            return float(gain), float(kl)
        before = torch.log_softmax(torch.tensor(logits), 0)
        after = torch.log_softmax(torch.tensor(logits) + step, 0)
        gain = ((after.exp() - before.exp()) * torch.tensor(advantages)).sum()
        return float(gain), float((before.exp() * (before - after)).sum())

    step, backtracks = function(y, lambda v: f @ v, evaluate, delta, factor, tries)
    return {"step": step, "backtracks": int(backtracks), "calls": calls}


def judge_q4(result):
    return {**result, "calls": len(result["calls"])}


def trust_region_step_recursive(direction, fisher_product, evaluate, delta, factor=0.8, tries=10):
    """Reference: the length from logarithms, the search by recursion."""
    curvature = torch.dot(direction, fisher_product(direction))
    log_scale = 0.5 * (math.log(2.0) + math.log(delta) - math.log(float(curvature)))

    def search(j):
        if j == tries:
            return torch.zeros_like(direction), tries
        step = direction * math.exp(log_scale + j * math.log(factor))
        gain, kl = evaluate(step)
        return (step, j) if gain > 0 and kl <= delta else search(j + 1)

    return search(0)


def trust_region_step_loop(direction, fisher_product, evaluate, delta, factor=0.8, tries=10):
    step = torch.sqrt(2 * delta / (direction @ fisher_product(direction))) * direction
    for j in range(tries):
        gain, kl = evaluate(step)
        if gain > 0 and kl <= delta:
            return step, j
        step = factor * step
    return torch.zeros_like(step), tries


def trust_region_step_unit(direction, fisher_product, evaluate, delta, factor=0.8, tries=10):
    length = (direction @ fisher_product(direction)) ** 0.5  # in the ruler of the KL
    full, j = (2 * delta) ** 0.5 * (direction / length), 0
    while j < tries:
        gain, kl = evaluate(full * factor**j)
        if kl <= delta:
            if gain > 0:
                return full * factor**j, j
        j += 1
    return full * 0, j


def trust_region_step_best(direction, fisher_product, evaluate, delta, factor=0.8, tries=10):
    full = torch.sqrt(2 * delta / (direction @ fisher_product(direction))) * direction
    best, found, where = 0.0, torch.zeros_like(full), tries
    for j in range(tries):
        gain, kl = evaluate(factor**j * full)
        if gain > best and kl <= delta:
            best, found, where = gain, factor**j * full, j
    return found, where


def cases_q4(rng):
    nothing = np.zeros(0)
    cases = []

    def matrix(n):
        root = rng.normal(size=(n, n))
        return root @ root.T + 0.1 * np.eye(n)

    def prescribed(outcomes, delta, tries, part):
        n = int(rng.integers(2, 6))
        arguments = matrix(n), rng.normal(size=n), np.array(outcomes), nothing, nothing, delta
        cases.append(Case((*arguments, float(rng.uniform(0.4, 0.9)), tries), part))

    def good(delta):
        return [rng.uniform(0.01, 1.0), delta * rng.uniform(0.1, 0.9)]

    def far(delta):  # gains, but too far
        return [rng.uniform(0.01, 1.0), delta * rng.uniform(1.1, 3.0)]

    def worse(delta):  # near enough, but loses
        return [-rng.uniform(0.01, 1.0), delta * rng.uniform(0.1, 0.9)]

    def both(delta):  # too far and loses
        return [-rng.uniform(0.01, 1.0), delta * rng.uniform(1.1, 3.0)]

    for _ in range(3):
        delta = float(rng.uniform(0.005, 0.1))
        prescribed([good(delta), good(delta)], delta, 2, "length of the full step")
    for order in ([far, worse, good], [worse, far, both, good], [both, good]):
        delta = float(rng.uniform(0.005, 0.1))
        rows = [kind(delta) for kind in order]
        rows.append([rows[-1][0] + 1.0, 0.5 * delta])  # a later one would gain more
        prescribed(rows, delta, 10, "first good step")
    delta = float(rng.uniform(0.005, 0.1))
    prescribed([far(delta), [0.5, delta], good(delta)], delta, 10, "first good step")  # KL equal to delta: accepted
    found = False
    while not found:  # a real table of logits whose full step is too far
        n = int(rng.integers(3, 5))
        logits = rng.normal(size=n)
        p = np.exp(logits) / np.exp(logits).sum()
        advantages = rng.normal(size=n)
        advantages -= p @ advantages
        fisher = np.diag(p) - np.outer(p, p) + 1e-6 * np.eye(n)
        delta = float(rng.uniform(0.1, 0.3))
        direction = advantages - advantages.mean()
        arguments = (fisher, direction, nothing, logits, advantages, delta, 0.8, 10)
        result = drive_q4(trust_region_step_loop, *arguments)
        found = 1 <= result["backtracks"] <= 3
        shorter = drive_q4(trust_region_step_loop, *arguments[:5], delta * 1.02, 0.8, 10)
        longer = drive_q4(trust_region_step_loop, *arguments[:5], delta * 0.98, 0.8, 10)
        found = found and shorter["backtracks"] == longer["backtracks"] == result["backtracks"]
    cases.append(Case(arguments, "first good step"))

    for tries in (int(rng.integers(2, 5)), int(rng.integers(5, 8))):
        delta = float(rng.uniform(0.005, 0.1))
        kinds = [far, worse, both]
        rows = [kinds[int(rng.integers(3))](delta) for _ in range(tries)]
        rows[0], rows[-1] = far(delta), worse(delta)
        prescribed([*rows, good(delta)], delta, tries, "no good step")
    delta = float(rng.uniform(0.005, 0.1))
    prescribed([[0.0, 0.5 * delta], [0.0, 0.2 * delta], good(delta)], delta, 2, "no good step")
    prescribed([[np.nan, np.nan], [np.nan, 0.5 * delta], [0.1, np.nan], good(delta)], delta, 3, "no good step")
    prescribed([far(delta), good(delta)], delta, 1, "no good step")
    return cases


Q4 = Question(
    name="q4",
    title="The trust-region step",
    function="trust_region_step",
    parts={"length of the full step": 5, "first good step": 5, "no good step": 4},
    reference=trust_region_step_recursive,
    cases=cases_q4,
    driver=drive_q4,
    compare=judged(judge_q4, close(1e-5, 1e-9)),
    alternatives=(trust_region_step_loop, trust_region_step_unit),
    mistakes=(
        Mistake(
            edit(trust_region_step_loop, "fisher_product(direction)", "direction"),
            "the step is measured with the plain length of the direction. The radius is a KL, so the ruler is"
            " the Fisher matrix: direction times (F times direction).",
        ),
        Mistake(
            edit(trust_region_step_loop, "2 * delta", "delta"),
            "a factor 2 is missing under the root. The quadratic KL is one half of step' F step, and that"
            " half is what the 2 undoes.",
        ),
        Mistake(
            edit(trust_region_step_loop, "torch.sqrt(", "("),
            "the square root is missing. The quadratic KL grows with the square of the length, so the length"
            " goes with the root of the radius.",
        ),
        Mistake(
            edit(trust_region_step_loop, "gain > 0 and kl <= delta", "kl <= delta"),
            "only the KL decides. A step inside the region may still make the surrogate worse; it has to gain, too.",
        ),
        Mistake(
            edit(trust_region_step_loop, "gain > 0 and kl <= delta", "gain > 0"),
            "only the gain decides. The full step satisfies the quadratic model of the constraint; whether"
            " the true KL is within the radius has to be checked.",
        ),
        Mistake(
            edit(trust_region_step_loop, "gain > 0 and", "gain > 0 or"),
            "a step is accepted if one of the two conditions holds. Both must hold: it gains, and its KL is"
            " within the radius.",
        ),
        Mistake(
            edit(trust_region_step_loop, "gain > 0", "gain >= 0"),
            "a step that gains exactly nothing is accepted. The gain has to be above 0.",
        ),
        Mistake(
            edit(trust_region_step_loop, "gain > 0 and kl <= delta", "not (gain <= 0 or kl > delta)"),
            "NaN slips through. Every comparison with NaN is false, so asking whether a step is bad lets it"
            " pass; ask whether it is good.",
        ),
        Mistake(
            edit(trust_region_step_loop, "torch.zeros_like(step)", "step / factor"),
            "when all tries fail, the last one is returned although it was refused. The policy has to stay"
            " where it is: return a step of zeros.",
        ),
        Mistake(
            edit(
                trust_region_step_loop,
                "        step = factor * step\n",
                "",
                "        gain",
                "        step = factor * step\n        gain",
            ),
            "the step is shortened before the first try. The full step comes first; shorten it only after it"
            " has been refused.",
        ),
        Mistake(
            trust_region_step_best,
            "all lengths are tried and the best one is taken. Take the first one that is good enough and stop"
            " there: every further try costs a pass over the batch.",
        ),
        Mistake(
            edit(trust_region_step_loop, "range(tries)", "range(tries + 1)"),
            "there is one try too many. `tries` counts all of them, the full step included.",
        ),
        Mistake(
            edit(trust_region_step_loop, "factor * step", "(1 - factor) * step"),
            "the step is multiplied by 1 - `factor`. After a refusal it keeps the share `factor` of its length.",
        ),
    ),
)


# ------------------------------------------------------------------------------------------------ q5: clipped loss


def drive_q5(function, log_prob, log_prob_old, advantages, epsilon, what):
    import torch

    inputs = [torch.tensor(x).requires_grad_() for x in (log_prob, log_prob_old, advantages)]
    loss, clip_fraction, kl = function(*inputs, epsilon)
    if what == "gradient":
        loss.backward()
        return [torch.zeros_like(x) if x.grad is None else x.grad for x in inputs]
    return {"loss": loss, "clip fraction": float(clip_fraction), "kl": float(kl)}[what]


def clip_loss_capped(log_prob, log_prob_old, advantages, epsilon):
    """Reference: one cap per sign of the advantage (exercise 10.2), expm1 for the estimate."""
    d = log_prob - log_prob_old.detach()
    a = advantages.detach()
    cap = torch.where(a >= 0, (1 + epsilon) * a, (1 - epsilon) * a)
    loss = -torch.minimum(torch.exp(d) * a, cap).mean()
    with torch.no_grad():
        outside = (torch.exp(d) > 1 + epsilon) | (torch.exp(d) < 1 - epsilon)
        return loss, float(outside.double().mean()), float((torch.expm1(d) - d).mean())


def clip_loss_minimum(log_prob, log_prob_old, advantages, epsilon):
    old, a = log_prob_old.detach(), advantages.detach()
    ratio = (log_prob - old).exp()
    loss = -torch.min(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a).mean()
    outside = ((ratio - 1).abs() > epsilon).float().mean().item()
    kl = (ratio - 1 - (log_prob - old)).mean().item()
    return loss, outside, kl


def clip_loss_loop(log_prob, log_prob_old, advantages, epsilon):
    terms, outside, kl = [], 0, 0.0
    for new, old, a in zip(log_prob, log_prob_old.tolist(), advantages.tolist()):
        ratio = torch.exp(new - old)
        rho = ratio.item()
        dead = (a > 0 and rho > 1 + epsilon) or (a < 0 and rho < 1 - epsilon)
        terms.append(min(max(rho, 1 - epsilon), 1 + epsilon) * a + 0 * new if dead else ratio * a)
        outside += not 1 - epsilon <= rho <= 1 + epsilon
        kl += rho - 1 - (new.item() - old)
    return -sum(terms) / len(terms), outside / len(terms), kl / len(terms)


def clip_loss_maximum_of_losses(log_prob, log_prob_old, advantages, epsilon):
    with torch.no_grad():
        log_ratio = log_prob - log_prob_old
        kl = (log_ratio.exp() - 1 - log_ratio).mean()
    ratio = torch.exp(log_prob - log_prob_old.detach())
    minus = -advantages.detach()
    clipped = torch.clip(ratio, 1 - epsilon, 1 + epsilon)
    loss = torch.maximum(minus * ratio, minus * clipped).mean()
    return loss, (torch.abs(ratio.detach() - 1) > epsilon).double().mean(), kl


def cases_q5(rng):
    cases = []

    def batch(epsilon, base=None):
        """Ratios in all three ranges for both signs of the advantage, well away from the edges."""
        low, high = 1 - epsilon, 1 + epsilon
        groups = ((0.2, low - 0.05), (low + 0.03, high - 0.03), (high + 0.05, 2.6))
        ratio = np.concatenate([rng.uniform(*group, size=int(rng.integers(2, 5)) * 2) for group in groups])
        sign = np.resize([1.0, -1.0], len(ratio))
        order = rng.permutation(len(ratio))
        ratio, advantages = ratio[order], (sign * rng.uniform(0.2, 2.0, len(ratio)))[order]
        old = np.log(rng.uniform(0.05, 0.38, len(ratio))) if base is None else np.full(len(ratio), base)
        return old + np.log(ratio), old, advantages, epsilon

    for _ in range(3):
        epsilon = float(rng.uniform(0.1, 0.35))
        cases.append(Case((*batch(epsilon), "loss"), "loss"))
        cases.append(Case((*batch(epsilon), "gradient"), "gradient"))
        cases.append(Case((*batch(epsilon), "clip fraction"), "clip fraction"))
        cases.append(Case((*batch(epsilon), "kl"), "divergence estimate"))
    # outside by the ratio and inside by its logarithm, twice, and once the other way round
    epsilon, old = float(rng.uniform(0.3, 0.35)), np.log(rng.uniform(0.05, 0.38, 4))
    ratio = np.array([1 + epsilon + 0.02, 1 + epsilon + 0.03, 1 - epsilon + 0.02, 1.0])
    cases.append(Case((old + np.log(ratio), old, rng.normal(size=4), epsilon, "clip fraction"), "clip fraction"))
    old = np.log(rng.uniform(0.05, 0.9, 5))  # before the first step: all ratios 1
    cases.append(Case((old, old.copy(), rng.normal(size=5), 0.2, "gradient"), "gradient"))
    new, old, advantages, epsilon = batch(0.2, base=-800.0)  # the log-probability of a long answer
    cases.append(Case((new, old, advantages, epsilon, "loss"), "long answers"))
    cases.append(Case((new, old, advantages, epsilon, "kl"), "long answers"))
    return cases


Q5 = Question(
    name="q5",
    title="The clipped loss",
    function="clip_loss",
    parts={"loss": 4, "gradient": 5, "clip fraction": 2, "divergence estimate": 3, "long answers": 1},
    reference=clip_loss_capped,
    cases=cases_q5,
    driver=drive_q5,
    compare=close(1e-5, 1e-7),
    alternatives=(clip_loss_minimum, clip_loss_loop, clip_loss_maximum_of_losses),
    mistakes=(
        Mistake(
            edit(clip_loss_minimum, "torch.min(", "torch.max("),
            "the larger of the two terms is taken. PPO takes the smaller one before the sign is turned: it"
            " keeps what makes things look worse. (If the minus is already inside, the larger one is right.)",
        ),
        Mistake(
            edit(clip_loss_minimum, "torch.min(ratio * a, ", "("),
            "the minimum is missing. With the clipped term alone, a policy that has moved against the data"
            " gets no gradient to bring it back.",
        ),
        Mistake(
            edit(clip_loss_minimum, "-torch.min", "torch.min"),
            "the sign is that of the objective. The objective is to be maximized, and an optimizer minimizes:"
            " return its negative.",
        ),
        Mistake(
            edit(clip_loss_minimum, "* a).mean()", "* a).sum()"),
            "the terms are added up. Take the mean, so that the step does not grow with the batch.",
        ),
        Mistake(
            edit(
                clip_loss_minimum,
                "(log_prob - old).exp()",
                "(old - log_prob).exp()",
                "1 - (log_prob - old)",
                "1 - (old - log_prob)",
            ),
            "the ratio is upside down. The new policy stands in the numerator; the gradient flows through it.",
        ),
        Mistake(
            edit(
                clip_loss_minimum,
                "(log_prob - old).exp()",
                "log_prob.exp() / old.exp()",
                "(log_prob - old)",
                "torch.log(ratio)",
            ),
            "the ratio is computed from probabilities, which are 0 in the computer where log-probabilities"
            " are very negative. Subtract the logarithms first, then take exp.",
        ),
        Mistake(
            edit(
                clip_loss_minimum,
                "(log_prob - old).exp()",
                "log_prob - old",
                "ratio - 1 - (log_prob - old)",
                "ratio.exp() - 1 - ratio",
            ),
            "the difference of the log-probabilities is used as the ratio. It is the logarithm of the ratio:"
            " exp is missing.",
        ),
        Mistake(
            edit(
                clip_loss_minimum,
                "ratio.clamp(1 - epsilon, 1 + epsilon)",
                "(log_prob - old).clamp(-epsilon, epsilon).exp()",
                "(ratio - 1).abs()",
                "(log_prob - old).abs()",
            ),
            "the logarithm of the ratio is clipped. The range is one of the ratio itself, from 1 - epsilon to"
            " 1 + epsilon; in logarithms it is not symmetric.",
        ),
        Mistake(
            edit(clip_loss_minimum, "log_prob_old.detach(), advantages.detach()", "log_prob_old, advantages"),
            "a gradient flows into the old log-probabilities or the advantages. Both are constants of the"
            " update: detach them.",
        ),
        Mistake(
            edit(clip_loss_minimum, "ratio - 1 - (log_prob - old)", "1 / ratio - 1 + (log_prob - old)"),
            "the estimate has the policies exchanged. The old policy drew the samples, so it is the first"
            " argument of the divergence, and u is new over old.",
        ),
        Mistake(
            edit(clip_loss_minimum, "ratio - 1 - (log_prob - old)", "old - log_prob"),
            "the estimate is k1, which is unbiased but may be negative and is noisy near the old policy."
            " Asked for is k3.",
        ),
        Mistake(
            edit(clip_loss_minimum, "(ratio - 1).abs() > epsilon", "ratio > 1 + epsilon"),
            "the clip fraction counts ratios above the range only. Those below it are outside as well.",
        ),
        Mistake(
            edit(
                clip_loss_minimum,
                "(ratio - 1).abs() > epsilon",
                "ratio * a > ratio.clamp(1 - epsilon, 1 + epsilon) * a",
            ),
            "the clip fraction counts only the samples whose gradient is zero. Asked for is the share of"
            " ratios outside the range, whatever the sign of the advantage.",
        ),
        Mistake(
            edit(
                clip_loss_minimum,
                "advantages.detach()\n",
                "((advantages - advantages.mean()) / (advantages.std() + 1e-8)).detach()\n",
            ),
            "the advantages are normalized inside the loss. They are used here as they came in.",
        ),
    ),
)


# -------------------------------------------------------------------------------------------------- q6: the update


def drive_q6(function, task, data, config, seed):
    """One update from given weights with plain gradient steps, or a small bandit that is to be learned."""
    import numpy as np
    import torch

    class Networks(torch.nn.Module):
        def __init__(self, policy, value):
            super().__init__()
            self.policy, self.value = torch.nn.Parameter(policy), torch.nn.Parameter(value)

        def forward(self, observations):
            return observations @ self.policy, observations @ self.value

    rng = np.random.default_rng(seed)
    if task == "update":
        networks = Networks(torch.tensor(data["policy"]), torch.tensor(data["value"]))
        names = "observations", "actions", "log_probs", "advantages", "targets"
        batch = {name: torch.tensor(data[name]) for name in names}
        optimizer = torch.optim.SGD(networks.parameters(), lr=data["rate"])
        steps = function(networks, optimizer, batch, dict(config), rng)
        return {"steps": int(steps), "policy": networks.policy, "value": networks.value}

    rewards = torch.tensor(data["rewards"])  # (S, A): a bandit with S situations
    count, actions = rewards.shape
    networks = Networks(torch.zeros(count, actions).double(), torch.zeros(count).double())
    optimizer = torch.optim.Adam(networks.parameters(), lr=0.08)
    draw = np.random.default_rng(seed + 1)
    for _ in range(8):
        states = torch.tensor(draw.integers(count, size=64))
        observations = torch.eye(count).double()[states]
        with torch.no_grad():
            logits, values = networks(observations)
            log_pi = torch.log_softmax(logits, -1)
            cumulative = log_pi.exp().cumsum(-1)
            chosen = (torch.tensor(draw.random((64, 1))) > cumulative[:, :-1]).sum(-1)
            gained = rewards[states, chosen]
            advantages = gained - values
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_probs = log_pi.gather(1, chosen[:, None])[:, 0]
        batch = {
            "observations": observations,
            "actions": chosen,
            "log_probs": log_probs,
            "advantages": advantages,
            "targets": gained,
        }
        function(networks, optimizer, batch, dict(config), rng)
    return {"trained policy": networks.policy, "rewards": rewards}


def share_of_best(logits, rewards):
    """What a policy earns, as a share of what the best one earns."""
    pi = np.exp(logits - logits.max(-1, keepdims=True))
    pi = pi / pi.sum(-1, keepdims=True)
    return (pi * rewards).sum(-1).mean() / rewards.max(-1).mean()


def compare_q6(got, want):
    """Numbers of one update must agree; a trained policy must reach 70 percent, judged by the reference's rewards."""
    if "trained policy" not in want:
        return close(1e-4, 1e-6)(got, want)
    policy, rewards = np.asarray(got["trained policy"], dtype=float), want["rewards"]
    if policy.shape != rewards.shape:
        return WRONG_SHAPE
    reached, wanted = (share_of_best(logits, rewards) > 0.7 for logits in (policy, want["trained policy"]))
    return None if reached == wanted else "The trained policy earns too little."


def ppo_update_closed_form(networks, optimizer, batch, config, rng):
    """Reference: the gradient of the loss by the logits and the values, written out."""
    done, count = 0, len(batch["actions"])
    epsilon, size = config["epsilon"], count // config["minibatches"]
    for _ in range(config["epochs"]):
        order = rng.permutation(count)
        for start in range(0, count, size):
            rows = torch.as_tensor(order[start : start + size])
            logits, values = networks(batch["observations"][rows])
            pi = torch.softmax(logits.detach(), -1)
            taken = torch.nn.functional.one_hot(batch["actions"][rows], pi.shape[1]).to(pi.dtype)
            d = torch.log((pi * taken).sum(-1)) - batch["log_probs"][rows]
            if config["stop_kl"] is not None and float((torch.expm1(d) - d).mean()) > config["stop_kl"]:
                return done
            rho, a = torch.exp(d), batch["advantages"][rows]
            flat = ((a > 0) & (rho > 1 + epsilon)) | ((a < 0) & (rho < 1 - epsilon))
            weight = torch.where(flat, torch.zeros_like(a), a * rho)
            entropy = -(pi * torch.log(pi)).sum(-1, keepdim=True)
            by_logits = weight[:, None] * (taken - pi)
            by_logits = by_logits - config["entropy_coefficient"] * pi * (torch.log(pi) + entropy)
            by_values = config["value_coefficient"] * (values.detach() - batch["targets"][rows])
            optimizer.zero_grad()
            torch.autograd.backward([logits, values], [-by_logits / size, by_values / size])
            optimizer.step()
            done += 1
    return done


def ppo_update_split(networks, optimizer, batch, config, rng):
    n, done = len(batch["log_probs"]), 0
    for _ in range(config["epochs"]):
        for rows in np.split(rng.permutation(n), config["minibatches"]):
            part = {name: x[torch.from_numpy(rows)] for name, x in batch.items()}
            logits, values = networks(part["observations"])
            log_pi = torch.log_softmax(logits, -1)
            log_prob = log_pi.gather(1, part["actions"][:, None])[:, 0]
            log_rho = log_prob - part["log_probs"]
            rho = log_rho.exp()
            kl = (rho - 1 - log_rho).mean().item()
            if config["stop_kl"] is not None and kl > config["stop_kl"]:
                return done
            clipped = rho.clamp(1 - config["epsilon"], 1 + config["epsilon"])
            surrogate = torch.min(rho * part["advantages"], clipped * part["advantages"]).mean()
            error = 0.5 * ((values - part["targets"]) ** 2).mean()
            entropy = -(log_pi.exp() * log_pi).sum(-1).mean()
            loss = -surrogate + config["value_coefficient"] * error - config["entropy_coefficient"] * entropy
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
    return done


def ppo_update_distribution(networks, optimizer, batch, config, rng):
    total, steps = batch["actions"].shape[0], 0
    limit = math.inf if config["stop_kl"] is None else config["stop_kl"]
    for _ in range(config["epochs"]):
        order = torch.tensor(rng.permutation(total)).reshape(config["minibatches"], -1)
        for i in range(config["minibatches"]):
            rows = order[i]
            logits, values = networks(batch["observations"][rows])
            pi = torch.distributions.Categorical(logits=logits)
            change = pi.log_prob(batch["actions"][rows]) - batch["log_probs"][rows]
            if torch.mean(torch.expm1(change) - change) > limit:
                return steps
            minus = -batch["advantages"][rows]
            rho = torch.exp(change)
            kept = torch.clip(rho, 1 - config["epsilon"], 1 + config["epsilon"])
            loss = torch.maximum(minus * rho, minus * kept).mean()
            loss += config["value_coefficient"] * (values - batch["targets"][rows]).square().mean() / 2
            loss -= config["entropy_coefficient"] * pi.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
    return steps


ppo_update_stops_the_pass_only = edit(ppo_update_split, "                return done", "                break")
EARLY_STOP = """\
            if config["stop_kl"] is not None and kl > config["stop_kl"]:
                return done
"""
ppo_update_stops_late = edit(
    ppo_update_split, EARLY_STOP, "", "            done += 1\n", "            done += 1\n" + EARLY_STOP
)


def cases_q6(rng):
    cases = []

    def update(rows, epochs, minibatches, stop_kl, rate, part):
        d, actions = int(rng.integers(2, 4)), int(rng.integers(3, 5))
        observations, policy = rng.normal(size=(rows, d)), rng.normal(size=(d, actions)) * 0.5
        z = observations @ policy
        log_pi = z - np.log(np.exp(z).sum(-1, keepdims=True))
        taken = np.array([rng.choice(actions, p=np.exp(row)) for row in log_pi])
        data = {
            "policy": policy,
            "value": rng.normal(size=d),
            "observations": observations,
            "actions": taken,
            "log_probs": log_pi[np.arange(rows), taken],
            "advantages": rng.normal(size=rows) + 0.3,
            "targets": rng.normal(size=rows) * 2,
            "rate": rate,
        }
        both = float(part == "one step")  # values and entropy are judged there, passes and stops without them
        config = {
            "epochs": epochs,
            "minibatches": minibatches,
            "epsilon": float(rng.uniform(0.1, 0.3)),
            "value_coefficient": both * float(rng.uniform(0.3, 0.9)),
            "entropy_coefficient": both * float(rng.uniform(0.1, 0.3)),
            "stop_kl": stop_kl,
        }
        return Case(("update", data, config, int(rng.integers(2**31))), part)

    for _ in range(2):
        cases.append(update(int(rng.integers(4, 9)), 1, 1, None, 0.5, "one step"))
        size, parts = int(rng.integers(3, 6)), int(rng.integers(2, 5))
        cases.append(update(size * parts, int(rng.integers(2, 4)), parts, None, 0.4, "passes and minibatches"))

    def steps_of(rule, case, stop_kl=None):
        task, data, config, seed = copy.deepcopy(case.arguments)
        if stop_kl is not None:
            config["stop_kl"] = stop_kl
        return drive_q6(rule, task, data, config, seed)["steps"]

    found = 0
    while found < 2:  # stops in the middle of a pass, and a later minibatch would be within the limit again
        stop = float(rng.uniform(0.01, 0.04))
        case = update(16, 4, 4, stop, 0.5, "early stop")
        steps = steps_of(ppo_update_split, case)
        if not (5 <= steps < 15 and steps % 4):
            continue
        near = {steps_of(ppo_update_split, case, factor * stop) for factor in (0.9, 1.1)}
        if near == {steps} and steps_of(ppo_update_stops_the_pass_only, case) != steps:  # and not on a knife's edge
            cases.append(case)
            found += 1
    best = rng.integers(3, size=4)
    rewards = rng.uniform(0.0, 0.2, size=(4, 3))
    rewards[np.arange(4), best] = 1.0
    config = {
        "epochs": 4,
        "minibatches": 1,
        "epsilon": 0.2,
        "value_coefficient": 0.5,
        "entropy_coefficient": 0.01,
        "stop_kl": None,
    }
    cases.append(Case(("learn", {"rewards": rewards}, config, int(rng.integers(2**31))), "it learns"))
    return cases


Q6 = Question(
    name="q6",
    title="A PPO update",
    function="ppo_update",
    parts={"one step": 5, "passes and minibatches": 4, "early stop": 4, "it learns": 3},
    reference=ppo_update_closed_form,
    cases=cases_q6,
    driver=drive_q6,
    compare=compare_q6,
    seconds=20.0,
    alternatives=(ppo_update_split, ppo_update_distribution),
    mistakes=(
        Mistake(
            ppo_update_stops_late,
            "the divergence is checked after the gradient step, so that one step too many is taken. Look"
            " first; if the policy is already too far away, do not move it again.",
        ),
        Mistake(
            ppo_update_stops_the_pass_only,
            "the early stop ends the current pass, and the next one goes on. `break` leaves the inner loop"
            " only; the whole update has to end.",
        ),
        Mistake(
            edit(ppo_update_split, 'config["stop_kl"] is not None and kl > config["stop_kl"]', "False"),
            "there is no early stop: the divergence of the minibatch is not looked at.",
        ),
        Mistake(
            edit(
                ppo_update_split,
                "    for _ in",
                "    order = rng.permutation(n)\n    for _ in",
                "np.split(rng.permutation(n),",
                "np.split(order,",
            ),
            "the batch is shuffled once for all passes. Each pass draws a new order, so that the same samples"
            " do not always stand together.",
        ),
        Mistake(
            edit(ppo_update_split, "rng.permutation(n)", "np.arange(n)"),
            "the batch is not shuffled. Consecutive samples come from the same episodes; the order of each"
            " pass is rng.permutation of the rows.",
        ),
        Mistake(
            edit(ppo_update_split, '- config["entropy_coefficient"]', '+ config["entropy_coefficient"]'),
            "the entropy is pushed down. It is wanted large, so in a loss, which is minimized, it has a minus.",
        ),
        Mistake(
            edit(ppo_update_split, '+ config["value_coefficient"]', '- config["value_coefficient"]'),
            "the value error is pushed up. It is wanted small, so in a loss, which is minimized, it has a"
            " plus. Go through the three signs one by one.",
        ),
        Mistake(
            edit(ppo_update_split, "0.5 * ", ""),
            "the factor one half of the value loss is missing, so that values move twice as fast as asked for.",
        ),
        Mistake(
            edit(
                ppo_update_split,
                "            optimizer.zero_grad()\n",
                "",
                "    for _ in",
                "    optimizer.zero_grad()\n    for _ in",
            ),
            "gradients pile up: backward() adds to those of the steps before. Clear them before every backward().",
        ),
        Mistake(
            edit(ppo_update_split, 'log_prob - part["log_probs"]', "log_prob - log_prob.detach()"),
            "the old log-probabilities are computed anew from the networks that are being changed. Then every"
            " ratio is 1, and nothing is ever clipped or stopped. Use the stored ones.",
        ),
        Mistake(
            edit(
                ppo_update_split,
                "            logits, values",
                '            a = part["advantages"]\n'
                '            part["advantages"] = (a - a.mean()) / (a.std() + 1e-8)\n'
                "            logits, values",
            ),
            "the advantages are normalized in every minibatch. They are to be used as they come: whoever"
            " makes the batch has prepared them.",
        ),
        Mistake(
            edit(ppo_update_split, "            done += 1", "        done += 1"),
            "passes are counted. Asked for is the number of gradient steps, one for each minibatch.",
        ),
        Mistake(
            edit(ppo_update_split, ' - config["entropy_coefficient"] * entropy', ""),
            "the bonus for entropy is missing from the loss.",
        ),
        Mistake(
            edit(ppo_update_split, 'config["value_coefficient"] * error', "error"),
            "the loss of the values has no weight: `value_coefficient` is not used.",
        ),
    ),
)


ASSIGNMENT = Assignment(
    title="KL, TRPO and PPO",
    questions=(Q1, Q2, Q3, Q4, Q5, Q6),
    written=Written("written", "What the clip guarantees, and what it does not", 15),
    seconds=120.0,
    memory_mb=2048,
)
