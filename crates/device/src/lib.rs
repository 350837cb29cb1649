//! varve-device: see ARCHITECTURE.md.
