"""Nested arguments: the function sees the same structure, errors name the leaf, equal structures share a trace."""

from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import redfuser as rf

RNG = np.random.default_rng(7)
X = RNG.normal(size=(3, 4))


def network(x, params):
    h = x @ params["w"]
    for a, b in params["layers"]:
        h = h * a + b
    return {"mean": h.mean(-1), "ends": (h.max(-1), h.min(-1))}


def parameters(layers=2, width=5):
    return {"w": RNG.normal(size=(4, width)),
            "layers": [(RNG.normal(size=width), 0.5 + i) for i in range(layers)]}


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected, dict):
        assert list(got) == list(expected)
        for k in expected:
            assert_same(got[k], expected[k])
    elif isinstance(expected, (tuple, list)):
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5 if expected.dtype == "float32" else 1e-12)
        assert got.dtype == expected.dtype


def test_a_dict_of_lists_of_tuples():
    f, params = rf.fuse(network), parameters()
    assert_same(f(X, params), network(X, params))


def test_equal_structures_share_a_trace_and_its_kernels():
    f = rf.fuse(network)
    f(X, parameters())
    built = f.stats.compilations, f.stats.derivations
    for params in (parameters(), parameters()):
        assert_same(f(X, params), network(X, params))
    assert (f.stats.compilations, f.stats.derivations) == built
    assert "1 kinds of arguments" in repr(f)
    for params in (parameters(layers=3), parameters(layers=0)):
        assert_same(f(X, params), network(X, params))
    assert "3 kinds of arguments" in repr(f)


class Pair(NamedTuple):
    a: np.ndarray
    scale: float


@dataclass(frozen=True)
class Affine:
    weight: np.ndarray
    bias: np.ndarray | None = None
    mode: str = "sum"

    def apply(self, x):
        h = x * self.weight
        return h if self.bias is None else h + self.bias


W = RNG.normal(size=4)


@pytest.mark.parametrize("argument", [Pair(W, 2.0), Pair(W, 2)])
def test_named_tuples(argument):
    def scaled(x, pair):
        assert isinstance(pair, Pair)
        return (x * pair.a).sum(-1) * pair.scale

    assert_same(rf.fuse(scaled)(X, argument), scaled(X, argument))


@pytest.mark.parametrize("argument", [Affine(W), Affine(W, W + 1), Affine(W, None, "max")])
def test_dataclasses_with_methods_and_static_fields(argument):
    def reduced(x, layer):
        h = layer.apply(x)
        return h.sum(-1) if layer.mode == "sum" else h.max(-1)

    f = rf.fuse(reduced)
    assert_same(f(X, argument), reduced(X, argument))


def test_static_leaves_are_part_of_the_program():
    def reduced(x, layer):
        return layer.apply(x).sum(-1) if layer.mode == "sum" else layer.apply(x).max(-1)

    f = rf.fuse(reduced)
    for layer in (Affine(W), Affine(W, W), Affine(W, None, "max"), Affine(W)):
        assert_same(f(X, layer), reduced(X, layer))
    assert "3 kinds" in repr(f)


@dataclass
class Model:
    weight: np.ndarray
    scale: float = 1.0

    @rf.fuse
    def total(self, x):
        return (x * self.weight).sum(-1) * self.scale


def test_a_fused_method_of_a_dataclass_reads_its_fields_at_every_call():
    model = Model(W, 2.0)
    np.testing.assert_allclose(model.total(X), 2.0 * (X * W).sum(-1))
    model.weight, model.scale = W + 1, 3.0
    np.testing.assert_allclose(model.total(X), 3.0 * (X * (W + 1)).sum(-1))
    assert "1 kinds" in repr(Model.total)


@pytest.mark.parametrize("argument", [OrderedDict(b=W, a=2.0), defaultdict(list, b=W, a=2.0)])
def test_kinds_of_dicts_stay(argument):
    def total(x, d):
        assert type(d) is type(argument)
        assert list(d) == ["b", "a"]
        return (x * d["b"]).sum(-1) * d["a"]

    assert_same(rf.fuse(total)(X, argument), total(X, argument))


def test_the_order_of_keys_is_part_of_the_structure():
    def first(x, d):
        return (x * next(iter(d.values()))).sum(-1)

    f = rf.fuse(first)
    for d in ({"a": W, "b": -W}, {"b": -W, "a": W}):
        assert_same(f(X, d), first(X, d))


