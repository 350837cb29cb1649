//! The model of an emulated device's service times. It computes which channel serves a request, and when the
//! request ends.
//!
//! Times are parameters and results, in nanoseconds. This module reads no clock and does not sleep, so a test
//! can simulate hours of a drive in an instant.
//!
//! Invariants
//! 1. A request is cut into pieces. A channel serves one piece after the other, in the order in which they
//!    were placed.
//! 2. A flush begins when all earlier requests are done. Until the flush ends, no channel serves requests. At
//!    most one flush runs and one waits. A flush that arrives while another one waits is served together with
//!    it. A drive without a cache has no flushes.
//! 3. A piece is sequential if it begins at the address where an earlier piece ends. If the device has
//!    stripes, the earlier piece is the last piece on the same channel. Otherwise it is the last piece on any
//!    channel.
//! 4. A request ends when its last piece is done.
//! 5. A write occupies its channel also for the merges that it causes (`merges.rs`), if the profile has them.
//!
//! The model does not include the work of a drive while it is idle. So the modelled drive merges only when a
//! write needs a merge.

use crate::merges::{MergeCounts, OpenBlocks};
use crate::profile::{Profile, Request};

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    /// A write that may be acknowledged when it is in the drive's cache.
    Write,
    /// A write that is acknowledged when it is on the medium.
    WriteThrough,
}

/// A range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub file: u32,
    pub offset: u64,
    pub bytes: u64,
}

/// An address of a file on a channel.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ChannelAddress {
    file: u32,
    at: u64,
}

#[derive(Default)]
struct Channel {
    free_at_ns: u64,
    /// The address that would continue the last piece.
    next: Option<ChannelAddress>,
}

/// The flush that was placed last.
struct Flush {
    start_ns: u64,
    done_ns: u64,
}

/// A device: its channels, and the requests that are placed on them.
pub(crate) struct Service {
    profile: Profile,
    dilation: f64,
    channels: Vec<Channel>,
    flush: Option<Flush>,
    /// Whether a write was placed since the last flush, so that the drive's cache may have data.
    is_dirty: bool,
    busy_ns: u64,
    /// The open blocks of a drive that merges blocks; `None` for other drives.
    open_blocks: Option<OpenBlocks>,
}

impl Service {
    /// Returns an idle device, whose times are multiplied by `dilation`.
    pub(crate) fn new(profile: Profile, dilation: f64) -> Service {
        let channels = (0..profile.channels).map(|_| Channel::default()).collect();
        let open_blocks = profile.merges.map(OpenBlocks::new);
        Service { profile, dilation, channels, flush: None, is_dirty: false, busy_ns: 0, open_blocks }
    }

    /// Returns the merges so far.
    pub(crate) fn merges(&self) -> MergeCounts {
        self.open_blocks.as_ref().map(OpenBlocks::counts).unwrap_or_default()
    }

    /// Returns the sum of the times that channels were busy, or will be busy with placed requests.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Places a request that arrives at a time, and returns the time at which it is acknowledged.
    pub(crate) fn place(&mut self, arrival_ns: u64, kind: Kind, extent: Extent) -> u64 {
        self.is_dirty |= kind == Kind::Write;
        let end = extent.offset + extent.bytes;
        let mut answered_ns = arrival_ns;
        let mut at = extent.offset;
        while at < end {
            let bytes = self.piece_bytes(at).min(end - at);
            let piece = Extent { offset: at, bytes, ..extent };
            answered_ns = answered_ns.max(self.place_piece(arrival_ns, kind, piece));
            at += bytes;
        }
        answered_ns
    }

    /// Places requests that were submitted together, and returns the time at which the last one ends. If the
    /// drive merges requests, requests with adjacent addresses count as one.
    pub(crate) fn place_all(
        &mut self,
        arrival_ns: u64,
        requests: impl Iterator<Item = (Kind, Extent)>,
    ) -> u64 {
        if !self.profile.merges() {
            let place = |(kind, extent)| self.place(arrival_ns, kind, extent);
            return requests.map(place).max().unwrap_or(arrival_ns);
        }
        let mut sorted: Vec<(Kind, Extent)> = requests.collect();
        sorted.sort_by_key(|(_, extent)| (extent.file, extent.offset));
        let mut answered_ns = arrival_ns;
        for run in sorted.chunk_by(|(kind, one), (next_kind, next)| {
            kind == next_kind && one.file == next.file && one.offset + one.bytes == next.offset
        }) {
            let [(kind, first), ..] = run else { continue };
            let bytes = run.iter().map(|(_, extent)| extent.bytes).sum();
            answered_ns = answered_ns.max(self.place(arrival_ns, *kind, Extent { bytes, ..*first }));
        }
        answered_ns
    }

    /// Returns how many bytes of a request one channel serves, from the address `at` on. With stripes, it is
    /// the rest of the stripe. If any of several channels can serve any piece, it is the size of an anchor,
    /// because a drive spreads a long request over its chips. Otherwise it is the whole request.
    fn piece_bytes(&self, at: u64) -> u64 {
        match (self.profile.stripe_bytes, self.channels.len()) {
            (0, 1) => u64::MAX,
            (0, _) => self.profile.anchor_bytes,
            (stripe, _) => stripe - at % stripe,
        }
    }

