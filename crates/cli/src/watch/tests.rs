//! Ways through made-up processes.
