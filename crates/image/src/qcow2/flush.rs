//! Writing the tables, in the order that the head of [`qcow2`](super) gives.

use std::io;

use throughline_device::NoRoom;

use super::cluster::long;
use super::counts::Blocks;
use super::header::{FEATURES_AT, REFCOUNT_TABLE_AT};
use super::tables::Changes;
use super::{MAX_UNUSED, Qcow2, State, read_only};

/// What a flush writes, and what is free after it.
struct Taken {
    blocks: Blocks,
    /// The new place and length of the table of counts, and those before.
    moved: Option<Moved>,
    tables: Changes,
    unused: Vec<(u64, u64)>,
}

struct Moved {
    place: u64,
    clusters: u32,
    from: (u64, u64),
}

impl Qcow2 {
    /// The counts are as they must be, and the header says what is so after this writer. For an image that
    /// was just opened.
    ///
    /// # Errors
    /// Of the device.
    pub(super) fn begin_writing(&self) -> io::Result<()> {
        if self.is_changed() {
            self.flush()?;
        }
        let now = self.header.features_after_writing();
        let before = [
            self.header.incompatible,
            self.header.compatible,
            self.header.autoclear,
        ];
        if now == before {
            return Ok(());
        }
        let bytes: Vec<u8> = now.iter().flat_map(|word| word.to_be_bytes()).collect();
        self.file.write_all_at(&bytes, FEATURES_AT)?;
        self.file.sync()
    }

    fn is_changed(&self) -> bool {
        let state = self.state.lock();
        let counts = state.counts.as_ref();
        state.tables.is_changed() || counts.is_some_and(|counts| counts.is_changed())
    }

    /// Writes the tables if many were changed, so that memory stays bounded.
    ///
    /// # Errors
    /// As of [`Qcow2::flush`].
    pub(super) fn write_tables_if_many(&self) -> io::Result<()> {
        if !self.has_many() {
            return Ok(());
        }
        let _one = self.flushing.lock();
        // Another thread may just have written them.
        match self.has_many() {
            true => self.flush_alone(),
            false => Ok(()),
        }
    }

    fn has_many(&self) -> bool {
        let state = self.state.lock();
        state.tables.is_full() || state.unused.len() > MAX_UNUSED
    }

    /// Returns when everything that was written before survives a power cut.
    ///
    /// # Errors
    /// Of the device. After a failed sync, every later call fails.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let _one = self.flushing.lock();
        self.flush_alone()
    }

    /// For the holder of `flushing`.
    fn flush_alone(&self) -> io::Result<()> {
        self.check_failed()?;
        let mut taken = self.take()?;
        match self.write_all(&mut taken) {
            Ok(()) => {
                self.state.lock().tables.written();
                self.release(&taken)
            }
            Err(error) => {
                let mut state = self.state.lock();
                state.tables.take_back(&taken.tables);
                state.unused.append(&mut taken.unused);
                if let Some(counts) = &mut state.counts {
                    counts.take_back(&taken.blocks);
                    counts.moved_from = taken.moved.map(|moved| moved.from).or(counts.moved_from);
                }
                // After a failed sync, data may be lost.
                Err(match self.failed.get() {
                    None => NoRoom::kept(error),
                    Some(_) => error,
                })
            }
        }
    }

    fn take(&self) -> io::Result<Taken> {
        let mut state = self.state.lock();
        let State {
            tables,
            counts,
            unused,
        } = &mut *state;
        let counts = counts.as_mut().ok_or_else(read_only)?;
        let blocks = counts.changed_blocks()?;
        let moved = counts.moved_from.take().map(|from| Moved {
            place: counts.place,
            clusters: counts.table_clusters(),
            from,
        });
        Ok(Taken {
            blocks,
            moved,
            tables: tables.take(),
            unused: std::mem::take(unused),
        })
    }

    fn write_all(&self, taken: &mut Taken) -> io::Result<()> {
        for (_, place, bytes) in &taken.blocks.blocks {
            self.file.write_all_at(bytes, *place)?;
        }
        // A table at a new place is not referred to yet.
        if let (Some((place, bytes)), Some(_)) = (&taken.blocks.table, &taken.moved) {
            self.file.write_all_at(bytes, *place)?;
        }
        self.sync()?;
        match (&taken.blocks.table, &taken.moved) {
            (_, Some(moved)) => {
                let mut bytes = moved.place.to_be_bytes().to_vec();
                bytes.extend(moved.clusters.to_be_bytes());
                self.file.write_all_at(&bytes, REFCOUNT_TABLE_AT)?;
                self.sync()?;
            }
            (Some((place, bytes)), None) => {
                self.file.write_all_at(bytes, *place)?;
                self.sync()?;
            }
            (None, None) => {}
        }
        if !taken.tables.l2.is_empty() {
            for (place, bytes) in &taken.tables.l2 {
                self.file.write_all_at(bytes, *place)?;
            }
            self.sync()?;
        }
        if !taken.tables.l1.is_empty() {
            for (index, entry) in &taken.tables.l1 {
                let at = long(*index).saturating_mul(8);
                let place = self.header.l1_offset.saturating_add(at);
                self.file.write_all_at(&entry.to_be_bytes(), place)?;
            }
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync().inspect_err(|error| {
            // The system may have dropped what it could not write.
            let _ = self.failed.set(error.to_string());
        })
    }

    /// What was no longer used is free.
    fn release(&self, taken: &Taken) -> io::Result<()> {
        let moved = taken.moved.as_ref().map(|moved| {
            let (place, len_bytes) = moved.from;
            (place, place.saturating_add(len_bytes))
        });
        if taken.unused.is_empty() && moved.is_none() {
            return Ok(());
        }
        let mut free = Vec::new();
        // Nobody reads or writes there any more.
        let alone = self.in_flight.write();
        let mut state = self.state.lock();
        let counts = state.counts.as_mut().ok_or_else(read_only)?;
        for (place, end) in taken.unused.iter().chain(&moved) {
            counts.release(*place, *end, &mut free);
        }
        free.sort_unstable();
        let cluster_bytes = self.clusters.bytes();
        // Under the lock: nobody has written there again.
        for run in free.chunk_by(|one, next| one.saturating_add(cluster_bytes) == *next) {
            if let Some(first) = run.first() {
                let len_bytes = long(run.len()).saturating_mul(cluster_bytes);
                self.file.free(*first, len_bytes);
            }
        }
        drop((state, alone));
        Ok(())
    }
}
