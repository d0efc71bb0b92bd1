"""The pictures of the thirteen "Your turn", from the reader's own function, for the Python of the page.

Each ``lesson_NN(mine)`` does what the lesson's cell ``picture_of(mine)`` does, and returns a function of the controls' values that
returns panels and a sentence: the sentence of the stored figure. A mark is [kind, color, xs, ys, words or width].
"""

import io
import json


def panel(x, y, xlabel, ylabel, marks, title="", ticks=None):
    return {"x": x, "y": y, "xlabel": xlabel, "ylabel": ylabel, "marks": marks, "title": title, "ticks": ticks}


def mark(kind, color, xs, ys, more=None):
    lists = [[float(v) if -1e9 < v < 1e9 else None for v in (z if isinstance(z, (list, range)) else array(z).ravel().tolist())]
             for z in (xs, ys)]  # fmt: skip
    return [kind, color] + lists + [more]


def lesson_01(mine):
    wins = [(i, j) for i in range(51) for j in range(51)]
    stays = _stretched(array(mine(array([i for i, _ in wins]), array([j for _, j in wins]))), (2601,))
    pairs, known = {"0.6 and 0.4": (0.6, 0.4), "0.55 and 0.45": (0.55, 0.45), "0.8 and 0.2": (0.8, 0.2)}, {}

    def chances(n, q):
        ways, found = 1, []
        for k in range(n + 1):
            found.append(ways * q**k * (1 - q) ** (n - k))
            ways = ways * (n - k) // (k + 1)
        return found

    def chance_to_choose(n, better, worse):
        first, second, total = chances(n, better), chances(n, worse), 0.0
        for i, p in enumerate(first):
            for j, q in enumerate(second):
                total += p * q * (stays[51 * i + j] + 1 - stays[51 * j + i])
        return total / 2

    def at(arms, tries):
        better, worse = pairs[arms]
        if arms not in known:
            known[arms] = [chance_to_choose(n, better, worse) for n in range(51)]
        chance = known[arms]
        total = [n * (better + worse) + (100 - 2 * n) * (worse + (better - worse) * c) for n, c in enumerate(chance)]
        top, n, x = 100 * better, int(tries), range(51)
        lines = [
            [
                mark("line", "green", [0, 50], [top, top], "dashed"),
                mark("line", "blue", x, total),
                mark("dot", "orange", [n], [total[n]]),
            ],
            [mark("line", "blue", x, chance), mark("dot", "orange", [n], [chance[n]])],
        ]
        return (
            [
                panel([0, 50], [48, 82], "tries of each arm", "mean total of 100 pulls", lines[0]),
                panel([0, 50], [0.48, 1.02], "tries of each arm", "chance to choose the better arm", lines[1]),
            ],
            f"{n} tries of each arm: {total[n]:.1f} of 100 on average; the better arm is chosen with probability {chance[n]:.2f}. Who knows it gets {top:.0f} (dashed).",
        )

    return at


def lesson_02(mine):
    r = [[float(mine(s, a)) for a in (0, 1)] for s in (0, 1)]

    def value_point(p, q):
        matrix = array([[1 - (p / 2 + 1 - p) / 2, -p / 4], [-(1 - q) / 2, 1 - q / 2]])
        return solve(matrix, array([p * r[0][0] + (1 - p) * r[0][1], q * r[1][0] + (1 - q) * r[1][1]])).tolist()

    cloud = [value_point(p / 20, q / 20) for p in range(21) for q in range(21)]
    xs, ys = [x for x, _ in cloud], [y for _, y in cloud]

    def at(fresh, tired):
        x, y = value_point(fresh, tired)
        marks = [mark("points", "gray", xs, ys)]
        for p, q, name in (
            (1, 1, "diligent"),
            (1, 0, "careful"),
            (0, 1, "rest fresh, work tired"),
            (0, 0, "always rest"),
        ):
            cx, cy = value_point(p, q)
            marks += [mark("square", "orange", [cx], [cy]), mark("word above", "text", [cx], [cy], name)]
        marks.append(mark("dot", "blue", [x], [y]))
        return [panel([min(xs) - 0.4, max(xs) + 0.5], [min(ys) - 0.4, max(ys) + 0.4], "V(fresh)", "V(tired)", marks)], (
            f"V(fresh) = {x:.3f}, V(tired) = {y:.3f}"
        )

    return at


