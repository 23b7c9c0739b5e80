"""The vLLM side of `cargo xtask bench engine`: one decoding cell, once after a warm-up.

`vllm_peer.py INPUT.json` prints a line of JSON. vLLM runs through its Python interface, without a server. Its
processor time is that of all its processes.
"""

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    # vLLM's processes print, also as they end: only the answer goes where it is read.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    task = json.loads(Path(sys.argv[1]).read_text())
    # vLLM reads these when it is imported. It takes whole GiB for its cache.
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
    cores = sorted(os.sched_getaffinity(0))[: task["threads"]]
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
    from vllm import LLM, SamplingParams

    dtype = {"bf16": "bfloat16", "f32": "float32"}[task["dtype"]]
    model = LLM(
        model=task["model"],
        dtype=dtype,
        max_model_len=2048,
        enable_prefix_caching=False,
        enforce_eager=task.get("peer", {}).get("eager", True),
        disable_log_stats=True,
    )

    def replies(start: int, n: int) -> int:
        prompts = [{"prompt_token_ids": ids[start:]} for ids in task["prompts"]]
        params = SamplingParams(temperature=0, max_tokens=n, min_tokens=n, ignore_eos=True, logprobs=0)
        found = model.generate(prompts, params, use_tqdm=False)
        return sum(len(it.outputs[0].token_ids) for it in found)

    replies(1, 8)
    wall, cpu = time.perf_counter(), cpu_seconds()
    n = replies(0, task["new_tokens"])
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    import vllm

    figures = {"wall_s": wall, "cpu_s": cpu, "new_tokens": n, "peak_bytes": peak_bytes(), "vllm": vllm.__version__}
    print(json.dumps(figures), file=answer, flush=True)


def family() -> list:
    """This process and all that it started, directly or not."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue  # it has ended meanwhile
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def cpu_seconds() -> float:
    ticks = 0
    for pid in family():
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_bytes() -> int:
    total = 0
    for pid in family():
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        total += next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    return total


if __name__ == "__main__":
    main()
