//! varve-bench: see ARCHITECTURE.md.
