//! Planted bugs. Each bug names the model that must find it. A model that finds no planted bug would prove
//! nothing.
//!
//! The build script reads this list and puts each bug behind a switch (`MODELS::flaw`). The tests read the
//! list, too.

/// Planted bugs: (name, module/file, text that occurs there once, its replacement).
pub const FLAWS: &[(&str, &str, &str, &str)] = &[
    // ---- frames and the table of resident pages
    (
        "latched without looking at the page again",
        "pager/pool/guard.rs",
        "guard.frame.holds(id).then_some(guard)",
        "(MODELS::flaw(\"latched without looking at the page again\") || guard.frame.holds(id)).then_some(guard)",
    ),
    (
        "entered without looking whether the page is there",
        "pager/pool/table.rs",
        "if self.walk(frames, id, frames.len()).is_some() {",
        "if !MODELS::flaw(\"entered without looking whether the page is there\") && self.walk(frames, id, frames.len()).is_some() {",
    ),
    (
        "taken out without the stripe",
        "pager/pool/table.rs",
        "let _stripe = self.stripe(bucket);\n        let target",
        "let _stripe = (!MODELS::flaw(\"taken out without the stripe\")).then(|| self.stripe(bucket));\n        let target",
    ),
    (
        "evicted although pinned",
        "pager/pool/frame.rs",
        "!self.is_dirty() && self.pins.load(Acquire) == 0",
        "!self.is_dirty() && (MODELS::flaw(\"evicted although pinned\") || self.pins.load(Acquire) == 0)",
    ),
    (
        "two writes of a page at once",
        "pager/pool/write.rs",
        "!frame.is_dirty() || !frame.begin_write()",
        "!frame.is_dirty() || !(frame.begin_write() || MODELS::flaw(\"two writes of a page at once\"))",
    ),
    (
        "clean after the write instead of with the copy",
        "pager/pool/write.rs",
        "writes.iter_mut().for_each(Writing::end);",
        "writes.iter_mut().for_each(|write| { if MODELS::flaw(\"clean after the write instead of with the copy\") { write.frame.set_clean(); } write.end() });",
    ),
    (
        "clean although the write failed",
        "pager/pool/write.rs",
        "write.frame.set_dirty();\n                });",
        "if !MODELS::flaw(\"clean although the write failed\") { write.frame.set_dirty(); }\n                });",
    ),
    (
        "page before log",
        "pager/pool/write.rs",
        "self.counters.times.of(Timing::LogWait, || self.log.flush(newest))?;",
        "if !MODELS::flaw(\"page before log\") { self.log.flush(newest)?; }",
    ),
    (
        "discarded during its write",
        "pager/pool/mod.rs",
        "if frame.is_writing() {\n            drop(page);",
        "if frame.is_writing() && !MODELS::flaw(\"discarded during its write\") {\n            drop(page);",
    ),
    (
        "end of a write told without the mutex",
        "pager/pool/write.rs",
        "drop(self.written_mutex.lock());",
        "if !MODELS::flaw(\"end of a write told without the mutex\") { drop(self.written_mutex.lock()); }",
    ),
    (
        "given a page while somebody waits for the last one",
        "pager/pool/read.rs",
        "while self.frames[no].is_awaited() {",
        "while !MODELS::flaw(\"given a page while somebody waits for the last one\") && self.frames[no].is_awaited() {",
    ),
    // ---- latch
    (
        "upgraded without waiting for the readers",
        "pager/base/latch.rs",
        "unsafe { latch.0.upgrade() }",
        "unsafe { if MODELS::flaw(\"upgraded without waiting for the readers\") { latch.0.upgrade_at_once() } else { latch.0.upgrade() } }",
    ),
    (
        "downgraded by letting go",
        "pager/base/latch.rs",
        "unsafe { latch.0.downgrade() }",
        "unsafe { if MODELS::flaw(\"downgraded by letting go\") { latch.0.unlock_exclusive(); latch.0.lock_shared() } else { latch.0.downgrade() } }",
    ),
    // ---- log
    (
        "state of a waiter set after it stands in line",
        "pager/log/flush.rs",
        "drop(line);\n        if place",
        "drop(line);\n        if MODELS::flaw(\"state of a waiter set after it stands in line\") { waiter.state.store(WAITING, Ordering::Relaxed); }\n        if place",
    ),
    (
        "parked once",
        "pager/log/flush.rs",
        "WAITING => thread::park(),",
        "WAITING => { thread::park(); if MODELS::flaw(\"parked once\") { return self.state.load(Ordering::Acquire); } }",
    ),
    (
        "no leader after the leader",
        "pager/log/flush.rs",
        "if let Some(leader) = woken.leader {",
        "if let Some(leader) = woken.leader.filter(|_| !MODELS::flaw(\"no leader after the leader\")) {",
    ),
    (
        "durable before it is written",
        "pager/log/flush.rs",
        "let bytes = block.seal(self.epoch, self.sector_shift, self.durable());",
        "if MODELS::flaw(\"durable before it is written\") { self.durable.advance(block.last()); }\n            let bytes = block.seal(self.epoch, self.sector_shift, self.durable());",
    ),
    (
        "acknowledged without looking again",
        "pager/log/flush.rs",
        "if self.queue.enter(self, upto) {\n                self.lead();",
        "if !self.queue.enter(self, upto) {\n                if MODELS::flaw(\"acknowledged without looking again\") { break; }\n            } else {\n                self.lead();",
    ),
    (
        "followers of a failed log not released",
        "pager/log/flush.rs",
        "let waiting = self.line.lock().take_all();\n",
        "let waiting = self.line.lock().take_all();\n        if MODELS::flaw(\"followers of a failed log not released\") { return; }\n",
    ),
    (
        "told of the append after the section",
        "pager/log/writer.rs",
        "let result = inside(appended);\n        self.end.advance(appended.end);\n",
        "if MODELS::flaw(\"told of the append after the section\") { self.end.advance(appended.end); drop(appender); return inside(appended); }\n        let result = inside(appended);\n        self.end.advance(appended.end);\n",
    ),
    // ---- visibility
    (
        "snapshot taken without looking at the horizon again",
        "engine/registry.rs",
        "if self.horizon.load(SeqCst) <= snapshot.get() {",
        "if MODELS::flaw(\"snapshot taken without looking at the horizon again\") || self.horizon.load(SeqCst) <= snapshot.get() {",
    ),
    (
        "horizon raised after the snapshots are read",
        "engine/registry.rs",
        "self.horizon.fetch_max(durable.get(), SeqCst);\n",
        "if !MODELS::flaw(\"horizon raised after the snapshots are read\") { self.horizon.fetch_max(durable.get(), SeqCst); }\n",
    ),
    (
        "tag of a state not looked at again",
        "engine/status.rs",
        "(entry.tag.load(Ordering::SeqCst) == id.get()).then_some(raw)",
        "(MODELS::flaw(\"tag of a state not looked at again\") || entry.tag.load(Ordering::SeqCst) == id.get()).then_some(raw)",
    ),
    (
        "tag of a state not cleared before it changes",
        "engine/status.rs",
        "entry.tag.store(0, Ordering::SeqCst);",
        "if !MODELS::flaw(\"tag of a state not cleared before it changes\") { entry.tag.store(0, Ordering::SeqCst); }",
    ),
    (
        "floor above what an old snapshot must not see",
        "engine/status.rs",
        "raw.state <= oldest_snapshot.get()",
        "(MODELS::flaw(\"floor above what an old snapshot must not see\") || raw.state <= oldest_snapshot.get())",
    ),
    // ---- memory orders, for loom
    (
        "pin without a fence",
        "loomed/pool/frame.rs",
        "fence(SeqCst);\n        let is_there",
        "if !MODELS::flaw(\"pin without a fence\") { fence(SeqCst); }\n        let is_there",
    ),
    (
        "look for pins without a fence",
        "loomed/pool/frame.rs",
        "fence(SeqCst);\n        self.pins",
        "if !MODELS::flaw(\"look for pins without a fence\") { fence(SeqCst); }\n        self.pins",
    ),
    (
        "failed write dirty in no order",
        "loomed/pool/frame.rs",
        "self.writing.store(false, Release);",
        "self.writing.store(false, if MODELS::flaw(\"failed write dirty in no order\") { Relaxed } else { Release });",
    ),
    (
        "dirty looked at before writing",
        "loomed/pool/frame.rs",
        "!self.is_writing() && !self.is_dirty() && self.pins",
        "(if MODELS::flaw(\"dirty looked at before writing\") { !self.is_dirty() && !self.is_writing() } else { !self.is_writing() && !self.is_dirty() }) && self.pins",
    ),
    // ---- flush workers
    (
        "results come before the jobs have ended",
        "pager/running/workers.rs",
        "while state.left > 0 {",
        "while state.left > 0 && !MODELS::flaw(\"results come before the jobs have ended\") {",
    ),
    (
        "a thread leaves without a word",
        "pager/running/workers.rs",
        "queue.running -= 1;\n                self.bell.notify_all();",
        "queue.running -= 1;\n                if !MODELS::flaw(\"a thread leaves without a word\") { self.bell.notify_all(); }",
    ),
    (
        "a job is left in the queue",
        "pager/running/workers.rs",
        "while !batch.has_ended()\n            && let Some(job) = self.inner.next()",
        "while !MODELS::flaw(\"a job is left in the queue\")\n            && !batch.has_ended()\n            && let Some(job) = self.inner.next()",
    ),
    // ---- flash cache
    (
        "mark of a cleaning taken away after its slot was let go",
        "pager/flash/cache/cleaning.rs",
        "self.transit.cleaning.end(begun.id);",
        "if MODELS::flaw(\"mark of a cleaning taken away after its slot was let go\") { drop(table); }\n            self.transit.cleaning.end(begun.id);",
    ),
    (
        "put without waiting for what is on its way home",
        "pager/flash/cache/admission.rs",
        "self.transit.cleaning.wait_for_page(id);",
        "if !MODELS::flaw(\"put without waiting for what is on its way home\") { self.transit.cleaning.wait_for_page(id); }",
    ),
    (
        "slot free before its page has left the queue",
        "pager/flash/cache/admission.rs",
        "self.drive.writes.done(one);",
        "if MODELS::flaw(\"slot free before its page has left the queue\") { drop(table); }\n        self.drive.writes.done(one);",
    ),
    (
        "dirty pages looked for before the last of them is taken",
        "pager/flash/cache/trouble.rs",
        "let is_news = self.take_no_more(cause);",
        "if MODELS::flaw(\"dirty pages looked for before the last of them is taken\") && !self.has_dirty() { return self.lose(cause); }\n        let is_news = self.take_no_more(cause);",
    ),
    // ---- locks
    (
        "strong modes looked for before the table is noted",
        "engine/table_lock.rs",
        "waiting.registry.place(waiting.me.slot).note_table(self.table, mode.bit());\n        if self.strong.load(SeqCst) == 0 {",
        "let early = self.strong.load(SeqCst) == 0;\n        waiting.registry.place(waiting.me.slot).note_table(self.table, mode.bit());\n        if (early && MODELS::flaw(\"strong modes looked for before the table is noted\")) || self.strong.load(SeqCst) == 0 {",
    ),
    (
        "a strong mode that is not counted",
        "engine/lock_queue.rs",
        "lock.count_strong(mode, 1);",
        "if !MODELS::flaw(\"a strong mode that is not counted\") { lock.count_strong(mode, 1); }",
    ),
    (
        "a note watched after it was looked at",
        "engine/lock_queue.rs",
        "place.watch();\n            if place.holds(table, weak) {",
        "let early = place.holds(table, weak);\n            place.watch();\n            if (early && MODELS::flaw(\"a note watched after it was looked at\")) || place.holds(table, weak) {",
    ),
    (
        "a note taken back in silence",
        "engine/waits.rs",
        "self.grant_next(registry, tag);\n        }\n        let asked",
        "if !MODELS::flaw(\"a note taken back in silence\") { self.grant_next(registry, tag); }\n        }\n        let asked",
    ),
    (
        "a wake-up forgotten after the queue was looked at",
        "engine/waits.rs",
        "Ok(()) => {}\n                Err(error)",
        "Ok(()) => if MODELS::flaw(\"a wake-up forgotten after the queue was looked at\") { *registry.place(waiter.slot).woken.lock() = false; },\n                Err(error)",
    ),
    (
        "a follower put behind himself",
        "engine/waits.rs",
        "match follower.slot == held.by.slot || self",
        "match (follower.slot == held.by.slot && !MODELS::flaw(\"a follower put behind himself\")) || self",
    ),
];
