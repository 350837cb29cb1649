//! Flush workers: threads that take jobs from one queue, so that several parts of a batch of pages are
//! written at once.
//!
//! One thread, the producer (`background`), chooses the pages, divides them into parts and gets the results
//! back. This is the arrangement of Lindström and others, "NVM aware MariaDB database system", 2015,
//! algorithms 1 and 2.
//!
//! Invariants
//! 1. The thread that calls `run` works on its jobs, too. Without workers the jobs therefore run one after
//!    the other, in order, in the calling thread.
//! 2. `run` returns when all of its jobs have ended and the values that they held are dropped.
//! 3. The queue's lock is a leaf: under it no job is run or dropped, and a thread waits only for the queue's
//!    condition variable. The thread that calls `run` holds no latch or lock that a job may need. A job does
//!    not call `run`.
//!
//! This module does not know what the jobs do.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::base::error::{PagerError, Result};

/// A job.
pub(crate) type Job<T> = Box<dyn FnOnce() -> T + Send>;

/// The end of a job: its result, or the payload of its panic.
type Ended<T> = std::result::Result<T, Box<dyn Any + Send>>;

/// The threads and their queue.
pub(crate) struct Workers {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    queue: Mutex<Queue>,
    /// Signalled when there are new jobs, when the wanted number of threads changes, and when a thread ends.
    bell: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job<()>>,
    /// The wanted number of threads.
    wanted: usize,
    /// The present number of threads.
    running: usize,
}

impl Workers {
    /// Starts `threads` threads.
    pub(crate) fn new(threads: usize) -> Result<Workers> {
        let workers = Workers { inner: Arc::default() };
        workers.resize(threads)?;
        Ok(workers)
    }

    /// Returns the number of parts that are done at the same time. Each thread does one part, and the
    /// producer does one.
    pub(crate) fn count(&self) -> usize {
        self.inner.queue.lock().wanted + 1
    }

    /// Changes the number of threads, without waiting. Surplus threads end when their job has ended.
    pub(crate) fn resize(&self, threads: usize) -> Result<()> {
        self.inner.queue.lock().wanted = threads;
        self.inner.bell.notify_all();
        while self.inner.is_short() {
            let inner = self.inner.clone();
            let thread = std::thread::Builder::new().name("page-worker".to_owned());
            if let Err(error) = thread.spawn(move || inner.work()) {
                self.inner.queue.lock().running -= 1;
                return Err(PagerError::Incompatible {
                    what: format!("cannot start a page worker thread: {error}"),
                });
            }
        }
        Ok(())
    }

    /// Runs all jobs, and returns their results in the order of the jobs. If a job panicked, this panics when
    /// all jobs have ended.
    pub(crate) fn run<T: Send + 'static>(&self, jobs: Vec<Job<T>>) -> Vec<T> {
        let batch = Arc::new(Batch::of(jobs.len()));
        let jobs = jobs.into_iter().enumerate().map(|(no, job)| told(job, no, batch.clone()));
        self.inner.queue.lock().jobs.extend(jobs);
        self.inner.bell.notify_all();
        while !batch.has_ended()
            && let Some(job) = self.inner.next()
        {
            job();
        }
        batch.results().into_iter().map(|ended| ended.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    }
}

impl Drop for Workers {
    /// Waits until all threads have ended. No caller runs jobs any more, because it would have a reference.
    fn drop(&mut self) {
        let mut queue = self.inner.queue.lock();
        queue.wanted = 0;
        self.inner.bell.notify_all();
        while queue.running > 0 {
            self.inner.bell.wait(&mut queue);
        }
    }
}

impl Inner {
    /// If a thread is missing, counts it as running and returns true. The caller must start it.
    fn is_short(&self) -> bool {
        let mut queue = self.queue.lock();
        let is_short = queue.running < queue.wanted;
        queue.running += usize::from(is_short);
        is_short
    }

    fn next(&self) -> Option<Job<()>> {
        self.queue.lock().jobs.pop_front()
    }

    /// Runs in each thread, and does one job after the other.
    fn work(&self) {
        while let Some(job) = self.await_job() {
            job();
        }
    }

    /// Waits for the next job. Returns `None` if there are more threads than wanted. The threads that handed
    /// over the remaining jobs then run them.
    fn await_job(&self) -> Option<Job<()>> {
        let mut queue = self.queue.lock();
        loop {
            if queue.running > queue.wanted {
                queue.running -= 1;
                self.bell.notify_all();
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            self.bell.wait(&mut queue);
        }
    }
}

/// Jobs that were handed over together.
struct Batch<T> {
    state: Mutex<BatchState<T>>,
    all_ended: Condvar,
}

struct BatchState<T> {
    /// The results, by number of the job.
    results: Vec<Option<Ended<T>>>,
    left: usize,
}

/// Wraps a job so that it reports its end to the batch, after the values that it held are dropped.
fn told<T: Send + 'static>(job: Job<T>, no: usize, batch: Arc<Batch<T>>) -> Job<()> {
    Box::new(move || {
        let ended = catch_unwind(AssertUnwindSafe(job));
        batch.end(no, ended);
    })
}

