"""Providers from shared objects in our library: our own, built as one, and objects that must be refused."""

import re
import shutil

from rig import peers, process
from rig.case import Case, Failed, Missing
from rig.library import Library, Witness
from rig.peers import HERE

from . import debian_tools
from .external import OBJECT, OBJECTS, PROVIDER, SHM

NAME = "objects"

# What is wrong with an object: how it is compiled, and what the log must say of it.
BROKEN = {
    "text": (None, r"does not load"),
    "entry": (["-DNO_ENTRY"], r"does not export fi_prov_ini"),
    "old": (["-DINTERFACE=FI_VERSION(1,2)"], r"version 1\.2 of the interface"),
    "new": (["-DINTERFACE=FI_VERSION(3,0)"], r"version 3\.0 of the interface"),
    "unnamed": (["-DPROVIDER_NAME=NULL"], r"provider's name"),
    "layered": (['-DPROVIDER_NAME="tcp;tiny"'], r"provider's name"),
    "fabric": (["-DNO_FABRIC"], r"lacks the function that opens fabrics"),
}


def cases():
    """They are listed with their path, used beside those that are built in, and refused with the reason."""
    found = [Case(f"{NAME}/{name}", body)
             for name, body in (("listed", listed), ("beside", beside), ("filtered", filtered), ("tool", tool),
                                ("preferred", preferred), ("absent", absent), ("held", held))]
    pings = [("msg", PROVIDER, ["-e", "msg"]), ("rdm", PROVIDER, ["-e", "rdm"]), ("shm", SHM, ["-e", "rdm"]),
             ("built-in", "tcp", ["-e", "rdm"])]
    found += [Case(f"{NAME}/fi_pingpong/{name}", pingpong(provider, flags)) for name, provider, flags in pings]
    found += [Case(f"{NAME}/refused/{name}", refused(name)) for name in BROKEN]
    return found


def prepare(bench):
    """Finds our object, and compiles the program that holds a fabric."""
    global ours
    ours = bench.library.path.parent / "libfabric"
    for name in OBJECTS:
        if not (ours / name).is_file():
            raise Missing(f"there is no {name} in {ours}")
    peers.packages(bench, "gcc", "libc6-dev", "libfabric-dev", "libfabric-bin")
    peers.compile_c(bench, ["cc"], [HERE / "objects" / "held.c"], bench.scratch / "held", "-lfabric")


def compiled(bench, name, *flags):
    """A folder with one object."""
    folder = bench.folder(name)
    if not any(flag.startswith("-DRETURNED") for flag in flags):
        flags = (*flags, "-DRETURNED=&provider")
    peers.compile_c(bench, ["cc"], [HERE / "objects" / "object.c"], folder / f"lib{name}-fi.so", "-shared", "-fPIC", *flags)
    return folder


def names(bench, flags, environment):
    """The providers that Debian's fi_info names on our library, and what it printed."""
    witness = Witness(bench)
    done = bench.run(["fi_info", *flags], 120, environment | witness.environment)
    witness.require("fi_info", 1)
    if not done.success:
        raise Failed(f"fi_info: {done.ending}{done.telling_line()}")
    return set(re.findall(r"^(?:provider: )?([\w;]+)(?::|$)\n? +(?:version|fabric): ", done.output, re.M)), done.output


def listed(bench):
    found, _ = names(bench, ["-l"], bench.environment(FI_PROVIDER_PATH=str(ours)))
    if not {"tcp", "shm", PROVIDER, SHM} <= found:
        raise Failed(f"fi_info -l names {sorted(found)}")
    found, _ = names(bench, [], bench.environment(FI_PROVIDER_PATH=str(ours)))
    if not {"tcp", PROVIDER} <= found:
        raise Failed(f"fi_info names {sorted(found)}")


def beside(bench):
    """Objects are found in the folder beside the library, but for our own, which is built in."""
    place = bench.folder("prefix")
    library = Library(bench.library.path)
    library.stage(place / "lib")
    (place / "lib" / "libfabric").mkdir()
    for name in OBJECTS:
        shutil.copy(ours / name, place / "lib" / "libfabric" / name)
    found, _ = names(bench, ["-l"], bench.environment(library))
    if found & {PROVIDER, SHM}:
        raise Failed("our own objects are loaded beside what is built in")
    shutil.copy(ours / OBJECT, place / "lib" / "libfabric" / "libother-fi.so")
    found, _ = names(bench, ["-l"], bench.environment(library))
    if not {"tcp", PROVIDER} <= found:
        raise Failed(f"fi_info -l names {sorted(found)}")