def lesson_03(mine):
    slips, known = [k / 20 for k in range(21)], {}

    def solved(slip, gamma):
        if (slip, gamma) not in known:
            known[slip, gamma] = dp.policy_iteration(mine(slip).to_mdp(gamma))
        return known[slip, gamma]

    world = mine(0.0)
    here, rows = world.start_state, len(world.layout)
    worth = {g: [solved(p, g).values[here] for p in slips] for g in (0.9, 0.99)}

    def at(slip, gamma):
        found = solved(slip, gamma)
        best = [
            [a for a in range(4) if abs(q[a] - max(q.data)) <= 1e-8 + 1e-5 * abs(max(q.data))] for q in found.q_values
        ]
        cells, names = [], dict(enumerate("ABCD")) if world.layout == LAYOUTS["L1"] else {here: "S"}
        for s, kind in enumerate(world.cells):
            x, y = s % world.columns + 0.5, rows - 0.5 - s // world.columns
            cells.append(mark("cell", {"G": "green", "T": "red", "#": "gray"}.get(kind, "none"), [x], [y], kind))
            if kind not in "GT#":
                cells.append(
                    mark("word", "text", [x], [y], "".join("↑↓←→"[a] for a in best[s]) + f" {found.values[s]:.2f}")
                )
            if s in names:
                cells.append(mark("word", "gray", [x], [y + 0.3], names[s]))
        lowest = min(0, min(worth[0.9] + worth[0.99]) - 0.6)
        value = found.values[here]
        return [
            panel([0, world.columns], [0, rows], "", "", cells, "values and best moves", []),
            panel(
                [-0.03, 1.03],
                [lowest, 10.6],
                "slip p",
                "V*(S)",
                [
                    mark("line", "blue", slips, worth[0.9]),
                    mark("line", "blue", slips, worth[0.99], "dashed"),
                    mark("word", "text", [0.02], [lowest + 0.5], "dashed: γ = 0.99"),
                    mark("dot", "orange", [slip], [value]),
                ],
            ),
        ], f"V*(S) = {value:.2f}; best: " + ", ".join(
            f"{name} " + "/".join(ACTIONS[a] for a in best[s]) for s, name in names.items()
        )

    return at


def lesson_04(mine):
    epsilons, known, tens = [0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0], {}, list(range(5, 201, 10))

    def earned(kind, epsilon):
        """Mean return of each episode, from 300 agents of this page's own, and how many episodes' worth of moves are random."""
        if (kind, epsilon) not in known:
            rule = {
                "Fixed": lambda _, first: first,
                "Line": lambda k, first: first * max(0, 1 - (k - 1) / 99),
                "Mine": mine,
            }[kind]
            schedule = [float(rule(episode, epsilon)) for episode in range(1, 201)]
            known[kind, epsilon] = json.loads(engine.agents(json.dumps(schedule))), sum(schedule)
        return known[kind, epsilon]

    def at(epsilon):
        left, right, said = [], [], f"ε = {epsilon:g}."
        for kind, color, name in (
            ("Fixed", "orange", "dashed: ε fixed"),
            ("Line", "green", "straight to 0"),
            ("Mine", "blue", mine.name),
        ):
            returns, spent = earned(kind, epsilon)
            left.append(mark("line", color, tens, [sum(returns[k : k + 10]) / 10 for k in range(0, 200, 10)], name))
            right += [mark("line", color, epsilons, [sum(earned(kind, e)[0]) / 200 for e in epsilons], name),
                      mark("dot", color, [epsilon], [sum(returns) / 200])]  # fmt: skip
            said += f" {kind}: {sum(returns) / 200:.2f} over all, {sum(returns[150:]) / 50:.2f} in the last 50, {spent:.3g} episodes' worth at random."
        return [panel([0, 200], [0, 10.5], "episode", "discounted return", left),
                panel([-0.04, 1.04], [0, 10.5], "ε in the first episode", "mean over all 200 episodes", right)], said  # fmt: skip

    return at


