//! The endpoint for those who watch the server: metrics for Prometheus, and a live page.
//!
//! | file | what |
//! |---|---|
//! | `figures.rs` | the figures of one moment, from the counters that exist already |
//! | `levels.rs` | the levels of the memory hierarchy with the same figures for each |
//! | `exposition.rs` | the figures in the text format of Prometheus |
//! | `endpoint.rs` | HTTP: limits, time-outs, and who may read what |
//! | `page.html` | the live page, which reads the figures as JSON |
//!
//! Invariants
//! 1. Nothing is counted for the endpoint alone. Without the setting `metrics.listen` it costs nothing.
//! 2. A request never changes anything.

mod endpoint;
mod exposition;
mod figures;
mod levels;

pub use endpoint::{Endpoint, EndpointError};
