"""A filter on system calls for a learner's process: threads, but no processes, no sockets, no hold on other processes.

Limits that a kernel counts per user (RLIMIT_NPROC) do not bind where the grader is root, so a fork bomb is stopped at
the call itself. The filter is inherited, cannot be taken off, and covers all threads. Linux on x86-64 and ARM64.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

# name: numbers on x86-64 and on ARM64 (None: has no such call); include/uapi/asm-generic/unistd.h and
# arch/x86/entry/syscalls/syscall_64.tbl of the Linux sources.
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # processes
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    # other processes, where no namespace hides them
    "kill": (62, 129), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    # memory that no limit of the process counts
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180),
    # the network, and ways around this filter or out of the sandbox
    "socket": (41, 198), "io_uring_setup": (425, 425), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_by_handle_at": (304, 265),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218),
    # another learner's share of the processors
    "sched_setaffinity": (203, 122),
}  # fmt: skip
CLONE, CLONE3, TGKILL, PRLIMIT = (56, 220), (435, 435), (234, 131), (302, 261)
CLONE_THREAD = 0x10000
X32 = 0x40000000  # x86-64's second numbering of the same calls

ARCHITECTURES = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277)}  # column, AUDIT_ARCH, seccomp(2)

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF: ld abs, jeq, jge, jset, ret
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
PR_SET_NO_NEW_PRIVS, SET_MODE_FILTER, ALL_THREADS = 38, 1, 1


def supported() -> bool:
    """Whether this system's calls are known here."""
    return os.name == "posix" and platform.system() == "Linux" and platform.machine() in ARCHITECTURES


def program(machine: str, process: int) -> bytes:
    """The filter for a kind of machine, in the kernel's form; ``process`` may send signals to its own threads."""
    column, audit, _ = ARCHITECTURES[machine]
    refuse, unknown = ERROR | errno.EPERM, ERROR | errno.ENOSYS
    rows = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, audit), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    if machine == "x86_64":
        rows += [(AT_LEAST, 0, 1, X32), (RETURN, 0, 0, refuse)]
    for numbers in REFUSED.values():
        if numbers[column] is not None:
            rows += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, refuse)]
    # The C library then falls back to clone, whose flags can be seen.
    rows += [(EQUAL, 0, 1, CLONE3[column]), (RETURN, 0, 0, unknown)]
    rows += [(EQUAL, 0, 4, CLONE[column]), (LOAD, 0, 0, FIRST_ARGUMENT), (ANY_BIT, 1, 0, CLONE_THREAD)]
    rows += [(RETURN, 0, 0, refuse), (RETURN, 0, 0, ALLOW)]
    for numbers, own in ((TGKILL, process), (PRLIMIT, 0)):  # signals and limits: for this process alone
        rows += [(EQUAL, 0, 4, numbers[column]), (LOAD, 0, 0, FIRST_ARGUMENT), (EQUAL, 1, 0, own)]
        rows += [(RETURN, 0, 0, refuse), (RETURN, 0, 0, ALLOW)]
    rows += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("<HBBI", *row) for row in rows)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("rows", ctypes.c_char_p))


def install() -> None:
    """Put the filter on this process and all its threads.

    Raises:
        OSError: the kernel does not take it.
    """
    machine = platform.machine()
    rows = program(machine, os.getpid())
    libc = ctypes.CDLL(None, use_errno=True)
    ready = _Program(len(rows) // 8, rows)
    arguments = (ARCHITECTURES[machine][2], SET_MODE_FILTER, ALL_THREADS, ctypes.byref(ready))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.syscall(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"the filter on system calls: {os.strerror(ctypes.get_errno())}")
