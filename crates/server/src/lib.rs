//! varve-server: see ARCHITECTURE.md.
