"""NumPy's functions, in groups of one program each: values, dtypes and shapes are NumPy's."""

import numpy as np
import pytest

import redfuser as rf
from redfuser.ir import run_term
from redfuser.testing import check_fusion

pytestmark = pytest.mark.usefixtures("session_cache")


def elementwise(x):
    size = np.abs(x)
    return {
        "expm1": np.expm1(x), "log1p": np.log1p(size), "logaddexp": np.logaddexp(x, 1), "exp2": np.exp2(x),
        "log2": np.log2(size + 1), "log10": np.log10(size + 1), "hypot": np.hypot(x, 2), "square": np.square(x),
        "cbrt": np.cbrt(x), "reciprocal": np.reciprocal(size + 1.0), "float_power": np.float_power(size, 2),
        "fabs": np.fabs(x), "tan": np.tan(x), "arcsinh": np.arcsinh(x), "deg2rad": np.deg2rad(x),
        "degrees": np.degrees(x), "sinc": np.sinc(x), "fmax": np.fmax(x, 0), "fmin": np.fmin(x, 1),
        "heaviside": np.heaviside(x, 0.5), "conj": x.conj(), "polyval": np.polyval([1, 2, 3], x),
    }


def rounding(x):
    return {
        "floor": np.floor(x), "ceil": np.ceil(x), "rint": np.rint(x), "trunc": np.trunc(x), "fix": np.fix(x),
        "round": np.round(x), "round2": np.round(x, 2), "method": x.round(decimals=1), "sign": np.sign(x),
        "nan_to_num": np.nan_to_num(x), "float32": np.float32(x), "int": x.astype(np.int64),
    }


def truth(x):
    low, high = x.min(axis=0), x.max(axis=1, keepdims=True)
    return {
        "isnan": np.isnan(x), "isinf": np.isinf(x), "isfinite": np.isfinite(x), "isposinf": np.isposinf(x),
        "isneginf": np.isneginf(x), "isclose": np.isclose(x, 1.0), "algebra": (x > 0) & ~(x < 1) | (x == low) ^ (x > 2),
        "xor": np.logical_xor(x > 0, x > 1), "any": np.any(x > 2, axis=0), "all": np.all(x > -9, axis=1),
        "reduce": np.bitwise_or.reduce(x > 2, axis=1), "sum": ((x > 0) & (x < 2)).sum(axis=1), "mean": (x > 0).mean(),
        "count": np.count_nonzero(x), "counts": np.count_nonzero(x, axis=1, keepdims=True),
        "clip": np.clip(x, low / 2, high / 2), "above": np.clip(x, None, 1), "below": x.clip(min=0),
        "select": np.select([x > 1, x > 0], [x, 2 * x], -1),
    }


def reductions(x):
    w = np.abs(x) + 1
    average, total = np.average(x, axis=0, weights=w, returned=True)
    return {
        "average": np.average(x, axis=1), "weighted": np.average(x, axis=1, weights=w), "returned": (average, total),
        "along": np.average(x, axis=0, weights=w[:, 0]), "ptp": np.ptp(x, axis=0), "kept": np.ptp(x, -1, keepdims=True),
        "amax": np.amax(x, axis=0), "amin": np.amin(x), "start": x.max(initial=0), "trace": np.trace(x @ x.T),
        "cov": np.cov(x), "covariance": np.cov(x, rowvar=False, bias=True), "corrcoef": np.corrcoef(x),
        "diag": np.diag(x @ x.T), "nansum": np.nansum(x, axis=0), "nanmean": np.nanmean(x),
        "nanmax": np.nanmax(x, axis=1),
    }


def norms(x):
    norm = np.linalg.norm
    return {
        "all": norm(x), "1": norm(x, 1, axis=1), "2": norm(x, 2, axis=0, keepdims=True), "inf": norm(x, np.inf, axis=0),
        "-inf": norm(x, -np.inf, axis=0), "0": norm(x, 0, axis=1), "3": norm(x, 3, axis=1), "fro": norm(x, "fro"),
        "axes": norm(x, axis=(0, 1)), "matrix 1": norm(x, 1), "matrix inf": norm(x, np.inf, keepdims=True),
        "vector": np.linalg.vector_norm(x, axis=1), "matrix": np.linalg.matrix_norm(x),
    }


