"""Whether docs/consumers.md tells the truth about the jobs."""

import re


def complaints(document, jobs, wanted):
    """What is wrong with it: a job it leaves out, one that is not there, or a command that would run nothing.

    A job stands in a row of its tables as `job/...` or `job`; `wanted(case, patterns)` is how the command chooses.
    """
    text = document.read_text(encoding="utf-8") if document.is_file() else ""
    names = {job.NAME for job in jobs}
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    told = {word for row in rows for word in re.findall(r"`([\w-]+)`", row.split("|")[3] if row.count("|") > 3 else "")}
    for name in sorted(names - told):
        yield f"{name}: docs/consumers.md does not say which program this job is about"
    for name in sorted(told - names):
        yield f"{name}: docs/consumers.md names it as a job, but there is none"
    every = [case for job in jobs for case in job.cases()]
    unknown = [job.NAME for job in jobs if not job.cases()]
    for pattern in sorted(set(re.findall(r"interop/run [^`\n]*?--only '?([^'`\s]+)", text))):
        if pattern.split("/")[0] not in unknown and not any(wanted(case, [pattern]) for case in every):
            yield f"{pattern}: docs/consumers.md says to run it, but no case is called so"
