"""The machine and its operating system: what differs between Linux, macOS and Windows.

| name                             | what it does                                                  |
|----------------------------------|---------------------------------------------------------------|
| `usable_cores`                   | counts the CPUs that this process may use                     |
| `default_threads`                | counts the threads of a model: one for each physical core     |
| `read_cpu`                       | names the CPU, counts its cores and lists its caches          |
| `total_memory`, `available_memory` | count bytes of memory, within a container's limit           |
| `lock_memory`, `lock_advice`     | keep a range in memory; say why that may fail                 |
| `choose_pages`, `CHOOSES_PAGES`  | ask for huge or for small pages; whether one may choose       |
| `lower_priority`                 | lets other threads go before this one                         |
| `open_file`                      | opens a file that may be renamed and removed while it is open |
| `NO_WAIT`, `NO_FOLLOW`           | flags of `open_file`                                          |
| `open_direct`                    | opens a file to read it past the page cache                   |
| `read_at`                        | reads at an offset, in any thread                             |
| `copy_range`                     | appends a part of a file to another one without reading it    |
| `lock_file`                      | locks a file for one process                                  |
| `sync_file`, `sync_folder`, `set_permissions` | do what the file system can                      |
| `link_file`                      | gives a file a second name                                    |
| `caches_under`                   | finds the folder for caches in a home folder                  |
| `allow_open_files`               | raises the limit of open files                                |
| `new_group`, `end_group`         | start a process with a group of its own, and end the group    |
| `END_SIGNALS`                    | the signals that ask a process to end                         |
| `claim_address`                  | reserves the address of a listening socket                    |

Mapping files into memory is in `native/system`. Free disk space and the width of a terminal are
the same on all systems in Python's `shutil`.

Five files elsewhere have branches for systems; `tests/systems` finds any other. Two are scripts
that import nothing of Ingot: `sampling/grammar/trial_main.py` and `server/page/pdf_reader.py`.
`sampling/grammar/trial_process.py` runs the first one and reads how it ended, which differs without
forks. Two have no other branch than Linux's: `ray/cores.py` pins replicas to cores, and
`cli/doctor/machine_facts.py` reads /proc and /sys. What both share with `linux` is in
`control_groups` and `cpu_topology`, which find nothing on other systems.
"""

import sys

from ingot.machine.cpu import Cache, Cpu

if sys.platform == "win32":
    from ingot.machine.windows import (
        CHOOSES_PAGES,
        END_SIGNALS,
        NO_FOLLOW,
        NO_WAIT,
        allow_open_files,
        available_memory,
        caches_under,
        choose_pages,
        claim_address,
        copy_range,
        default_threads,
        end_group,
        link_file,
        lock_advice,
        lock_file,
        lock_memory,
        lower_priority,
        new_group,
        open_direct,
        open_file,
        read_at,
        read_cpu,
        set_permissions,
        sync_file,
        sync_folder,
        total_memory,
        usable_cores,
    )
else:
    from ingot.machine.posix import (
        END_SIGNALS,
        NO_FOLLOW,
        NO_WAIT,
        allow_open_files,
        claim_address,
        copy_range,
        end_group,
        link_file,
        lock_advice,
        lock_file,
        lock_memory,
        new_group,
        open_file,
        read_at,
        set_permissions,
        sync_file,
        sync_folder,
        total_memory,
    )

    if sys.platform == "darwin":
        from ingot.machine.macos import (
            CHOOSES_PAGES,
            available_memory,
            caches_under,
            choose_pages,
            default_threads,
            lower_priority,
            open_direct,
            read_cpu,
            usable_cores,
        )
    else:
        from ingot.machine.linux import (
            CHOOSES_PAGES,
            available_memory,
            caches_under,
            choose_pages,
            default_threads,
            lower_priority,
            open_direct,
            usable_cores,
        )
        from ingot.machine.linux_cpu import read_cpu

__all__ = [
    "CHOOSES_PAGES",
    "END_SIGNALS",
    "NO_FOLLOW",
    "NO_WAIT",
    "Cache",
    "Cpu",
    "allow_open_files",
    "available_memory",
    "caches_under",
    "choose_pages",
    "claim_address",
    "copy_range",
    "default_threads",
    "end_group",
    "link_file",
    "lock_advice",
    "lock_file",
    "lock_memory",
    "lower_priority",
    "new_group",
    "open_direct",
    "open_file",
    "read_at",
    "read_cpu",
    "set_permissions",
    "sync_file",
    "sync_folder",
    "total_memory",
    "usable_cores",
]
