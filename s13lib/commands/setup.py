"""Options that describe a modelled step, shared by simulate, sweep, fusion, buckets and report."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields, replace
from pathlib import Path

from s13lib.commands.output import number, whole
from s13lib.errors import InputError, look_up, shortened
from s13lib.simulator import GPU, GPUS, MODELS, PARTS, PRESETS, DTypes, LaunchCosts, ModelShape, SeedLaw, Setup

MOST_CONFIG = 100_000  # characters
COST_OPTIONS = {
    "launch_us": "host time of one launch, µs",
    "latency_us": "from a launch's end to its kernel's earliest start, µs",
    "gap_us": "device time between two eager kernels, µs",
    "graph_base_us": "host time of a replay, µs",
    "graph_node_us": "further host time of a replay for each node, µs",
    "graph_gap_us": "device time between two nodes of a graph, µs",
}


def add_setup_arguments(parser: argparse.ArgumentParser, varying: tuple[str, ...] = ()) -> None:
    """Add the options; ``varying`` names those that the command itself varies and that are left out."""
    group = parser.add_argument_group("the modelled step")

    def option(name: str, **how: object) -> None:
        if name not in varying:
            group.add_argument(f"--{name.replace('_', '-')}", **how)

    option("preset", metavar="NAME", help=f"start from {', '.join(PRESETS)}; other options change it")
    option("model", metavar="NAME", help=f"one of {', '.join(MODELS)}")
    option("gpu", metavar="NAME", help=f"one of {', '.join(GPUS)}")
    option("config", metavar="FILE", help='JSON with a "model" and/or a "gpu" of your own (fields: see docs/cli.md)')
    option("layers", type=whole, metavar="N", help="layers, instead of the model's own")
    option("batch", type=whole, metavar="N", help="sequences that decode together")
    option("context", type=whole, metavar="N", help="tokens of each sequence")
    option("prefill", type=whole, metavar="TOKENS", help="the prefill of a prompt instead of a decode step")
    option("stage", type=whole, metavar="N", help="kernels a layer: 15, 11, 9, 7, 5 or 4")
    option("base_stage", type=whole, metavar="N", help="stage of the eager step that the speed-up compares with")
    option("graph", action="store_true", help="replay a captured graph")
    option("parts", metavar="LIST", help=f"what is counted, separated by commas: {', '.join(PARTS)}")
    for name, text in COST_OPTIONS.items():
        option(name, type=number, metavar="US", help=text)
    option("queue_depth", type=whole, metavar="N", help="launches that may wait before the host has to")
    for name in ("weight_bytes", "activation_bytes", "kv_bytes"):
        option(name, type=number, metavar="N", help="bytes an element")


def setup_from(arguments: argparse.Namespace, default: Setup) -> Setup:
    """The setup that the options describe, starting from ``--preset`` or ``default``."""
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    setup = look_up(PRESETS, given["preset"], "--preset") if "preset" in given else default
    own = _read_config(given["config"]) if "config" in given else {}
    for option, field, table in (("model", "shape", MODELS), ("gpu", "device", GPUS)):
        if option in given:
            if field in own:
                raise InputError(f"--{option} and --config: both name a {option}; give one of the two.")
            own[field] = look_up(table, given[option], f"--{option}")
    for option in ("batch", "context"):
        if "prefill" in given and option in given:
            raise InputError(f"--prefill and --{option}: a prefill has neither batch nor context; give one of the two.")
    setup = replace(setup, **own)
    if isinstance(setup.device, SeedLaw) and "prefill" in given:
        raise InputError("--prefill needs a GPU: the seed's law knows decode steps alone; add --gpu.")
    if "layers" in given:
        setup = replace(setup, shape=replace(setup.shape, layers=given["layers"]))
    direct = {k: given[k] for k in ("batch", "context", "prefill", "stage", "base_stage") if k in given}
    if given.get("graph"):
        direct["graph"] = True
    if "parts" in given:
        direct["parts"] = tuple(given["parts"].split(","))
    costs = {f.name: given[f.name] for f in fields(LaunchCosts) if f.name in given}
    dtypes = {f.name: given[f.name] for f in fields(DTypes) if f.name in given}
    return replace(setup, **direct, costs=replace(setup.costs, **costs), dtypes=replace(setup.dtypes, **dtypes))


def _read_config(path: str) -> dict[str, object]:
    """``{"model": {...}, "gpu": {...}}`` as keyword arguments of ``Setup``."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise InputError(f"--config {path!r} is not a regular file.")
        with Path(path).open(encoding="utf-8-sig") as file:
            text = file.read(MOST_CONFIG + 1)
        if len(text) > MOST_CONFIG:
            raise InputError(f"--config {path!r} is longer than {MOST_CONFIG:,} characters.")
        data = json.loads(text, object_pairs_hook=_without_repeats)
    except OSError as error:
        raise InputError(f"--config {shortened(path)} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"--config {path!r} is not JSON: {str(error)[:80]}.") from error
    kinds = {"model": ("shape", ModelShape), "gpu": ("device", GPU)}
    if not isinstance(data, dict) or not data or not set(data) <= set(kinds):
        raise InputError(f'--config {path!r}: must be a JSON object with "model" and/or "gpu".')
    return {kinds[key][0]: _make(kinds[key][1], value, f"--config {path!r}: {key}") for key, value in data.items()}


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise InputError(f"--config: {shortened(twice)} is given twice.")
    return found


def _make(cls: type, values: object, where: str) -> object:
    known = [f.name for f in fields(cls)]
    if not isinstance(values, dict):
        raise InputError(f"{where}: must be an object with the fields {', '.join(known)}.")
    for name in values:
        look_up(dict.fromkeys(known), name, f"{where}: field")
    for f in fields(cls):
        wanted = {"int": int, "float": (int, float), "str": str}[str(f.type)]
        value = values.get(f.name)
        if f.name in values and (isinstance(value, bool) or not isinstance(value, wanted)):
            kind = {"int": "a whole number", "float": "a number", "str": "a text"}[str(f.type)]
            raise InputError(f"{where}: {f.name} is {shortened(value)}: must be {kind}.")
        if isinstance(value, str) and not value.isprintable():
            raise InputError(f"{where}: {f.name} is {shortened(value)}: must be printable text.")
    try:
        return cls(**values)
    except TypeError as error:  # the message of a missing argument names it
        raise InputError(f"{where}: {str(error).partition('__init__() ')[2] or error}.") from error