def products(x):
    return {
        "vecdot": np.vecdot(x, x), "axis": np.linalg.vecdot(x, x[:, :1], axis=0) if x.shape[1] == 1 else
        np.linalg.vecdot(x, x, axis=0), "tensordot": np.tensordot(x, x, axes=([0], [0])),
        "one": np.tensordot(x.T, x, 1), "matmul": np.linalg.matmul(x.T, x), "outer": np.linalg.outer(x[0], x[1]),
        "chain": np.linalg.multi_dot([x.T, x, x.T]), "lists": np.einsum(x, [0, 1], x, [0, 2], [1, 2]),
        "vector": x[:, 0] @ x, "vdot": np.vdot(x, x), "diagonal": np.linalg.diagonal(x @ x.T), "matrix": np.diag(x[0]),
        "sums": np.add.outer(x[0], x[1]), "grid": np.meshgrid(x[0], x[:, 1])[0],
        "apart": np.meshgrid(np.arange(x.shape[0]), x[0], indexing="ij", sparse=True)[0],
    }


GROUPS = (elementwise, rounding, truth, reductions, norms, products)
VALUES = np.random.default_rng(0).normal(size=(5, 6)) * 3
ARGUMENTS = {
    "float32": VALUES.astype("float32"), "float64": VALUES, "int64": np.rint(VALUES).astype("int64"),
    "int32": np.rint(VALUES).astype("int32"),
}


def leaves(result):
    """Arrays by the path to them."""
    for name, value in result.items():
        for i, array in enumerate(value if isinstance(value, tuple) else (value,)):
            yield f"{name} {i}", array


def compare(fn, x, rtol):
    wanted = dict(leaves(fn(x)))
    for name, found in leaves(rf.fuse(fn)(x)):
        assert (np.shape(found), found.dtype) == (np.shape(wanted[name]), wanted[name].dtype), name
        np.testing.assert_allclose(found, wanted[name], rtol=rtol, atol=rtol, err_msg=name)


@pytest.mark.parametrize("dtype", ARGUMENTS)
@pytest.mark.parametrize("group", GROUPS)
def test_as_numpy(group, dtype):
    compare(group, ARGUMENTS[dtype], 2e-5 if dtype == "float32" else 1e-11)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_not_a_number_and_infinities():
    x = VALUES.copy()
    x[0, 0], x[1, 1], x[2, 2], x[3, 3] = 0, np.nan, np.inf, -np.inf
    compare(truth, x, 1e-13)
    compare(lambda x: {"fmax": np.fmax(x, 0), "heaviside": np.heaviside(x, 1), "round": np.round(x, 2),
                       "cbrt": np.cbrt(x), "nan_to_num": np.nan_to_num(x), "arcsinh": np.arcsinh(x)}, x, 1e-13)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_products_of_integers_and_vectors(dtype):
    """A product reads integers from copies."""
    x = (VALUES > 0).astype(dtype)
    for v in (np.arange(5), np.arange(5.0), np.arange(5, dtype="float32")):
        found, wanted = rf.fuse(lambda x, v: (v @ x, np.exp(-v) @ x))(x, v), (v @ x, np.exp(-v) @ x)
        for f, w in zip(found, wanted, strict=True):
            assert f.dtype == w.dtype
            np.testing.assert_allclose(f, w, rtol=1e-6)


def test_functions_classes_and_dtypes_are_part_of_the_program():
    def layer(x, activation=np.tanh, reduction=np.mean, dtype=np.float64):
        return reduction(activation(x.astype(dtype)), axis=1)

    f = rf.fuse(layer)
    for args in ((), (np.exp,), (np.exp, np.max), (lambda t: np.maximum(t, 0),), (np.exp, np.sum, np.dtype("float32"))):
        np.testing.assert_allclose(f(VALUES, *args), layer(VALUES, *args), rtol=1e-6)


