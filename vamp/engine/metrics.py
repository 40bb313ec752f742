"""VAMP's metrics, on the server's own /metrics beside vLLM's.

The engine core and the front end are different processes, so values travel through the directory that
`PROMETHEUS_MULTIPROC_DIR` names: `vamp serve` sets it, others may. Without it they are counted and not shown.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from vamp.policy.plan import Plan


class SchedulerMetrics:
    """Counted by the controller, one per engine.

    Attributes:
        registry: its own, since a process may build several engines.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        blocks = Gauge(
            "vamp_kv_blocks",
            "KV blocks in the pool: at start (base) and from expert pages (added).",
            ["kind"],
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self._base, self._added = blocks.labels("base"), blocks.labels("added")
        self._groups = Gauge(
            "vamp_offloaded_groups",
            "Expert groups whose pages are KV cache now.",
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        decisions = Counter(
            "vamp_decisions", "Allocation gaps by the plan that covered them.", ["plan"], registry=registry
        )
        self._decisions = {plan: decisions.labels(plan.value) for plan in Plan}
        self._deferred = decisions.labels("none")
        remaps = Counter("vamp_remaps", "Remaps over all ranks by how they ended.", ["result"], registry=registry)
        self._committed, self._failed = remaps.labels("committed"), remaps.labels("failed")
        self._remap_s = Counter("vamp_remap_seconds", "Time the scheduler waited for remaps.", registry=registry)

    def pool(self, base_blk: int, now_blk: int, n_groups: int) -> None:
        self._base.set(base_blk)
        self._added.set(now_blk - base_blk)
        self._groups.set(n_groups)

    def decided(self, plan: Plan | None) -> None:
        (self._deferred if plan is None else self._decisions[plan]).inc()

    def remapped(self, committed: bool, took_s: float) -> None:
        (self._committed if committed else self._failed).inc()
        self._remap_s.inc(took_s)