def exact_values():
    """Of the corridor of 25 cells, for the 23 inner ones: (I - 0.95 walk) V = paid."""
    rows = [[1.0 if i == j else -0.475 if abs(i - j) == 1 else 0.0 for j in range(23)] for i in range(23)]
    return solve(array(rows), array([-5.0] + [0.0] * 21 + [5.0]))


# The last weights that a network of so many units starts with, as torch draws them from seed 1.
FIRST_WEIGHTS = {
    1: [0.0185032],
    2: [0.2473654, 0.0552529],
    3: [0.1487847, 0.1222122, -0.0589859],
    4: [-0.1999171, 0.0774199, 0.1118281, -0.0112653],
    8: [0.0235675, 0.0612346, -0.1870695, 0.0240119, -0.0249801, 0.0320170, -0.0293807, 0.0506016],
    32: [0.0631051, 0.0433033, -0.0484469, 0.0734584, -0.0431607, -0.0491922, 0.0589708, 0.0326442, 0.0320464, -0.0054858,
        -0.0080195, -0.1114798, -0.0328816, -0.0783950, -0.0601085, -0.0053582, -0.0297122, 0.0681890, 0.0433186, 0.0108879,
        0.0161808, 0.0284091, -0.0228670, 0.0083411, -0.0123760, -0.0007145, 0.0986751, -0.1050269, 0.0953843, 0.0053994,
        0.0180315, -0.0341886],
}  # fmt: skip


def lesson_05(mine):
    cells, known = list(range(1, 24)), {}
    wanted = _stretched(array(mine(array(cells))), (23,))

    def at(steps, units):
        H = int(units)
        if H not in known:
            known[H] = json.loads(engine.fit(json.dumps([FIRST_WEIGHTS[H], wanted])))
        w, b, v, c = known[H][str(int(steps))]
        f = lambda x: c + sum([vk * max(0.0, wk * x + bk) for wk, bk, vk in zip(w, b, v)])
        inside = [-bk / wk for wk, bk in zip(w, b) if abs(bk / wk) < 1]
        error = _mean([(f((k - 12) / 12) - y) ** 2 for k, y in zip(cells, wanted)]) ** 0.5
        x = [k / 24 - 1 for k in range(49)]
        lines = [mark("line", "gray", [12 + 12 * z for z in x], [vk * max(0.0, wk * z + bk) for z in x], "its neurons, each alone")
                 for wk, bk, vk in zip(w, b, v)]  # fmt: skip
        marks = lines + [mark("dot small", "orange", cells, wanted, mine.name),
                         mark("line", "blue", [12 + 12 * z for z in x], [min(11, max(-11, f(z))) for z in x], "network: their sum"),
                         mark("tick", "blue", [12 + 12 * z for z in inside], [-9.6] * len(inside), "bends")]  # fmt: skip
        return [panel([0.4, 23.6], [-10.5, 10.5], "cell", "value", marks)], (
            f"{3 * H + 1} weights, {len(inside)} bends in the corridor; typical error {error:.2f}."
        )

    return at


def lesson_06(mine):
    def expected(m):
        j = 0.5**0.5 * math.exp(-((m - 1) ** 2)) if abs(m) < 25 else 0.0  # W = sigma = 0.5: W^2 + sigma^2 = 0.5
        return j, -(m - 1) / 0.5 * j

    def at(alpha, step):
        path = [-0.5]
        for k in range(int(step)):
            path.append(path[-1] + float(mine(expected(path[-1])[1], alpha, k)))
        grid, j = [-3 + 0.13 * k for k in range(101)], [expected(m)[0] for m in path]
        marks = [mark("line", "gray", grid, [expected(x)[0] for x in grid], "J(m)"), mark("line thin", "blue", path, j, "steps so far"),
                 mark("dot small", "blue", path, j), mark("dot", "red", path[-1:], j[-1:], "now")]  # fmt: skip
        return [panel([-3, 10], [-0.05, 0.85], "mean dose m", "expected reward J", marks)], (
            f"After {int(step)} steps: m = {path[-1]:.2f}, J = {j[-1]:.3f} (top: {expected(1)[0]:.3f})."
        )

    return at


