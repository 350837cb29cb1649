//! Defines what a model is, switches planted bugs on, and searches through the schedules of a model. `all.rs`
//! lists the models.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};

/// The model checker: it chooses the thread that runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Shuttle: random schedules, and those that delay one thread at a few points (probabilistic concurrency
    /// testing).
    Shuttle,
    /// Loom: every schedule, with weak memory orders.
    Loom,
}

/// One model: a few threads on real code, with assertions.
pub struct Model {
    /// The property that the real code has.
    pub name: &'static str,
    /// The model checker that runs the model.
    pub how: How,
    /// One execution.
    pub run: fn(),
    /// The planted flaws that the model must find. (`IN_ORDER` has no flaws, because `TAKEN` is narrower.)
    pub flaws: &'static [&'static str],
}

/// The stack size of a coroutine. It is enough for debug builds of the real code.
const STACK_BYTES: usize = 512 << 10;
/// The number of delays that the adversarial scheduler inserts.
const DELAYS: usize = 3;

thread_local! {
    // Model checkers run all threads of a model on the one real thread that called them.
    static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Returns whether this flaw is planted now. The copied sources call this function where the build script has
/// planted a flaw.
pub(crate) fn flaw(name: &str) -> bool {
    PLANTED.get() == Some(name)
}

impl Model {
    /// Searches the schedules. Returns the message of the first failed assertion.
    pub fn search(&self, seed: u64, executions: usize) -> Option<String> {
        let searched = match self.how {
            How::Shuttle => catch_unwind(AssertUnwindSafe(|| self.search_shuttle(seed, executions))),
            How::Loom => catch_unwind(AssertUnwindSafe(|| loom::model(self.run))),
        };
        searched.err().map(|panic| said(&*panic))
    }

    /// Does the same as `search`, with a planted flaw.
    pub fn finds(&self, flaw: &'static str, seed: u64, executions: usize) -> Option<String> {
        PLANTED.set(Some(flaw));
        let found = self.search(seed, executions);
        PLANTED.set(None);
        found
    }

    fn search_shuttle(&self, seed: u64, executions: usize) {
        let mut config = Config::default();
        config.stack_size = STACK_BYTES;
        // Shuttle treats all memory orders as sequentially consistent. Loom tests them (`orders.rs`).
        config.silence_warnings = true;
        config.failure_persistence = FailurePersistence::Print;
        let half = executions.div_ceil(2);
        Runner::new(RandomScheduler::new_from_seed(seed, half), config.clone()).run(self.run);
        Runner::new(PctScheduler::new_from_seed(seed, DELAYS, half), config).run(self.run);
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}