def filtered(bench):
    """FI_PROVIDER lets objects in and keeps them out by the names of their providers."""
    for setting, wanted in ((PROVIDER, {PROVIDER}), (SHM, {SHM}), (f"^{PROVIDER},{SHM}", {"tcp", "shm", "lnx"}),
                            ("tcp", {"tcp"})):
        found, _ = names(bench, [], bench.environment(FI_PROVIDER_PATH=str(ours), FI_PROVIDER=setting))
        if found != wanted:
            raise Failed(f"with FI_PROVIDER={setting} fi_info names {sorted(found)}")


def tool(bench):
    """Our fi_info says where a provider is from, and our fi_pingpong's options name it."""
    fi_info = bench.library.path.parent.parent / "bin" / "fi_info"
    if not fi_info.is_file():
        raise Missing(f"there is no {fi_info}")
    environment = process.clean_environment() | {"FI_PROVIDER_PATH": str(ours)}
    said = bench.succeed([fi_info, "-l"], 120, environment)
    if not re.search(rf"^{PROVIDER}:\n +version: \S+\n +path: {re.escape(str(ours / OBJECT))}$", said, re.M):
        raise Failed(f"fi_info -l does not list {PROVIDER} with its path")
    said = bench.succeed([fi_info, "-p", PROVIDER, "-v"], 120, environment)
    if f"# from the object {ours / OBJECT}" not in said or "prov_name: tcp" in said:
        raise Failed(f"fi_info -v does not show {PROVIDER} alone, with its path")
    said = bench.succeed([fi_info, "--why"], 120, environment)
    if not re.search(rf"^{PROVIDER}: \d+ interfaces match$", said, re.M):
        raise Failed(f"fi_info --why does not say that {PROVIDER} matches")


def preferred(bench):
    """Of two providers with one name the one that is built in counts, unless the path prefers the object's."""
    folder = compiled(bench, "clash", '-DPROVIDER_NAME="shm"')
    environment = {"FI_LOG_LEVEL": "info"}
    for path, counts in ((folder, "built in"), (f"@{folder}", "from"), (f"+{folder}/libclash-fi.so", "from")):
        _, said = names(bench, ["-l"], bench.environment(FI_PROVIDER_PATH=str(path), **environment))
        if not re.search(rf"two providers have the name shm: the one {counts}", said):
            raise Failed(f"with FI_PROVIDER_PATH={path} the log does not say that the one {counts} is used")


def absent(bench):
    """An object whose entry returns NULL has nothing for this machine, which is no reason to warn."""
    folder = compiled(bench, "absent", "-DRETURNED=(&provider)->name?NULL:&provider")
    _, said = names(bench, ["-l"], bench.environment(FI_PROVIDER_PATH=str(folder)))
    if "libabsent" in said:
        raise Failed("the log warns of an object without a provider")


def held(bench):
    """A fabric of an object cannot be closed while its provider says so, and is closed then."""
    folder = compiled(bench, "tiny")
    bench.succeed([bench.scratch / "held"], 120, bench.environment(FI_PROVIDER_PATH=str(folder)))


def pingpong(provider, flags):
    """A case: server and client of Debian's fi_pingpong, every size, data verified by both."""

    def body(bench):
        witness = Witness(bench)
        environment = bench.environment(FI_PROVIDER_PATH=str(ours), **witness.environment)
        debian_tools.ping(bench, provider, "127.0.0.1", flags, 10, environment)
        witness.require("fi_pingpong", 2)

    return body


def refused(name):
    """A case: the log says what is wrong with an object, and all else is there as without it."""

    def body(bench):
        flags, reason = BROKEN[name]
        if flags is None:
            folder = bench.folder(name)
            (folder / f"lib{name}-fi.so").write_text("no shared object\n", encoding="utf-8")
        else:
            folder = compiled(bench, name, *flags)
        found, said = names(bench, ["-l"], bench.environment(FI_PROVIDER_PATH=str(folder)))
        if not re.search(rf"<warn> provider object \S+/lib{name}-fi\.so is refused: .*{reason}", said):
            raise Failed("the log does not say what is wrong with the object")
        if found != {"verbs", "tcp", "tcp;ofi_rxm", "verbs;ofi_rxm", "shm", "lnx"}:
            raise Failed(f"fi_info -l names {sorted(found)}")

    return body
