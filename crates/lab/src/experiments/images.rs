//! What an overlay and a journal cost: the same work on images that differ in that.
//!
//! `overlay/cost`: through a new overlay over a raw base, and on a plain image with the same content; every
//! first write to a cluster is part of it. `journal/cost`: on one image file with a new file system for each
//! sample, with and without a journal; its fsyncs also on the kernel's ext4.
//!
//! All images are fully written in advance, so that the host allocates nothing; the file of an overlay grows.
//! Where an image lies can matter more than what is compared (27 % between two identical images). One side is
//! measured twice: the distance of that ratio from 1 is the noise floor of the others.

use std::path::{Path, PathBuf};

use throughline::{File, ImageOptions, OpenOptions, Volume};
use throughline_device::AlignedBuf;

use crate::command::drop_cached;
use crate::interleave::{Sample, Variant};
use crate::kernel::{e2fsck, may_mount, mkfs};
use crate::meter::{Meter, Spent};
use crate::mounts::mounted::Mounted;
use crate::mounts::work::{NEW, together};
use crate::outcome::{Outcome, ratios};
use crate::streams::{targets, writers};
use crate::{Result, Settings};

const MIB: u64 = 1 << 20;
const CALL_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;
const FILE_BYTES: usize = 2048;
const FILES_PER_FOLDER: u64 = 100;

/// The file whose data lies in the base.
const DATA: &str = "/data";

/// Work on a volume, and the quantities that it measures.
type Work = fn(&Tools, &Image) -> Result<Sample>;
const WORKS: [(&str, Work, &[&str]); 6] = [
    ("stream", Tools::stream, &["write", "read back"]),
    ("read of the base", Tools::read_base, &["read"]),
    ("random 4 KiB writes", Tools::random_writes, &["rate"]),
    ("rewrite of the base", Tools::rewrite, &["write"]),
    ("small files", Tools::small_files, &["rate"]),
    ("fsync of appends", Tools::appends, &["rate"]),
];

struct Tools {
    options: OpenOptions,
    source: AlignedBuf,
    /// Of the stream, and of the data in the base.
    stream_bytes: u64,
    writes: u64,
    files: u64,
    appends: u64,
}

/// What is opened.
#[derive(Clone)]
struct Image {
    path: PathBuf,
    overlay: Option<PathBuf>,
    /// The arguments of `mke2fs` for a new file system in each sample.
    new: Option<&'static [&'static str]>,
    /// The threads that append.
    threads: usize,
}

pub(super) fn overlay(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    const SIDES: [&str; 3] = ["overlay", "plain", "plain again"];
    let scratch = settings.scratch()?;
    let [base, plain, overlay] = ["base", "plain", "overlay"].map(|name| scratch.path().join(name));
    let tools = &Tools::new(settings);
    for path in [&base, &plain] {
        tools.make(path)?;
        let volume = settings.volume(path)?;
        tools.write_stream(&volume.create_file(DATA)?)?;
        volume.close()?;
    }
    let over = Image::of(&base, Some(overlay));
    let plain = Image::of(&plain, None);
    for (name, work, quantities) in WORKS {
        let label = |side: &str| format!("{name}, {side}");
        let sides = SIDES.into_iter().zip([&over, &plain, &plain]);
        let variants = sides.map(|(side, image)| Variant::new(label(side), || work(tools, image)));
        outcome.measure(settings, 7, variants.collect::<Vec<_>>())?;
        for quantity in quantities {
            let [over, plain, again] = SIDES.map(label);
            ratios! { outcome;
                format!("{name}, {quantity}: overlay / plain") => quantity, over, plain;
                format!("{name}, {quantity}: control, plain twice") => quantity, again, plain;
            }
        }
    }
    e2fsck(&base)?;
    e2fsck(&plain.path)
}

