"""What counts as the same call: static values, scalars, array kinds; and copies of a fused function."""

import copy
import pickle

import numpy as np
import pytest

import redfuser as rf
from redfuser.errors import ArgumentError, RuleError


def test_equal_static_values_of_different_types_are_different_programs():
    @rf.fuse(static_argnames="k")
    def scaled(x, k):
        return x.sum(-1) * (10.0 if k is True else 1.0)

    x = np.ones((2, 4))
    assert [scaled(x, k)[0] for k in (1, True, 1)] == [4.0, 40.0, 4.0]

    @rf.fuse(static_argnames="k")
    def signed(x, k):
        return x.sum(-1) * np.copysign(1.0, k[0])

    assert [signed(x, k)[0] for k in ((0.0,), (-0.0,))] == [4.0, -4.0]


def test_a_static_value_that_may_change_is_refused_by_name():
    f = rf.fuse(lambda x, axes: x.sum(axis=axes), static_argnames="axes")
    with pytest.raises(TypeError, match=r"argument 'axes' .* static, but a list may change"):
        f(np.ones((2, 3)), [1])


def test_a_keyword_only_parameter_is_not_taken_by_position():
    def scaled(x, *, scale):
        return (x * scale).sum(-1)

    f, x = rf.fuse(scaled), np.ones((2, 3))
    assert f(x, scale=2.0).tolist() == [6.0, 6.0]
    with pytest.raises(TypeError, match="too many positional arguments"):
        f(x, 2.0)


def test_a_parameter_called_out_is_refused():
    def f(x, out):
        return (x * out).sum(-1)

    with pytest.raises(TypeError, match="'out' of f"):
        rf.fuse(f)


@pytest.mark.parametrize("value", [np.ma.masked_array(np.ones((2, 2)), mask=np.eye(2)),
                                   np.ones((2, 2)).view(np.matrix)])
def test_arrays_with_other_arithmetic_are_refused(value):
    with pytest.raises(rf.errors.DTypeError, match="argument 'x'"):
        rf.fuse(lambda x: x.sum(-1))(value)


def test_an_integer_beyond_64_bits_is_refused_by_name():
    with pytest.raises(rf.errors.DTypeError, match=r"argument 's' .* 64 bits"):
        rf.fuse(lambda x, s: (x * s).sum(-1))(np.ones((2, 2)), 2**70)


@rf.fuse
def row_sum(x):
    return x.sum(-1)


def test_a_fused_function_is_pickled_and_copied_like_a_function():
    assert pickle.loads(pickle.dumps(row_sum)) is row_sum
    assert copy.deepcopy(row_sum) is row_sum


def softmax(x, axis=-1, eps=0.0):
    mass = np.exp(x - x.max(axis=axis, keepdims=True))
    return mass / (mass.sum(axis=axis, keepdims=True) + eps)


class Model:
    @rf.fuse
    def total(self, x):
        return x.sum(-1)

    def plain(self, x):
        return x.sum(-1)


X = np.ones((3, 4))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f: f(None), rf.errors.TraceError, "argument 'x' of softmax is None; pass an array"),
        (lambda f: f(X, eps=None), rf.errors.TraceError, "argument 'eps' of softmax is None; pass an array"),
        (lambda f: f(X, eps="a"), rf.errors.TraceError, "argument 'eps' of softmax is 'a'; pass an array"),
        (lambda f: f(X, 1.0), rf.errors.TraceError, "argument 'axis' is 1.0; give an int"),
        (lambda f: f(X, y=3), rf.errors.ArgumentError, r"softmax\(\) has no parameter 'y'; it has x, axis, eps"),
        (lambda f: f(), rf.errors.ArgumentError, "missing a required argument: 'x'; it has x, axis, eps"),
        (lambda f: f([[1.0, 2.0], [3.0]]), rf.errors.ShapeError, "argument 'x' of softmax: a list whose entries"),
        (lambda f: f([X, X]), rf.errors.TraceError, r"'x' of softmax is a list of arrays.* numpy\.stack\(x\)"),
        (lambda f: Model().total(X), rf.errors.DTypeError, r"fuse the bound one: rf\.fuse\(obj\.method\)"),
        (lambda f: rf.fuse(Model), rf.errors.ArgumentError, "Model is a class"),
        (lambda f: rf.fuse(3), rf.errors.ArgumentError, "3 cannot be called"),
        (lambda f: rf.fuse(np.sum), rf.errors.ArgumentError, r"lambda x: np\.sum\(x, axis=1\)"),
        (lambda f: rf.fuse(np.exp), rf.errors.ArgumentError, r"lambda x: np\.exp\(x\)"),
        (lambda f: rf.fuse(sum), rf.errors.ArgumentError, r"wrap it in a function of your own"),
        (lambda f: rf.fuse(softmax, numerics="nope"), rf.errors.SettingError, "numerics='nope' is not one of"),
        (lambda f: rf.spec((3,), "float33"), rf.errors.DTypeError, "'dtype' of rf.spec: 'float33'"),
        (lambda f: rf.spec(None), rf.errors.ArgumentError, "'shape' of rf.spec is None"),
    ],
)
def test_wrong_arguments_are_errors_of_redfuser(call, error, message):
    with pytest.raises(error, match=message):
        call(rf.fuse(softmax))


