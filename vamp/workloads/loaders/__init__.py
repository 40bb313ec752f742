"""Public recordings as `Trace`s. `data/README.md` says where they come from.

Each loader module has one function `load(source) -> Loaded` and says in its docstring what it takes for
granted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from vamp.errors import TraceError
from vamp.workloads.loaders import azure, bailian, lmcache, mooncake, swe_agent
from vamp.workloads.loaders.detect import Kind, detect
from vamp.workloads.loaders.reading import Loaded, Source, files_below, name_below
from vamp.workloads.trace import Session, Trace

__all__ = ["Kind", "detect", "load_trace"]

LOADERS: dict[Kind, tuple[str, Callable[[Source], Loaded]]] = {
    "lmcache": ("LMCache agent sessions", lmcache.load),
    "swe_agent": ("SWE-agent trajectories", swe_agent.load),
    "mooncake": ("Mooncake requests", mooncake.load),
    "bailian": ("Qwen-Bailian requests", bailian.load),
    "azure": ("Azure LLM requests", azure.load),
}


def load_trace(path: str | Path, limit_turns: int | None = None) -> Trace:
    """Load a file, or every file of a known kind below a folder; `notes["files_skipped"]` counts the others.

    Files are streamed. What stays in memory is the result: lengths, block hashes, and the ids of text, once
    for prompts that extend one another.

    Args:
        limit_turns: reading stops after that many turns, in order of the files' names.

    Raises:
        TraceError: names file, line and field of the first thing that is wrong.
    """
    root = Path(path)
    sessions: list[Session] = []
    counts: Counter[str] = Counter(files=0, files_skipped=0, timestamps_sorted=0)
    labels: dict[str, None] = {}  # in order of appearance
    for file in files_below(root):
        left = None if limit_turns is None else limit_turns - sum(len(s.turns) for s in sessions)
        if left is not None and left <= 0:
            break
        kind = detect(file)
        if kind is None:
            counts["files_skipped"] += 1
            continue
        label, load = LOADERS[kind]
        loaded = load(Source(file, name_below(root, file), counts["files"], left))
        sessions += loaded.sessions
        counts.update(loaded.counts, files=1)
        labels[label] = None
    if not sessions:
        known = ", ".join(label for label, _ in LOADERS.values())
        raise TraceError(f"empty, or no recording of a known kind ({known}); see data/README.md", file=str(root))
    sessions.sort(key=lambda s: s.start_s)
    return Trace(f"{' + '.join(labels)}: {root.resolve().name}", tuple(sessions), notes=dict(counts))
