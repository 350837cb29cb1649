//! Errors of operators that use the temporary space.
//!
//! Invariants
//! 1. A full space and a used-up budget have errors of their own, because the user can act on them.
//! 2. Damaged bytes are an error, never a panic.

use varve_device::DeviceError;

/// The result of an operator.
pub type Result<T> = std::result::Result<T, SpillError>;

/// The reason why an operator failed. The operator has removed its temporary files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpillError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The temporary space has reached its limit.
    #[error(
        "the temporary space {space} is full: {used_bytes} bytes are in use, {wanted_bytes} more are needed \
         (limit: {limit_bytes} bytes)"
    )]
    Full {
        /// The location of the space.
        space: String,
        /// The number of bytes that all operators use.
        used_bytes: u64,
        /// The number of bytes that the operator requested.
        wanted_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The device of the temporary space is full.
    #[error(
        "the device of the temporary space {space} is full: {used_bytes} bytes are in use by temporary files, \
         {wanted_bytes} more are needed"
    )]
    DeviceFull {
        /// The location of the space.
        space: String,
        /// The number of bytes that all operators use.
        used_bytes: u64,
        /// The number of bytes that the operator requested.
        wanted_bytes: u64,
    },
    /// A step needs more memory at once than the budget has.
    #[error(
        "the step needs {wanted_bytes} bytes of memory; its budget has {left_bytes} of {limit_bytes} left"
    )]
    Memory {
        /// The number of bytes that the operator requested.
        wanted_bytes: usize,
        /// The number of bytes that are left.
        left_bytes: usize,
        /// The size of the budget.
        limit_bytes: usize,
    },
    /// A page or a row of the temporary space is damaged.
    #[error("page {page} of the temporary file {file} is damaged: {what}")]
    Corrupt {
        /// The location of the file.
        file: String,
        /// The number of the page in the file.
        page: u32,
        /// A description of the damage.
        what: &'static str,
    },
    /// A setting is invalid.
    #[error("{0}")]
    Setting(&'static str),
    /// The operator has a bug. No input can cause this error.
    #[error("defect of an operator of the temporary space: {0}")]
    Defect(&'static str),
    /// The caller's input or output failed.
    #[error("{0}")]
    Caller(Box<str>),
}
