//! Tells the threads of a query that nobody needs their rows any more.
//!
//! Invariants
//! 1. A thread that sees the signal ends with an error, so that what it has computed so far never passes for
//!    the whole.
//!
//! A client's cancel request sets another signal (`cancel.rs`), which all threads see.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use datafusion::execution::TaskContext;
use varve_sql::general::SqlError;

/// The signal, in the context of a thread's part of a plan.
#[derive(Debug, Default)]
pub struct Stop {
    is_set: AtomicBool,
    /// The signal to the thread that has started this one.
    outer: Option<Arc<Stop>>,
}

impl Stop {
    /// Returns the signal of a context. A context without one has a signal that nobody sets.
    pub fn of(context: &TaskContext) -> Arc<Stop> {
        context.session_config().get_extension::<Stop>().unwrap_or_default()
    }

    /// Returns the context with a signal of its own, and this signal. The new context knows no functions by
    /// name, because only decoders of plans need them.
    pub fn within(context: &TaskContext) -> (Arc<TaskContext>, Arc<Stop>) {
        let outer = context.session_config().get_extension::<Stop>();
        let stop = Arc::new(Stop { is_set: AtomicBool::new(false), outer });
        let config = context.session_config().clone().with_extension(stop.clone());
        let none = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
        let (task, session) = (context.task_id(), context.session_id());
        let runtime = context.runtime_env();
        let within = TaskContext::new(task, session, config, none.0, none.1, none.2, none.3, runtime);
        (Arc::new(within), stop)
    }

    /// Gives the signal.
    pub fn set(&self) {
        self.is_set.store(true, Relaxed);
    }

    /// Fails if the signal was given to this thread, or to one that has started it.
    pub fn check(&self) -> varve_sql::Result<()> {
        if self.is_set.load(Relaxed) {
            return Err(SqlError::internal("a part of a query whose rows nobody needs"));
        }
        self.outer.as_ref().map_or(Ok(()), |outer| outer.check())
    }
}
