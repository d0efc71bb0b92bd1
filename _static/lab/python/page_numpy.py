"""As much of numpy as a reader's lines need, for the Python of the page, which has none: arrays of any shape, by their elements."""

import math
import random
import sys

precision = {"digits": 4}


class ndarray:  # without __float__: this Python would take it in ``0.9 * array``
    def __init__(self, data, shape, of=None):
        self.data, self.shape, self.ndim, self.size, self.of = data, shape, len(shape), len(data), of

    def tolist(self):
        return self.data[0] if not self.shape else [row.tolist() if self.ndim > 1 else row for row in self]

    def reshape(self, *shape):
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        return ndarray(self.data, tuple(n if n >= 0 else -self.size // _size(shape) for n in shape))

    def __len__(self):
        return self.shape[0]

    def __iter__(self):
        return iter(self.data) if self.ndim == 1 else (self[k] for k in range(self.shape[0]))

    def __bool__(self):
        if self.size == 1:
            return bool(self.data[0])
        raise ValueError("an array of several numbers is neither true nor false; use np.where")

    def __str__(self):
        words = [f"{x:.{precision['digits']}f}".rstrip("0") if isinstance(x, float) else str(x) for x in self.data]
        longest = max([len(word.partition(".")[2]) for word in words] + [0])
        padded = [word + " " * (longest - len(word.partition(".")[2])) for word in words]
        width = max([len(word) for word in padded] + [0])
        return _rows([" " * (width - len(word)) + word for word in padded], self.shape, 1)

    __repr__ = __str__

    def _places(self, key):
        """Where the elements of self[key] stand, and the shape of it."""
        key = key if isinstance(key, tuple) else (key,)
        if (
            len(key) == 1
            and isinstance(key[0], ndarray)
            and key[0].shape == self.shape
            and self.size
            and _is_mask(key[0])
        ):
            places = [k for k, chosen in enumerate(key[0].data) if chosen]
            return places, (len(places),)
        lists = [k for k in key if isinstance(k, (list, ndarray))]
        places, shape, stride, axis, paired = [0], [], self.size, 0, len(lists) > 1
        for one in list(key) + [slice_all] * (self.ndim - len([k for k in key if k is not None])):
            if one is None:
                shape.append(1)
                continue
            n = self.shape[axis]
            stride, axis = stride // n if n else 0, axis + 1
            if isinstance(one, (list, ndarray)):
                one = array(one)
                chosen = [k for k, yes in enumerate(one.data) if yes] if _is_mask(one) else one.data
                kept = (len(chosen),) if _is_mask(one) else one.shape
                if paired and len(places) == len(chosen) and shape == [len(chosen)]:
                    places = [p + stride * (k % n) for p, k in zip(places, chosen)]
                    continue
                shape.extend(kept)
            elif isinstance(one, type(slice_all)):
                chosen = range(n)[one]
                shape.append(len(chosen))
            else:
                chosen = [one]
            places = [p + stride * (k % n) for p in places for k in chosen]
        return places, tuple(shape)

    def _one(self, key):
        """Where the element or the rows of some whole numbers begin, and the length; None for another key."""
        start, length = 0, self.size
        for k, n in zip(key, self.shape):
            if not isinstance(k, int):
                return None
            if not -n <= k < n:
                raise IndexError(f"index {k} is out of bounds for {n} entries")
            length //= n
            start += length * (k % n)
        return (start, length) if len(key) <= self.ndim else None

    def __getitem__(self, key):
        of = self._one(key if isinstance(key, tuple) else (key,))
        if of is None:
            places, shape = self._places(key)
            return ndarray([self.data[p] for p in places], shape)
        start, length = of
        used = len(key) if isinstance(key, tuple) else 1
        if used == self.ndim:
            return self.data[start]
        return ndarray(self.data[start : start + length], self.shape[used:], (self, start))

    def __setitem__(self, key, value):
        of = self._one(key if isinstance(key, tuple) else (key,))
        if of and of[1] == 1 and not isinstance(value, (ndarray, list, tuple)):
            self._write([of[0]], [value])
        else:
            places, shape = self._places(key)
            self._write(places, _stretched(array(value), shape))

    def _write(self, places, values):
        for place, x in zip(places, values):
            self.data[place] = x
        if self.of:  # rows are part of their table
            self.of[0]._write([self.of[1] + place for place in places], values)

    def _reduced(self, f, axis=None, keepdims=False):
        if axis is None:
            return f(self.data)
        axis %= self.ndim
        n, inner = self.shape[axis], _size(self.shape[axis + 1 :])
        data = [
            f([self.data[(o * n + k) * inner + i] for k in range(n)])
            for o in range(_size(self.shape[:axis]))
            for i in range(inner)
        ]
        return ndarray(data, self.shape[:axis] + ((1,) if keepdims else ()) + self.shape[axis + 1 :])

    def __matmul__(self, other):
        n, other = self.shape[-1], array(other)
        columns = other.T.reshape(-1, n).data if other.ndim > 1 else other.data
        if other.shape[0] != n:
            raise ValueError(f"shapes {self.shape} and {other.shape} do not fit")
        data = [
            sum([self.data[i + k] * columns[j + k] for k in range(n)])
            for i in range(0, self.size, n)
            for j in range(0, len(columns), n)
        ]
        shape = self.shape[:-1] + other.shape[1:]
        return ndarray(data, shape) if shape else data[0]

    @property
    def T(self):
        if self.ndim != 2:
            return self
        rows, columns = self.shape
        return ndarray([self.data[r * columns + c] for c in range(columns) for r in range(rows)], (columns, rows))

    def ravel(self):
        return self.reshape(self.size)

    def item(self):
        return self.data[0]

    def copy(self):
        return ndarray(list(self.data), self.shape)

    def astype(self, kind):
        return ndarray([kind(x) for x in self.data], self.shape)

    def cumsum(self):
        total, out = 0, []
        for x in self.data:
            total += x
            out.append(total)
        return ndarray(out, (self.size,))


class _Slices:
    def __getitem__(self, key):
        return key


slice_all = _Slices()[:]  # this Python does not make slices by name


def _size(shape):
    n = 1
    for k in shape:
        n *= k
    return n


def _is_mask(x):
    return x.size > 0 and isinstance(x.data[0], bool)


def _rows(words, shape, indent):
    if len(shape) < 2:
        return "[" + " ".join(words) + "]" if shape else words[0]
    part = len(words) // shape[0]
    return (
        "["
        + ("\n" + " " * indent).join(
            _rows(words[k * part : (k + 1) * part], shape[1:], indent + 1) for k in range(shape[0])
        )
        + "]"
    )


def array(x, dtype=None):
    if isinstance(x, ndarray):
        return x if dtype is None else x.astype(dtype)
    if not isinstance(x, (list, tuple, range)):
        return ndarray([x if dtype is None else dtype(x)], ())
    rows = [array(row, dtype) for row in x]
    if any(row.shape != rows[0].shape for row in rows):
        raise ValueError("the rows have different lengths")
    data = [y for row in rows for y in row.data]
    if any(isinstance(y, float) for y in data):  # one kind of number
        data = [float(y) for y in data]
    return ndarray(data, (len(rows),) + (rows[0].shape if rows else ()))


def _stretched(x, shape):
    """The elements of x, repeated until it has a shape."""
    if x.shape == shape:
        return x.data
    if x.size == 1:
        return x.data * _size(shape)
    places, stride, lead = [0], x.size, len(shape) - x.ndim
    for axis, n in enumerate(shape):
        m = x.shape[axis - lead] if axis >= lead else 1
        stride //= m
        if lead < 0 or m not in (1, n):
            raise ValueError(f"shapes {x.shape} and {shape} do not fit")
        places = [p + (stride * k if m > 1 else 0) for p in places for k in range(n)]
    return [x.data[p] for p in places]


def each(f):
    """A function of numbers as one of arrays, element by element."""

    def of_arrays(*args):
        arrays = [array(x) for x in args]
        ndim = max([x.ndim for x in arrays])
        if ndim == 0:
            return f(*[x.data[0] for x in arrays])
        shape = tuple(
            max([1 if k < ndim - x.ndim else x.shape[k - ndim + x.ndim] for x in arrays]) for k in range(ndim)
        )
        return ndarray([f(*numbers) for numbers in zip(*[_stretched(x, shape) for x in arrays])], shape)

    return of_arrays


def _quotient(a, b):
    return a / b if b else math.nan if a == 0 or a != a else math.copysign(math.inf, a)


def _power(a, b):
    try:
        y = a**b
        return y if isinstance(y, (int, float)) else math.nan
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _exp(x):
    return math.exp(x) if x < 709.7 else math.inf


def _log(x):
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


def _not(a):
    return not a if isinstance(a, bool) else -a - 1


OPERATORS = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "truediv": _quotient, "pow": _power,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
}  # fmt: skip
COMPARISONS = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}  # fmt: skip
for _name, _f in list(OPERATORS.items()) + list(COMPARISONS.items()):
    setattr(ndarray, f"__{_name}__", each(_f))
