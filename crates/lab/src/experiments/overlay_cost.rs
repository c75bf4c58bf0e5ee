//! `overlay/cost`: what an overlay costs. The same work on an image, and through a new overlay over a raw
//! base with the same content; the overlay is made for each sample, so every first write to a cluster is part
//! of it.
//!
//! Base and plain image have the same size, lie on the same disk and are fully written in advance; the file
//! of the overlay grows. The plain image is measured twice: the distance of that ratio from 1 is the noise
//! floor of the others.

use std::path::{Path, PathBuf};

use throughline::internal::VolumeLayers;
use throughline::{File, ImageOptions, Volume};
use throughline_device::AlignedBuf;

use crate::command::drop_cached;
use crate::interleave::{Sample, Variant};
use crate::kernel::{e2fsck, mkfs};
use crate::meter::Meter;
use crate::outcome::Outcome;
use crate::streams::{targets, writers};
use crate::{Result, Settings};

const MIB: u64 = 1 << 20;
const CALL_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;
const FILE_BYTES: usize = 2048;
const FILES_PER_FOLDER: u64 = 100;

/// The file whose data lies in the base.
const DATA: &str = "/data";

const OVERLAY: &str = "overlay";
const PLAIN: &str = "plain";
const AGAIN: &str = "plain again";

/// What is done in a sample, and the quantities that it measures.
const WORKS: [(&str, Work, &[&str]); 6] = [
    (
        "stream",
        |bench, image| bench.stream(image),
        &["write", "read back"],
    ),
    (
        "read of the base",
        |bench, image| bench.read_base(image),
        &["read"],
    ),
    (
        "random 4 KiB writes",
        |bench, image| bench.random_writes(image),
        &["rate"],
    ),
    (
        "rewrite of the base",
        |bench, image| bench.rewrite(image),
        &["write"],
    ),
    (
        "small files",
        |bench, image| bench.small_files(image),
        &["rate"],
    ),
    (
        "fsync of appends",
        |bench, image| bench.appends(image),
        &["rate"],
    ),
];

type Work = fn(&Bench<'_>, &Image) -> Result<Sample>;

struct Bench<'a> {
    settings: &'a Settings<'a>,
    source: AlignedBuf,
    /// Of the stream, and of the data in the base.
    stream_bytes: u64,
    writes: u64,
    files: u64,
    appends: u64,
}

/// What is opened.
struct Image {
    path: PathBuf,
    overlay: Option<PathBuf>,
}

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let [base, plain, overlay] = ["base", "plain", "overlay"].map(|name| scratch.path().join(name));
    let bench = &Bench {
        settings,
        source: writers::source(),
        stream_bytes: settings.scaled(1024 * MIB, 16 * MIB) / MIB * MIB,
        writes: settings.scaled(20_000, 500),
        files: settings.scaled(4_000, 200),
        appends: settings.scaled(500, 20),
    };
    for path in [&base, &plain] {
        bench.make(path)?;
    }
    let over = &Image {
        path: base.clone(),
        overlay: Some(overlay),
    };
    let plain = &Image {
        path: plain,
        overlay: None,
    };
    for (name, work, quantities) in WORKS {
        let variant = |side: &str, image| {
            Variant::new(label(name, side), move || {
                let sample = work(bench, image)?;
                image.forget()?;
                Ok(sample)
            })
        };
        let variants = [
            variant(OVERLAY, over),
            variant(PLAIN, plain),
            variant(AGAIN, plain),
        ];
        outcome.measure(settings, 7, variants)?;
        for quantity in quantities {
            for (what, side) in [
                ("overlay / plain", OVERLAY),
                ("control, plain twice", AGAIN),
            ] {
                let title = format!("{name}, {quantity}: {what}");
                outcome.ratio(&title, quantity, &label(name, side), &label(name, PLAIN));
            }
        }
    }
    e2fsck(&base)?;
    e2fsck(&plain.path)?;
    outcome.count("stream and data, MiB", (bench.stream_bytes / MIB) as f64);
    outcome.count("random writes", bench.writes as f64);
    outcome.count("small files", bench.files as f64);
    outcome.count("appends", bench.appends as f64);
    Ok(())
}

fn label(work: &str, side: &str) -> String {
    format!("{work}, {side}")
}

impl Image {
    /// Opens it cold.
    fn open(&self, settings: &Settings<'_>) -> Result<Volume> {
        for path in [Some(&self.path), self.overlay.as_ref()]
            .into_iter()
            .flatten()
        {
            if path.exists() {
                drop_cached(path)?;
            }
        }
        let mut options = settings.opening();
        if self.overlay.is_some() {
            let mut image = ImageOptions::new();
            image.overlay(self.overlay.clone());
            options.image(&image);
        }
        let volume = options.open(&self.path)?;
        settings.observe_cache(volume.cache());
        Ok(volume)
    }

    /// Removes the overlay of a sample.
    fn forget(&self) -> Result<()> {
        if let Some(overlay) = &self.overlay {
            std::fs::remove_file(overlay)?;
        }
        Ok(())
    }
}

