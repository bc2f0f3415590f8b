"""`python -m ripstop_libfabric`: prints where the parts are."""

import argparse

from . import lib_dir, library, provider_dir


def main():
    parser = argparse.ArgumentParser(
        prog="python -m ripstop_libfabric",
        description="Prints where Ripstop's libfabric.so.1 is. Without an option, the setting that makes programs take it.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--lib-dir", action="store_const", dest="of", const=lib_dir,
                       help="the folder with the library, for LD_LIBRARY_PATH")
    which.add_argument("--lib", action="store_const", dest="of", const=library,
                       help="the library itself, for LD_PRELOAD")
    which.add_argument("--provider-dir", action="store_const", dest="of", const=provider_dir,
                       help="the folder with the providers for a C libfabric, for FI_PROVIDER_PATH")
    chosen = parser.parse_args().of
    print(chosen() if chosen else f"export LD_LIBRARY_PATH={lib_dir()}")


if __name__ == "__main__":
    main()
