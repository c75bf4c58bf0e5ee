//! `journal/cost`: the cost of the journal. Streams, creation of small files, and fsyncs, on an ext4 image
//! with a journal and on one without; fsyncs also on the kernel's ext4.
//!
//! All images have the same size, lie on the same disk and are fully written in advance, so that the host
//! allocates nothing during the measurement. The placement of an image can matter more than what is compared
//! (for streams, 27 % between two identical images). So streams and creates use one image file, with a new
//! file system for each sample. Each part measures one variant twice: the distance of that ratio from 1 is
//! the noise floor of the others.

mod creates;
mod fsyncs;
mod streams;

use std::path::PathBuf;

use throughline_device::AlignedBuf;

use crate::outcome::Outcome;
use crate::streams::{targets, writers};
use crate::{Result, Settings};

const MIB: u64 = 1 << 20;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let stream_bytes = settings.scaled(1024 * MIB, 64 * MIB) / MIB * MIB;
    let bench = Bench {
        source: writers::source(),
        dir: scratch.path().into(),
        stream_bytes,
        // Half as much again, but with a minimum: in a smaller image, the journal would be smaller than on a
        // typical volume.
        image_bytes: (stream_bytes / 2 * 3).max(512 * MIB),
        settings,
    };
    let images = Images {
        journal: bench.written_out("journal")?,
        none: bench.written_out("none")?,
    };
    outcome.count("image, MiB", (bench.image_bytes / MIB) as f64);
    streams::measure(&bench, &images, outcome)?;
    creates::measure(&bench, &images, outcome)?;
    fsyncs::measure(&bench, &images, outcome)?;
    Ok(())
}

/// State shared by all parts.
struct Bench<'a> {
    source: AlignedBuf,
    dir: PathBuf,
    stream_bytes: u64,
    image_bytes: u64,
    settings: &'a Settings<'a>,
}

/// The image files for file systems with and without a journal.
struct Images {
    journal: PathBuf,
    none: PathBuf,
}

/// Further arguments of `mke2fs`.
const WITH: &[&str] = &[];
const WITHOUT: &[&str] = &["-O", "^has_journal"];

impl Images {
    /// Each image, with the arguments for making its file system.
    fn each(&self) -> [(&PathBuf, &'static [&'static str]); 2] {
        [(&self.journal, WITH), (&self.none, WITHOUT)]
    }
}

impl Bench<'_> {
    fn written_out(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        targets::write_out(&path, self.image_bytes, &self.source, &|| Ok(()))?;
        Ok(path)
    }
}
