//! The decisions of group commit, without its threads: which thread leads a flush of the log, and which
//! threads wait.
//!
//! Invariants
//! 1. While the line has threads, one of them leads.
//! 2. A leader that leaves names the next one, if threads are left. So no thread waits without a leader.
//! 3. Each waiting thread is returned once, so that it can be woken.
//!
//! The tests run every interleaving of a few threads over these decisions.
//!
//! This module does not know how threads sleep and wake (`flush.rs`).

use smallvec::SmallVec;

use crate::base::lsn::Lsn;

/// The role of a thread that enters the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Leads,
    Waits,
}

/// The threads to wake.
pub(super) struct Woken<W> {
    /// The next leader.
    pub(super) leader: Option<W>,
    /// The threads whose LSNs are durable.
    pub(super) served: SmallVec<[W; 16]>,
}

/// The line of threads that need the log to be durable up to some LSN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Line<W> {
    is_led: bool,
    waiting: Vec<(Lsn, W)>,
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Line { is_led: false, waiting: Vec::new() }
    }
}

impl<W: Clone> Line<W> {
    /// Adds a thread whose `upto` is not durable. Returns its role.
    pub(super) fn enter(&mut self, upto: Lsn, waiter: &W) -> Role {
        if self.is_led {
            self.waiting.push((upto, waiter.clone()));
            return Role::Waits;
        }
        self.is_led = true;
        Role::Leads
    }

    /// Ends the leadership of a thread. The log is durable up to `durable`.
    pub(super) fn leave(&mut self, durable: Lsn) -> Woken<W> {
        debug_assert!(self.is_led);
        let served =
            self.waiting.extract_if(.., |(upto, _)| *upto <= durable).map(|(_, waiter)| waiter).collect();
        let leader = if self.waiting.is_empty() { None } else { Some(self.waiting.remove(0).1) };
        self.is_led = leader.is_some();
        Woken { leader, served }
    }

    /// Removes all waiting threads, because the log has stopped. The leader still calls `leave`.
    pub(super) fn take_all(&mut self) -> Vec<W> {
        std::mem::take(&mut self.waiting).into_iter().map(|(_, waiter)| waiter).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The position of a model thread in `Log::flush`. Each step is one atomic action.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum At {
        Append,
        Look,
        Enter,
        Parked,
        Take,
        Write(Lsn),
        Leave,
        Over { acknowledged: bool },
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Thread {
        at: At,
        upto: Lsn,
        commits_left: u32,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Interleaving {
        threads: Vec<Thread>,
        line: Line<usize>,
        end: Lsn,
        durable: Lsn,
        stopped: bool,
        /// The number of writes until the device fails.
        writes_left: u32,
    }

    impl Interleaving {
        fn new(threads_count: usize, commits_count: u32, writes_left: u32) -> Interleaving {
            let thread = Thread { at: At::Append, upto: Lsn::ZERO, commits_left: commits_count };
            Interleaving {
                threads: vec![thread; threads_count],
                line: Line::default(),
                end: Lsn::ZERO,
                durable: Lsn::ZERO,
                stopped: false,
                writes_left,
            }
        }

        fn can_step(&self, no: usize) -> bool {
            !matches!(self.threads[no].at, At::Parked | At::Over { .. })
        }

        fn step(&mut self, no: usize) {
            let at = self.threads[no].at;
            self.threads[no].at = match at {
                At::Append => {
                    self.end = self.end.forward(1);
                    self.threads[no].upto = self.end;
                    At::Look
                }
                At::Look => self.look(no),
                At::Enter => self.enter(no),
                At::Take => At::Write(self.end),
                At::Write(taken) => self.write(taken),
                At::Leave => self.leave(),
                at => panic!("no step from {at:?}"),
            };
        }

        fn look(&mut self, no: usize) -> At {
            let thread = &mut self.threads[no];
            if self.durable < thread.upto {
                return if self.stopped { At::Over { acknowledged: false } } else { At::Enter };
            }
            thread.commits_left -= 1;
            if thread.commits_left == 0 { At::Over { acknowledged: true } } else { At::Append }
        }

        fn enter(&mut self, no: usize) -> At {
            let upto = self.threads[no].upto;
            if self.durable >= upto || self.stopped {
                return At::Look;
            }
            match self.line.enter(upto, &no) {
                Role::Leads => At::Take,
                Role::Waits => At::Parked,
            }
        }

        fn write(&mut self, taken: Lsn) -> At {
            if self.writes_left == 0 {
                self.stopped = true;
                for waiter in self.line.take_all() {
                    self.wake(waiter, At::Look);
                }
                return At::Leave;
            }
            self.writes_left -= 1;
            self.durable = self.durable.max(taken);
            At::Leave
        }

        fn leave(&mut self) -> At {
            let woken = self.line.leave(self.durable);
            if let Some(leader) = woken.leader {
                self.wake(leader, At::Take);
            }
            for waiter in woken.served {
                self.wake(waiter, At::Look);
            }
            At::Look
        }

        fn wake(&mut self, no: usize, next: At) {
            assert_eq!(self.threads[no].at, At::Parked, "only a parked thread is woken, once");
            self.threads[no].at = next;
        }

        fn check(&self) {
            let leads = |thread: &&Thread| matches!(thread.at, At::Take | At::Write(_) | At::Leave);
            assert!(self.threads.iter().filter(leads).count() <= 1, "two leaders: {self:?}");
        }
    }

    /// Runs every order of steps from the state `world`. Returns the number of different states.
    fn explore(world: Interleaving) -> usize {
        let mut seen = HashSet::new();
        let mut open = vec![world];
        while let Some(world) = open.pop() {
            world.check();
            let steps: Vec<usize> = (0..world.threads.len()).filter(|no| world.can_step(*no)).collect();
            if steps.is_empty() {
                let is_over = |thread: &Thread| matches!(thread.at, At::Over { .. });
                assert!(world.threads.iter().all(is_over), "somebody waits for ever: {world:?}");
                assert!(world.stopped || world.durable == world.end);
                continue;
            }
            for no in steps {
                let mut next = world.clone();
                next.step(no);
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen.len()
    }

    #[test]
    fn every_interleaving_ends_with_everybody_durable() {
        assert!(explore(Interleaving::new(2, 3, u32::MAX)) > 100);
        assert!(explore(Interleaving::new(3, 2, u32::MAX)) > 1000);
    }

    #[test]
    fn every_interleaving_ends_when_a_write_fails() {
        for writes_left in 0..3 {
            explore(Interleaving::new(3, 2, writes_left));
        }
    }
}
