"""What the jobs share: cases, processes, peers to install, and the library under test."""
