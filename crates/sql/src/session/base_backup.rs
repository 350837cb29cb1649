//! Runs BASE_BACKUP: sends an online backup of the database to the client as the data of a COPY.
//!
//! Invariants
//! 1. Only a superuser, or a role with the attribute REPLICATION, gets a backup. A backup has all databases
//!    of the server, and the secrets of all roles.
//! 2. The session has no snapshot meanwhile, so a backup does not hold back purge.
//!
//! This module does not know the format of backups.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use varve_engine::{Isolation, Transaction};

use super::Session;
use super::command::not_in_block;
use crate::error::{Result, SqlError};
use crate::rights::{Holder, denied};
use crate::sink::{CommandTag, CopyShape, Sink};
use crate::utility::base_backup::BaseBackup;

const TAG: &str = "BASE_BACKUP";
/// The most bytes of a message to the client.
const MESSAGE_BYTES: usize = 256 << 10;
/// The longest sleep between two looks for a cancel request.
const NAP: Duration = Duration::from_millis(50);

impl Session {
    /// Runs BASE_BACKUP.
    pub(super) fn base_backup(&mut self, command: &BaseBackup, sink: &mut dyn Sink) -> Result<CommandTag> {
        self.forbid_block(TAG)?;
        if self.txn.as_ref().is_some_and(Transaction::has_begun) {
            return Err(not_in_block(TAG));
        }
        self.authorize_backup()?;
        self.txn = None;
        let engine = Arc::clone(&self.shared.engine);
        let mut backup = engine.backup(command.options)?;
        sink.copy_out(CopyShape { column_count: 0, is_binary: true })?;
        let began = Instant::now();
        let (mut piece, mut sent) = (Vec::new(), 0_u64);
        while backup.next(&mut piece)? {
            self.facts.check_cancel()?;
            for message in piece.chunks(MESSAGE_BYTES) {
                sink.copy_data(message)?;
            }
            sent += piece.len() as u64;
            piece.clear();
            self.keep_rate(began, sent, command.max_rate)?;
        }
        sink.copy_done()?;
        Ok(CommandTag::Plain(TAG))
    }

    /// Sleeps while more bytes were sent than the rate allows.
    fn keep_rate(&self, began: Instant, sent: u64, max_rate: Option<u64>) -> Result<()> {
        let Some(rate) = max_rate else { return Ok(()) };
        let due = Duration::from_secs_f64(sent as f64 / rate as f64);
        while let Some(early) = due.checked_sub(began.elapsed()).filter(|early| !early.is_zero()) {
            self.facts.check_cancel()?;
            thread::sleep(early.min(NAP));
        }
        Ok(())
    }

    fn authorize_backup(&self) -> Result<()> {
        let catalog = self.shared.engine.begin_in(self.facts.database_id, Isolation::ReadCommitted).catalog();
        let is_allowed = match self.facts.who {
            None => true,
            Some(id) => {
                let replicates = catalog.role_by_id(id).is_some_and(|role| role.replicates);
                replicates || Holder::of(&catalog, self.facts.who).is_superuser()
            }
        };
        let refused = || -> SqlError {
            denied("permission denied to take a backup").with_detail(
                "Only roles with the SUPERUSER or the REPLICATION attribute may take a backup of the database.",
            )
        };
        if is_allowed { Ok(()) } else { Err(refused()) }
    }
}
