"""What counts as the same call: static values, scalars, array kinds; and copies of a fused function."""

import copy
import pickle

import numpy as np
import pytest

import redfuser as rf


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
