//! varve: see ARCHITECTURE.md.
