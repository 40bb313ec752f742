"""One rank's memory on a CUDA device, without vLLM: experts of random bytes that are known, moved in layer by layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vamp.memory.addresses import Addresses
from vamp.memory.drivers.cuda import CudaDriver
from vamp.memory.geometry import MIB, ExpertGeometry, KvGeometry, PoolPlan
from vamp.memory.region import Region
from vamp.memory.remapper import Remapper
from vamp.memory.spans import SpanLayout
from vamp.staging.cuda.copier import CudaCopier
from vamp.staging.cuda.routed import CudaRouted
from vamp.staging.cuda.whole_region import CudaWholeRegion

KV = KvGeometry(page_bytes=557_056, n_tensors=3, block_tok=544)
"""Qwen3-Next-80B, one of two ranks, but 3 of its 12 tensors: a block is no whole number of pages."""
SMALL = PoolPlan(ExpertGeometry(n_layers=5, n_shards=20, tensor_bytes=(2 * MIB, MIB)), KV, base_blk=20, limit_groups=14)
RAGGED = PoolPlan(
    # Shards that fill no whole number of pages, in groups of 8.
    ExpertGeometry(n_layers=4, n_shards=19, tensor_bytes=(3 * MIB // 2, 3 * MIB // 4)),
    KV,
    base_blk=20,
    limit_groups=5,
)


def wide(n_offloaded: int = 76) -> PoolPlan:
    """Layers as wide as Qwen3-Next-80B's on one of two ranks: 512 experts of 3 MiB; one resident layer and two more."""
    experts = ExpertGeometry(n_layers=3, n_shards=512, tensor_bytes=(2 * MIB, MIB))
    return PoolPlan(experts, KV, base_blk=100, limit_groups=experts.eligible_layers * n_offloaded // 2)


@dataclass
class Rig:
    driver: CudaDriver
    remapper: Remapper
    copier: CudaCopier
    routed: CudaRouted
    whole: CudaWholeRegion

    def weights(self, layer: int, tensor: int) -> torch.Tensor:
        """All shards of a weight tensor where kernels read them, as (shards, 8-byte words)."""
        region = self.remapper.addresses.expert(layer, tensor)
        n = self.remapper.layout.plan.experts.n_shards
        return self.driver.tensor(region, torch.int64, (n, region.nbytes // n // 8))

    def expected(self, layer: int, tensor: int) -> torch.Tensor:
        return random_weights(self.remapper.layout.plan, layer, tensor)

    def shards_right(self, layer: int, shards: list[int]) -> bool:
        """Whether kernels read these shards of the layer as they were at the start."""
        return all(
            torch.equal(self.weights(layer, t)[shards], self.expected(layer, t)[shards])
            for t in range(len(self.remapper.layout.plan.experts.tensor_bytes))
        )

    def kv(self, tensor: int, n_blk: int) -> torch.Tensor:
        """The first blocks of a KV tensor, as bytes."""
        region = self.remapper.addresses.kv(tensor)
        nbytes = n_blk * self.remapper.layout.plan.kv.page_bytes
        return self.driver.tensor(Region(region.address, nbytes), torch.uint8, (nbytes,))

    def remap(self, n_groups: int) -> None:
        """As a worker does: wait for the stream, move, bring experts back, follow."""
        self.copier.wait()
        for shards in self.remapper.remap(n_groups):
            self.copier.restore(shards)
        self.routed.follow_boundary()

    def close(self) -> None:
        torch.cuda.synchronize()
        self.remapper.close()
        self.copier.close()


def build(plan: PoolPlan, device: int = 0) -> Rig:
    torch.cuda.set_device(device)
    driver = CudaDriver(plan.experts.page_bytes, device)
    copier = CudaCopier(SpanLayout(plan), device)

    def move_in(addresses: Addresses, layer: int) -> None:
        for tensor in range(len(plan.experts.tensor_bytes)):
            region, weights = addresses.expert(layer, tensor), random_weights(plan, layer, tensor)
            driver.tensor(region, torch.int64, tuple(weights.shape)).copy_(weights)
            copier.take(layer, tensor, region)

    remapper = Remapper(plan, driver, move_in=move_in)
    copier.addresses = remapper.addresses
    copier.wait()
    routed = CudaRouted(remapper, copier, device)
    return Rig(driver, remapper, copier, routed, CudaWholeRegion(remapper, copier, routed, device))


def random_weights(plan: PoolPlan, layer: int, tensor: int) -> torch.Tensor:
    """The same for the same arguments, different in every layer and tensor."""
    generator = torch.Generator("cuda").manual_seed(100 * layer + tensor)
    shape = (plan.experts.n_shards, plan.experts.tensor_bytes[tensor] // 8)
    return torch.randint(-(2**62), 2**62, shape, generator=generator, device="cuda", dtype=torch.int64)