def test_numbers_in_structures_are_weak_as_in_numpy():
    def scaled(x, d):
        return x.sum(-1) * d["s"][0]

    x = np.arange(12, dtype="float32").reshape(3, 4)
    f = rf.fuse(scaled)
    for s in (2.0, 3, np.float64(2.0)):
        assert_same(f(x, {"s": [s]}), scaled(x, {"s": [s]}))


def test_a_number_that_decides_the_program_becomes_static():
    def reduced(x, d):
        return x.sum(axis=d["axis"])

    f = rf.fuse(reduced)
    for axis in (0, 1, (0, 1)):
        assert_same(f(X, {"axis": axis}), reduced(X, {"axis": axis}))
    with pytest.raises(TypeError, match=r"argument d\['axis'\].* as a plain Python number"):
        f(X, {"axis": np.int64(0)})


def test_a_list_of_numbers_is_one_array():
    f = rf.fuse(lambda x, w: (x * w).sum(-1))
    np.testing.assert_allclose(f(X, [1, 2, 3, 4]), (X * [1, 2, 3, 4]).sum(-1))
    np.testing.assert_allclose(f([[1.0, 2.0]], (3.0, 4.0)), [11.0])


def test_names_of_leaves_do_not_collide():
    def total(d, d_a):
        return (d["a"] * d["a_"] * d["a "] * d_a).sum()

    arguments = {"a": W, "a_": W + 1, "a ": W + 2}, W + 3
    assert_same(rf.fuse(total)(*arguments), total(*arguments))


def test_results_repeat_the_structure_they_are_made_from():
    def sums(d):
        return {k: (v.sum(), [v.max()]) for k, v in d.items()}

    argument = {"a": X, 3: W}
    assert_same(rf.fuse(sums)(argument), sums(argument))


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"w": np.ones((4, 5), complex)}, rf.errors.DTypeError, r"argument params\['w'\] of network: dtype complex128"),
    ({"w": object()}, rf.errors.DTypeError, r"argument params\['w'\] of network: a object is neither"),
    ({"layers": [(np.ones(5), 1.0), (np.ones(5, "complex64"), 1.0)]}, rf.errors.DTypeError,
     r"argument params\['layers'\]\[1\]\[0\] of network"),
    ({"layers": [(np.ones(5), None)]}, rf.errors.TraceError,
     r"argument params\['layers'\]\[0\]\[1\] of network is None; pass an array"),
])
def test_errors_name_the_leaf(change, error, message):
    with pytest.raises(error, match=message):
        rf.fuse(network)(X, parameters() | change)


def test_a_length_that_does_not_fit_names_the_leaf():
    f = rf.fuse(lambda x, d: (x @ d["w"]).sum(-1))
    with pytest.raises(rf.errors.ShapeError):
        f(X, {"w": np.ones((3, 5))})
    f(X, {"w": np.ones((4, 5))})
    with pytest.raises(rf.errors.ShapeError, match=r"argument d\['w'\] has length 3"):
        f(X, {"w": np.ones((3, 5))})


def test_a_list_that_holds_itself_is_refused():
    endless = [X]
    endless.append(endless)
    with pytest.raises(rf.errors.ArgumentError, match=r"argument 'x' of .* nests more than"):
        rf.fuse(lambda x: x[0].sum())(endless)


def test_specs_as_leaves():
    f = rf.fuse(network)
    params = {"w": rf.spec((4, 5)), "layers": [(rf.spec(5), 0.5), (rf.spec(5), 1.5)]}
    assert f.explain(rf.spec((3, 4)), params).passes == 1
    assert "params_layers_0_0" in str(f.lower(rf.spec((3, 4)), params).term)
    built = f.stats.compilations
    f(X, parameters())
    assert f.stats.compilations == built
    symbolic = {"w": rf.spec(("k", "n")), "layers": [(rf.spec("n"), 0.5)]}
    assert "k" in str(f.lower(rf.spec(("m", "k")), symbolic).term)


def test_out_receives_the_results():
    f, params = rf.fuse(network), parameters()
    outs = [np.empty(3) for _ in range(3)]
    assert f(X, params, out=outs) is outs
    np.testing.assert_allclose(outs[0], network(X, params)["mean"])


def test_testing_refuses_nested_arguments_with_a_remedy():
    from redfuser.testing import check_fusion

    with pytest.raises(rf.errors.ArgumentError, match="wrap a function of nested ones"):
        check_fusion(network, X, parameters())
