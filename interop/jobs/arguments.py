"""What our library and C libfabric 2.5 (inside PyPI's mpich) say to every argument of every call."""

import errno
import fnmatch
import re
import tomllib

from rig import peers
from rig.case import Case, Failed, Missing
from rig.ledger import expand
from rig.library import Library, Witness
from rig.peers import HERE

NAME = "arguments"
SCENES = (("tcp", "rdm"), ("tcp", "msg"), ("shm", "rdm"))
GROUPS = ("getinfo", "open", "msg", "rma", "atomic", "control", "objects", "work")
# What has a meaning for one type of endpoint only.
OF_TYPE = {"rdm": ("collective",), "msg": ("connect",)}
PARTS = [(*scene, group) for scene in SCENES for group in (*GROUPS, *OF_TYPE[scene[1]])]
# What CI has time for: the whole takes half an hour.
SHORT = {("tcp", "rdm"): ("getinfo", "open", "msg", "atomic", "control"), ("tcp", "msg"): ("getinfo", "control", "connect"),
         ("shm", "rdm"): ("getinfo", "control")}
LIST = HERE / "arguments" / "differences.toml"

# libfabric's own errors, from 256 on (fi_errno.h).
OWN = ("EOTHER", "ETOOSMALL", "EOPBADSTATE", "EAVAIL", "EBADFLAGS", "ENOEQ", "EDOMAIN", "ENOCQ", "ECRC", "ETRUNC", "ENOKEY",
       "ENOAV", "EOVERRUN", "ENORX", "ENOMR", "EFIREWALLADDR")
# Errors that answer a question or ask for another try, as crates/capi/src/errno.rs has them: they need no line in the log.
ANSWERS = {f"-FI_{name}" for name in ("EAGAIN", "EAVAIL", "EINTR", "ENOENT", "ENOPROTOOPT", "ENOSYS", "ETIMEDOUT", "ETOOSMALL")}
# Calls that ask, and the error that is an answer to each. What fi_getinfo has not found it tells once, as fi_getinfo(3) of
# ours says.
QUESTIONS = {"fi_getinfo": "-FI_ENODATA", "fi_control": "-FI_ENODATA"} | dict.fromkeys(
    ("fi_atomicvalid", "fi_fetch_atomicvalid", "fi_compare_atomicvalid", "fi_query_atomic", "fi_query_collective"), "-FI_ENOTSUP")
# Differences shown where there are many.
SHOWN = 12


def cases():
    """arguments/main.c tells what each of them tries."""
    found = [Case(f"{NAME}/{provider}/{kind}/{group}", compare(provider, kind, group),
                  full=group not in SHORT[provider, kind]) for provider, kind, group in PARTS]
    return [*found, Case(f"{NAME}/list", whole_list, full=True)]


def prepare(bench):
    """Compiles the program, finds the C library, and reads the list."""
    global program, theirs, known
    peers.packages(bench, "gcc", "libc6-dev", "libfabric-dev")
    home, _ = peers.python_mpi(bench)
    theirs = Library.find(home / "lib" / "mpich")
    theirs.stage(bench.scratch / "arguments-theirs")
    program = peers.compile_c(bench, ["cc"], sorted((HERE / "arguments").glob("*.c")), bench.scratch / "arguments", "-lfabric")
    known = differences()


def differences():
    """The lines of the list; one with `{a,b}` in what it is about is several."""
    rows = tomllib.loads(LIST.read_text(encoding="utf-8"))["differences"]
    return [Difference(scene, call, *rest) for scenes, calls, *rest in rows for scene in expand(scenes)
            for call in expand(calls)]


class Difference:
    """A line of the list. Each of the first four is a pattern of fnmatch."""

    # Scenes and groups that were compared, and the lines that explained something there.
    compared, of_use = set(), set()

    def __init__(self, scene, call, ours, theirs_say, why):
        self.scene, self.call, self.ours, self.theirs, self.why = scene, call, ours, theirs_say, why
        # There are more patterns than fnmatch remembers.
        self.in_scene, self.in_call, self.in_ours, self.in_theirs = (
            re.compile(fnmatch.translate(pattern)).match for pattern in (scene, call, ours, theirs_say))
        if not why:
            raise ValueError(f"{LIST}: {scene} {call} has no reason")

    def __str__(self):
        return f"{self.scene} {self.call}: {self.ours}, C {self.theirs}"

    def may_be_of(self, scene, function):
        """Whether it is about any call of this function there."""
        word = self.call.split()[0]
        return bool(self.in_scene(scene)) and (word == function or any(sign in word for sign in "*?["))

    def is_of(self, scene, call):
        """Whether it is about this case; a difference of one flag is one of each pair with it."""
        names = [call]
        if pair := re.fullmatch(r"(.*=)(\w+)\|(\w+)", call):
            names += [pair[1] + pair[2], pair[1] + pair[3]]
        return bool(self.in_scene(scene)) and any(map(self.in_call, names))

    def explains(self, scene, call, ours, theirs_say):
        return bool(self.in_ours(ours) and self.in_theirs(theirs_say)) and self.is_of(scene, call)


