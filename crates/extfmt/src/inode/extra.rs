//! The fields of an inode that exist, or have their full width, only with enough `i_extra_isize`: times,
//! version, project.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::U32;

use super::{InodeExtra, InodeImage};
use crate::time::Timestamp;

/// One of the inode's four times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Last access.
    Access,
    /// Last change of the inode.
    Change,
    /// Last change of the data.
    Modify,
    /// Creation (birth); exists only with its extra field.
    Create,
}

impl InodeImage {
    /// A time; `None` for the birth time of an inode that has no room for it.
    pub fn time(&self, which: Time) -> Option<Timestamp> {
        let (base, extra) = (self.base(), self.extra());
        let (word, extra_word) = match which {
            Time::Access => (base.i_atime, extra.map(|e| e.i_atime_extra)),
            Time::Change => (base.i_ctime, extra.map(|e| e.i_ctime_extra)),
            Time::Modify => (base.i_mtime, extra.map(|e| e.i_mtime_extra)),
            Time::Create => {
                let extra = extra.filter(|_| self.has_time(Time::Create))?;
                (extra.i_crtime, Some(extra.i_crtime_extra))
            }
        };
        let extra_word = extra_word.filter(|_| self.has_time(which));
        Some(Timestamp::decode(word.get(), extra_word.map(U32::get)))
    }

    /// Whether the time has its extra word (for the birth time: whether it exists).
    fn has_time(&self, which: Time) -> bool {
        self.reaches(match which {
            Time::Change => offset_of!(InodeExtra, i_mtime_extra),
            Time::Modify => offset_of!(InodeExtra, i_atime_extra),
            Time::Access => offset_of!(InodeExtra, i_crtime),
            Time::Create => offset_of!(InodeExtra, i_version_hi),
        })
    }

    /// Sets a time, with the precision that fits. A birth time without room is not set.
    pub fn set_time(&mut self, which: Time, time: Timestamp) {
        let long = self.has_time(which);
        let (word, extra_word) = if long {
            time.encode()
        } else {
            (time.encode_short(), 0)
        };
        match which {
            Time::Access => self.base_mut().i_atime.set(word),
            Time::Change => self.base_mut().i_ctime.set(word),
            Time::Modify => self.base_mut().i_mtime.set(word),
            Time::Create => {}
        }
        let Some(extra) = self.extra_mut().filter(|_| long) else {
            return;
        };
        match which {
            Time::Access => extra.i_atime_extra.set(extra_word),
            Time::Change => extra.i_ctime_extra.set(extra_word),
            Time::Modify => extra.i_mtime_extra.set(extra_word),
            Time::Create => {
                extra.i_crtime.set(word);
                extra.i_crtime_extra.set(extra_word);
            }
        }
    }

    /// `i_version`: 64 bits if there is room, else 32.
    pub fn version(&self) -> u64 {
        let high = self
            .extra()
            .filter(|_| self.reaches(offset_of!(InodeExtra, i_projid)));
        let high = high.map_or(0, |extra| extra.i_version_hi.get());
        u64::from(high) << 32 | u64::from(self.base().l_i_version.get())
    }

    /// Sets `i_version`: the lower 32 bits, and the upper ones if there is room.
    pub fn set_version(&mut self, version: u64) {
        self.base_mut().l_i_version.set(version as u32);
        if self.reaches(offset_of!(InodeExtra, i_projid))
            && let Some(extra) = self.extra_mut()
        {
            extra.i_version_hi.set((version >> 32) as u32);
        }
    }

    /// The project ID; 0 if there is no room for it.
    pub fn projid(&self) -> u32 {
        let present = self.reaches(size_of::<InodeExtra>());
        self.extra()
            .filter(|_| present)
            .map_or(0, |extra| extra.i_projid.get())
    }

    /// Sets the project ID. `false` if there is no room for it.
    #[must_use]
    pub fn set_projid(&mut self, projid: u32) -> bool {
        let present = self.reaches(size_of::<InodeExtra>());
        match self.extra_mut().filter(|_| present) {
            Some(extra) => extra.i_projid.set(projid),
            None => return false,
        }
        true
    }
}
