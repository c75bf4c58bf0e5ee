//! Packing into a file or a block device that exists, as mkfs does: in place.

use std::path::Path;

use throughline_archive::{Sources, Tree};
use throughline_device::DeviceKind;

use super::options::{PackOptions, open};
use super::planned::Packed;
use super::size::{self, PackSize};
use crate::error::{Error, Result};
use crate::make::{made, refuse_occupied};
use crate::write::Clear;

/// The block size for which a target is opened before the volume's is known.
const USUAL_BLOCK_BYTES: u32 = 4096;

impl PackOptions {
    /// Packs a tree into the file or block device `path`, which exists: in place, so that it keeps its owner,
    /// permissions and names. A size that is not exact becomes that of the target; a file that is shorter
    /// than an exact size is lengthened.
    ///
    /// The target is locked meanwhile. When the call returns, the volume is durable. **After an error or a
    /// crash before that, the target holds no volume, or part of one**; an error in the options or the tree
    /// is found before anything is written.
    ///
    /// # Errors
    /// As [`PackOptions::pack`]; [`Error::Occupied`] if the target is not blank and
    /// [`overwrite`](PackOptions::overwrite) is not set.
    pub fn pack_onto(
        &self,
        tree: &Tree,
        sources: &Sources,
        path: impl AsRef<Path>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Packed> {
        let path = path.as_ref();
        if !self.around.is_none() {
            return Err(Error::invalid(
                "what is around a file system (a partition table) is made with a new image only",
            ));
        }
        let (walk, options) = self.walked(tree, sources)?;
        let probe = open(path, USUAL_BLOCK_BYTES)?;
        let options = options.for_device(probe.info())?;
        let len = probe.len_bytes();
        let bytes = match self.size {
            PackSize::Exact(bytes) => bytes,
            _ => len,
        };
        if bytes > len && !probe.is_resizable() {
            return Err(Error::invalid(format!(
                "a volume of {bytes} bytes does not fit the device, which has {len} bytes"
            )));
        }
        let mut sized = size::choose(&options, PackSize::Exact(bytes), &walk)?;
        drop(probe);
        let disk = open(path, sized.request.block_bytes)?;
        let is_file = disk.info().kind == DeviceKind::RegularFile;
        let is_blank = is_file && disk.seek_data(0)?.is_none();
        if !self.overwrite && !is_blank {
            refuse_occupied(&disk, 0)?;
        }
        if is_file && len > 0 {
            sized.manner.becomes_holes(&mut sized.request);
        }
        if bytes > len {
            disk.set_len(bytes)?;
        }
        let clear = match sized.manner.discard {
            _ if is_blank => Clear::Blank,
            true => Clear::All,
            false => Clear::Needed,
        };
        let (plan, request) = self.write(&sized, &options, &disk, clear, progress)?;
        let frame = self.around.frame(PackSize::Exact(sized.bytes), sized.bytes);
        Ok(self.packed(made(&plan, &request), &walk, &frame))
    }
}
