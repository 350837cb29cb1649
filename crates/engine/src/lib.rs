//! varve-engine: see ARCHITECTURE.md.