def test_errors_of_the_function_itself_stay_as_they_are():
    def picky(x, mode="fast"):
        raise TypeError(f"mode {mode} is unknown")

    with pytest.raises(TypeError, match=r"^mode fast is unknown$"):
        rf.fuse(picky)(X)


def test_a_bound_method_can_be_fused():
    assert rf.fuse(Model().plain)(X).tolist() == [4.0, 4.0, 4.0]


def test_a_fused_function_may_be_fused_again():
    f = rf.fuse(softmax, target="interpret", static_argnames="axis")
    assert rf.fuse(f) is f
    again = rf.fuse(f, numerics="reference")
    assert (again.options.target, again.options.numerics) == ("interpret", "reference")
    assert again.static_argnames == ("axis",)
    np.testing.assert_allclose(again(X), softmax(X))


@pytest.mark.parametrize(("variable", "value", "message"), [
    ("REDFUSER_CHECK", "maybe", "REDFUSER_CHECK is 'maybe'; set it to 1, on, .* or 0, off"),
    ("REDFUSER_DERIVATIONS", "nope", "REDFUSER_DERIVATIONS is 'nope'; set it to 1, on, .* or 0, off"),
])
def test_a_setting_without_a_meaning_is_refused(monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)
    with pytest.raises(rf.errors.SettingError, match=message):
        rf.fuse(lambda x: (x * 0.1796875).sum(-1), target="interpret")(X)


def test_allow_takes_a_name_and_refuses_an_unknown_one_at_once():
    assert rf.fuse(softmax, allow="requantize").options.allow == ("requantize",)
    with pytest.raises(rf.errors.RuleError, match="requantize"):
        rf.fuse(softmax, allow="requant")


@pytest.mark.parametrize("rules", ["default", rf.rules.identity, [1], 3])
def test_rules_that_are_no_rule_set(rules):
    with pytest.raises(ArgumentError, match=r"argument 'rules' .* rf\.ruleset"):
        rf.fuse(softmax, rules=rules)
    with pytest.raises(RuleError, match=r"make it a rule set"):
        rf.rules.default + rules
    with pytest.raises(ArgumentError, match="takes a rule"):
        rf.check_rule(rules)


@pytest.mark.parametrize(("fn", "args"), [
    (lambda mask: -mask, (np.ones(3, bool),)),
    (lambda mask: mask - mask, (np.ones(3, bool),)),
    (lambda x: x.sum(axis="rows"), (np.ones(3),)),
    (lambda x, k: x.sum() if k > 0 else x, (np.ones(3), np.array(1.0))),
], ids=["negated", "subtracted", "axis", "branch"])
def test_refusals_have_a_documented_class(fn, args):
    with pytest.raises(rf.errors.TraceError) as caught:
        rf.fuse(fn)(*args)
    assert type(caught.value) is rf.errors.TraceError


def weighted_sum(x, *parts, scale=1.0, **options):
    for part in parts:
        x = x + part
    total = (x * scale).sum(**{k: v for k, v in options.items() if k != "bias"})
    return total + options["bias"] if "bias" in options else total


@pytest.mark.parametrize(("args", "kwargs"), [
    ((), {}), ((np.ones(4),), {}), ((np.ones(4), 2.0), {"scale": 3.0}), ((), {"axis": 0, "keepdims": True}),
    ((1.5,), {"bias": np.arange(4.0), "axis": 0}), ((), {"axis": (0, 1)}), ((), {"bias": 7}),
])
def test_variadic_parameters(args, kwargs):
    x = np.arange(12.0).reshape(3, 4)
    f = rf.fuse(weighted_sum)
    np.testing.assert_allclose(f(x, *args, **kwargs), weighted_sum(x, *args, **kwargs))
    assert f.explain(x, *args, **kwargs).passes == 1


def test_variadic_arguments_are_named_and_compiled_once_per_structure():
    f = rf.fuse(weighted_sum)
    x = np.ones((3, 4))
    for scale in (1.0, 2.0):
        f(x, np.ones(4), bias=scale)
    assert len(f._programs) == 1
    with pytest.raises(rf.errors.DTypeError, match=r"argument options\['bias'\] of weighted_sum"):
        f(x, bias=1j)
    with pytest.raises(rf.errors.DTypeError, match=r"argument parts\[1\] of weighted_sum"):
        f(x, 1.0, x * 1j)


def test_positional_only_parameters_and_functions_among_nested_arguments():
    def scaled(x, k, /, flag=True, *, layers):
        for layer in layers:
            x = layer(x)
        return (x * k).sum() if flag else x

    def drawn(x):
        return np.tanh(x) + np.arange(x.shape[0])

    f = rf.fuse(scaled, static_argnames="flag")
    x = np.arange(5.0)
    for args in ((x, 2.0), (x, 2.0, False)):
        np.testing.assert_allclose(f(*args, layers=[drawn, np.exp]), scaled(*args, layers=[drawn, np.exp]))
