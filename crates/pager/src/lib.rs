//! varve-pager: see ARCHITECTURE.md.
