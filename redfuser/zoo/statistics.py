"""Moments, tests and indices of a sample; several are defined by way of an earlier statistic of the same sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.frontend import assume
from redfuser.zoo.entry import Family
from redfuser.zoo.rows import low, mean, top, total

FAMILY = Family("statistics")


@FAMILY.entry("variance, coefficient of variation; Welford 1962, Chan et al. 1979", x="i n", accumulators=2,
              hard="location mixed")
def variance(x: Any) -> Any:
    mu = mean(x)
    return mu, mean((x - mu) ** 2)


@FAMILY.entry("skewness, scipy.stats.skew", x="i n", accumulators=3, hard="location mixed")
def skewness(x: Any) -> Any:
    c = x - mean(x)
    return mean(c**3) / mean(c**2) ** 1.5


@FAMILY.entry("kurtosis, scipy.stats.kurtosis", x="i n", accumulators=4, hard="location mixed",
              reason="moving the fourth moment needs the third")
def kurtosis(x: Any) -> Any:
    c = x - mean(x)
    return mean(c**4) / mean(c**2) ** 2


@FAMILY.entry("central moments to order 6, Pebay 2008", x="i n", accumulators=6, hard="mixed")
def six_moments(x: Any) -> Any:
    c = x - mean(x)
    return mean(c**2), mean(c**3), mean(c**4), mean(c**5), mean(c**6)


@FAMILY.entry("skewness by standardised values, textbook definition in three steps", x="i n", accumulators=3,
              hard="mixed")
def standardised_cube(x: Any) -> Any:
    c = x - mean(x)
    return mean((c / np.sqrt(mean(c**2))) ** 3)


@FAMILY.entry("covariance, numpy.cov", x="i n", y="i n: normal", accumulators=3, hard="location mixed")
def covariance(x: Any, y: Any) -> Any:
    return mean((x - mean(x)) * (y - mean(y)))


@FAMILY.entry("correlation, Pearson 1896, scipy.stats.pearsonr", x="i n", y="i n: normal", accumulators=5,
              hard="location mixed")
def pearson(x: Any, y: Any) -> Any:
    a, b = x - mean(x), y - mean(y)
    return total(a * b) / np.sqrt(total(a * a) * total(b * b))


@FAMILY.entry("correlation as the mean product of standard scores", x="i n", y="i n: normal", accumulators=5,
              hard="location mixed")
def mean_product_of_scores(x: Any, y: Any) -> Any:
    a, b = x - mean(x), y - mean(y)
    return mean(a / np.sqrt(mean(a**2)) * (b / np.sqrt(mean(b**2))))


@FAMILY.entry("least squares: slope, intercept and residual sum of squares, Legendre 1805", x="i n",
              y="i n: normal", accumulators=5, hard="mixed")
def regression_residual(x: Any, y: Any) -> Any:
    mx, my = mean(x), mean(y)
    slope = total((x - mx) * (y - my)) / total((x - mx) ** 2)
    return slope, total((y - my - slope * (x - mx)) ** 2)


@FAMILY.entry("regression through the origin: gain and residual energy", x="i n", y="i n", accumulators=3,
              hard="mixed")
def gain_and_residual(x: Any, y: Any) -> Any:
    gain = total(x * y) / total(x * x)
    return gain, total((y - gain * x) ** 2)


@FAMILY.entry("regression through the origin: third moment of the residual", x="i n", y="i n: normal", accumulators=6,
              hard="mixed", reason="sums of y^3, x y^2, x^2 y, x^3 beside those of the gain")
def residual_cube(x: Any, y: Any) -> Any:
    return total((y - total(x * y) / total(x * x) * x) ** 3)


@FAMILY.entry("weighted mean and variance, West 1979", x="i n", w="i n: positive", accumulators=3,
              hard="location mixed")
def weighted_variance(x: Any, w: Any) -> Any:
    size = total(w)
    mu = total(w * x) / size
    return mu, total(w * (x - mu) ** 2) / size


@FAMILY.entry("weighted correlation", x="i n", y="i n: normal", w="i n: positive", accumulators=6,
              hard="location mixed")
def weighted_pearson(x: Any, y: Any, w: Any) -> Any:
    size = total(w)
    a, b = x - total(w * x) / size, y - total(w * y) / size
    return total(w * a * b) / np.sqrt(total(w * a * a) * total(w * b * b))


@FAMILY.entry("Student 1908, paired t statistic", x="i n", y="i n: normal", accumulators=2, hard="mixed")
def paired_t(x: Any, y: Any) -> Any:
    d = x - y
    mu = mean(d)
    return mu / np.sqrt(total((d - mu) ** 2))


@FAMILY.entry("Welch 1947, t statistic of two samples", x="i n", y="i n: normal", accumulators=4, hard="location mixed")
def welch_t(x: Any, y: Any) -> Any:
    mx, my = mean(x), mean(y)
    return (mx - my) / np.sqrt(mean((x - mx) ** 2) + mean((y - my) ** 2))


@FAMILY.entry("co-skewness of two returns, Kraus and Litzenberger 1976", x="i n", y="i n: normal", accumulators=5,
              hard="mixed", reason="sums of x, y, y^2, xy and xy^2 span every shift of (x - a)(y - b)^2")
def coskewness(x: Any, y: Any) -> Any:
    return mean((x - mean(x)) * (y - mean(y)) ** 2)


@FAMILY.entry("effective sample size of importance weights, Kish 1965", x="i n", accumulators=3, hard="mixed scores")
def effective_sample_size(x: Any) -> Any:
    w = np.exp(x - top(x))
    return total(w) ** 2 / total(w * w)


@FAMILY.entry("Renyi 1961, entropy of order 2 of a softmax", x="i n", accumulators=3, hard="mixed scores")
def collision_entropy(x: Any) -> Any:
    e = np.exp(x - top(x))
    return -np.log(total((e / total(e)) ** 2))


@FAMILY.entry("self-normalised importance sampling: estimate and its variance, Owen 2013", x="i n", f="i n: normal",
              accumulators=6, hard="mixed")
def importance_variance(x: Any, f: Any) -> Any:
    e = np.exp(x - top(x))
    w = e / total(e)
    estimate = total(w * f)
    return estimate, total(w**2 * (f - estimate) ** 2)


@FAMILY.entry("Simpson 1949, Herfindahl index: concentration of shares", x="i n: positive", accumulators=2)
def herfindahl(x: Any) -> Any:
    return total((x / total(x)) ** 2)


@FAMILY.entry("entropy of shares whose amounts are given as logarithms", y="i n: normal", accumulators=2)
def share_entropy(y: Any) -> Any:
    x = np.exp(y)
    p = x / total(x)
    return -total(p * np.log(p))


@FAMILY.entry("Theil 1967, inequality index T", x="i n: positive", accumulators=2,
              reason="amounts are positive, so log(x / d) = log x - log d has rank 2")
def theil_index(x: Any) -> Any:
    assume(x > 0)
    r = x / mean(x)
    return mean(r * np.log(r))


@FAMILY.entry("mean logarithmic deviation, Theil 1967", x="i n: positive", accumulators=2,
              reason="amounts are positive, so log(x / d) = log x - log d has rank 2")
def mean_log_deviation(x: Any) -> Any:
    assume(x > 0)
    return mean(np.log(mean(x) / x))


@FAMILY.entry("Pearson 1900, goodness of fit against given probabilities", o="i n: positive", p="i n: positive",
              accumulators=3, reason="(o - Np)^2 / (Np) = o^2 / (Np) - 2 o + Np")
def goodness_of_fit(o: Any, p: Any) -> Any:
    assume(p > 0)
    expected = p * total(o)
    return total((o - expected) ** 2 / expected)


@FAMILY.entry("likelihood-ratio test G against given probabilities", o="i n: positive", p="i n: positive",
              accumulators=2, reason="amounts are positive, so log(x / d) = log x - log d has rank 2")
def g_test(o: Any, p: Any) -> Any:
    assume((o > 0) & (p > 0))
    return 2.0 * total(o * np.log(o / (p * total(o))))


@FAMILY.entry("circular dispersion about the mean, Mardia 1972", x="i n: normal", accumulators=3,
              reason="cos(x - a) = cos x cos a + sin x sin a has rank 2")
def cosine_about_mean(x: Any) -> Any:
    return mean(np.cos(x - mean(x)))


@FAMILY.entry("squared sine of the deviation from the mean, nematic order about the director", x="i n: normal",
              accumulators=3, reason="sin^2 u = (1 - cos 2u) / 2: sums of cos 2x and sin 2x, and the count")
def sine_squared_about_mean(x: Any) -> Any:
    return mean(np.sin(x - mean(x)) ** 2)


@FAMILY.entry("entropic risk relative to the mean, Foellmer and Schied 2002", x="i n: normal", accumulators=2)
def entropic_risk(x: Any) -> Any:
    return np.log(mean(np.exp(x - mean(x))))


@FAMILY.entry("linex loss about the mean, Varian 1975", x="i n: normal", accumulators=2,
              reason="e^u - u - 1 with u = x - mu: the linear part sums to 0")
def linex_loss(x: Any) -> Any:
    u = x - mean(x)
    return mean(np.exp(u) - u - 1.0)


@FAMILY.entry("standard scores: the largest one", x="i n", accumulators=3, hard="location mixed",
              reason="(x - mu) / sd is increasing in x: only max x is needed")
def largest_score(x: Any) -> Any:
    c = x - mean(x)
    return top(c / np.sqrt(mean(c * c)))


@FAMILY.entry("largest squared deviation from the mean, Grubbs 1950", x="i n", accumulators=3, hard="location mixed",
              reason="the extremes of x are enough")
def largest_squared_deviation(x: Any) -> Any:
    return top((x - mean(x)) ** 2)


@FAMILY.entry("total distance from the maximum (regret)", x="i n", accumulators=2, hard="location mixed",
              reason="x <= max x on every prefix, so |x - max x| = max x - x has rank 2")
def regret(x: Any) -> Any:
    return total(np.abs(x - top(x)))


@FAMILY.entry("exceedance over the minimum", x="i n", accumulators=2, hard="location mixed",
              reason="x >= min x on every prefix, so the maximum with 0 never acts")
def excess_over_minimum(x: Any) -> Any:
    return total(np.maximum(x - low(x), 0.0))


@FAMILY.entry("canonical averages at a temperature, weights by way of the free energy, Gibbs 1902", x="i n",
              v="i n: normal", accumulators=4, hard="scores")
def canonical_averages(x: Any, v: Any) -> Any:
    a = x / 0.25
    free = top(a) + np.log(total(np.exp(a - top(a))))
    p = np.exp(a - free)
    return total(p * v), total(p * v * v)


@FAMILY.entry("posterior mean, log-likelihoods with a prior for each row, Bayes 1763", x="i n", b="i: normal",
              v="i n: normal", accumulators=3, hard="scores")
def posterior_mean(x: Any, b: Any, v: Any) -> Any:
    a = x + b[:, None]
    w = np.exp(a - top(a))
    return total(w * v) / total(w)
