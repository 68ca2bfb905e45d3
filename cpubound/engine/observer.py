"""Time the parts of decode steps through llama.cpp's eval callback. Child process only.

llama.cpp asks ``cb_eval`` at every operator whether it is to be looked at. If so it computes
the graph up to there, waits for all threads and calls again
(``ggml_backend_sched_compute_splits``, ggml/src/ggml-backend.cpp, commit 0c1e57098bba). The
clock runs from the last question before a piece to the call after it, so that asking costs
nothing; what starting and ending a piece costs is in it, once for each look.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence

import llama_cpp.llama_cpp as llama

from cpubound.engine.context import Context, open_context
from cpubound.engine.graph import COMPUTE, WEIGHTS, GraphReader, GraphTensor, root_of
from cpubound.engine.library import Log, ggml_library
from cpubound.engine.parts import Node, Segment, every_operator, find_segments
from cpubound.engine.values import PartTimes, RunSettings
from cpubound.errors import MachineError
from cpubound.llama_facts import N_UBATCH
from cpubound.setting import Setting


class PartObserver:
    """Learns the operators of a step, then times its segments in the steps that follow."""

    def __init__(self) -> None:
        self._reader = GraphReader(ggml_library())
        self._nodes: list[Node] = []
        self._places: dict[int, int] = {}
        self._ends: list[int | None] = []  # at each operator the segment that ends there
        self._segments_ns: list[int] = []
        self._is_learning = self._is_timing = False
        self._place = self._started_ns = self._resumed_ns = self._asking_ns = 0

    @property
    def nodes(self) -> Sequence[Node]:
        """The operators of the step that was learnt, in the order of computation."""
        return self._nodes

    def observe(self, address: int, ask: bool, _user_data: object) -> bool:
        """Take one call of ``cb_eval``."""
        if self._is_timing:
            return self._ask() if ask else self._look()
        if self._is_learning and ask:
            self._learn(address)
        return not ask

    def learn(self) -> None:
        """Note the operators of the next step."""
        self._nodes, self._places = [], {}
        self._is_learning, self._is_timing = True, False

    def rest(self) -> None:
        """Let steps run without a look."""
        self._is_learning = self._is_timing = False

    def start(self, segments: Sequence[Segment]) -> None:
        """Time these segments in the next step."""
        ends: list[int | None] = [None] * len(self._nodes)
        for number, segment in enumerate(segments):
            ends[segment.last] = number
        self._ends = ends
        self._segments_ns = [0] * len(segments)
        self._place = self._asking_ns = 0
        self._resumed_ns = time.perf_counter_ns()
        self._is_learning, self._is_timing = False, True

    def stop(self) -> tuple[list[int], int] | None:
        """Return nanoseconds of each segment, and of asking; None for another graph."""
        self._is_timing = False
        if self._place != len(self._ends):
            return None
        return self._segments_ns, self._asking_ns

    def _ask(self) -> bool:
        place = self._place
        self._place = place + 1
        if place == 0:
            self._resumed_ns = time.perf_counter_ns()
        if place >= len(self._ends) or self._ends[place] is None:
            return False
        self._started_ns = time.perf_counter_ns()
        self._asking_ns += self._started_ns - self._resumed_ns
        return True

    def _look(self) -> bool:
        self._resumed_ns = time.perf_counter_ns()
        number = self._ends[self._place - 1]
        if number is not None:
            self._segments_ns[number] += self._resumed_ns - self._started_ns
        return True

    def _learn(self, address: int) -> None:
        node = GraphTensor.from_address(address)
        self._places[address] = len(self._nodes)
        sources = [GraphTensor.from_address(source) for source in node.sources if source]
        uses = [self._reader.use(source) for source in sources]
        weights = [source for source, use in zip(sources, uses, strict=True) if use == WEIGHTS]
        caches = [
            tensor
            for tensor, use in zip((*sources, node), (*uses, self._reader.use(node)), strict=True)
            if use not in (WEIGHTS, COMPUTE)
        ]
        self._nodes.append(
            Node(
                operator=self._reader.operator(node),
                sources=tuple(self._places[a] for a in node.sources if a in self._places),
                weight=root_of(weights[0]).name.decode() if weights else None,
                cache=root_of(caches[0]).name.decode() if caches else None,
            )
        )


class ObservedContext:
    """A context whose steps can be looked into."""

    def __init__(self, model: object, setting: Setting, log: Log, vocabulary_size: int) -> None:
        self._observer = PartObserver()
        callback = llama.ggml_backend_sched_eval_callback(self._observer.observe)
        self._context: Context = open_context(
            model,
            setting,
            log,
            vocabulary_size=vocabulary_size,
            n_batch=N_UBATCH,
            callback=callback,
        )

    def free(self) -> None:
        """Give the context's memory back."""
        self._context.free()

    def time_parts(self, settings: RunSettings, *, by_operator: bool) -> PartTimes:
        """Decode as ``Session.run`` does and time the parts of every step.

        Raises ``MachineError`` if no step had the operators of the warm-up step.
        """
        context, observer, depth = self._context, self._observer, settings.setting.depth_tokens
        context.set_threads(settings.setting.threads)
        randomness = random.Random(depth * 1000003 + settings.tokens)
        observer.rest()
        context.set_depth(depth, randomness, False)
        # A recurrent state is cleared in its first step: the second is as all that follow.
        context.decode_steps(depth, 1, randomness)
        observer.learn()
        context.decode_steps(depth + 1, 1, randomness)
        segments = find_segments(observer.nodes)
        if by_operator:
            segments = every_operator(observer.nodes, segments)
        observer.rest()
        context.set_depth(depth, randomness, False)
        steps = []
        for place in range(depth, depth + settings.tokens):
            observer.start(segments)
            (whole_ns,) = context.decode_steps(place, 1, randomness)
            seen = observer.stop()
            if seen is not None:
                steps.append((whole_ns, *seen))
        if not steps:
            raise MachineError(
                "llama.cpp's graph changes from token to token: its parts cannot be timed"
            )
        return _sum_up(segments, steps)


def _sum_up(segments: Sequence[Segment], steps: Sequence[tuple[int, list[int], int]]) -> PartTimes:
    """Sum the segments of each step by part."""
    seconds: dict[str, list[float]] = {segment.part: [] for segment in segments}
    outside = []
    for whole_ns, segments_ns, asking_ns in steps:
        sums: Counter[str] = Counter()
        for segment, time_ns in zip(segments, segments_ns, strict=True):
            sums[segment.part] += time_ns
        for part, samples in seconds.items():
            samples.append(sums[part] / 1e9)
        outside.append((whole_ns - asking_ns - sum(segments_ns)) / 1e9)
    return PartTimes(
        looks=dict(Counter(segment.part for segment in segments)),
        seconds={part: tuple(samples) for part, samples in seconds.items()},
        outside_s=tuple(outside),
    )
