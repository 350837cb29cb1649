//! Tells the threads of a query that nobody needs their rows any more.
//!
//! Invariants
//! 1. A thread that sees the signal ends with an error, so that what it has computed so far never passes for
//!    the whole.
//! 2. The signal also wakes a thread that waits for another one. DataFusion wakes nobody if the thread that
//!    builds the hash table of a join panics.
//!
//! A client's cancel request sets another signal (`cancel.rs`), which all threads see.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use datafusion::execution::TaskContext;
use tokio::sync::Notify;
use varve_sql::general::SqlError;

/// The signal, in the context of a thread's part of a plan.
#[derive(Debug, Default)]
pub struct Stop {
    is_set: AtomicBool,
    waiting: Notify,
    /// The thread that has started this one.
    outer: Option<Outer>,
}

/// The signal and the context of the thread that has started this one.
#[derive(Debug)]
struct Outer {
    stop: Option<Arc<Stop>>,
    context: Arc<TaskContext>,
}

impl Stop {
    /// Returns the signal of a context. A context without one has a signal that nobody sets.
    pub fn of(context: &TaskContext) -> Arc<Stop> {
        context.session_config().get_extension::<Stop>().unwrap_or_default()
    }

    /// Returns the context with a signal of its own, and this signal. The new context knows no functions by
    /// name, because only decoders of plans need them.
    pub fn within(context: &Arc<TaskContext>) -> (Arc<TaskContext>, Arc<Stop>) {
        let stop = context.session_config().get_extension::<Stop>();
        let outer = Some(Outer { stop, context: context.clone() });
        let stop = Arc::new(Stop { outer, ..Stop::default() });
        let config = context.session_config().clone().with_extension(stop.clone());
        let none = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
        let (task, session) = (context.task_id(), context.session_id());
        let runtime = context.runtime_env();
        let within = TaskContext::new(task, session, config, none.0, none.1, none.2, none.3, runtime);
        (Arc::new(within), stop)
    }

    /// Returns the context of the whole statement. The signals to its threads do not end what runs in this
    /// context.
    pub fn statement_context(context: &Arc<TaskContext>) -> Arc<TaskContext> {
        let mut context = context.clone();
        while let Some(stop) = context.session_config().get_extension::<Stop>()
            && let Some(outer) = &stop.outer
        {
            context = outer.context.clone();
        }
        context
    }

    /// Gives the signal.
    pub fn set(&self) {
        self.is_set.store(true, Relaxed);
        self.waiting.notify_waiters();
    }

    /// Waits until the signal is given to this thread. Signals to threads that have started it do not end the
    /// wait.
    pub async fn wait(&self) {
        let mut notified = std::pin::pin!(self.waiting.notified());
        // From here on, no signal is missed.
        notified.as_mut().enable();
        if !self.is_set.load(Relaxed) {
            notified.await;
        }
    }

    /// Fails if the signal was given to this thread, or to one that has started it.
    pub fn check(&self) -> varve_sql::Result<()> {
        if self.is_set.load(Relaxed) {
            return Err(Self::error());
        }
        let outer = self.outer.as_ref().and_then(|outer| outer.stop.as_ref());
        outer.map_or(Ok(()), |outer| outer.check())
    }

    /// Returns the error with which a thread ends if its rows are not needed any more.
    pub fn error() -> SqlError {
        SqlError::internal("a thread of a query was stopped, because its rows are not needed any more")
    }
}
