"""Confines the processes of a guard: Landlock, a filter of system calls, limits, capabilities.

Of the standard library alone, as the supervisor imports it. Each barrier holds where the kernel has
it; docs/guides/guards.md has the table.

Landlock rules are a list of what is allowed. So what is hidden is left out: each folder above it is
allowed entry by entry.
"""

import ctypes
import errno
import os
import resource
import signal
import stat
import struct
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import chain

LINUX = sys.platform == "linux"
LIBC = ctypes.CDLL(None, use_errno=True)

LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 2**26,
    resource.RLIMIT_NOFILE: 1024,
    resource.RLIMIT_NPROC: 2**13,  # of the user, and not of root: a fork bomb stops there
}
OUTLIVED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the worker alone says when to end
CANNOT_BE_CONFINED = 126  # exit code of shells for a command that is not executable
KILLED_FIRST = b"1000"  # by the kernel, where memory is short

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
MOST_CAPABILITIES = 64

# Landlock: linux/landlock.h. The numbers of its calls are the same on every architecture.
CREATE_RULESET = 444
ADD_RULE = 445
RESTRICT_SELF = 446
PATH_BENEATH = 1
SCOPES = 0b11  # no abstract socket, and no process, outside of the domain is reached
SCOPES_FROM = 6
EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
MAKE_CHAR = 1 << 6
MAKE_BLOCK = 1 << 11
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15
FIRST_RIGHTS = (1 << 13) - 1
LATER_RIGHTS = {
    2: REFER,
    3: TRUNCATE,
    5: IOCTL_DEV,
}  # by the version that brought them
OF_FILES = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
# Other devices hold disks, terminals and the memory that other processes share.
READABLE_DEVICES = ("/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
OF_OWN_FOLDER = (FIRST_RIGHTS | REFER | TRUNCATE) & ~(MAKE_CHAR | MAKE_BLOCK)

# Its version; below 1 where it is missing or forbidden.
LANDLOCK = LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1) if LINUX else 0
RIGHTS = FIRST_RIGHTS | sum(right for since, right in LATER_RIGHTS.items() if since <= LANDLOCK)


