"""The full bard through every bucket of the lesson's list: replay equals eager, whatever changes between steps."""

import random

import pytest
import torch

from s13lib.buckets import preset
from s13lib.device import best_device
from s13lib.graphs import BucketedRunner
from s13lib.model.checkpoints import load_checkpoint
from tests.graphs.test_runner import fill_cache, random_batch

STEPS = 32
STAGES = (15, 11, 9, 7, 5, 4)
SIZES = sorted({n for bucket in preset("seed") for n in (bucket - 1, bucket, bucket + 1) if n >= 1})


@pytest.fixture(scope="module")
def runners():
    """A runner of all thirteen buckets for a few stages; made when first asked for."""
    bard, made = load_checkpoint("bard"), {}

    def runner(stage: int) -> BucketedRunner:
        if stage not in made:
            model = bard.model(stage, best_device(), max_rows=257, blocks=520, block_size=4)
            fill_cache(model)
            made[stage] = BucketedRunner(model, preset("seed"), max_blocks=2, progress=False)
        return made[stage]

    return runner


@pytest.mark.parametrize(("index", "n"), list(enumerate(SIZES)))
def test_32_steps_around_each_bucket(runners, index, n):
    """Contexts stay short, so that 32 steps of 257 rows stay affordable; the two-layer model covers long ones."""
    runner = runners(STAGES[index % len(STAGES)])
    model, rng = runner.model, random.Random(n)
    for _ in range(STEPS):
        batch = random_batch(model, n, rng, longest=8)
        replayed = runner.forward(batch)
        size = runner.layout.pick(n)
        if size is None:
            assert torch.equal(replayed, model.forward(batch))
            continue
        runner.runners[size].launch_eager()
        assert torch.equal(runner.runners[size].logits[:n], replayed)