    fn place_piece(&mut self, arrival_ns: u64, kind: Kind, piece: Extent) -> u64 {
        let (no, place) = self.channel_of(piece);
        let sequential = self.continues(no, place, piece.bytes);
        let write = kind != Kind::Read;
        let request = Request { write, sequential, bytes: piece.bytes };
        let merges_ns = if write { self.merges_ns(piece) } else { 0 };
        let service_ns = self.dilated(self.profile.service_ns(request) + merges_ns);
        let (begin_ns, done_ns) = self.occupy(no, arrival_ns, service_ns);
        match self.profile.write_ack_us {
            ack_us if kind == Kind::Write && ack_us > 0.0 => {
                done_ns.min(begin_ns + self.dilated((ack_us * 1e3) as u64))
            }
            _ => done_ns,
        }
    }

    /// Returns the time of the merges that a write causes.
    fn merges_ns(&mut self, Extent { file, offset, bytes }: Extent) -> u64 {
        self.open_blocks.as_mut().map_or(0, |open| open.write(file, offset, bytes))
    }

    /// Returns whether a piece on a channel continues an earlier piece. Records the end of this piece, so
    /// that the next one can continue it. Without stripes each channel has the end of one stream. If a stream
    /// continues on another channel, the two channels exchange their ends.
    fn continues(&mut self, no: usize, place: ChannelAddress, bytes: u64) -> bool {
        let had_tail = match self.profile.stripe_bytes {
            0 => self.channels.iter().position(|channel| channel.next == Some(place)),
            _ => self.channels.get(no).filter(|channel| channel.next == Some(place)).map(|_| no),
        };
        if let Some(other) = had_tail {
            let kept = self.channel(no).next;
            self.channel(other).next = kept;
        }
        self.channel(no).next = Some(ChannelAddress { at: place.at + bytes, ..place });
        had_tail.is_some()
    }

    /// Returns the channel that serves a piece, and the piece's address on it.
    fn channel_of(&self, piece: Extent) -> (usize, ChannelAddress) {
        let Extent { file, offset, .. } = piece;
        match self.profile.stripe_bytes {
            0 => {
                let by_time = self.channels.iter().enumerate().min_by_key(|(_, channel)| channel.free_at_ns);
                (by_time.map_or(0, |(no, _)| no), ChannelAddress { file, at: offset })
            }
            stripe => {
                let count = self.channels.len() as u64;
                let at = offset / (stripe * count) * stripe + offset % stripe;
                ((offset / stripe % count) as usize, ChannelAddress { file, at })
            }
        }
    }

    fn channel(&mut self, no: usize) -> &mut Channel {
        self.channels.get_mut(no).expect("the number is that of a channel")
    }

    /// Occupies a channel for `service_ns` as soon as it is free. Returns the start and the end of the
    /// service.
    fn occupy(&mut self, no: usize, from_ns: u64, service_ns: u64) -> (u64, u64) {
        self.busy_ns += service_ns;
        let channel = self.channel(no);
        let begin_ns = from_ns.max(channel.free_at_ns);
        channel.free_at_ns = begin_ns + service_ns;
        (begin_ns, channel.free_at_ns)
    }

    /// Places a flush that arrives at a time, and returns the time at which the flush ends. If nothing was
    /// written since the last flush began, the flush only waits for the placed requests. A drive without a
    /// cache gets no flush.
    pub(crate) fn place_flush(&mut self, arrival_ns: u64) -> u64 {
        if !self.profile.has_cache() {
            return arrival_ns;
        }
        if let Some(waiting) = self.flush.as_ref().filter(|flush| arrival_ns <= flush.start_ns) {
            return waiting.done_ns;
        }
        let idle_ns = self.channels.iter().map(|channel| channel.free_at_ns).max().unwrap_or(0);
        let start_ns = arrival_ns.max(idle_ns);
        if !self.is_dirty {
            return start_ns;
        }
        self.is_dirty = false;
        let service_ns = self.dilated((self.profile.flush_us * 1e3) as u64);
        (0..self.channels.len()).for_each(|no| {
            self.occupy(no, start_ns, service_ns);
        });
        let done_ns = start_ns + service_ns;
        self.flush = Some(Flush { start_ns, done_ns });
        done_ns
    }

    /// Places a request that frees or reserves a range (a trim, a reservation) and arrives at a time. Returns
    /// the time at which it ends. It occupies one channel.
    pub(crate) fn place_remap(&mut self, arrival_ns: u64) -> u64 {
        let service_ns = self.dilated((self.profile.trim_us * 1e3) as u64);
        if service_ns == 0 {
            return arrival_ns;
        }
        let by_time = self.channels.iter().enumerate().min_by_key(|(_, channel)| channel.free_at_ns);
        let no = by_time.map_or(0, |(no, _)| no);
        self.occupy(no, arrival_ns, service_ns).1
    }

    fn dilated(&self, ns: u64) -> u64 {
        (ns as f64 * self.dilation) as u64
    }
}

#[cfg(test)]
mod tests;
