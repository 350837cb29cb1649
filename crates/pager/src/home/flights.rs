//! The table of page writes that are in flight: the data files have been asked to write the page, and the
//! write has not ended.
//!
//! Invariants
//! 1. Two writes of one page never overlap. If a newer image of a page is being written, no older image of
//!    this page is written after it.
//!
//! This module does not know where pages are written.

use std::collections::HashMap;

use parking_lot::{Condvar, Mutex};

use crate::base::ids::PageId;
use crate::base::image::Image;
use crate::base::lsn::Lsn;

/// Pages whose write is in flight, with the LSN of the newest image asked for.
#[derive(Default)]
pub(crate) struct Flights {
    table: Mutex<HashMap<PageId, Lsn>>,
    landed: Condvar,
}

impl Flights {
    /// Enters the images when no other write of their pages is in flight. Images for which a newer image was
    /// written meanwhile are left out. A batch must not have two images of one page.
    pub(crate) fn take_off<'i>(&self, images: &[&'i Image]) -> Vec<&'i Image> {
        let mut table = self.table.lock();
        let mut overtaken: Vec<PageId> = Vec::new();
        while let Some(lsn) = images.iter().find_map(|image| table.get(&image.id()).map(|lsn| (*image, *lsn)))
        {
            if lsn.1 >= lsn.0.lsn() {
                overtaken.push(lsn.0.id());
            }
            self.landed.wait(&mut table);
        }
        let landing: Vec<&Image> =
            images.iter().copied().filter(|image| !overtaken.contains(&image.id())).collect();
        for image in &landing {
            let before = table.insert(image.id(), image.lsn());
            assert!(before.is_none(), "page {} is twice in one batch", image.id());
        }
        landing
    }

    /// Removes the images, because their writes have ended or failed.
    pub(crate) fn land(&self, images: &[&Image]) {
        let mut table = self.table.lock();
        images.iter().for_each(|image| {
            table.remove(&image.id());
        });
        drop(table);
        self.landed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::Access;
    use crate::base::page;

    fn image(no: u32, lsn: u64) -> Image {
        let id = PageId::new(crate::SpaceId::DATA, crate::PageNo(no));
        let mut bytes = vec![0; 4096];
        page::format(&mut bytes, id, 16, 0);
        page::set_page_lsn(&mut bytes, Lsn::new(lsn));
        Image::of(id, &bytes, Access::Random)
    }

    #[test]
    fn an_older_image_waits_and_is_left_out() {
        let flights = Flights::default();
        let (old, new, other) = (image(7, 10), image(7, 20), image(8, 5));
        let flying = flights.take_off(&[&new]);
        std::thread::scope(|scope| {
            let late =
                scope.spawn(|| flights.take_off(&[&old, &other]).iter().map(|i| i.id()).collect::<Vec<_>>());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!late.is_finished(), "must wait for the write in flight");
            flights.land(&flying);
            assert_eq!(late.join().unwrap(), [other.id()]);
        });
    }
}