def test_a_number_that_a_reshape_needs_becomes_static_by_itself():
    def heads(x, count=3):
        n, d = x.shape
        return x.reshape(n, count, d // count).max(axis=2)

    f = rf.fuse(heads)
    for count in (3, 2):
        np.testing.assert_array_equal(f(VALUES, count), heads(VALUES, count))


INTEGER_DIVISIONS = {
    "by a maximum": lambda x: x // x.max(-1, keepdims=True),
    "sum of quotients": lambda x: (x // x.max(-1, keepdims=True)).sum(-1),
    "sum of remainders": lambda x: (x % x.min(-1, keepdims=True)).sum(-1),
    "of results": lambda x: (x.max(-1) // x.min(-1), x.sum(-1) % x.shape[1]),
    "about a whole mean": lambda x: (x - x.sum(-1, keepdims=True) // x.shape[1]).max(-1),
}


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("name", INTEGER_DIVISIONS)
def test_division_of_integers_by_results(name, dtype):
    """Rounds down on both sides of 0, and gives 0 where the divisor is 0."""
    fn = INTEGER_DIVISIONS[name]
    fused = rf.fuse(fn)
    for n in (1, 3, 17, 40):
        x = np.random.default_rng(n).integers(-9, 10, (6, n)).astype(dtype)
        x[1], x[2], x[3], x[4] = 0, np.minimum(x[2], 0), np.maximum(x[3], 0), -1 - np.abs(x[4])
        with np.errstate(all="ignore"):
            wanted = fn(x)
        found = fused(x)
        for f, w in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True):
            assert f.dtype == w.dtype
            np.testing.assert_array_equal(f, w)
    assert check_fusion(fn, rf.spec((3, "n"), dtype), trials=4, thorough=False)


SPREADS = {
    "some rows": lambda x: x.std(axis=1, ddof=1, where=x > 0),
    "fewer than ddof": lambda x: x.var(axis=1, ddof=3),
    "a fraction": lambda x: x.var(0, ddof=1.5),
    "of all": lambda x: x.var(ddof=4),
    "covariance": lambda x: np.cov(x, ddof=3),
    "correlation": lambda x: np.corrcoef(x[:, :1]),
    "a dimension of 1": lambda x: x[:, :1].var(1, ddof=2),
    "not NaN": lambda x: np.nanvar(x, axis=1, ddof=2),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SPREADS)
def test_ddof_beyond_the_count(name, dtype):
    """NumPy divides by max(n - ddof, 0)."""
    x = np.array([[-1.0, -2.0], [1.0, 3.0]], dtype)
    with np.errstate(all="ignore"):
        wanted = SPREADS[name](x)
    got = rf.fuse(SPREADS[name])(x)
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_ddof_of_nothing_and_as_an_argument():
    assert np.isnan(rf.fuse(lambda x: x.std(1, ddof=1))(np.ones((5, 0)))).all()
    f = rf.fuse(lambda x, removed: x.var(1, ddof=removed))
    np.testing.assert_array_equal([f(np.array([[1.0, 3.0]]), k)[0] for k in (0, 1, 2, 3)], [1, 2, np.inf, np.inf])


@pytest.mark.parametrize("fn", [lambda x: x.var(1, ddof=1), lambda x: x.std(1, ddof=1, where=x > 0),
                                lambda x: np.cov(x), lambda x: np.nanvar(x, 1, ddof=1)])
def test_ddof_leaves_one_pass(fn):
    assert rf.fuse(fn, require="one-pass").explain(rf.spec((4, "n"), "float64")).passes == 1


INTEGER_DTYPES = {
    "own": lambda x: x.sum(1, dtype=x.dtype),
    "narrow": lambda x: x.sum(0, dtype=np.int8),
    "unsigned": lambda x: np.sum(x, 1, dtype=np.uint8, keepdims=True),
    "used": lambda x: np.add.reduce(x, 1, dtype="int16") * 3,
    "product": lambda x: (x % 4).prod(0, dtype=np.int8),
    "truth": lambda x: (x % 4).prod(1, dtype=bool),
    "start": lambda x: x.sum(1, dtype=np.int16, initial=7, where=x > 3),
    "mean": lambda x: x.mean(1, dtype=np.int32),
    "converted elements": lambda x: (x.astype(np.int8).sum(1), x.astype(np.uint8).max(0)),
    "wider": lambda x: (x.astype(np.int64) * 70000).astype(np.int32).sum(1),
    "converted reals": lambda x: (x * 2.5).astype(np.int16).astype(np.int8).sum(1),
}


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "float32"])
@pytest.mark.parametrize("name", INTEGER_DTYPES)
def test_integers_wrap_around_in_the_dtype_asked_for(name, dtype):
    fn = INTEGER_DTYPES[name]
    x = np.random.default_rng(1).integers(0, 120, (9, 37)).astype(dtype)
    if name in ("product", "truth") and dtype == "float32":
        return  # % is of integers
    found, wanted = rf.fuse(fn)(x), fn(x)
    for f, w in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True):
        assert f.dtype == w.dtype
        np.testing.assert_array_equal(f, w)


