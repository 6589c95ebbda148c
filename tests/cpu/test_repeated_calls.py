"""A call like an earlier one only passes addresses: what it must still notice."""

import gc

import numpy as np
import pytest
from functions import attention, layernorm, logsumexp, softmax

import redfuser as rf
from redfuser.api import fused as fused_module
from redfuser.errors import ShapeError


def data(*shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def twice(fused, *args, **kwargs):
    """The second of two calls, which is a repetition."""
    fused(*args, **kwargs)
    return fused(*args, **kwargs)


def scaled(x, y):
    return (x * y).sum(-1) / np.sqrt((x * x).sum(-1))


def test_other_arrays_of_the_same_likeness():
    fused = rf.fuse(softmax)
    for seed in range(4):
        x = data(7, 33, seed=seed)
        np.testing.assert_allclose(fused(x), softmax(x), rtol=1e-5)
    assert len(fused._known) == 1
    assert fused.stats.kernel_runs == 4


def test_one_array_for_two_arguments_and_then_two_arrays():
    fused = rf.fuse(scaled)
    x, y = data(5, 40), data(5, 40, seed=1)
    np.testing.assert_allclose(twice(fused, x, x), scaled(x, x), rtol=1e-5)
    np.testing.assert_allclose(fused(x, y), scaled(x, y), rtol=1e-4)
    np.testing.assert_allclose(fused(y, x), scaled(y, x), rtol=1e-4)


@pytest.mark.parametrize("view", [
    lambda x: x.T, lambda x: x[::2], lambda x: x[:, ::-1], lambda x: x[:, 1:],
    lambda x: np.broadcast_to(x[:1], x.shape),
    lambda x: x.astype(">f4"), lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view("f4").reshape(x.shape),
    lambda x: x.copy()[:0], lambda x: x.astype("float64"),
])
def test_other_layouts_of_the_same_data(view):
    fused = rf.fuse(logsumexp)
    x = data(12, 12)
    twice(fused, x)
    got = twice(fused, view(x))
    np.testing.assert_allclose(got, logsumexp(view(x).astype("float64")), rtol=1e-5)


def test_results_are_arrays_of_their_own():
    fused = rf.fuse(softmax)
    x = data(6, 20)
    results = [fused(x * k) for k in range(5)]
    gc.collect()
    for k, r in enumerate(results):
        assert r.flags.owndata
        np.testing.assert_allclose(r, softmax(x * k), rtol=1e-5)


def test_output_of_the_caller():
    fused = rf.fuse(softmax)
    x, out = data(6, 20), np.empty((6, 20), np.float32)
    assert twice(fused, x, out=out) is out
    np.testing.assert_allclose(out, softmax(x), rtol=1e-5)
    strided = np.zeros((6, 40), np.float32)
    assert twice(fused, x, out=strided[:, ::2]).base is strided
    np.testing.assert_allclose(strided[:, ::2], softmax(x), rtol=1e-5)
    assert not strided[:, 1::2].any()


def test_output_over_the_input_after_one_beside_it():
    fused = rf.fuse(softmax)
    memory = np.zeros(300, np.float32)
    x, out = memory[:120].reshape(6, 20), np.empty((6, 20), np.float32)
    x[...] = data(6, 20)
    expected = softmax(x)
    twice(fused, x, out=out)
    over = memory[10:130].reshape(6, 20)
    fused(x, out=over)
    np.testing.assert_allclose(over, expected, rtol=1e-5)
    x[...] = data(6, 20)
    fused(x, out=x)
    np.testing.assert_allclose(x, expected, rtol=1e-5)


def test_output_that_must_not_be_written():
    fused = rf.fuse(softmax)
    x, out = data(6, 20), np.empty((6, 20), np.float32)
    twice(fused, x, out=out)
    out.flags.writeable = False
    with pytest.raises(ShapeError, match=r"^out is read-only; pass a writable array, such as np.empty_like\(out\)$"):
        fused(x, out=out)


def test_outputs_over_each_other():
    def two(x):
        m = x.max(-1, keepdims=True)
        e = np.exp(x - m)
        return e, e / e.sum(-1, keepdims=True)

    fused = rf.fuse(two)
    x = data(4, 9)
    a, b = np.empty_like(x), np.empty_like(x)
    twice(fused, x, out=(a, b))
    np.testing.assert_allclose(b, softmax(x), rtol=1e-5)
    with pytest.raises(ShapeError, match="share memory"):
        fused(x, out=(a, a))


def centred(x):
    """Two cascades: both read the argument."""
    return x - x.mean(-1, keepdims=True), x - x.mean(0, keepdims=True)


@pytest.mark.parametrize("target", ["c", "interpret", "cuda-host"])
@pytest.mark.parametrize("over", [
    lambda m, x: (x, np.empty_like(x)), lambda m, x: (np.empty_like(x), x), lambda m, x: (x.T, np.empty_like(x)),
    lambda m, x: (m[3:39].reshape(6, 6), m[40:76].reshape(6, 6)), lambda m, x: (x[::-1], m[36:72].reshape(6, 6).T),
])
def test_output_over_what_a_later_cascade_reads(over, target):
    fused = rf.fuse(centred, target=target)
    given, memory = data(6, 6), np.zeros(80, np.float32)
    x = memory[:36].reshape(6, 6)
    for beside in (False, False, True, False, True):
        x[...] = given
        outs = (np.empty_like(x), np.empty_like(x)) if beside else over(memory, x)
        assert fused(x, out=outs) is outs
        for got, wanted in zip(outs, centred(given), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_output_over_a_captured_array_that_a_later_cascade_reads():
    weight = data(6, 6, seed=1)
    given, kept = data(6, 6), weight.copy()

    def moved(x, w):
        return w - (x * w).mean(-1, keepdims=True), w - (x + w).mean(0, keepdims=True)

    fused, other = rf.fuse(lambda x: moved(x, weight)), np.empty_like(given)
    for _ in range(2):
        weight[...] = kept
        fused(given, out=(weight, other))
        for got, wanted in zip((weight, other), moved(given, kept), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-6)


@pytest.mark.parametrize("target", ["c", "interpret", "cuda-host"])
def test_outputs_of_two_cascades_over_each_other(target):
    fused, x = rf.fuse(centred, target=target), data(6, 6)
    y, memory = np.empty_like(x), np.empty((9, 6), np.float32)
    for _ in range(2):
        for outs in ((y, y), (y, y.T), (memory[:6], memory[3:])):
            with pytest.raises(ShapeError, match=r"outputs '\w+' and '\w+' share memory; pass separate arrays"):
                fused(x, out=outs)
        fused(x, out=(y, np.empty_like(x)))
        np.testing.assert_allclose(y, centred(x)[0], atol=1e-6)


def test_the_interpreter_reads_an_argument_before_an_output_replaces_it():
    fused, x = rf.fuse(lambda x: x.sum(0) - x, target="interpret"), data(6, 6)
    wanted = x.sum(0) - x
    fused(x, out=x.T)
    np.testing.assert_allclose(x.T, wanted, rtol=1e-6)


def test_outputs_of_stages_over_arguments_and_over_each_other():
    def stages(x):
        return x - x.mean(-1, keepdims=True), np.sort(x, axis=0), x.T

    fused, given, y = rf.fuse(stages), data(6, 6), np.empty((6, 6), np.float32)
    for _ in range(2):
        outs = x, _, _ = given.copy(), np.empty_like(given), np.empty_like(given)
        fused(x, out=outs)
        for got, wanted in zip(outs, stages(given), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-6)
        with pytest.raises(ShapeError, match="share memory; pass separate arrays"):
            fused(given, out=(np.empty_like(y), y, y))


def test_captured_arrays_are_read_where_they_lie():
    weight = data(16)

    def weighted(x):
        return (x * weight).sum(-1) / np.sqrt((x * x).sum(-1))

    fused = rf.fuse(weighted)
    x = data(3, 16)
    np.testing.assert_allclose(twice(fused, x), weighted(x), rtol=1e-5)
    weight *= 2
    np.testing.assert_allclose(fused(x), weighted(x), rtol=1e-5)


def test_several_kernels_and_nested_results():
    def both(x, y):
        mean = x.mean(-1, keepdims=True)
        return {"spread": np.abs(x - mean).mean(-1), "all": (softmax(y), y.sum())}

    fused = rf.fuse(both)
    for seed in range(3):
        x, y = data(5, 30, seed=seed), data(4, 30, seed=seed + 9)
        got, expected = fused(x, y), both(x, y)
        np.testing.assert_allclose(got["spread"], expected["spread"], rtol=1e-5)
        np.testing.assert_allclose(got["all"][0], expected["all"][0], rtol=1e-5)
        np.testing.assert_allclose(got["all"][1], expected["all"][1], rtol=1e-4)
        assert type(got["all"][1]) is type(expected["all"][1])


def test_dimensions_of_size_one():
    fused = rf.fuse(layernorm)
    x, w, b = data(3, 1, 8), data(8), data(8, seed=1)
    got = twice(fused, x, w, b)
    assert got.shape == (3, 1, 8)
    np.testing.assert_allclose(got, layernorm(x, w, b), rtol=1e-4, atol=1e-5)
    q = data(2, 1, 4)
    np.testing.assert_allclose(twice(rf.fuse(attention), q, q, q), attention(q, q, q), rtol=1e-4, atol=1e-6)


def test_what_a_name_outside_holds_is_looked_at_each_time():
    scope = {"np": np, "scale": 2.0}
    exec("def f(x):\n    return (x * scale).sum(-1)", scope)
    fused = rf.fuse(scope["f"])
    x = data(3, 5)
    twice(fused, x)
    scope["scale"] = 3.0
    np.testing.assert_allclose(fused(x), 3 * x.sum(-1), rtol=1e-5)


def test_many_layouts_are_forgotten_in_the_end():
    from redfuser.api.program import MOST_LAYOUTS

    fused = rf.fuse(softmax)
    for n in range(1, MOST_LAYOUTS + 20):
        fused(np.ones((2, n + 1), np.float32))
    assert len(fused._known) <= MOST_LAYOUTS
    x = data(2, 5)
    np.testing.assert_allclose(fused(x), softmax(x), rtol=1e-5)


def attending(K):
    """Rows of K, weighted: K is captured."""

    def attend(q):
        s = q @ K.T
        e = np.exp(s - s.max(axis=1, keepdims=True))
        return e @ K / e.sum(axis=1, keepdims=True)

    return attend


def test_out_may_be_an_array_that_the_function_captures():
    rng = np.random.default_rng(3)
    K, q = (rng.standard_normal((40, 8), dtype=np.float32) for _ in range(2))
    fused, wanted, out = rf.fuse(attending(K)), attending(K)(q), np.empty((40, 8), np.float32)
    for _ in range(3):
        fused(q, out=out)
    assert fused(q, out=K) is K
    np.testing.assert_allclose(K, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [16, 200_000])
def test_a_captured_array_may_be_resized(length):
    """In place, so that it is the same object with its elements elsewhere."""
    W, x = np.ones((8, 8), np.float32), np.zeros((3, 8), np.float32)

    def mass(x):
        s = x @ W.T
        return np.exp(s - s.max(axis=1, keepdims=True)).sum(axis=1)

    fused = rf.fuse(mass)
    for _ in range(3):
        np.testing.assert_array_equal(fused(x), 8)
    W.resize((length, 8), refcheck=False)
    W[:] = 1
    for _ in range(3):
        np.testing.assert_array_equal(fused(x), length)


@pytest.mark.parametrize("nothing", [(), []])
def test_an_empty_out_is_an_error_however_often(nothing):
    fused, x = rf.fuse(lambda x: np.exp(x - x.max(axis=1, keepdims=True))), np.ones((2, 3), np.float32)
    for _ in range(3):
        fused(x)
        with pytest.raises(rf.errors.ShapeError, match="out= holds 0 arrays"):
            fused(x, out=nothing)


def test_copies_keep_the_contiguous_dimension():
    """Inputs that overlap an output and outputs that are not aligned go through copies, whatever their layout."""
    q = np.random.default_rng(5).standard_normal((6, 8), dtype=np.float32)
    fused = rf.fuse(lambda q: np.exp(q - q.max(axis=0)) / np.exp(q - q.max(axis=0)).sum(axis=0))
    wanted = fused(q)
    for order in "CF":
        raw = np.zeros(6 * 8 * 4 + 1, np.uint8)[1:].view(np.float32).reshape((6, 8), order=order)
        assert not raw.flags.aligned
        np.testing.assert_array_equal(fused(q, out=raw), wanted)
        both = np.array(q, order=order)
        np.testing.assert_allclose(fused(both, out=both), wanted, rtol=1e-6)


EPSILON = 0.5


def with_a_global(x):
    return x / (np.abs(x).max(-1, keepdims=True) + EPSILON)


def square_or_not(x):
    return (x * x).sum(-1) if x.shape[0] > 4 else x.sum(-1)


def test_a_program_under_conditions_is_found_without_specs(monkeypatch):
    monkeypatch.setitem(globals(), "EPSILON", 0.5)
    fused, sized = rf.fuse(with_a_global), rf.fuse(square_or_not)
    x = data(7, 33)
    for _ in range(2):
        fused(x), fused(x[:3]), sized(x), sized(x[:3])
    monkeypatch.setattr(fused_module, "spec_of", None)
    for part in (x, x[:3], -x):
        np.testing.assert_allclose(fused(part), with_a_global(part), rtol=1e-5)
        np.testing.assert_allclose(sized(part), square_or_not(part), rtol=1e-4, atol=1e-5)


def test_a_program_under_conditions_is_not_found_when_they_fail(monkeypatch):
    fused = rf.fuse(with_a_global)
    x = data(7, 33)
    for value in (0.5, 2.0, 0.5, np.float64(3.0), 2.0, 2):
        monkeypatch.setitem(globals(), "EPSILON", value)
        for _ in range(3):
            np.testing.assert_allclose(fused(x), with_a_global(x), rtol=1e-5)
            assert fused(x).dtype == with_a_global(x).dtype
    sized = rf.fuse(square_or_not)
    for rows in (7, 3, 5, 2, 7, 3):
        np.testing.assert_allclose(twice(sized, x[:rows]), square_or_not(x[:rows]), rtol=1e-4, atol=1e-5)


def test_a_number_among_the_arguments_does_not_slow_a_repetition():
    def shifted(x, by):
        return np.exp(x - x.max(-1, keepdims=True)).sum(-1) + by

    fused = rf.fuse(shifted)
    x = data(7, 33)
    for by in (1.5, -2.0, 1e-3):
        np.testing.assert_allclose(fused(x, by), shifted(x, by), rtol=1e-5)
    for by in (1, 7):
        np.testing.assert_allclose(fused(x, by), shifted(x, by), rtol=1e-5)
    assert fused.stats.kernel_runs == 5
    assert [len(p._replays) for known in fused._programs.values() for p in known] == [1, 1]


LEAST = 1.0


def test_numbers_read_from_outside_are_looked_at_again(monkeypatch):
    def above(x):
        return np.maximum(x, LEAST).sum(axis=1)

    fused, x = rf.fuse(above), data(4, 20)
    for least in (1.0, 1.0, 2.0, 2.0, 1.0, 0.5):
        monkeypatch.setitem(globals(), "LEAST", least)
        np.testing.assert_allclose(fused(x), above(x), rtol=1e-5)
    assert len(fused._known) == 1
