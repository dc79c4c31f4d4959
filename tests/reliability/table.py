"""All rows, in the order of the report."""

from __future__ import annotations

from reliability import (
    disk,
    exactness,
    faults,
    large,
    lasting,
    mutants,
    numerics,
    sanitizers,
    schedules,
    together,
)
from reliability.rows import Row

ROWS: tuple[Row, ...] = (
    Row(
        "1",
        "exactness",
        "integer filling: 0 mismatches in >= 2,000 problems x plans, peak <= budget in each; each "
        "axis has to be split in >= 100 per direction",
        exactness.measure,
    ),
    Row(
        "2",
        "tiling invariance",
        "bits of one tile in >= 10,000 plans on direct and on reference",
        schedules.measure_invariance,
    ),
    Row(
        "3",
        "float error",
        "random reals within gamma_n * sum|x||w| + u_out * |y| of float64: 100 %",
        numerics.measure_error,
    ),
    Row(
        "4",
        "NaN and infinity",
        "reach exactly the outputs that read them; beta = 0 never reads",
        numerics.measure_specials,
    ),
    Row(
        "7",
        "n-th allocation fails",
        "every n: once: the right result by a smaller plan; from then on: a documented error",
        faults.measure_memory,
    ),
    Row(
        "8",
        "n-th host allocation fails, short cap",
        "the same, operands in files; caps of it from plenty to 8 KiB: the right result or a "
        "documented error",
        faults.measure_host_memory,
    ),
    Row(
        "9",
        "n-th copy, event, run, create, prepare fails",
        "every n, once and from then on: a documented error or the right result; once: the next "
        "call works",
        faults.measure_calls,
    ),
    Row(
        "10",
        "disk faults",
        "full disk, size limit, EIO at every transfer, short, shrinking, unreadable, closed files, "
        "a pipe, refused threads: a documented error with a text, the context works; short and "
        "interrupted transfers: the right result",
        disk.measure,
    ),
    Row(
        "12",
        "leaks",
        "10,000 create, run, destroy: growth of memory (half the smallest block of the heap each "
        "time would show), descriptors and threads 0",
        lasting.measure_leaks,
    ),
    Row(
        "13",
        "address, undefined behaviour, leaks",
        "0 reports in the whole suite, and with leaks in a C++ client",
        sanitizers.measure_address,
        asked_only=True,
    ),
    Row(
        "14",
        "data races",
        "0 reports, none suppressed, in a C++ client of 8 threads: devices, tile loop, contexts, "
        "files, faults",
        sanitizers.measure_thread,
        asked_only=True,
    ),
    Row(
        "18",
        "2^31",
        "every direction past 2^31 elements: exact, < 90 s, < 12 GiB; 412^3: < 60 s",
        large.measure_large,
    ),
    Row(
        "19",
        "threads",
        "16 threads, own contexts and a shared one, 2 min: exact, no deadlock",
        together.measure_threads,
    ),
    Row(
        "19-hour",
        "threads for long",
        "the same for 1 h",
        together.measure_threads_for_long,
        asked_only=True,
    ),
    Row(
        "20",
        "fork",
        "run, fork, run in the child: works, < 1 s",
        together.measure_forks,
    ),
    Row(
        "23",
        "hazards",
        "0 in 100,000 random schedules under the checker",
        schedules.measure_hazards,
    ),
    Row(
        "24",
        "memory cap",
        "peak <= budget from 64 KiB to all",
        lasting.measure_cap,
    ),
    Row(
        "25",
        "steady state",
        "0 device allocations, 0 prepared in 1,000 calls after warm-up",
        lasting.measure_steady,
    ),
    Row(
        "files",
        "arrays in files",
        "4 GiB in, 4 GiB out, budget auto: exact, RssAnon grows < 1 GiB",
        large.measure_files,
    ),
    Row(
        "mutants",
        "what the tests see",
        f"of {len(mutants.mutants())} small faults in all folders, planted one at a time, the "
        f"suite finds >= {mutants.SHARE:.0%}; the others are explained",
        mutants.measure,
        asked_only=True,
    ),
)


def chosen(keys: str | None) -> list[Row]:
    """The rows that a list like "1,2,7" names; all that run by themselves without one."""
    if not keys:
        return [row for row in ROWS if not row.asked_only]
    known = {row.key: row for row in ROWS}
    wanted = [key.strip() for key in keys.split(",") if key.strip()]
    unknown = [key for key in wanted if key not in known]
    if unknown:
        raise SystemExit(f"no row is called {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[key] for key in wanted]