for _name, _f in OPERATORS.items():
    setattr(ndarray, f"__r{_name}__", each(lambda b, a, f=_f: f(a, b)))
ndarray.__neg__, ndarray.__abs__, ndarray.__invert__ = each(lambda a: -a), each(abs), each(_not)


def _mean(data):
    return sum(data) / len(data)


def _var(data):
    middle = _mean(data)
    return _mean([(x - middle) ** 2 for x in data])


REDUCTIONS = {
    "sum": sum, "mean": _mean, "max": max, "min": min, "var": _var, "std": lambda d: math.sqrt(_var(d)), "any": any, "all": all,
    "argmax": lambda d: d.index(max(d)), "argmin": lambda d: d.index(min(d)),
}  # fmt: skip


class numpy:
    pi, e, inf, nan, ndarray, asarray = math.pi, math.e, math.inf, math.nan, ndarray, array


for _name, _f in REDUCTIONS.items():
    setattr(ndarray, _name, lambda self, axis=None, keepdims=False, f=_f: self._reduced(f, axis, keepdims))
    setattr(numpy, _name, lambda x, axis=None, f=_f: array(x)._reduced(f, axis))
CLIP = lambda x, low=-math.inf, high=math.inf: min(max(x, low), high)
ELEMENTWISE = {
    "exp": _exp, "log": _log, "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan, "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "arctan": math.atan, "tanh": math.tanh, "floor": math.floor, "ceil": math.ceil, "square": lambda x: x * x, "abs": abs,
    "sign": lambda x: (x > 0) - (x < 0), "minimum": min, "maximum": max, "where": lambda c, a, b: a if c else b, "power": _power,
    "isfinite": lambda x: -math.inf < x < math.inf, "isclose": lambda a, b: abs(a - b) <= 1e-8 + 1e-5 * abs(b),
}  # fmt: skip
for _name, _f in ELEMENTWISE.items():
    setattr(numpy, _name, each(_f))
