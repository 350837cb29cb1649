//! Steps of an operator. An operator is a future that pauses after each step, and the caller polls it for the
//! next step.
//!
//! The caller needs no executor. A paused operator wakes no task, and continues when it is polled again.

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

/// Runs all steps of an operator.
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
    /// The operator, or `None` after it has ended.
    operator: Option<Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(operator: impl Future<Output = Result<()>> + Send + 'a) -> Steps<'a> {
        Steps { operator: Some(Box::pin(operator)) }
    }

    /// Runs a step. Returns true if the operator has ended. A step ends when an input waits, when the output
    /// is full, or after some thousand rows. When the operator ends, also with an error, its memory and files
    /// are released.
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
