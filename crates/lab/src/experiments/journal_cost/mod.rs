//! `journal/cost`: what the journal costs. Streams, creates of small files, and fsyncs, on an ext4 image with a journal and
//! on one without; fsyncs beside the kernel's ext4 too.
//!
//! All images have one size, lie on one disk and are written out before, so that the host allocates nothing while we
//! measure. Where an image lies can make more difference than what is compared (streams: 27 % between two images alike), so
//! streams and creates have one file, with a new file system for each sample. Each part measures one variant twice: the
//! distance of that ratio from 1 is what the other ratios' distance from their limits has to be held against.

mod creates;
mod fsyncs;
mod streams;

use std::path::PathBuf;

use throughline_device::AlignedBuf;

use super::Experiment;
use crate::outcome::Outcome;
use crate::streams::{targets, writers};
use crate::{Result, Settings};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "journal/cost",
    about: "streams, 50,000 small files and fsyncs with a journal, without, and fsyncs by the kernel's ext4",
    run,
};

const MIB: u64 = 1 << 20;

fn run(settings: &Settings<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::new(EXPERIMENT.name);
    let scratch = settings.scratch()?;
    let stream_bytes = settings.scaled(1024 * MIB, 64 * MIB) / MIB * MIB;
    let bench = Bench {
        source: writers::source(),
        dir: scratch.path().into(),
        stream_bytes,
        // Half as much again, and never so little that the journal would be smaller than of a volume in use.
        image_bytes: (stream_bytes / 2 * 3).max(512 * MIB),
        settings,
    };
    let images = Images {
        journal: bench.written_out("journal")?,
        none: bench.written_out("none")?,
    };
    outcome.count("image, MiB", (bench.image_bytes / MIB) as f64);
    streams::measure(&bench, &images, &mut outcome)?;
    creates::measure(&bench, &images, &mut outcome)?;
    fsyncs::measure(&bench, &images, &mut outcome)?;
    Ok(outcome)
}

/// What all parts share.
struct Bench<'a> {
    source: AlignedBuf,
    dir: PathBuf,
    stream_bytes: u64,
    image_bytes: u64,
    settings: &'a Settings<'a>,
}

/// Where file systems with and without a journal are made.
struct Images {
    journal: PathBuf,
    none: PathBuf,
}

/// Further arguments of `mke2fs`.
const WITH: &[&str] = &[];
const WITHOUT: &[&str] = &["-O", "^has_journal"];

impl Images {
    /// Each image with the arguments that its file system is made with.
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