for _name in ("exp", "log", "sqrt", "abs", "square"):
    setattr(ndarray, _name, each(ELEMENTWISE[_name]))


def clip(x, low=None, high=None, min=None, max=None):
    low, high = low if min is None else min, high if max is None else max
    return each(CLIP)(x, -math.inf if low is None else low, math.inf if high is None else high)


def _rounded(x, digits=0):
    return each(lambda y: round(y, digits) if digits else float(round(y)))(x)


ndarray.clip = ndarray.clamp = numpy.clip = clip
ndarray.round = numpy.round = _rounded


def full(shape, value):
    shape = shape if isinstance(shape, tuple) else (shape,)
    return ndarray([value] * _size(shape), shape)


def zeros(shape, dtype=float):
    return full(shape, dtype(0))


def ones(shape):
    return full(shape, 1.0)


def eye(n):
    return ndarray([1.0 if i == j else 0.0 for i in range(n) for j in range(n)], (n, n))


def linspace(low, high, n=50):
    return ndarray([low + (high - low) * k / (n - 1) for k in range(n)], (n,))


def arange(*limits):
    start, stop, step = limits if len(limits) == 3 else (limits if len(limits) == 2 else (0, limits[0])) + (1,)
    return array([start + k * step for k in range(max(0, math.ceil((stop - start) / step)))])


