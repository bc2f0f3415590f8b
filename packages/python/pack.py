"""Packs a folder as a wheel, with the list of its files: `pack.py FOLDER WHEEL SECONDS`.

`cargo xtask dist --wheel` calls it. The same files give the same bytes: names are sorted, and every file has the time that is
given, in seconds since 1970.
"""

import base64
import hashlib
import sys
import time
import zipfile
from pathlib import Path


def main(folder, wheel, seconds):
    folder = Path(folder)
    moment = time.gmtime(int(seconds))[:6]
    (info,) = folder.glob("*.dist-info")
    record = info / "RECORD"
    record.unlink(missing_ok=True)
    # The format recommends that the list and its neighbours come last.
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (path.parent == info, path))
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def add(path, data):
            entry = zipfile.ZipInfo(str(path.relative_to(folder)), moment)
            entry.external_attr = (0o100755 if path.exists() and path.stat().st_mode & 0o111 else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)

        for path in files:
            data = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{path.relative_to(folder)},sha256={digest},{len(data)}\n")
            add(path, data)
        lines.append(f"{record.relative_to(folder)},,\n")
        add(record, "".join(lines).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