def lesson_07(mine):
    rewards, values, following = [1.0, 0.0, -1.0, 2.0, 0.5], [0.5, 1.0, -0.3, 0.8, 1.5], [1.0, -0.3, 0.8, 1.5, 0.0]
    delta = [r + 0.9 * after - v for r, v, after in zip(rewards, values, following)]
    ladder = [sum([0.9**j * delta[j] for j in range(k)]) for k in range(1, 6)]

    def shared(lam):
        shares = [float(mine(k, lam)) for k in range(1, 6)]
        return shares, sum([k * x for k, x in zip(range(1, 6), shares)]), sum([a * x for a, x in zip(ladder, shares)])

    _, across, up = zip(*[shared(0.05 * i) for i in range(21)])
    edge, top = max(5.7, max(across) + 0.3), max(2.75, max(up) + 0.7)  # room for what is no mixture

    def at(lam):
        shares, middle, height = shared(lam)
        weights = [0.9**j * sum(shares[j:]) for j in range(5)]
        tops = [sum([weights[j] * delta[j] for j in range(n)]) for n in range(6)]
        left = [mark("line thin", "gray", list(across), list(up), "dashed")] + [
            mark("disk", "orange", [k + 1], [ladder[k]], 16 * max(0, shares[k]) ** 0.5) for k in range(5)] + [
            mark("word", "text", [k], [ladder[k - 1] + 0.3], word) for k, word in ((1, "δ₀"), (5, "G − V"))] + [
            mark("points", "gray", range(1, 6), ladder), mark("line", "blue", [0.4, edge], [height] * 2, "dashed"),
            mark("square", "blue", [middle], [height])]  # fmt: skip
        right = [mark("bar", "blue" if delta[j] > 0 else "red", [j, j], [tops[j], tops[j + 1]], 0.35) for j in range(5)]
        right += [mark("word", "text", [j], [top - 0.25], f"{weights[j]:.2f}") for j in range(5)]
        right.append(mark("line", "blue", [-0.6, 4.6], [height] * 2, "dashed"))
        return [
            panel(
                [0.4, edge],
                [-0.15, top],
                "k: steps before the critic is asked",
                "estimate of the advantage",
                left,
                "dots: A⁽ᵏ⁾, area: share",
                [[k, k] for k in range(1, 6)],
            ),
            panel(
                [-0.6, 4.6],
                [-0.15, top],
                "l: steps later",
                "",
                right,
                "stacked: weight times δₗ, and its weight",
                [[k, k] for k in range(5)],
            ),
        ], f"λ = {lam:g}: shares " + ", ".join(f"{x:.2f}" for x in shares) + f"; both sides give {tops[5]:.3f}." + (
            "" if abs(sum(shares) - 1) < 1e-6 else f" They add up to {sum(shares):.2f}, not 1: no mixture."
        )

    return at


def lesson_08(mine):
    nodes = [-10 + k / 20 for k in range(401)]
    mass = [math.exp(-x * x / 2) / 20 / math.sqrt(2 * math.pi) for x in nodes]
    kinds = [("k1", "orange", lambda u: -u, "line"), ("k3", "green", lambda u: numpy.exp(u) - 1 - u, "line dashdot")]
    points = linspace(-4, 4, 9)
    if any([abs(x - y) > 1e-9 for x, y in zip(_stretched(array(mine(points)), (9,)), kinds[1][2](points))]):
        kinds.append(("mine", "purple", mine, "line dashed"))

    def in_units_of_kl(estimate, m):
        found = _stretched(array(estimate(array([m * x - m * m / 2 for x in nodes]))), (401,))
        mean = sum([p * y for p, y in zip(mass, found)])
        noise = math.sqrt(sum([p * (y - mean) ** 2 for p, y in zip(mass, found)]))
        return mean / (m * m / 2), noise / (m * m / 2)

    grid, ell = [0.08 + 1.97 * k / 39 for k in range(40)], linspace(-4, 4, 49)
    curves = [[in_units_of_kl(f, m)[1] for m in grid] for _, _, f, _ in kinds]
    shapes = [mark(line, color, ell, _stretched(array(f(ell)), (49,)), name) for name, color, f, line in kinds]

    def at(m):
        found = [in_units_of_kl(f, m) for _, _, f, _ in kinds]
        bell = [math.exp(-(((x + m * m / 2) / m) ** 2) / 2) for x in ell]
        foot = mark("line dotted", "gray", ell, [2 * y / max(bell) - 3 for y in bell], "samples fall here")
        dots = mark("dot", "red", [m] * len(kinds), [min(noise, 8) for _, noise in found])
        off = [f"{100 * (mean - 1):.1f}%".replace("-0.0%", "0.0%") for mean, _ in found]
        near = [x for x in grid if x <= m]  # no farther than the reader has looked
        drawn = [mark(kind[3], kind[1], near, y[: len(near)], kind[0]) for kind, y in zip(kinds, curves)]
        return [panel([-4, 4], [-3, 6], "log u", "", shapes + [foot], "estimate"),
                panel([0, 2.05], [0, 8], "distance m", "", drawn + [dots], "noise of one sample / KL")], (
            f"KL = {m * m / 2:.3f}. Noise of one sample in units of KL: " + ", ".join(f"{kind[0]} {x[1]:.1f}" for kind, x in zip(kinds, found))
            + ". Bias: " + ", ".join([f"{kind[0]} {x}" for kind, x in list(zip(kinds, off))[1:]]) + ".")  # fmt: skip

    return at


