//! varve-sim: see ARCHITECTURE.md.
