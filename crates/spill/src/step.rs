//! Steps of an operator: an operator is a future that pauses, and the caller polls it step by step.
//!
//! The caller needs no executor. A paused operator wakes nobody. It goes on when it is polled again.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use crate::error::Result;

/// Ends the current step.
pub(crate) async fn pause() {
    let mut has_paused = false;
    std::future::poll_fn(|_| match std::mem::replace(&mut has_paused, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Makes all steps of an operator.
pub(crate) fn run<T>(operator: impl Future<Output = T>) -> T {
    let mut operator = pin!(operator);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = operator.as_mut().poll(&mut context) {
            return result;
        }
    }
}

/// An operator that the caller runs step by step. It owns its inputs and its output.
pub struct Steps<'a> {
    /// `None` once it has ended.
    operator: Option<Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(operator: impl Future<Output = Result<()>> + Send + 'a) -> Steps<'a> {
        Steps { operator: Some(Box::pin(operator)) }
    }

    /// Makes a step; true if the operator has ended. It ends its step when an input waits or the output is
    /// full, and after some thousand rows. Its memory and files are released when it ends, also by an error.
    pub fn step(&mut self) -> Result<bool> {
        let Some(operator) = &mut self.operator else { return Ok(true) };
        match operator.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(false),
            Poll::Ready(result) => {
                self.operator = None;
                result.map(|()| true)
            }
        }
    }
}