def lesson_09(mine):
    def prob(theta):
        return float(array(mine(array([theta]))).ravel().data[0])

    def kl(x, y):
        p, q = prob(x), prob(y)
        return sum([a * (_log(a) - _log(b)) if a > 0 else 0.0 for a, b in ((p, q), (1 - p, 1 - q))])

    def step(theta, ruler):
        low, high = (1.0, 1.0) if ruler == "length 1" else (0.0, 30.0)
        for _ in range(0 if ruler == "length 1" else 60):
            middle = (low + high) / 2
            low, high = (middle, high) if kl(theta, theta + middle) < 0.02 else (low, middle)
        return low, kl(theta, theta + low)

    starts, known = [k / 2 - 5 for k in range(21)], {}
    highest = max([step(t, "length 1")[1] for t in starts])

    def at(theta, ruler):
        if ruler not in known:
            known[ruler] = [step(t, ruler)[1] for t in starts]
        size, cost = step(theta, ruler)
        x, along = linspace(-6, 9, 76), linspace(theta, theta + size, 9)
        ends = [(theta, "dot", "blue", -0.9), (theta + size, "square", "orange", 0.9)]
        left = [mark("line", "gray", x, mine(x)), mark("line thick", "orange", along, mine(along))]
        for z, kind, color, shift in ends:
            p = prob(z)
            left += [
                mark(kind, color, [z], [p]),
                mark("word", "text", [z + shift], [p + (0.06 if p < 0.9 else -0.1)], f"{p:.3f}"),
            ]
        right = [mark("line", "orange", starts, known[ruler]), mark("dot", "blue", [theta], [cost])]
        return [panel([-6, 9], [-0.05, 1.08], "logit θ", "", left, "probability of the first action"),
                panel([-5.4, 5.4], [-0.004, max(0.15, 1.1 * highest)], "logit θ before", "", right, "KL of the step, nats")], (
            f"A step of length {size:.2f} from θ = {theta:g} costs {cost:.4f} nats.")  # fmt: skip

    return at