def named(text):
    """What a line says, with the names of errors."""

    def name(match):
        number = int(match[1])
        own = number - 256
        return f"-FI_{OWN[own] if 0 <= own < len(OWN) else errno.errorcode.get(number, number)}"

    return re.sub(r"-(\d+)\b", name, text)


def answers(bench, library, scene, group):
    """What a library says: by case."""
    witness = Witness(bench)
    # C has its collectives in a provider of their own, which FI_PROVIDER would keep away.
    only = {} if group == "collective" else {"FI_PROVIDER": scene[0]}
    environment = bench.environment(library, FI_LOG_LEVEL="warn", **only, **witness.environment)
    folder = bench.folder("arguments-run")
    command = ["sh", "-c", f'exec "$@" >"{folder}/said" 2>"{folder}/log"', "sh", program, *scene, group]
    done = bench.run(command, 900, environment)
    said = (folder / "said").read_text(errors="replace")
    with open(bench.log, "a", encoding="utf-8") as log:
        log.write(said)
    if not done.success:
        raise Failed(f"{library.path}: {done.ending}: {said.strip().splitlines()[-1:]}")
    witness.library = library
    witness.require(program.name, 1)
    lines = [line.rsplit(": ", 1) for line in said.splitlines()]
    if not lines or any(len(line) != 2 for line in lines) or len({line[0] for line in lines}) != len(lines):
        raise Failed(f"{library.path} printed something else than a line for each case")
    return {call: named(answer) for call, answer in lines}


def compare(provider, kind, group):
    """A case: each answer is that of the C library, or the list says why not; and a refusal has a line in the log."""

    def body(bench):
        scene = f"{provider}/{kind}"
        ours = answers(bench, bench.library, (provider, kind), group)
        others = answers(bench, theirs, (provider, kind), group)
        wrong, of_use = judge(scene, ours, others, known)
        with open(bench.log, "a", encoding="utf-8") as log:
            log.writelines(f"WRONG {line}\n" for line in wrong)
        Difference.compared.add((scene, group))
        Difference.of_use |= of_use
        if wrong:
            raise Failed("; ".join(wrong[:SHOWN]) + (f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""))

    return body


def judge(scene, ours, others, listed):
    """What is wrong with our answers, and which lines of the list explained one."""
    wrong, of_use, about = [], set(), set()
    # A scene has thousands of calls, and the list more than a thousand lines, of which few are about one function.
    by_function = {function: [line for line in listed if line.may_be_of(scene, function)]
                   for function in {call.split()[0] for call in ours}}
    for call, answer in ours.items():
        near = by_function[call.split()[0]]
        word, _, rest = answer.partition(" silent")
        answer = word + rest
        other = others.get(call, "no such case").replace(" silent", "")
        if answer.startswith(("signal", "exit")) or answer == "blocks" != other:
            wrong.append(f"{call}: {answer}")
            continue
        asked = QUESTIONS.get(call.split()[0]) == word
        if " silent" in ours[call] and not asked and word not in ANSWERS:
            wrong.append(f"{call}: {word} without a line in the log")
        about |= {line for line in near if line.is_of(scene, call)}
        reasons = {line for line in near if line.explains(scene, call, answer, other)}
        # A line that takes any answer of the C library may have ours here: that depends on the machine.
        of_use |= {line for line in reasons if line.theirs == "*"}
        # Where the C library dies, any refusal is better.
        if answer == other or other.startswith("signal") and answer.startswith("-"):
            continue
        of_use |= reasons
        if not reasons:
            wrong.append(f"{call}: {answer}, C {other}")
    wrong += [f"{call}: only the C library has this case" for call in sorted(set(others) - set(ours))]
    wrong += [f"{line}: listed, and no difference any more" for line in listed if line in about - of_use]
    return wrong, of_use


def whole_list(_):
    """A case: every line of the list is of use somewhere."""
    if len(Difference.compared) < len(PARTS):
        raise Missing("it needs every other case of the job to have run")
    if idle := [str(line) for line in known if line not in Difference.of_use]:
        raise Failed("; ".join(["listed, and no case has it", *idle]))