pub(super) fn journal(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    const WITH: &[&str] = &[];
    const WITHOUT: &[&str] = &["-O", "^has_journal"];
    let scratch = settings.scratch()?;
    let path = scratch.path().join("image");
    let tools = &Tools::new(settings);
    tools.make(&path)?;
    let image = |new, threads| Image {
        new: Some(new),
        threads,
        ..Image::of(&path, None)
    };
    let mut variants = Vec::new();
    for (name, new) in [
        ("journal", WITH),
        ("no journal", WITHOUT),
        ("no journal again", WITHOUT),
    ] {
        let image = image(new, 1);
        let stream = move || tools.stream(&image);
        variants.push(Variant::new(format!("stream, {name}"), stream));
    }
    for (threads, _) in FSYNCS {
        for (name, new) in [
            ("journal", WITH),
            ("journal again", WITH),
            ("no journal", WITHOUT),
        ] {
            let image = image(new, threads);
            let name = format!("fsync, {name}, {threads} threads");
            variants.push(Variant::new(name, move || tools.appends(&image)));
        }
        if may_mount() {
            let image = image(WITH, threads);
            let name = format!("fsync, kernel ext4, {threads} threads");
            variants.push(Variant::new(name, move || tools.kernels_appends(&image)));
        }
    }
    outcome.measure(settings, 7, variants)?;
    e2fsck(&path)?;
    if !may_mount() {
        outcome
            .note("fsync: the kernel's ext4 on loop was left out: it needs root and loop devices");
    }
    ratios! { outcome;
        "stream: journal / no journal" => "write", "stream, journal", "stream, no journal", at_least 0.97;
        "stream: control, no journal twice" => "write", "stream, no journal again", "stream, no journal";
    }
    for (threads, limit) in FSYNCS {
        let of = |what: &str| format!("fsync, {what}, {threads} threads");
        ratios! { outcome;
            of("journal / kernel ext4") => "rate", of("journal"), of("kernel ext4"), at_least limit;
            of("control, journal twice") => "rate", of("journal again"), of("journal");
            of("journal / no journal") => "rate", of("journal"), of("no journal");
        }
    }
    Ok(())
}

/// The threads that append and sync, and the limit of their rate over the kernel's.
const FSYNCS: [(usize, f64); 2] = [(1, 0.8), (8, 1.0)];

impl Image {
    fn of(path: &Path, overlay: Option<PathBuf>) -> Image {
        Image {
            path: path.into(),
            overlay,
            new: None,
            threads: 1,
        }
    }

    /// Removes what the last sample made, and opens the image cold.
    fn begin(&self, options: &OpenOptions) -> Result<Volume> {
        if let Some(arguments) = self.new {
            mkfs("ext4", &self.path, arguments)?;
        }
        if let Some(overlay) = self.overlay.as_ref().filter(|overlay| overlay.exists()) {
            std::fs::remove_file(overlay)?;
        }
        self.open(options)
    }

    /// Opens it cold.
    fn open(&self, options: &OpenOptions) -> Result<Volume> {
        for path in [Some(&self.path), self.overlay.as_ref()]
            .into_iter()
            .flatten()
        {
            if path.exists() {
                drop_cached(path)?;
            }
        }
        let mut options = options.clone();
        if self.overlay.is_some() {
            let mut image = ImageOptions::new();
            image.overlay(self.overlay.clone());
            options.image(&image);
        }
        Ok(options.open(&self.path)?)
    }
}

impl Tools {
    fn new(settings: &Settings<'_>) -> Tools {
        Tools {
            options: settings.opening(),
            source: writers::source(),
            stream_bytes: settings.scaled(1024 * MIB, 16 * MIB) / MIB * MIB,
            writes: settings.scaled(20_000, 500),
            files: settings.scaled(4_000, 200),
            appends: settings.scaled(800, 40),
        }
    }

    fn make(&self, path: &Path) -> Result<()> {
        let image_bytes = self.stream_bytes * 2 + 256 * MIB;
        targets::write_out(path, image_bytes, &self.source, &|| Ok(()))?;
        mkfs("ext4", path, &[]).map(drop)
    }

    fn piece(&self, at: u64, len: usize) -> &[u8] {
        let from = (at % (self.source.len() - len + 1) as u64) as usize;
        &self.source[from..from + len]
    }

    /// From the begin to the end, and synced.
    fn write_stream(&self, file: &File) -> Result<Spent> {
        let meter = Meter::start();
        for at in (0..self.stream_bytes).step_by(CALL_BYTES as usize) {
            file.write_all_at(self.piece(at, CALL_BYTES as usize), at)?;
        }
        file.sync_all()?;
        Ok(meter.spent())
    }