def lesson_10(mine):
    grid = [round(0.1 + 0.05 * k, 2) for k in range(41)]
    value = lambda x, a, e: float(mine(x, a, e))
    slope = lambda x, a, e: (value(x + 1e-6 * a, a, e) - value(x, a, e)) / (1e-6 * a)  # a step on

    def at(rho, epsilon):
        panels, words = [], []
        for a in (1.0, -1.0):
            way = grid if a > 0 else grid[::-1]
            steep = [k for k, x in enumerate(way[:-1]) if abs(slope(x, a, epsilon)) > 1e-6]
            edge, last, other = way[steep[-1] + 1] if steep else way[0], 2.1 if a > 0 else 0.1, 1 - a * epsilon
            y, here = [-0.1, 1.6] if a > 0 else [-2.2, 0], slope(rho, a, epsilon)
            marks, zones = [], [(other, 2.2 - last, abs(slope(other - 0.05 * a, a, epsilon)) > 1e-6)]
            if a * slope(last, a, epsilon) < -1e-6:
                zones.append((1 + a * epsilon, last, True))
            elif abs(edge - last) > 0.1:
                zones.append((edge, last, False))
                marks.append(mark("square", "blue", [edge], [value(edge, a, epsilon)]))
            for one, end, steep in zones:
                middle, low = (one + end) / 2, 0.15 if steep else 0.75
                marks += [mark("area", "orange" if steep else "gray", [middle] * 2, y, abs(end - one) / 2),
                          mark("word", "text", [middle], [y[0] * low + y[1] * (1 - low)], "pushed back" if steep else "no gradient")]  # fmt: skip
            marks += [
                mark("line thin", "gray", [0, 2.2], [0, 2.2 * a], "dashed"),
                mark("line", "blue", grid, mine(array(grid), a, epsilon)),
            ]
            if abs(here) > 1e-6:
                back = a * slope(last, a, epsilon) < -1e-6 or a * (edge - rho) <= 0
                long = 0.22 if back else min(0.22, abs(edge - rho))  # not beyond the edge
                way = [rho, rho + long * (1 if here > 0 else -1)]
                marks.append(mark("line thick", "red", way, [value(x, a, epsilon) for x in way]))
            marks.append(mark("dot", "red", [rho], [value(rho, a, epsilon)]))
            panels.append(
                panel([0.1, 2.1], y, "ratio ρ", "", marks, "good action, A = +1" if a > 0 else "bad action, A = −1")
            )
            words.append(f"gradient {here:+.2g}" if abs(here) >= 1e-6 else "no gradient")
        return panels, f"ρ = {rho:.2f}, ε = {epsilon}: good action {words[0]}; bad action {words[1]}."

    return at


def lesson_11(mine):
    x = linspace(-6, 6, 121)
    curve = mark("line", "blue", x, mine(x))

    def at(c, a):
        margin = c - a
        p = float(mine(margin))
        odds = f"{p / (1 - p):.2f}" if p < 1 else "∞"
        marks = [
            curve,
            mark("line", "gray", [margin, margin, -6.3], [-0.03, p, p], "dashed"),
            mark("dot", "red", [margin], [p]),
        ]
        return [panel([-6.3, 6.3], [-0.03, 1.03], "margin: score of C − score of A", "probability of C", marks)], (
            f"Margin {margin:+.1f}: C is chosen with probability {p:.3f}, odds {odds} to 1."
        )

    return at


def lesson_12(mine):
    ratio = [math.log(p / q) for p, q in zip([0.90, 0.60, 0.85, 0.75, 0.95], [0.85, 0.20, 0.80, 0.50, 0.90])]

    def at(score, beta):
        fines = array([-beta * x for x in ratio])
        paid = _stretched(array(mine(fines.copy(), score)), (5,))
        marks = [mark("bar", color, [k + side] * 2, [0, height], 0.18) for side, color, heights in
                 ((-0.2, "red", fines.data), (0.2, "blue", paid)) for k, height in enumerate(heights)]  # fmt: skip
        book = [fine + score * (k == 4) for k, fine in enumerate(fines.data)]
        marks += [mark("line", "text", [k + 0.02, k + 0.38], [y, y]) for k, y in enumerate(book)]
        marks += [mark("word", color, [0.3], [y], word) for color, y, word in (
                  ("red", 1.2, "fine for the log-ratio"), ("blue", 1.03, "your reward"), ("text", 0.86, "the book's"))]  # fmt: skip
        marks.append(mark("line thin", "text", [-0.5, 4.5], [0, 0]))
        ticks = [[k, token] for k, token in enumerate("1133$")]
        return [panel([-0.5, 4.5], [-1.0, 1.35], "token of the answer", "reward", marks, "", ticks)], (
            f"Return: yours {sum(paid):.2f}, the book's {sum(book):.2f}. The score less the fines: {score:g} - {beta:.2f} x {sum(ratio):.2f}"
        )

    return at


