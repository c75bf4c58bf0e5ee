//! `cp/stream`: one large file into a fresh ext4 image and out of one, compared with `dd` with O_DIRECT on
//! plain files of the same disk, and with `cat` on the kernel's loop mount.
//!
//! | variant | source | target |
//! | --- | --- | --- |
//! | `cp`, cold; cached | a plain file | a new file of an image that has just been made |
//! | `dd`, cold; cached | the same | a preallocated plain file, by O_DIRECT |
//! | `cat`; `cp` to nothing | a file of an image, cold | `/dev/null` |
//! | `cp` to a file | the same | a new plain file |
//! | `dd`, read | a plain file | `/dev/null` |
//! | the kernel's `cat` | the same image on a loop device | `/dev/null` |
//!
//! This is what a newcomer sees. So no memory is touched in advance, and where free memory returns to the
//! host of a virtual machine, each measurement waits until it has.

use std::path::{Path, PathBuf};

use throughline_explain::record::free_memory_leaves;

use crate::command::{discarded, drop_cached, make_data, own, own_cp, read_into_cache, timed};
use crate::interleave::{Sample, Variant};
use crate::kernel::{LoopMount, e2fsck, may_mount, mke2fs, named};
use crate::outcome::{Outcome, ratios};
use crate::warm::cool;
use crate::{Result, Settings};

const GIB: u64 = 1 << 30;
const MAX_MEMORY_MIB: f64 = 96.0;

/// The variants.
const CP: [&str; 2] = ["cp, cold", "cp, cached"];
const DD: [&str; 2] = ["dd, cold", "dd, cached"];
const CAT: &str = "cat";
const CP_NULL: &str = "cp to nothing";
const CP_OUT: &str = "cp to a file";
const DD_READ: &str = "dd, read";
const KERNEL_CAT: &str = "kernel's cat";

/// Whether the source is in the host's cache: in the order of [`CP`] and [`DD`].
const CACHED: [bool; 2] = [false, true];

/// The files of a run.
struct Files {
    engine: String,
    len_bytes: u64,
    /// The plain file to copy.
    source: PathBuf,
    /// The image to copy to.
    image: PathBuf,
    /// The plain file to copy to.
    plain: PathBuf,
    /// An image that has the file already.
    full: PathBuf,
}

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let [source, image, plain, full] =
        ["source", "image", "plain", "full"].map(|name| scratch.path().join(name));
    let files = &Files {
        engine: settings.engine.to_string(),
        len_bytes: settings.scaled(2 * GIB, 64 << 20) & !((1 << 20) - 1),
        source,
        image,
        plain,
        full,
    };
    make_data(&files.source, files.len_bytes)?;
    files.copy_into(&files.full)?;

    let mut variants = Vec::new();
    for ((cp, dd), cached) in CP.into_iter().zip(DD).zip(CACHED) {
        variants.push(Variant::new(cp, move || files.cp_in(cached)));
        variants.push(Variant::new(dd, move || files.dd(cached)));
    }
    variants.push(Variant::new(CAT, || files.cat()));
    variants.push(Variant::new(CP_NULL, || {
        files.cp_out(Path::new("/dev/null"))
    }));
    variants.push(Variant::new(CP_OUT, || {
        let sample = files.cp_out(&files.plain);
        std::fs::remove_file(&files.plain)?;
        sample
    }));
    variants.push(Variant::new(DD_READ, || files.dd_read()));
    match may_mount() {
        true => variants.push(Variant::new(KERNEL_CAT, || files.kernel_cat())),
        false => outcome.note("the kernel's loop mount: skipped: it needs root and loop devices"),
    }
    outcome.measure(settings, 5, variants)?;
    bars(outcome);
    Ok(())
}

