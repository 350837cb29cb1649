//! Model of the flush workers: two threads submit jobs, while a third thread changes the number of workers.
//!
//! The tested code is `pager/src/running/workers.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use shuttle::thread;

use crate::checker::{How, Model};
use crate::pager::running::workers::{Job, Workers};

pub(crate) const WORKERS: Model = Model {
    name: "each job runs once and has ended when its results come; threads that are too many leave",
    how: How::Shuttle,
    run,
    flaws: &[
        "results come before the jobs have ended",
        "a thread leaves without a word",
        "a job is left in the queue",
    ],
};

const CALLERS: usize = 2;
const JOBS: usize = 3;

fn hand_over(workers: &Workers) {
    let runs: Arc<Vec<AtomicUsize>> = Arc::new((0..JOBS).map(|_| AtomicUsize::new(0)).collect());
    let job = |no: usize| -> Job<usize> {
        let runs = Arc::clone(&runs);
        Box::new(move || {
            thread::yield_now();
            runs[no].fetch_add(1, SeqCst);
            no
        })
    };
    assert_eq!(workers.run((0..JOBS).map(job).collect()), (0..JOBS).collect::<Vec<_>>());
    assert!(runs.iter().all(|runs| runs.load(SeqCst) == 1), "a job ran more than once, or not at all");
    assert_eq!(Arc::strong_count(&runs), 1, "what a job held is dropped with it");
}

fn run() {
    let workers = Arc::new(Workers::new(2).expect("the model starts threads"));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let workers = Arc::clone(&workers);
            thread::spawn(move || hand_over(&workers))
        })
        .collect();
    let resizer = {
        let workers = Arc::clone(&workers);
        thread::spawn(move || [0, 1, 0].into_iter().for_each(|n| workers.resize(n).expect("threads start")))
    };
    callers
        .into_iter()
        .chain([resizer])
        .for_each(|one| one.join().expect("the model fails at its first panic"));
    drop(workers);
}