def lesson_13(mine):
    def at(a, b, c, d, points):
        texts = [a, b, c, d]
        R = array([points * float(text.endswith("=6")) for text in texts])
        found, right = _stretched(array(mine(R)), (4,)), [x > 0 for x in R.data]
        marks = [mark("line thin", "gray", [-0.6, 3.6], [0, 0])]
        for k, (x, good) in enumerate(zip(found, right)):
            y = max(-2.2, min(2.4, x))
            marks += [
                mark("bar", "green" if good else "red", [k, k], [0, y], 0.3),
                mark("word", "text", [k], [y + (0.32 if x >= 0 else -0.32)], f"{x + 0.0:+.2f}" if x else "0"),
            ]
        told = f"the largest is {max(found):+.2f}, the smallest {min(found):+.2f}."
        return [panel([-0.6, 3.6], [-3, 3], "", "advantage", marks, "", list(enumerate(texts)))], (
            f"{sum(right)} of 4 right, for {points:g} each: "
            + (told if any(found) else "all advantages are exactly 0, this group teaches nothing.")
        )

    return at


# ---------------------------------------------------------------- what the page asks for


class Mistake(Exception):
    """What a reader is told in one sentence."""


def watched(function, source):
    """The reader's function; that it returns numbers is asked at each call."""
    head = re.search(r"def mine\(([^)]*)\)", source)
    names = [name.strip() for name in head.group(1).split(",")] if head else []

    def mine(*given):
        found = function(*given)
        if isinstance(found, Maze):
            return found
        where = " and ".join(
            f"{name} = {x:g}" if isinstance(x, (int, float)) else f"an array {name}" for name, x in zip(names, given)
        )
        if found is None:
            raise Mistake(f"`mine` returned None for {where}: is a `return` missing?")
        if any(not isinstance(x, (bool, int, float)) for x in array(found).data):
            raise Mistake(f"`mine` returned {str(found)[:60]} for {where}; a number is expected.")
        if any(not -math.inf < x < math.inf for x in array(found).data):
            raise Mistake(f"`mine` returned a value that is no finite number for {where}.")
        return found

    return mine


def sentence(error, source, name="mine"):
    """One sentence on an error, with the reader's line where there is one."""
    if isinstance(error, Mistake):
        return str(error)
    told = io.StringIO()
    sys.print_exception(error, told)
    lines = [
        int(line.split(", line ")[1].split(",")[0])
        for line in told.getvalue().split("\n")
        if f'File "{name}", line ' in line
    ]
    what = f"{type(error).__name__}: {error}" if str(error) != type(error).__name__ else str(error)
    if not lines:
        return f"The picture cannot be drawn with this. {what}."
    written = source.split("\n")
    number = min(lines[-1], len(written))
    while number > 1 and not written[number - 1].strip():
        number -= 1
    return f"Line {number}, `{written[number - 1].strip()}`: {what}."


class _Drawing:
    name = at = source = None


def begin(lesson, source):
    """Take the reader's function for a lesson; returns a sentence where that fails, and else nothing."""
    known = dict(np=numpy, torch=torch, math=math, Maze=Maze, FRESH=0, TIRED=1, WORK=0, REST=1, MDP=MDP)
    if lesson == "05":
        known["exact_values"] = exact_values()
    _Drawing.at, _Drawing.source = None, source
    try:
        exec(compile(source, "mine", "exec"), known)
        if "mine" not in known:
            raise Mistake("There is no function `mine` any more; reset brings it back.")
        mine = watched(known["mine"], source)
        quoted = re.search(r'"""(.*?)"""', source)
        holder = Drawn(mine, quoted.group(1) if quoted else "mine")
        _Drawing.at = globals()["lesson_" + lesson](holder)
        return ""
    except Exception as error:
        return sentence(error, source)


class Drawn:
    """The reader's function, and its name in the picture: this Python keeps no docstrings."""

    def __init__(self, function, name):
        self.function, self.name = function, name

    def __call__(self, *given):
        return self.function(*given)


def state(values):
    """Panels and sentence for values of the controls, as JSON."""
    try:
        panels, said = _Drawing.at(*json.loads(values))
        return json.dumps({"panels": panels, "said": said})
    except Exception as error:
        return json.dumps({"error": sentence(error, _Drawing.source)})


_programs = {}


def program(source, digits):
    """Run a program in the names of those before it; returns a sentence where it fails, and else nothing."""
    if not _programs:
        _programs.update(known_to_programs())
        precision["digits"] = digits
    try:
        exec(compile(source, "program", "exec"), _programs)
        return ""
    except Exception as error:
        return sentence(error, source, "program")
