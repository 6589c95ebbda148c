"""Rewrite rules as data (mapped by the build to the top-level folder `rules`; see pyproject.toml).

Each module of this package is one group of laws; `default` joins all exact groups. A rule of your own is a function
(`rule`), a set of them joins the default set by `+`, and `check_rule` samples the equation it states.
"""

if __name__ != "redfuser.rules":
    raise ImportError("import redfuser.rules, not the bare folder name rules")

from collections.abc import Iterable

from redfuser.rules import (
    bounds,
    counting,
    distributivity,
    exponential,
    extrema,
    identity,
    logarithm,
    logic,
    masks,
    order,
    powers,
    products,
    requantize,
    telescoping,
    trigonometry,
)
from redfuser.rules.check import Check, check_rule
from redfuser.rules.language import Fact, Law, Rule, RuleSet, fact, rule, ruleset

online = ruleset("online", telescoping.RULES)
"""The update step; without it no correction can be found."""

_MODULES: dict[str, Iterable[Law]] = {
    "identity": identity.RULES, "distributivity": distributivity.RULES, "counting": counting.RULES,
    "exponential": exponential.RULES, "logarithm": logarithm.RULES, "powers": powers.RULES,
    "trigonometry": trigonometry.RULES, "extrema": extrema.RULES, "order": order.RULES, "logic": logic.RULES,
    "products": products.RULES, "masks": masks.RULES, "bounds": bounds.RULES, "online": telescoping.RULES,
}

GROUPS: dict[str, RuleSet] = {name: ruleset(name, laws) for name, laws in _MODULES.items()}
"""Group name -> its exact laws."""

APPROXIMATE: dict[str, RuleSet] = {"requantize": ruleset("requantize", requantize.RULES)}
"""Group name -> approximate laws, used only when allowed by name."""

default = ruleset("default", [law for group in GROUPS.values() for law in group])
"""All exact laws."""

__all__ = ["APPROXIMATE", "GROUPS", "Check", "Fact", "Rule", "RuleSet", "check_rule", "default", "fact", "online",
           "rule", "ruleset"]