def test_the_contract_converts_to_integers():
    """A kernel that adds what it should truncate is refuted."""
    assert check_fusion(lambda x: x.astype(np.int32).sum(-1), rf.spec((3, "n"), "float32"), trials=3)
    term = rf.fuse(lambda x: x.astype(np.int8).sum(-1)).lower(rf.spec((2, "n"), "float32")).term
    exact = run_term(term, {"x": np.array([[1.75, 2.75, 300.0]] * 2, np.float32)}, np.longdouble)
    assert [v.tolist() for v in exact.values()] == [[1 + 2 + 44] * 2]


def test_divmod():
    def parts(x):
        quotient, rest = divmod(x, 7)
        back, left = divmod(100, x)
        whole, odd = np.divmod(x, x.shape[0])
        rows, columns = divmod(x.size, 4)
        return quotient, rest, back, left, whole, odd, x * rows + columns

    x = np.arange(-9, 10)
    with np.errstate(all="ignore"):
        wanted = parts(x)
    for f, w in zip(rf.fuse(parts)(x), wanted, strict=True):
        assert f.dtype == w.dtype
        np.testing.assert_array_equal(f, w)


def test_round_of_numbers():
    def numbers(x):
        top = round(float(x.max()), 1)
        return round(float(x.sum()), 2), round(x.mean(), 1), round(x.mean()), x * top, round(len(x))

    x = VALUES[0]
    for f, w in zip(rf.fuse(numbers)(x), numbers(x), strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-12)
        assert isinstance(f, int) == isinstance(w, int)
    with pytest.raises(rf.errors.TraceError, match=r"use np\.round\(x, decimals\)"):
        rf.fuse(lambda x: round(x, 1))(x)


def into_arrays(x):
    total, spread, top, gap, kept = (np.zeros(x.shape[1]) for _ in range(5))
    np.sum(x, axis=0, out=total)
    x.std(axis=0, ddof=1, out=spread)
    np.max(x, 0, out=top)
    np.ptp(x, axis=0, out=gap)
    np.nanstd(x, 0, None, kept)
    middle = np.empty(x.shape[0])
    x.mean(axis=1, out=middle)
    return total * 2, spread, top, gap, kept, middle


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_reductions_into_arrays_made_in_the_function():
    for f, w in zip(rf.fuse(into_arrays)(VALUES), into_arrays(VALUES), strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-12)
    outside = np.zeros(6)
    with pytest.raises(rf.errors.TraceError, match="of an array from outside cannot be recorded"):
        rf.fuse(lambda x: np.sum(x, axis=0, out=outside))(VALUES)
    with pytest.raises(rf.errors.ShapeError, match="out= has shape"):
        rf.fuse(lambda x: np.sum(x, axis=0, out=np.zeros_like(x)))(VALUES)


def test_parts_and_rows():
    def parts(x):
        first, *_, last = np.unstack(x, axis=1)
        return x.imag + x.real, np.imag(x).sum(), first * last, np.signbit(x), np.copysign(x, last[:, None])

    for f, w in zip(rf.fuse(parts)(VALUES), parts(VALUES), strict=True):
        np.testing.assert_array_equal(f, w)
