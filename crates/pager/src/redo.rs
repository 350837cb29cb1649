//! What redo does to a page. (log engineer)

/// A redo operation could not be applied.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct RedoError(pub String);

/// Applies the engine's redo operations (`op >= 16`) to one page.
pub trait RedoOps: Send + Sync {
    /// Applies `op` with `payload` to the bytes of the whole page.
    fn apply(&self, op: u8, page: &mut [u8], payload: &[u8]) -> Result<(), RedoError>;
}
