"""The filter on system calls, run by a small interpreter: for kinds of processors that the tests do not run on, too."""

import errno
import struct

import pytest

from s13lib.grading import seccomp
from s13lib.grading.seccomp import ALLOW, ARCHITECTURES, CLONE, CLONE3, KILL, PRLIMIT, REFUSED, TGKILL, program

PROCESS = 4711
THREADS = 0x3D0F00  # the flags with which the C library starts a thread
DENIED, UNKNOWN = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS


def decide(rows, machine, number, first=0, audit=None):
    """What the kernel would answer to a call."""
    audit = ARCHITECTURES[machine][1] if audit is None else audit
    data = struct.pack("<IIQQ", number, audit, 0, first)
    place = value = 0
    while True:
        code, if_true, if_false, constant = struct.unpack_from("<HBBI", rows, 8 * place)
        place += 1
        if code == seccomp.LOAD:
            (value,) = struct.unpack_from("<I", data, constant)
        elif code == seccomp.RETURN:
            return constant
        else:
            test = {
                seccomp.EQUAL: value == constant,
                seccomp.AT_LEAST: value >= constant,
                seccomp.ANY_BIT: bool(value & constant),
            }[code]
            place += if_true if test else if_false


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_filter(machine):
    column = ARCHITECTURES[machine][0]
    rows = program(machine, PROCESS)

    def answer(number, first=0):
        return decide(rows, machine, number, first)

    for numbers in REFUSED.values():
        if numbers[column] is not None:
            assert answer(numbers[column]) == DENIED
    named = {numbers[column] for numbers in (*REFUSED.values(), CLONE, CLONE3, TGKILL, PRLIMIT)}
    assert all(answer(number) == ALLOW for number in range(512) if number not in named)
    assert answer(CLONE3[column]) == UNKNOWN
    assert answer(CLONE[column], THREADS) == ALLOW
    assert answer(CLONE[column], 17) == DENIED  # a fork: nothing but the signal for its end
    assert [answer(TGKILL[column], process) for process in (PROCESS, 1)] == [ALLOW, DENIED]
    assert [answer(PRLIMIT[column], process) for process in (0, 1)] == [ALLOW, DENIED]
    assert decide(rows, machine, 1, audit=0x40000003) == KILL  # the calls of 32-bit programs have other numbers


def test_the_second_numbering_of_x86_is_refused():
    rows = program("x86_64", PROCESS)
    assert decide(rows, "x86_64", 0x40000000 | 56, THREADS) == DENIED
