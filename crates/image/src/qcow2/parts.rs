//! Reading images with extended L2 entries: each of 32 parts of a cluster is there or not. Such images are
//! not written.

use std::io;

use super::cluster::Entry;
use super::tables::Tables;
use super::{Qcow2, Run};

impl Qcow2 {
    /// The bytes from `at` on that are at one place, at most `most`.
    pub(super) fn run_of_parts(&self, at: u64, most: u64) -> io::Result<Run> {
        let mut state = self.state.lock();
        let mut run = self.part(&mut state.tables, at)?;
        while run.len_bytes < most {
            let next = self.part(&mut state.tables, at.saturating_add(run.len_bytes))?;
            let follows = match (run.entry, next.entry) {
                (Entry::Plain(_), Entry::Plain(place)) => {
                    place == run.place.saturating_add(run.len_bytes)
                }
                (Entry::Absent, Entry::Absent) | (Entry::Zeros(_), Entry::Zeros(_)) => true,
                _ => false,
            };
            if !follows {
                break;
            }
            run.len_bytes = run.len_bytes.saturating_add(next.len_bytes);
        }
        run.len_bytes = run.len_bytes.min(most);
        Ok(run)
    }

    /// The bytes from `at` to the end of its part, or of the tables that are not there.
    fn part(&self, tables: &mut Tables, at: u64) -> io::Result<Run> {
        let absent = tables.absent(self.clusters.number(at));
        if absent > 0 {
            let len_bytes = absent.saturating_mul(self.clusters.bytes());
            return Ok(Run {
                entry: Entry::Absent,
                place: 0,
                len_bytes: len_bytes.saturating_sub(self.clusters.within(at)),
            });
        }
        let entry = tables.part(&*self.file, at)?;
        let (place, len_bytes) = match entry {
            Entry::Plain(place) => (place, self.clusters.rest_of_part(at)),
            Entry::Compressed { .. } => (0, self.clusters.rest(at)),
            Entry::Absent | Entry::Zeros(_) => (0, self.clusters.rest_of_part(at)),
        };
        Ok(Run {
            entry,
            place,
            len_bytes,
        })
    }
}
