"""All entries, and those where the derivation is known to disagree with the label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from redfuser.errors import RedfuserError
from redfuser.zoo import attention, losses, norms, numerics, obstacles, order, quantisation, signal, statistics
from redfuser.zoo.entry import Entry

FAMILIES = tuple(m.FAMILY for m in (attention, norms, losses, quantisation, statistics, signal, numerics, order,
                                    obstacles))

ENTRIES: Mapping[str, Entry] = {e.name: e for family in FAMILIES for e in family.entries}
"""Name -> entry, family after family."""

_SQUARES = "squares and products are not expanded where a dependency multiplies an element; the rank is finite"
_POSITIVE = "the elements are not known to be positive: a condition on the input cannot be stated"
_BOUNDED = "a bound by the running extreme is not used to simplify min and max of an element"
_SATURATED = "no rule says that "
_EXTREME = "exhausted rules are no proof, and nothing else shows that no finite state can follow an extreme"
_RANK = "the numeric rank is measured too low for steps and kinks, so the refusal lacks evidence"

KNOWN_WRONG: Mapping[str, str] = {
    "differential_attention": "scores of two products are put into two cascades, one sweep each",
    "unequal_values_attention": "reductions with different vector axes are put into two cascades, one sweep each",
    "brier_score": _SQUARES,
    "chi_square_divergence": _SQUARES,
    "regression_residual": _SQUARES + "; the certificate finds no stream on which every quotient is defined",
    "gain_and_residual": _SQUARES,
    "goodness_of_fit": _SQUARES,
    "template_snr": _SQUARES + "; the certificate finds no stream on which every quotient is defined",
    "sine_squared_about_mean": _SQUARES,
    "theil_index": _POSITIVE,
    "mean_log_deviation": _POSITIVE,
    "g_test": _POSITIVE,
    "scaled_norm_p": _POSITIVE,
    "clipped_absmax_dot": _BOUNDED,
    "excess_over_minimum": _BOUNDED,
    "largest_score": _SATURATED + "max x / f = (max x) / f also where f = 0 on a prefix",
    "largest_squared_deviation": _SATURATED + "the maximum of a convex function is attained at an extreme",
    "peak_to_rms": _SATURATED + "max x / f = (max x) / f also where f = 0 on a prefix",
    "scaled_product": _SATURATED + "a product of quotients moves by a power of their ratio",
    "shifted_likelihood": _SATURATED + "a product of exponentials is the exponential of a sum",
    "any_above_mean": _SATURATED + "some x > d exactly when max x > d",
    "all_within_three_rms": _SATURATED + "all x <= d exactly when max x <= d",
    "largest_product_with_mean": _SATURATED + "the sign of a factor picks max x or min x",
    "ties_of_maximum": "selections by equality with the running extreme have no correction",
    "value_at_maximum": "selections by equality with the running extreme have no correction",
    "width_at_half_maximum": _RANK,
    "near_maximum": _RANK,
    "clipped_scores": _RANK,
    "absolute_residual": _RANK,
    "nearest_to_mean": _EXTREME,
    "largest_residual": _EXTREME,
    "largest_alignment": _EXTREME,
}
"""Name -> why the derivation does not reach the label, which stands. Nothing here may claim too few passes."""


def select(names: Iterable[str] = (), family: str | None = None) -> list[Entry]:
    """The entries asked for by name (all when there are none), of one family when it is given.

    Raises
    ------
    RedfuserError
        for an unknown name or family, with a suggestion.
    """
    if family is not None and family not in {f.name for f in FAMILIES}:
        raise RedfuserError(f"--family {family!r} is unknown; families are {', '.join(f.name for f in FAMILIES)}")
    wanted = list(names)
    for name in wanted:
        if name not in ENTRIES:
            close = get_close_matches(name, ENTRIES, 1)
            raise RedfuserError(f"there is no entry {name!r}" + (f"; did you mean {close[0]}?" if close else ""))
    chosen = [ENTRIES[n] for n in wanted] if wanted else list(ENTRIES.values())
    return [e for e in chosen if family in (None, e.family)]