    fn read_stream(&self, file: &File, quantity: &'static str) -> Result<Sample> {
        let mut buffer = vec![0; CALL_BYTES as usize];
        let meter = Meter::start();
        for at in (0..self.stream_bytes).step_by(CALL_BYTES as usize) {
            file.read_exact_at(&mut buffer, at)?;
        }
        let rate = meter.spent().mib_per_s(self.stream_bytes);
        Ok(vec![(quantity, "MiB/s", rate)])
    }

    fn written(&self, spent: &Spent) -> Sample {
        vec![
            ("write", "MiB/s", spent.mib_per_s(self.stream_bytes)),
            ("cpu", "s/GiB", spent.cpu_s_per_gib(self.stream_bytes)),
        ]
    }

    /// A new file is written, and read again, cold.
    fn stream(&self, image: &Image) -> Result<Sample> {
        let volume = image.begin(&self.options)?;
        let spent = self.write_stream(&volume.create_file("/stream")?)?;
        volume.close()?;
        let volume = image.open(&self.options)?;
        let mut sample = self.read_stream(&volume.open_file("/stream")?, "read back")?;
        volume.remove_file("/stream")?;
        volume.close()?;
        sample.extend(self.written(&spent));
        Ok(sample)
    }

    fn read_base(&self, image: &Image) -> Result<Sample> {
        let volume = image.begin(&self.options)?;
        let sample = self.read_stream(&volume.open_file(DATA)?, "read")?;
        volume.close()?;
        Ok(sample)
    }

    fn rewrite(&self, image: &Image) -> Result<Sample> {
        let volume = image.begin(&self.options)?;
        let spent = self.write_stream(&volume.open_file(DATA)?)?;
        volume.close()?;
        Ok(self.written(&spent))
    }

    fn random_writes(&self, image: &Image) -> Result<Sample> {
        let volume = image.begin(&self.options)?;
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
        Ok(rate("writes/s", self.writes, &spent))
    }

    /// A tree, with one sync at the end.
    fn small_files(&self, image: &Image) -> Result<Sample> {
        let volume = image.begin(&self.options)?;
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
        Ok(rate("files/s", self.files, &spent))
    }

    /// Appends of 4 KiB, each with an fsync, by each thread to a file of its own.
    fn appends(&self, image: &Image) -> Result<Sample> {
        let volume = image.begin(&self.options)?;
        let file = |thread| volume.create_file(format!("/log{thread}"));
        let files = (0..image.threads)
            .map(file)
            .collect::<throughline::Result<Vec<_>>>()?;
        volume.sync()?;
        let sample = self.append(&files, |file, bytes, at| {
            file.write_all_at(bytes, at)?;
            Ok(file.sync_all()?)
        })?;
        drop(files);
        volume.close()?;
        Ok(sample)
    }

    fn kernels_appends(&self, image: &Image) -> Result<Sample> {
        use std::os::unix::fs::FileExt as _;
        mkfs("ext4", &image.path, image.new.unwrap_or_default())?;
        let mount = Mounted::hidden(&image.path, "ext4")?;
        let file = |thread| mount.root().open(&format!("log{thread}"), NEW);
        let files = (0..image.threads).map(file).collect::<Result<Vec<_>>>()?;
        mount.sync()?;
        self.append(&files, |file, bytes, at| {
            file.write_all_at(bytes, at)?;
            Ok(file.sync_all()?)
        })
    }

    fn append<F: Sync>(
        &self,
        files: &[F],
        append: impl Fn(&F, &[u8], u64) -> Result<()> + Sync,
    ) -> Result<Sample> {
        let each = self.appends / files.len() as u64;
        let bytes = &self.source[..BLOCK_BYTES as usize];
        let spent = together(files.len(), |thread| {
            (0..each).try_for_each(|number| append(&files[thread], bytes, number * BLOCK_BYTES))
        })?;
        Ok(rate("fsync/s", each * files.len() as u64, &spent))
    }
}

fn rate(unit: &'static str, count: u64, spent: &Spent) -> Sample {
    vec![("rate", unit, count as f64 / spent.wall.as_secs_f64())]
}