impl<T> Batch<T> {
    fn of(count: usize) -> Batch<T> {
        let results = (0..count).map(|_| None).collect();
        Batch { state: Mutex::new(BatchState { results, left: count }), all_ended: Condvar::new() }
    }

    fn end(&self, no: usize, ended: Ended<T>) {
        let mut state = self.state.lock();
        state.results[no] = Some(ended);
        state.left -= 1;
        if state.left == 0 {
            self.all_ended.notify_all();
        }
    }

    fn has_ended(&self) -> bool {
        self.state.lock().left == 0
    }

    /// Waits until all jobs have ended. Returns their results.
    fn results(&self) -> Vec<Ended<T>> {
        let mut state = self.state.lock();
        while state.left > 0 {
            self.all_ended.wait(&mut state);
        }
        std::mem::take(&mut state.results).into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use super::*;

    fn jobs(count: usize, sleep_us: u64) -> Vec<Job<usize>> {
        let job = |no| -> Job<usize> {
            Box::new(move || {
                std::thread::sleep(Duration::from_micros(sleep_us * (no as u64 % 3)));
                no
            })
        };
        (0..count).map(job).collect()
    }

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        for threads in [0, 1, 3] {
            let workers = Workers::new(threads).unwrap();
            for count in [0, 1, 2, 50] {
                assert_eq!(workers.run(jobs(count, 50)), (0..count).collect::<Vec<_>>(), "{threads} threads");
            }
        }
    }

    #[test]
    fn without_threads_all_happens_where_the_jobs_were_made() {
        let workers = Workers::new(0).unwrap();
        let here = std::thread::current().id();
        let order = Arc::new(Mutex::new(Vec::new()));
        let job = |no: usize| -> Job<bool> {
            let order = order.clone();
            Box::new(move || {
                order.lock().push(no);
                std::thread::current().id() == here
            })
        };
        assert!(workers.run((0..5).map(job).collect()).into_iter().all(|is_here| is_here));
        assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
    }

    /// Each job waits for the others, so each needs a thread of its own.
    #[test]
    fn jobs_run_beside_each_other() {
        let workers = Workers::new(2).unwrap();
        let together = Arc::new(Barrier::new(3));
        let job = |_| -> Job<std::thread::ThreadId> {
            let together = together.clone();
            Box::new(move || {
                together.wait();
                std::thread::current().id()
            })
        };
        let threads: HashSet<_> = workers.run((0..3).map(job).collect()).into_iter().collect();
        assert_eq!(threads.len(), 3);
    }

    #[test]
    fn a_panic_is_passed_on_when_all_have_ended() {
        for threads in [0, 2] {
            let workers = Workers::new(threads).unwrap();
            let ended = Arc::new(AtomicUsize::new(0));
            let job = |no| -> Job<()> {
                let ended = ended.clone();
                Box::new(move || {
                    assert!(no != 1, "the second one");
                    std::thread::sleep(Duration::from_millis(5));
                    ended.fetch_add(1, SeqCst);
                })
            };
            let all = (0..6).map(job).collect();
            let panic = catch_unwind(AssertUnwindSafe(|| workers.run(all))).unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"the second one"));
            assert_eq!(ended.load(SeqCst), 5, "{threads} threads");
            // The threads still work after a panic.
            assert_eq!(workers.run(jobs(9, 0)).len(), 9);
        }
    }

    #[test]
    fn the_number_of_threads_changes_under_load() {
        let workers = Workers::new(1).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| (0..100).for_each(|_| assert_eq!(workers.run(jobs(20, 10)).len(), 20)))
                })
                .collect();
            let resizer = scope.spawn(|| {
                for threads in [4, 0, 2, 1, 0, 3].into_iter().cycle().take_while(|_| !done.load(SeqCst)) {
                    workers.resize(threads).unwrap();
                    assert_eq!(workers.count(), threads + 1);
                    std::thread::yield_now();
                }
            });
            callers.into_iter().for_each(|caller| caller.join().unwrap());
            done.store(true, SeqCst);
            resizer.join().unwrap();
        });
    }

    /// A job may hold a reference to the structure that owns the workers. A worker must not drop the last
    /// reference.
    #[test]
    fn what_jobs_held_is_dropped_when_they_have_run() {
        let workers = Workers::new(3).unwrap();
        let held = Arc::new(());
        for _ in 0..200 {
            let job = |_| -> Job<()> {
                let held = held.clone();
                Box::new(move || drop(held))
            };
            workers.run((0..4).map(job).collect());
            assert_eq!(Arc::strong_count(&held), 1);
        }
    }

    #[test]
    fn a_drop_leaves_no_thread() {
        let workers = Workers::new(3).unwrap();
        let inner = workers.inner.clone();
        workers.run(jobs(10, 20));
        drop(workers);
        assert_eq!(inner.queue.lock().running, 0);
    }
}
