//! varve-sql: see ARCHITECTURE.md.
