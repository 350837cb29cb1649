//! Model of the memory orders in the descriptor of a buffer-pool frame. It tries every schedule of two
//! threads. It covers the two places where the code relies on memory orders and not only on the latch.
//!
//! The tested code is `pager/src/pool/frame.rs`.

use loom::sync::Arc;
use loom::thread;

use crate::checker::{How, Model};
use crate::loomed::frame::Frame;
use crate::loomed::ids::{Access, PageId, PageNo, SpaceId};

pub(crate) const AWAITED: Model = Model {
    name: "a frame gets no other page while somebody is going to wait for the one it had",
    how: How::Loom,
    run: awaited,
    flaws: &["pin without a fence", "look for pins without a fence"],
};

pub(crate) const FAILED: Model = Model {
    name: "a page whose write failed is not evictable at any moment",
    how: How::Loom,
    run: failed,
    flaws: &["failed write dirty in no order", "dirty looked at before writing"],
};

fn frame() -> (Arc<Frame>, PageId) {
    let frame = Frame::new();
    let id = PageId::new(SpaceId::DATA, PageNo(7));
    frame.take_page(id, Access::Random, 1);
    (Arc::new(frame), id)
}

fn awaited() {
    let (frame, id) = frame();
    let waiter = {
        let frame = Arc::clone(&frame);
        thread::spawn(move || frame.await_page(id))
    };
    frame.drop_page();
    let is_given = !frame.is_awaited();
    let waits = waiter.join().expect("the model fails at its first panic");
    assert!(!(waits && is_given), "one waits for the page, and the frame was given another");
}

fn failed() {
    let (frame, _) = frame();
    assert!(frame.begin_write());
    let writer = {
        let frame = Arc::clone(&frame);
        thread::spawn(move || {
            frame.set_dirty();
            frame.end_write();
        })
    };
    assert!(!frame.is_evictable(), "a changed page may leave");
    writer.join().expect("the model fails at its first panic");
    assert!(!frame.is_evictable());
}