impl Bench<'_> {
    /// An image with the data.
    fn make(&self, path: &Path) -> Result<()> {
        let image_bytes = self.stream_bytes * 2 + 256 * MIB;
        targets::write_out(path, image_bytes, &self.source, &|| Ok(()))?;
        mkfs("ext4", path, &[])?;
        let volume = self.settings.volume(path)?;
        self.write_stream(&volume.create_file(DATA)?)?;
        volume.close()?;
        Ok(())
    }

    /// From the begin to the end, and synced.
    fn write_stream(&self, file: &File) -> Result<()> {
        let mut at = 0;
        while at < self.stream_bytes {
            file.write_all_at(self.piece(at, CALL_BYTES as usize), at)?;
            at += CALL_BYTES;
        }
        Ok(file.sync_all()?)
    }

    fn read_stream(&self, file: &File) -> Result<Sample> {
        let mut buffer = vec![0; CALL_BYTES as usize];
        let meter = Meter::start();
        let mut at = 0;
        while at < self.stream_bytes {
            file.read_exact_at(&mut buffer, at)?;
            at += CALL_BYTES;
        }
        let spent = meter.spent();
        Ok(vec![("read", "MiB/s", spent.mib_per_s(self.stream_bytes))])
    }

    fn piece(&self, at: u64, len: usize) -> &[u8] {
        let from = (at % (self.source.len() - len + 1) as u64) as usize;
        &self.source[from..from + len]
    }

    /// A new file is written, and read again, cold.
    fn stream(&self, image: &Image) -> Result<Sample> {
        let volume = image.open(self.settings)?;
        let file = volume.create_file("/stream")?;
        let meter = Meter::start();
        self.write_stream(&file)?;
        let spent = meter.spent();
        drop(file);
        volume.close()?;
        let volume = image.open(self.settings)?;
        let mut sample = self.read_stream(&volume.open_file("/stream")?)?;
        volume.remove_file("/stream")?;
        volume.close()?;
        for quantity in &mut sample {
            quantity.0 = "read back";
        }
        sample.push(("write", "MiB/s", spent.mib_per_s(self.stream_bytes)));
        sample.push(("cpu", "s/GiB", spent.cpu_s_per_gib(self.stream_bytes)));
        Ok(sample)
    }

    fn read_base(&self, image: &Image) -> Result<Sample> {
        let volume = image.open(self.settings)?;
        let sample = self.read_stream(&volume.open_file(DATA)?)?;
        volume.close()?;
        Ok(sample)
    }

    fn random_writes(&self, image: &Image) -> Result<Sample> {
        let volume = image.open(self.settings)?;
        let file = volume.open_file(DATA)?;
        let mut random = fastrand::Rng::with_seed(4096);
        let meter = Meter::start();
        for _ in 0..self.writes {
            let at = random.u64(..self.stream_bytes / BLOCK_BYTES) * BLOCK_BYTES;
            file.write_all_at(self.piece(at, BLOCK_BYTES as usize), at)?;
        }
        file.sync_all()?;
        let spent = meter.spent();
        drop(file);
        volume.close()?;
        let rate = self.writes as f64 / spent.wall.as_secs_f64();
        Ok(vec![("rate", "writes/s", rate)])
    }

    fn rewrite(&self, image: &Image) -> Result<Sample> {
        let volume = image.open(self.settings)?;
        let file = volume.open_file(DATA)?;
        let meter = Meter::start();
        self.write_stream(&file)?;
        let spent = meter.spent();
        drop(file);
        volume.close()?;
        Ok(vec![
            ("write", "MiB/s", spent.mib_per_s(self.stream_bytes)),
            ("cpu", "s/GiB", spent.cpu_s_per_gib(self.stream_bytes)),
        ])
    }

    /// A tree, with one sync at the end.
    fn small_files(&self, image: &Image) -> Result<Sample> {
        let volume = image.open(self.settings)?;
        let meter = Meter::start();
        let root = volume.create_dir("/tree")?;
        let mut made = 0;
        while made < self.files {
            let folder = root.create_dir(format!("d{:04}", made / FILES_PER_FOLDER))?;
            for number in made..self.files.min(made + FILES_PER_FOLDER) {
                let file = folder.create_file(format!("file-{number:06}"))?;
                file.write_all_at(self.piece(number, FILE_BYTES), 0)?;
            }
            made += FILES_PER_FOLDER;
        }
        volume.sync()?;
        let spent = meter.spent();
        drop(root);
        volume.remove_dir_all("/tree")?;
        volume.close()?;
        let rate = self.files as f64 / spent.wall.as_secs_f64();
        Ok(vec![("rate", "files/s", rate)])
    }

    /// Appends of 4 KiB, each with an fsync.
    fn appends(&self, image: &Image) -> Result<Sample> {
        let volume = image.open(self.settings)?;
        let file = volume.create_file("/log")?;
        volume.sync()?;
        let meter = Meter::start();
        for number in 0..self.appends {
            let at = number * BLOCK_BYTES;
            file.write_all_at(self.piece(at, BLOCK_BYTES as usize), at)?;
            file.sync_all()?;
        }
        let spent = meter.spent();
        drop(file);
        volume.close()?;
        let rate = self.appends as f64 / spent.wall.as_secs_f64();
        Ok(vec![("rate", "fsync/s", rate)])
    }
}
