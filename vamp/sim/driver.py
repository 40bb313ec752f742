"""The loop: arrivals in, steps through the real scheduler, virtual time forward, records out.

With asynchronous scheduling two steps are in flight, as in vLLM's `step_with_batch_queue`: a step is scheduled while
the one before it runs, so its result, and arrivals meanwhile, are seen one step late.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import vamp.sim.quiet  # noqa: F401  # isort: skip
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput

from vamp.config import StagingMode
from vamp.errors import RunError
from vamp.measure.records import CUT, RequestRecord, TimelinePoint
from vamp.sim.arrivals import Source
from vamp.sim.clock import VirtualClock
from vamp.sim.engine import MakeRequest
from vamp.sim.step_time import StepLoad, StepTimeModel

SAMPLE_EVERY_STEPS = 10
EMPTY_STEP_S = 2e-3  # an engine step without tokens: the scheduler runs, the workers do not
MAX_EMPTY_STEPS = 10_000
FILLER_TOK = 3


@dataclass(slots=True)
class Live:
    """A request under way."""

    record: RequestRecord
    who: int
    reply: list[int]


@dataclass(slots=True)
class InFlight:
    """A step that was scheduled; `samples` says which of `ids` produce a token."""

    output: SchedulerOutput
    ids: list[str]
    samples: list[bool]
    end_s: float


class Driver:
    """One simulated run. `run` returns when every session is over or the time limit is reached."""

    def __init__(
        self,
        scheduler: Scheduler,
        make_request: MakeRequest,
        clock: VirtualClock,
        arrivals: Source,
        model: StepTimeModel,
        *,
        staging: StagingMode,
        in_flight: int,
        remap_us_per_page: float,
        remap_ms: float,
        noise_sd: float,
        seed: int,
        max_virtual_s: float,
        fixed_time: bool,
    ) -> None:
        self.scheduler, self.make_request, self.clock = scheduler, make_request, clock
        self.arrivals, self.model, self.staging = arrivals, model, staging
        self.depth, self.max_virtual_s = in_flight, max_virtual_s
        self.remap_us_per_page, self.remap_ms = remap_us_per_page, remap_ms
        self.fixed_time = fixed_time
        self.controller = getattr(scheduler, "vamp", None)
        self.pool = scheduler.kv_cache_manager.block_pool
        self.live: dict[str, Live] = {}
        self.records: list[RequestRecord] = []
        self.timeline: list[TimelinePoint] = []
        self.preemption_s: list[float] = []
        self.steps = self.queries_tok = self.hits_tok = self.output_tok = 0
        self.compute_s = self.exposed_s = self.remap_s = self.group_steps = 0.0
        self._queue: deque[InFlight] = deque()
        self._device_free_s = 0.0
        self._noise = self._noise_factors(noise_sd, seed)
        self._groups = self._empty = self._step_tok = 0

    @staticmethod
    def _noise_factors(sd: float, seed: int) -> Iterator[float]:
        rng = random.Random(seed)
        while True:
            yield rng.lognormvariate(0.0, sd) if sd else 1.0

    def run(self, on_turn: Callable[[int], None] | None = None) -> None:
        """Raises: RunError if the scheduler makes no progress although requests wait."""
        scheduler = self.scheduler
        while self.arrivals or self._queue or scheduler.has_requests():
            if self.clock.now_s() > self.max_virtual_s:
                self._give_up(CUT if self.fixed_time else f"still running after {self.max_virtual_s:g} virtual seconds")
                break
            self._admit()
            if len(self._queue) < self.depth and scheduler.has_requests() and self._schedule():
                continue
            if self._queue:
                self._finish(self._queue.popleft(), on_turn)
            elif self.arrivals and not scheduler.has_requests():
                self.clock.advance_to(self.arrivals.next_s)
        self._sample()  # the counters as they ended, whatever the sampling

    def _admit(self) -> None:
        now_s = self.clock.now_s()
        while self.arrivals and self.arrivals.next_s <= now_s:
            at_s, session_id, who, turn, asked, prompt, reply = self.arrivals.pop()
            request_id = f"{session_id}/{turn}"
            record = RequestRecord(session_id, turn, asked.prompt_tok, asked.output_tok, at_s, now_s)
            self.records.append(record)
            self.live[request_id] = Live(record, who, reply.tolist())
            self.scheduler.add_request(self.make_request(request_id, prompt.tolist(), asked.output_tok))

    def _schedule(self) -> bool:
        """Schedule one step. True if more may be scheduled before a result is awaited."""
        output = self.scheduler.schedule()
        now_s = self.clock.now_s()
        for request_id in output.preempted_req_ids or ():
            self.live[request_id].record.n_preemptions += 1
            self.preemption_s.append(now_s)
        ids = list(output.num_scheduled_tokens)
        if not ids:
            return self._empty_step(output)
        self._empty = 0
        requests = self.scheduler.requests
        samples: list[bool] = []
        prefill = decode = context = pairs = 0
        for request_id, n_tok in output.num_scheduled_tokens.items():
            request = requests[request_id]
            samples.append(not request.is_prefill_chunk)
            context += request.num_computed_tokens
            if n_tok == 1:
                decode += 1
            else:
                prefill += n_tok
                pairs += n_tok * (request.num_computed_tokens - n_tok // 2)  # computed counts this step's tokens
            record = self.live[request_id].record
            if record.scheduled_s is None:
                record.scheduled_s = now_s
        self._step_tok = prefill + decode
        end_s = self._execute(StepLoad(prefill, decode, context, pairs))
        self._queue.append(InFlight(output, ids, samples, end_s))
        return len(self._queue) < self.depth

    def _execute(self, load: StepLoad) -> float:
        """When the step just scheduled will be done."""
        remap_s = 0.0
        if self.controller and self.controller.groups != self._groups:
            pages = abs(self.controller.groups - self._groups) * self.model.experts.pages_per_group
            remap_s = self.remap_ms * 1e-3 + pages * self.remap_us_per_page * 1e-6
            self._groups = self.controller.groups
        time = self.model.step(load, self._groups, self.staging)
        factor = next(self._noise)
        self.steps += 1
        self.compute_s += time.compute_s * factor
        self.exposed_s += time.exposed_staging_s * factor
        self.remap_s += remap_s
        self.group_steps += self._groups
        start_s = max(self._device_free_s, self.clock.now_s()) + remap_s
        self._device_free_s = start_s + time.total_s * factor
        if time.launch_s:
            self._launch(time.launch_s * factor, start_s if remap_s else self.clock.now_s())
        return self._device_free_s

    def _launch(self, launch_s: float, from_s: float) -> None:
        """The scheduler shares a thread with what launches kernels (one GPU: vLLM's uniprocess executor): results
        of the step before are seen only after it, and pages are remapped before it, once the device is idle."""
        self.clock.advance_to(from_s + launch_s)
        self._device_free_s = max(self._device_free_s, self.clock.now_s())

    def _empty_step(self, output: SchedulerOutput) -> bool:
        """Nothing could be scheduled now: wait for a result, or let a little time pass."""
        if self._queue:
            return False
        self._empty += 1
        if self._empty > MAX_EMPTY_STEPS:
            waiting = len(self.scheduler.waiting)
            raise RunError(
                f"no step scheduled anything {MAX_EMPTY_STEPS} times in a row at {self.clock.now_s():.1f} s "
                f"({waiting} requests wait, {self.pool.get_num_free_blocks()}/{self.pool.num_gpu_blocks} blocks free)"
            )
        self._update(output, [], [])
        self.clock.advance_to(self.clock.now_s() + EMPTY_STEP_S)
        return False

    def _finish(self, step: InFlight, on_turn: Callable[[int], None] | None) -> None:
        self.clock.advance_to(step.end_s)
        requests = self.scheduler.requests
        tokens: list[list[int]] = []
        for request_id, sampled in zip(step.ids, step.samples, strict=True):
            request = requests.get(request_id)
            if not sampled or request is None:
                tokens.append([])
                continue
            reply, n = self.live[request_id].reply, request.num_output_tokens
            tokens.append([reply[n] if n < len(reply) else FILLER_TOK])
        done = self._update(step.output, step.ids, tokens)
        if self.steps % SAMPLE_EVERY_STEPS == 0:
            self._sample()
        if done and on_turn:
            on_turn(done)

    def _update(self, output: SchedulerOutput, ids: list[str], tokens: list[list[int]]) -> int:
        """Give the step's result to the scheduler and read what it reports. Number of turns completed."""
        result = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={r: n for n, r in enumerate(ids)},
            sampled_token_ids=tokens,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        done = 0
        for reported in self.scheduler.update_from_output(output, result).values():
            stats = reported.scheduler_stats
            if stats is not None and stats.prefix_cache_stats is not None:
                self.queries_tok += stats.prefix_cache_stats.queries
                self.hits_tok += stats.prefix_cache_stats.hits
            for item in reported.outputs:
                done += self._note(item)
        return done

    def _note(self, item: Any) -> bool:
        now_s = self.clock.now_s()
        live = self.live[item.request_id]
        record = live.record
        self.output_tok += len(item.new_token_ids)
        if item.new_token_ids and record.first_token_s is None:
            record.first_token_s = now_s
        if item.prefill_stats is not None:
            record.cached_tok = item.prefill_stats.num_cached_tokens
        if item.finish_reason is None:
            return False
        record.finish_s = now_s
        del self.live[item.request_id]
        self.arrivals.completed(live.who, record.turn, now_s)
        return True

    def _sample(self) -> None:
        free_blk = self.pool.get_num_free_blocks()
        self.timeline.append(
            TimelinePoint(
                t_s=self.clock.now_s(),
                step=self.steps,
                running=len(self.scheduler.running),
                waiting=len(self.scheduler.waiting),
                pool_blk=self.pool.num_gpu_blocks,
                free_blk=free_blk,
                uncached_free_blk=self.controller.pool.uncached_free_blk if self.controller else -1,
                groups_offloaded=self._groups,
                queries_tok=self.queries_tok,
                hits_tok=self.hits_tok,
                preemptions=len(self.preemption_s),
                output_tok=self.output_tok,
                compute_s=self.compute_s,
                exposed_staging_s=self.exposed_s,
                step_tok=self._step_tok,
            )
        )

    def _give_up(self, why: str) -> None:
        for live in self.live.values():
            live.record.error = why