def solve(matrix, right):
    """x of matrix @ x = right, by elimination."""
    n, rows = len(matrix), [list(row) + [x] for row, x in zip(matrix.tolist(), right.tolist())]
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        for i in range(n):
            factor = rows[i][k] / rows[k][k] if i != k else 0
            if factor:
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k])]
    return array([rows[k][n] / rows[k][k] for k in range(n)])


def einsum(letters, *arrays):
    """Sum of products over the letters that the result does not name."""
    names, result = letters.split("->")
    sizes = {letter: n for name, x in zip(names.split(","), arrays) for letter, n in zip(name, x.shape)}

    def total(at, rest):
        if rest:
            return sum([total(dict(at, **{rest[0]: k}), rest[1:]) for k in range(sizes[rest[0]])])
        product = 1
        for name, x in zip(names.split(","), arrays):
            product *= x[tuple(at[letter] for letter in name)]
        return product

    def table(at, left):
        if left:
            return [table(dict(at, **{left[0]: k}), left[1:]) for k in range(sizes[left[0]])]
        return total(at, "".join(letter for letter in sizes if letter not in result))

    return array(table({}, result))


class Generator:
    """Random numbers of this Python: all generators share one stream, which each new one seeds anew; the numbers are not numpy's."""

    def __init__(self, seed=0):
        random.seed((seed or 0) * 7919 + 1)

    def random(self, size=None):
        return random.random() if size is None else self._many(random.random, size)

    def _many(self, draw, size):
        size = size if isinstance(size, tuple) else (size,)
        return ndarray([draw() for _ in range(_size(size))], size)

    def integers(self, low, high=None, size=None):
        low, high = (0, low) if high is None else (low, high)
        draw = lambda: low + int((high - low) * random.random())
        return draw() if size is None else self._many(draw, size)

    def choice(self, options, size=None, p=None):
        options = range(options) if isinstance(options, int) else list(options)
        chances = p.data if isinstance(p, ndarray) else p

        def draw():
            if p is None:
                return options[int(len(options) * random.random())]
            left = random.random()
            for k, chance in enumerate(chances):
                left -= chance
                if left < 0:
                    return options[k]
            return options[-1]

        return draw() if size is None else self._many(draw, size)

    def normal(self, mean=0.0, deviation=1.0, size=None):
        draw = lambda: (
            mean + deviation * math.sqrt(-2 * math.log(1 - random.random())) * math.cos(2 * math.pi * random.random())
        )
        return draw() if size is None else self._many(draw, size)


class _Named:
    def __init__(self, **names):
        for name, value in names.items():
            setattr(self, name, value)


def allclose(a, b, atol=1e-8):
    return all(array(abs(array(a) - b) <= atol + 1e-5 * abs(array(b))).data)


def _set_digits(precision_=None, **others):
    precision["digits"] = others.get("precision", 4)


for _name, _f in {
    "array": lambda x, dtype=None: array(x, dtype).copy(), "full": full, "zeros": zeros, "ones": ones, "eye": eye, "linspace": linspace, "arange": arange, "einsum": einsum, "allclose": allclose,
    "linalg": _Named(solve=solve), "random": _Named(default_rng=Generator), "cumsum": lambda x: array(x).cumsum(),
    "flatnonzero": lambda x: array([k for k, y in enumerate(array(x).data) if y]), "set_printoptions": _set_digits,
    "array_equal": lambda a, b: array(a).shape == array(b).shape and array(a).data == array(b).data,
    "stack": lambda rows, axis=0: array([list(row) for row in rows]), "ndim": lambda x: array(x).ndim, "shape": lambda x: array(x).shape,
    "zeros_like": lambda x: zeros(array(x).shape), "ones_like": lambda x: ones(array(x).shape), "float64": float, "bool_": bool,
}.items():  # fmt: skip
    setattr(numpy, _name, _f)

torch = _Named(exp=numpy.exp, log=numpy.log, minimum=numpy.minimum, maximum=numpy.maximum, min=numpy.minimum, max=numpy.maximum,
               where=numpy.where, clamp=clip, abs=numpy.abs, sqrt=numpy.sqrt, ones_like=numpy.ones_like,
               zeros_like=numpy.zeros_like, tensor=array, sigmoid=each(lambda x: 1 / (1 + _exp(-x))))  # fmt: skip
sys.modules["numpy"], sys.modules["torch"] = numpy, torch