fn bars(outcome: &mut Outcome) {
    let what = "throughput";
    for ((cp, dd), cached) in CP.into_iter().zip(DD).zip(["cold", "cached"]) {
        ratios! { outcome;
            format!("cp into ext4 / dd, both direct, source {cached}") => what, cp, dd, at_least 1.0;
        }
    }
    for ours in [CAT, CP_NULL] {
        ratios! { outcome;
            format!("{ours} / dd, direct read") => what, ours, DD_READ, at_least 1.0;
            format!("{ours} / cat on the kernel's loop mount") => what, ours, KERNEL_CAT, at_least 1.0;
        }
    }
    ratios! { outcome;
        "cp to a file / dd, both direct" => what, CP_OUT, DD[0], at_least 1.0;
    }
    for ours in [CP[0], CP[1], CAT, CP_NULL, CP_OUT] {
        let peak_mib = outcome.most(ours, "peak memory");
        outcome.at_most(
            &format!("peak memory of {ours}, MiB"),
            peak_mib,
            MAX_MEMORY_MIB,
        );
    }
    outcome.note(
        "what writes a file ends with an fsync; e2fsck -fn found nothing after each copy into an image",
    );
    if free_memory_leaves() {
        outcome.note(
            "this machine returns free memory to its host, and gets it back slowly: no memory was touched in \
             advance, and each measurement waited until free memory was returned",
        );
    }
}

impl Files {
    /// Prepares the source and the machine.
    fn ready(&self, cached: bool) -> Result<()> {
        drop_cached(&self.source)?;
        if cached {
            read_into_cache(&self.source)?;
        }
        cool();
        Ok(())
    }

    fn copy_into(&self, image: &Path) -> Result<Sample> {
        let image_bytes = self.len_bytes + self.len_bytes / 4 + (64 << 20);
        mke2fs(image, image_bytes, &["-t", "ext4"])?;
        let sample = self.cp(
            &self.source,
            Path::new(&format!("{}:/file", image.display())),
        )?;
        e2fsck(image)?;
        Ok(sample)
    }

    fn cp_in(&self, cached: bool) -> Result<Sample> {
        self.ready(cached)?;
        let sample = self.copy_into(&self.image)?;
        std::fs::remove_file(&self.image)?;
        Ok(sample)
    }

    fn cp_out(&self, to: &Path) -> Result<Sample> {
        drop_cached(&self.full)?;
        cool();
        self.cp(&self.full_file(), to)
    }

    /// The file in the full image.
    fn full_file(&self) -> PathBuf {
        format!("{}:/file", self.full.display()).into()
    }

    fn cp(&self, from: &Path, to: &Path) -> Result<Sample> {
        let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
        let (spent, report) = own_cp(&["--engine", &self.engine, &from, &to])?;
        Ok(vec![
            ("throughput", "MB/s", spent.mb_per_s(self.len_bytes)),
            ("bios per MiB", "", report.number("bios_per_mib")),
            ("peak memory", "MiB", report.number("peak_memory_mib")),
        ])
    }

    fn cat(&self) -> Result<Sample> {
        drop_cached(&self.full)?;
        cool();
        let mut cat = own()?;
        cat.args(["--engine", &self.engine, "cat"]);
        let (spent, peak_mib) = discarded(cat.arg(self.full_file()))?;
        Ok(vec![
            ("throughput", "MB/s", spent.mb_per_s(self.len_bytes)),
            ("peak memory", "MiB", peak_mib),
        ])
    }

    fn dd(&self, cached: bool) -> Result<Sample> {
        let len = self.len_bytes.to_string();
        crate::kernel::run("fallocate", &["-l", &len, &self.plain.to_string_lossy()])?;
        self.ready(cached)?;
        let mut dd = named("dd");
        dd.arg(format!("if={}", self.source.display()))
            .arg(format!("of={}", self.plain.display()))
            .args(["bs=1M", "iflag=direct", "oflag=direct"])
            .args(["conv=notrunc,fsync", "status=none"]);
        let (spent, _) = timed(&mut dd)?;
        std::fs::remove_file(&self.plain)?;
        Ok(vec![("throughput", "MB/s", spent.mb_per_s(self.len_bytes))])
    }

    fn dd_read(&self) -> Result<Sample> {
        self.ready(false)?;
        let mut dd = named("dd");
        dd.arg(format!("if={}", self.source.display())).args([
            "of=/dev/null",
            "bs=1M",
            "iflag=direct",
            "status=none",
        ]);
        let (spent, _) = timed(&mut dd)?;
        Ok(vec![("throughput", "MB/s", spent.mb_per_s(self.len_bytes))])
    }

    fn kernel_cat(&self) -> Result<Sample> {
        drop_cached(&self.full)?;
        let mount = LoopMount::new(&self.full, "ext4", Some("ro"))?;
        cool();
        let mut cat = named("cat");
        let (spent, _) = discarded(cat.arg(mount.root().path("file")))?;
        Ok(vec![("throughput", "MB/s", spent.mb_per_s(self.len_bytes))])
    }
}
