"""The jobs. Each module has `cases()`, which needs nothing, and `prepare(bench)`, which gets its peers."""