def all_but(hidden: Collection[str], path: str = "/") -> Iterator[str]:
    """Yield paths that together hold all there is below a path now, except what is hidden."""
    if path in hidden:
        return
    inside = [each for each in hidden if is_below(each, path)]
    if not inside:
        yield path
        return

    try:
        with os.scandir(path) as entries:
            # What a link leads to is allowed or hidden by its own path.
            paths = [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:  # it may be entered all the same, on the way to what is hidden
        start = len(path.rstrip("/")) + 1
        names = {each[start:].partition("/")[0] for each in inside}
        paths = [os.path.join(path, name) for name in names]

    for below in paths:
        yield from all_but(hidden, below)


def is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


class FileRules:
    """The files that guards may read and write, as a ruleset of Landlock."""

    def __init__(
        self,
        own: str,
        hidden: Collection[str],
        writes: Collection[str],
    ) -> None:
        """Prepare the rules.

        Args:
            own: The folder in which guards may do everything.
            hidden: Folders of which guards may see the names of files, and nothing else.
            writes: Further files and folders in which guards may do everything.
        """
        self._own = own
        self._hidden = [*map(os.path.realpath, hidden), "/dev"]
        self._writes = [os.path.realpath(path) for path in writes]
        self._folders = sorted(set(chain.from_iterable(map(_above, self._hidden))))
        self._times: list[int] = []
        self._ruleset: int | None = None

    def ruleset(self) -> int | None:
        """Return a descriptor of the rules as the files are now; None without Landlock.

        Raises:
            OSError: A path of `writes` is not there.
        """
        if LANDLOCK < 1:
            return None
        times = [_changed_ns(folder) for folder in self._folders]
        if self._ruleset is None or times != self._times:  # an entry was added or replaced
            made = self._made()
            if self._ruleset is not None:
                os.close(self._ruleset)
            self._ruleset = made
            self._times = times

        return self._ruleset

    def _made(self) -> int:
        ruleset = _new_ruleset(RIGHTS)
        try:
            _allow(ruleset, "/", READ_DIR)
            for path in (*all_but(self._hidden), *READABLE_DEVICES):
                with suppress(OSError):  # it is gone since it was listed, or closed to this user
                    _allow(ruleset, path, READ_FILE | EXECUTE)
            _allow(ruleset, self._own, OF_OWN_FOLDER)
            _allow(ruleset, "/dev/null", OF_FILES)
            for folder in self._writes:
                for path in all_but(self._hidden, folder):
                    _allow(ruleset, path, OF_OWN_FOLDER | IOCTL_DEV)
        except BaseException:
            os.close(ruleset)
            raise

        return ruleset


def _above(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _changed_ns(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _new_ruleset(rights: int) -> int:
    scopes = SCOPES if LANDLOCK >= SCOPES_FROM else 0
    attributes = struct.pack("=QQQ", rights, 0, scopes)
    ruleset: int = LIBC.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise _error("Landlock")
    return ruleset


def _allow(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= OF_FILES
        attributes = struct.pack("=Qi", rights & RIGHTS, descriptor)
        if LIBC.syscall(ADD_RULE, ruleset, PATH_BENEATH, attributes, 0) < 0:
            raise _error(path)
    finally:
        os.close(descriptor)


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)


# The filter of system calls: linux/seccomp.h, linux/filter.h and the tables of calls.
LOAD = 0x20
IF_EQUAL = 0x15
IF_AT_LEAST = 0x35
RETURN = 0x06
PLACE_OF_NUMBER = 0
PLACE_OF_ARCHITECTURE = 4
PLACE_OF_ARGUMENTS = 16
ALLOW = 0x7FFF0000
ANSWER = 0x00050000
SET_MODE_FILTER = 1
GET_ACTION_AVAILABLE = 2
WITHOUT_MITIGATION = 1 << 2  # of speculation, which would slow guards down before Linux 5.16
OTHER_NUMBERS = 0x40000000  # calls of the x32 architecture begin there
F_SETLEASE = 1024
# Requests of ioctl(2): FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY and
# FS_IOC_SET_ENCRYPTION_POLICY.
ATTRIBUTES_OF_FILES = (0x40086602, 0x401C5820, 0x40806685, 0x800C6613)

# Calls that change other processes of the user, or leave behind memory that no limit counts, and
# `io_uring`, which makes calls that no filter sees.
REFUSED = """
    shmget 29 194       shmat 30 196          shmctl 31 195
    semget 64 190       semop 65 193          semctl 66 191            semtimedop 220 192
    msgget 68 186       msgsnd 69 189         msgrcv 70 188            msgctl 71 187
    add_key 248 217     request_key 249 218   keyctl 250 219           io_uring_setup 425 425
    setpriority 141 140 ioprio_set 251 30     sched_setattr 314 274    sched_setparam 142 118
    sched_setscheduler 144 119                sched_setaffinity 203 122
"""
# Calls that programs such as cp(1) do without where a file system does not know them.
UNSUPPORTED = """
    setxattr 188 5      lsetxattr 189 6       fsetxattr 190 7          setxattrat 463 463
    removexattr 197 14  lremovexattr 198 15   fremovexattr 199 16      removexattrat 466 466
    file_setattr 469 469
"""
# Calls that do nothing and report success: Landlock leaves them open for all files of the user, and
# most programs that set the mode of a file of their own need no effect.
PRETENDED = """
    chmod 90 -          fchmod 91 52          fchmodat 268 53          fchmodat2 452 452
    chown 92 -          fchown 93 55          lchown 94 -              fchownat 260 54
    utime 132 -         utimes 235 -          futimesat 261 -          utimensat 280 88
"""
# As the three above, numbers of calls on x86-64, and on aarch64, which has none marked by `-`.
OTHERS = "ioctl 16 29  fcntl 72 25  prlimit64 302 261  seccomp 317 277"


def _numbers(table: str) -> dict[str, dict[str, int]]:
    """Return the numbers of a table by machine and name."""
    words = table.split()
    rows = list(zip(words[::3], words[1::3], words[2::3], strict=True))
    return {
        "x86_64": {name: int(number) for name, number, _ in rows},
        "aarch64": {name: int(number) for name, _, number in rows if number != "-"},
    }


CALLS = _numbers(REFUSED + UNSUPPORTED + PRETENDED + OTHERS)
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINE = os.uname().machine


def filter_of(machine: str) -> bytes:
    """Return the filter, a program of the kernel's packet filter, for a kind of processor."""
    calls = CALLS[machine]
    steps = [
        (LOAD, 0, 0, PLACE_OF_ARCHITECTURE),
        (IF_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (RETURN, 0, 0, ANSWER | errno.ENOSYS),
        (LOAD, 0, 0, PLACE_OF_NUMBER),
        (IF_AT_LEAST, 0, 1, OTHER_NUMBERS),
        (RETURN, 0, 0, ANSWER | errno.ENOSYS),
    ]
    refused = ANSWER | errno.EPERM
    unsupported = ANSWER | errno.ENOTSUP
    for table, answer in ((REFUSED, refused), (UNSUPPORTED, unsupported), (PRETENDED, ANSWER)):
        for number in _numbers(table)[machine].values():
            steps += [(IF_EQUAL, 0, 1, number), (RETURN, 0, 0, answer)]

    # Limits of the process itself are its own business.
    steps += _by_argument(calls["prlimit64"], 0, {0: ALLOW}, other=refused)
    # A lease on a file of the package would make each start of a supervisor wait.
    steps += _by_argument(calls["fcntl"], 1, {F_SETLEASE: refused}, other=ALLOW)
    of_files = dict.fromkeys(ATTRIBUTES_OF_FILES, unsupported)
    steps += _by_argument(calls["ioctl"], 1, of_files, other=ALLOW)
    steps.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _by_argument(
    call: int,
    argument: int,
    answers: dict[int, int],
    *,
    other: int,
) -> list[tuple[int, int, int, int]]:
    """Return the steps that answer a call by the lower half of an argument."""
    steps = [(LOAD, 0, 0, PLACE_OF_ARGUMENTS + 8 * argument)]
    for value, answer in answers.items():
        steps += [(IF_EQUAL, 0, 1, value), (RETURN, 0, 0, answer)]
    steps.append((RETURN, 0, 0, other))
    return [(IF_EQUAL, 0, len(steps), call), *steps]


class _Filter(ctypes.Structure):
    _fields_ = (("steps", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _filter() -> _Filter | None:
    """Return the filter of this machine; None where the kernel takes none."""
    if not LINUX or MACHINE not in CALLS:
        return None
    action = ctypes.c_uint32(ANSWER)
    call = CALLS[MACHINE]["seccomp"]
    if LIBC.syscall(call, GET_ACTION_AVAILABLE, 0, ctypes.byref(action)) < 0:
        return None
    code = filter_of(MACHINE)
    return _Filter(len(code) // 8, code)


FILTER = _filter()


def hide_memory() -> None:
    """Hide this process's environment and memory from the other processes of its user.

    Core dumps and debuggers of that user get nothing either. `exec` undoes it in its children.
    """
    if LINUX:
        LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def enter_domain() -> bool:
    """Confine the supervisor: its signals reach its guards alone, programs have no capability.

    Returns:
        Whether its signals reach its guards alone, so that it may send one to all it can reach.
    """
    if not LINUX:
        return False
    # Numbers without a capability change nothing.
    for capability in range(MOST_CAPABILITIES):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if LANDLOCK < SCOPES_FROM:
        return False
    ruleset = _new_ruleset(REFER)  # each domain denies this right unless a rule allows it
    _allow(ruleset, "/", REFER)
    entered = LIBC.syscall(RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return entered and not _reaches(os.getppid())


def _reaches(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True


def confine(limits: dict[int, int], ruleset: int | None) -> None:
    """Confine this process, between `fork` and `exec`, and all that it starts.

    Whatever the rules of Landlock allow, a process under rules can neither trace one that is not
    nor read its environment: the worker has keys in `/proc/PID/environ`.
    """
    for number in OUTLIVED:
        signal.signal(number, signal.SIG_DFL)
    for kind, most in limits.items():
        ceiling = resource.getrlimit(kind)[1]
        kept = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
        resource.setrlimit(kind, (kept, kept))

    if not LINUX:
        return
    with suppress(OSError):
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(file, KILLED_FIRST)
        os.close(file)

    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if ruleset is not None and LIBC.syscall(RESTRICT_SELF, ruleset, 0) != 0:
        _give_up(b"Landlock")
    if FILTER is not None:
        call = CALLS[MACHINE]["seccomp"]
        entered = LIBC.syscall(call, SET_MODE_FILTER, WITHOUT_MITIGATION, ctypes.byref(FILTER))
        if entered != 0:
            _give_up(b"seccomp")


def _give_up(barrier: bytes) -> None:
    os.write(2, b"error: the guard cannot be confined: " + barrier + b" refuses\n")
    os._exit(CANNOT_BE_CONFINED)
