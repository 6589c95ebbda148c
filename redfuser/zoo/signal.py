"""Signals and physics: energies, moments about a centre, partition functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.zoo.entry import Family
from redfuser.zoo.rows import low, mean, top, total

FAMILY = Family("signal")


@FAMILY.entry("moment of inertia about the centre of mass, Huygens and Steiner", m="n: positive", r="n c",
              accumulators=3, hard="location mixed", reason="mass, first and second moment of every coordinate")
def moment_of_inertia(m: Any, r: Any) -> Any:
    centre = (m[:, None] * r).sum(axis=0) / m.sum()
    return (m[:, None] * (r - centre) ** 2).sum(axis=0)


@FAMILY.entry("radius of gyration of a planar polymer, Flory 1953", x="i n", y="i n: normal", accumulators=3,
              hard="location mixed", reason="both first moments and one sum of squares")
def gyration_radius(x: Any, y: Any) -> Any:
    return np.sqrt(mean((x - mean(x)) ** 2 + (y - mean(y)) ** 2))


@FAMILY.entry("quadrupole moment about the centre of charge, Jackson", q="i n: positive", x="i n", y="i n: normal",
              accumulators=5, hard="mixed", reason="charge, both first moments, and the two bilinear sums")
def quadrupole(q: Any, x: Any, y: Any) -> Any:
    size = total(q)
    a, b = x - total(q * x) / size, y - total(q * y) / size
    return total(q * a * b), total(q * (a * a - b * b))


@FAMILY.entry("lattice partition function with mean energy and heat capacity, Landau and Lifshitz", e="i n",
              beta=": number", accumulators=4, hard="mixed")
def heat_capacity(e: Any, beta: float) -> Any:
    w = np.exp(-beta * (e - low(e)))
    z = total(w)
    energy = total(w / z * e)
    return z, energy, beta * beta * total(w / z * (e - energy) ** 2)


@FAMILY.entry("third cumulant of the energy in the canonical ensemble", e="i n", accumulators=5, hard="mixed")
def energy_cumulants(e: Any) -> Any:
    w = np.exp(-(e - low(e)))
    p = w / total(w)
    energy = total(p * e)
    return total(p * (e - energy) ** 2), total(p * (e - energy) ** 3)


@FAMILY.entry("magnetisation and its response under Boltzmann weights", e="i n", s="i n: normal", accumulators=5,
              hard="mixed", reason="minimum, partition function, and sums of w s, w e, w s e")
def cross_response(e: Any, s: Any) -> Any:
    w = np.exp(-(e - low(e)))
    p = w / total(w)
    return total(p * (e - total(p * e)) * (s - total(p * s)))


@FAMILY.entry("crest factor of a signal without its offset", x="i n", accumulators=4, hard="location mixed",
              reason="mean, energy, and both extremes")
def crest_factor(x: Any) -> Any:
    c = x - mean(x)
    return top(np.abs(c)) / np.sqrt(mean(c * c))


@FAMILY.entry("energy of a signal without its offset, relative to its peak", x="i n", accumulators=4,
              hard="location mixed")
def energy_to_peak(x: Any) -> Any:
    c = x - mean(x)
    return mean((c / top(np.abs(c))) ** 2)


@FAMILY.entry("Fourier coefficient of a signal without its offset, Goertzel 1958", x="i n", c="n: normal",
              s="n: normal", accumulators=5, hard="location mixed")
def detrended_fourier(x: Any, c: Any, s: Any) -> Any:
    d = x - mean(x)
    return total(d * c), total(d * s)


@FAMILY.entry("signal-to-noise ratio against a known template with fitted gain and offset", x="i n", t="i n: normal",
              accumulators=5, hard="mixed", reason="sums of x, t, x^2, t^2, xt")
def template_snr(x: Any, t: Any) -> Any:
    u = t - mean(t)
    gain = total(x * u) / total(u * u)
    return gain * gain * total(u * u) / total((x - mean(x) - gain * u) ** 2)


@FAMILY.entry("spectral centroid and spread, weights are powers", f="n", p="i n: positive", accumulators=3,
              hard="mixed", reason="also on one frequency axis shared by all spectra")
def spectral_spread(f: Any, p: Any) -> Any:
    centroid = total(p * f) / total(p)
    return centroid, total(p * np.abs(f - centroid) ** 2) / total(p)


@FAMILY.entry("automatic gain control: gain from the mean power, output is the scaled correlation", x="i n",
              h="n: normal", accumulators=2)
def gain_control(x: Any, h: Any) -> Any:
    gain = np.log1p(1.0 / (1e-3 + mean(x * x)))
    return total(gain * x * h)


@FAMILY.entry("posterior mean on a grid: likelihood times prior, normalised, then averaged", x="i n",
              prior="n: positive", v="n: normal", accumulators=4, hard="mixed scores")
def grid_posterior(x: Any, prior: Any, v: Any) -> Any:
    e = np.exp(x - top(x))
    likelihood = e / total(e)
    return total(likelihood * prior / total(likelihood * prior) * v)
