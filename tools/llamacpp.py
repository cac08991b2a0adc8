"""llama.cpp beside this library: ``python tools/llamacpp.py`` makes an environment for it, ``.venv-llama``, once.

``llama-cpp-python`` is built from source by pip (a C++ compiler; measured: 5 minutes on one core). Nothing here depends
on it: ``python3 run.py bench llama_cpp`` compares where the environment is there. The second half of this file runs in
that environment alone (``worker``), so that its numpy and its libraries never meet ours.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "llama-cpp-python==0.3.36"
# Compiled for this very processor, as its users would; no OpenMP, since one thread is what is compared.
CMAKE_ARGS = "-DGGML_NATIVE=ON -DGGML_OPENMP=OFF -DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF"
ENVIRONMENT = ROOT / ".venv-llama"
PYTHON = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
FTYPES = {"f32": 0, "q4_0": 2, "q8_0": 7}  # llama.cpp's numbers for whole files
GGML_Q8_0 = 8  # llama.cpp's number for a tensor
CONTEXT = 512


class NotThere(Exception):
    """llama.cpp cannot be run; the message says what would help."""


def ready() -> bool:
    """Whether the environment is there and whole."""
    if not PYTHON.exists():
        return False
    return subprocess.run([PYTHON, "-c", "import llama_cpp"], capture_output=True, check=False).returncode == 0


def set_up() -> int:
    """Make the environment unless it is there; return the exit code."""
    if ready():
        print(f"{ENVIRONMENT} is ready: python3 run.py bench llama_cpp")
        return 0
    print(f"Building {PACKAGE} in {ENVIRONMENT}: some minutes, with a C++ compiler.", flush=True)
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    jobs = {"CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", "1")}
    command = [PYTHON, "-m", "pip", "install", "--no-input", PACKAGE]
    code = subprocess.run(command, env=os.environ | {"CMAKE_ARGS": CMAKE_ARGS} | jobs, check=False).returncode
    if code != 0 or not ready():
        print("llamacpp: pip could not build it (its output stands above).", file=sys.stderr)
        return 2
    return 0


def converted(source: Path, format: str) -> Path:
    """The model in ``source`` re-quantised by llama.cpp itself, every matrix alike; made once, beside the source."""
    target = source.with_name(f"{source.name.partition('.')[0]}.{format}.gguf")
    if not target.exists():
        unfinished = target.with_suffix(".unfinished")
        _worker("convert", str(source), str(unfinished), format)
        unfinished.replace(target)
    return target


def decode(model: Path, prompt: Sequence[int], tokens: int, rounds: int) -> dict[str, object]:
    """Greedy decoding on one thread: {"seconds": of each token, by round, "tokens": ids, "bytes": of weights}.

    The prompt's own time is not in it.
    """
    return json.loads(_worker("decode", str(model), json.dumps(list(prompt)), str(tokens), str(rounds)))


def _worker(*arguments: str) -> str:
    if not ready():
        raise NotThere("llama.cpp is not there: build it with `python tools/llamacpp.py` (some minutes).")
    done = subprocess.run(
        [PYTHON, __file__, "worker", *arguments], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        raise NotThere(f"llama.cpp failed: {(done.stderr.strip().splitlines() or ['it says nothing'])[-1]}")
    return done.stdout


# ---- from here on: inside the environment


def convert(source: str, target: str, format: str) -> None:
    """Write ``source`` in another format. The head of a q4_0 file is q8_0, as it is in ours."""
    import llama_cpp

    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread = FTYPES[format], 1
    parameters.allow_requantize, parameters.pure = True, True
    if format == "q4_0":
        parameters.token_embedding_type = parameters.output_tensor_type = GGML_Q8_0
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), parameters) != 0:
        sys.exit("llama_model_quantize failed")


def decode_here(path: str, prompt: list[int], tokens: int, rounds: int) -> dict[str, object]:
    """What ``decode`` says."""
    import llama_cpp
    import numpy as np

    model = llama_cpp.Llama(model_path=path, n_ctx=CONTEXT, n_threads=1, n_threads_batch=1, verbose=False)
    seconds, made = [], []
    for _ in range(rounds):
        model.reset()
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(model.ctx), True)
        model.eval(prompt)
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, -1), (model.n_vocab(),))
        made, times = [int(logits.argmax())], [time.perf_counter()]
        for _ in range(tokens):
            one = (llama_cpp.llama_token * 1)(made[-1])
            if llama_cpp.llama_decode(model.ctx, llama_cpp.llama_batch_get_one(one, 1)) != 0:
                sys.exit("llama_decode failed")
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, -1), (model.n_vocab(),))
            made.append(int(logits.argmax()))
            times.append(time.perf_counter())
        seconds.append([after - before for before, after in itertools.pairwise(times)])
    return {"seconds": seconds, "tokens": made, "bytes": llama_cpp.llama_model_size(model.model)}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    match parser.parse_args(arguments).words:
        case []:
            return set_up()
        case ["worker", "convert", source, target, format]:
            convert(source, target, format)
        case ["worker", "decode", path, prompt, tokens, rounds]:
            print(json.dumps(decode_here(path, json.loads(prompt), int(tokens), int(rounds))))
        case other:
            parser.error(f"unexpected: {' '.join(other)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
