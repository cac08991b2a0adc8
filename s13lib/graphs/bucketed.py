"""BucketedRunner: a captured graph for each of a few batch sizes; real batches are padded up to the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from torch import Tensor

from s13lib.buckets.layout import BucketLayout
from s13lib.errors import InputError, require
from s13lib.graphs.audit import CacheAudit
from s13lib.graphs.padding import padding_named
from s13lib.graphs.runner import GraphRunner, static_inputs
from s13lib.graphs.statistics import EAGER, REPLAYED, Dispatch, dispatch_table
from s13lib.model.batch import DecodeBatch
from s13lib.model.cache import Sequence
from s13lib.model.decoder import DecoderModel
from s13lib.progress import Progress


class BucketedRunner:
    """Decode steps of any batch size through a few captured ones.

    All graphs read one set of static buffers and share one memory pool. They are captured largest first, so that the
    pool holds the largest one's needs and not the sum.

    Args:
        model: whose step is captured.
        buckets: captured batch sizes, a ``BucketLayout`` or whole numbers.
        padding: "scratch" or "skip", which are right, or the teaching bugs "stale" and "naive".
        enforce_eager: pad as usual, but launch kernel by kernel. Try this first when hunting a bug.
        max_blocks: width of the captured block tables; longer sequences run eager.
        audit: checks the writes of each padded step before it runs.
        progress: show a bar while capturing.
    """

    def __init__(
        self,
        model: DecoderModel,
        buckets: BucketLayout | Iterable[int],
        padding: str = "scratch",
        enforce_eager: bool = False,
        max_blocks: int | None = None,
        audit: CacheAudit | None = None,
        progress: bool = True,
    ) -> None:
        self.layout = buckets if isinstance(buckets, BucketLayout) else BucketLayout(buckets)
        if self.layout.top > model.max_rows:
            raise InputError(
                f"bucket {self.layout.top} is above the model's largest batch, {model.max_rows} rows: "
                "leave it out, or make the model with a larger max_rows."
            )
        if audit is not None and audit.cache is not model.cache:
            raise InputError("audit watches another model's cache: make it with CacheAudit(model.cache).")
        self.model, self.enforce_eager = model, enforce_eager
        self.padding, self.audit = padding, audit
        self.inputs = static_inputs(model, self.layout.top, max_blocks)
        self._logits = model.device.empty((self.layout.top, model.config.vocab), name="logits")
        self.runners: dict[int, GraphRunner] = {}
        policy = padding_named(padding)
        pool = None
        with Progress("capturing graphs", len(self.layout), show=progress) as bar:
            for size in sorted(self.layout, reverse=True):
                inputs, logits = self.inputs.first(size), self._logits[:size]
                runner = GraphRunner(model, size, inputs=inputs, logits=logits, pool=pool, padding=policy)
                self.runners[size] = runner
                pool = runner.graph.pool
                bar.update()
        self._pool = pool
        self._dispatches: Counter[Dispatch] = Counter()

    def __repr__(self) -> str:
        how = "launched one by one" if self.enforce_eager else "replayed"
        sizes = ", ".join(map(str, self.layout))
        return (
            f"BucketedRunner(decode: sizes {sizes}, {how}, padding {self.padding}, {self.pool_bytes:,} bytes of pool; "
            f"prefill and batches above {self.layout.top}: eager)"
        )

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool that all graphs share, measured."""
        return self._pool.pool_bytes

    def forward(self, batch: DecodeBatch) -> Tensor:
        """Run one decode step and return its logits, (batch.rows, vocab).

        The batch is padded to the next captured size. Above the largest size, or with a sequence longer than the
        captured block tables, the step runs eager at its exact size. Either way it is counted.

        Raises:
            InputError: an empty batch, more rows than the model takes, or what ``GraphRunner.run`` refuses.
        """
        require(batch.rows >= 1, "rows", batch.rows, "at least 1: an empty batch has nothing to decode")
        size = self.layout.pick(batch.rows)
        if size is None or not self.runners[size].fits(batch):
            logits = self.model.forward(batch)
            self._dispatches[Dispatch(batch.rows, batch.rows, EAGER)] += 1
            return logits
        runner = self.runners[size]
        runner.fill(batch)
        if self.audit is not None:
            self.audit.check(runner.inputs, batch.rows, batch.leases)
        if self.enforce_eager:
            runner.launch_eager()
        else:
            runner.replay()
        self._dispatches[Dispatch(batch.rows, size, EAGER if self.enforce_eager else REPLAYED)] += 1
        return runner.logits[: batch.rows].to("cpu", copy=True)

    def prefill(self, sequence: Sequence, tokens: list[int]) -> Tensor:
        """Feed a prompt. Always eager: prompts have no small set of lengths to capture."""
        return self.model.prefill(sequence, tokens)

    @property
    def dispatches(self) -> Counter[Dispatch]:
        """How often each (real rows, rows computed, path) was taken."""
        return Counter(self._dispatches)

    def statistics(self) -> str:
        """The dispatches as a table in the shape that vLLM logs; ``s13 buckets --traffic`` reads it."""
        return dispatch_table(self._dispatches)
