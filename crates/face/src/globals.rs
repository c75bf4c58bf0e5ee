//! The options that all commands take.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, ValueEnum};
use throughline::internal::remove_overlay_if;
use throughline::overlay::remove_unused;
use throughline::{
    Backing, DirtyLimits, EngineChoice, Format, ImageOptions, OpenOptions, VolumeOptions,
};
use tracing_subscriber::filter::LevelFilter;

use crate::logging::{self, level_parser};
use crate::problem::Failure;
use crate::text::{parse_size, quote};

/// Help heading of the options that every command takes.
pub const GLOBAL_OPTIONS: &str = "Global options";

/// Options of all commands.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = GLOBAL_OPTIONS)]
pub struct Globals {
    /// Start of the file system in the image, where no partition table describes it (else: IMAGE@2): in
    /// bytes, or with a unit (k, M, G: powers of 1024; s: sectors of 512 bytes)
    #[arg(
        long,
        global = true,
        value_name = "BYTES",
        default_value = "0",
        hide_default_value = true,
        value_parser = parse_size
    )]
    pub offset: u64,
    /// Format of the image, instead of by its content: raw, qcow2, vmdk or vhdx (the last two are only read).
    /// Name it as raw if a stranger or a guest may have written its beginning
    #[arg(long, global = true, value_name = "FORMAT")]
    pub image_format: Option<Format>,
    /// Allow an image to have this backing file, or backing files in this directory (may be repeated);
    /// without it, an image cannot make another file be opened. An overlay over a signed URL needs the whole
    /// URL here, as it keeps no signature
    #[arg(long, global = true, value_name = "PATH")]
    pub backing: Vec<PathBuf>,
    /// Write changes to this qcow2 image, not to the image itself, which becomes its backing file; it is made
    /// if it is not there. What reads the image sees the changes
    #[arg(long, global = true, value_name = "FILE")]
    pub overlay: Option<PathBuf>,
    /// Set before images are closed: an overlay that was made for nothing is removed.
    #[arg(skip)]
    pub unwanted: Arc<AtomicBool>,
    /// Device or file of the image's external journal
    #[arg(long = "journal", global = true, value_name = "PATH")]
    pub journal_device: Option<PathBuf>,
    /// I/O engine; auto uses io_uring if the kernel allows it
    #[arg(
        long,
        global = true,
        value_name = "ENGINE",
        default_value = "auto",
        hide_default_value = true
    )]
    pub engine: Engine,
    /// Bypass throughline's page cache: read and write files directly between memory and the device
    #[arg(long, global = true)]
    pub direct: bool,
    /// Use the host's page cache, instead of O_DIRECT
    #[arg(long, global = true)]
    pub host_cache: bool,
    /// Memory for throughline's page cache (64M, 1G), instead of a quarter of the memory this process may use
    /// (for a mount, at most 256M). cp and cat bypass the cache for long files, unless this is given
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_cache)]
    pub cache: Option<u64>,
    /// Limit of dirty memory (data not yet on the device), instead of a fifth of the cache; writers wait at
    /// the limit
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_dirty_limit)]
    pub dirty_limit: Option<u64>,
    /// Dirty memory at which background write-back starts, instead of half of the limit; at most three
    /// quarters of the limit
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_dirty_background)]
    pub dirty_background: Option<u64>,
    /// Maximum readahead for a sequential reader; 0 disables it
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_size)]
    pub readahead: Option<u64>,
    /// Target size of data I/Os, instead of the one derived from the device; a multiple of its logical block
    /// size
    #[arg(long, global = true, value_name = "BYTES", value_parser = parse_bio_target)]
    pub bio_target: Option<u32>,
    /// Maximum seconds until changed names, sizes and attributes are on the disk, instead of 5
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..=MAX_COMMIT_S)
    )]
    pub commit: Option<u32>,
    /// Read an image without replaying its journal; it may be inconsistent
    #[arg(long = "noload", global = true)]
    pub no_replay: bool,
    /// Keep all rights. Otherwise, the server of a mount gives up those that it does not need, and commands
    /// that work on images start no programs and use no network, if the system allows that
    #[arg(long, global = true)]
    pub no_sandbox: bool,
    /// Log messages of this level and more severe ones [default: off; warn for mount]
    #[arg(long, global = true, value_name = "LEVEL", value_parser = level_parser())]
    pub log: Option<LevelFilter>,
    /// Append the log to a file, instead of standard error (or syslog, for a mount in the background)
    #[arg(long, global = true, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Show no progress and no notes
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// The choice of engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// io_uring if the kernel allows it, else threads.
    #[default]
    Auto,
    /// io_uring; an error if it is not available.
    Uring,
    /// A pool of threads with preadv2 and pwritev2.
    Threads,
}

impl From<Engine> for EngineChoice {
    fn from(engine: Engine) -> EngineChoice {
        match engine {
            Engine::Auto => EngineChoice::Auto,
            Engine::Uring => EngineChoice::Uring,
            Engine::Threads => EngineChoice::Threads,
        }
    }
}

fn parse_bio_target(text: &str) -> Result<u32, String> {
    match u32::try_from(parse_size(text)?) {
        Ok(bytes) if bytes < MIN_BLOCK_BYTES => Err(format!(
            "bio target {} is less than a block of {MIN_BLOCK_BYTES} bytes",
            quote(text)
        )),
        Ok(bytes) if !bytes.is_multiple_of(MIN_BLOCK_BYTES) => Err(format!(
            "bio target {} is not a multiple of {MIN_BLOCK_BYTES} bytes",
            quote(text)
        )),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(format!("bio target {} is too large", quote(text))),
    }
}

/// Maximum interval between commits: a longer one would risk the loss of more than an hour of changes.
const MAX_COMMIT_S: i64 = 3600;
/// Minimum block size of a device.
const MIN_BLOCK_BYTES: u32 = 512;
/// Minimum cache size. A smaller value often lacks its unit.
const MIN_CACHE_BYTES: u64 = 1 << 20;

fn parse_cache(text: &str) -> Result<u64, String> {
    parse_memory(text, MIN_CACHE_BYTES)
}

fn parse_dirty_limit(text: &str) -> Result<u64, String> {
    parse_memory(text, DirtyLimits::MIN_BYTES)
}

fn parse_dirty_background(text: &str) -> Result<u64, String> {
    parse_memory(text, DirtyLimits::MIN_BYTES / 4)
}

fn parse_memory(text: &str, least_bytes: u64) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < least_bytes => Err(format!(
            "{} is too little memory: at least {}K is needed (sizes take a unit: 64M, 1G)",
            quote(text),
            least_bytes >> 10
        )),
        bytes => Ok(bytes),
    }
}

impl Globals {
    /// Starts the log of a command.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn start_log(&self) -> Result<(), Failure> {
        logging::start(
            self.log.unwrap_or(LevelFilter::OFF),
            self.log_file.as_deref(),
        )
    }

    /// Runs a command, and removes the overlay again if it was made by one that could not open it. Returns
    /// the exit code.
    pub fn without_unused_overlay(self, run: impl FnOnce() -> u8) -> u8 {
        let new_overlay = self.overlay.filter(|overlay| !overlay.exists());
        let code = run();
        if let Some(overlay) = new_overlay.filter(|_| code != 0) {
            let _ = remove_unused(overlay);
        }
        code
    }

    /// How to open a device, for changes as well if `write`.
    pub fn open_options(&self, write: bool) -> Result<OpenOptions, Failure> {
        if let (Some(limit), Some(background)) = (self.dirty_limit, self.dirty_background)
            && background > limit
        {
            return Err(Failure::Usage(
                "--dirty-background is larger than --dirty-limit: writers would wait before background \
                 write-back starts".into(),
            ));
        }
        if let (Some(cache), Some(limit)) = (self.cache, self.dirty_limit)
            && limit > cache
        {
            return Err(Failure::Usage(
                "--dirty-limit is larger than --cache, which contains the dirty data".into(),
            ));
        }
        if self.no_replay && write {
            return Err(Failure::Usage(
                "--noload only shows an image: it cannot be changed without replaying its journal"
                    .into(),
            ));
        }
        let mut volume = VolumeOptions::new();
        volume.journal(self.journal_device.clone());
        if let Some(seconds) = self.commit {
            volume.commit_interval(Duration::from_secs(seconds.into()));
        }
        let mut options = OpenOptions::new();
        options
            .volume(&volume)
            .no_replay(self.no_replay)
            .engine(self.engine.into())
            .direct(!self.host_cache)
            .buffered(!self.direct)
            .write(write)
            .offset(self.offset)
            .image(&self.image_options())
            .cache_bytes(self.cache)
            .dirty_limits(DirtyLimits::new(self.dirty_limit, self.dirty_background))
            .readahead_max(self.readahead)
            .bio_target(self.bio_target);
        Ok(options)
    }

    /// How disks lie in their images.
    pub fn image_options(&self) -> ImageOptions {
        let mut options = ImageOptions::new();
        options
            .format(self.image_format)
            .backing(Backing::from_iter(&self.backing))
            .overlay(self.overlay.clone());
        if self
            .overlay
            .as_ref()
            .is_some_and(|overlay| !overlay.exists())
        {
            remove_overlay_if(&mut options, Arc::clone(&self.unwanted));
        }
        options
    }

    /// The options given for opening files, except the engine: names and values.
    pub fn given(&self) -> Vec<(&'static str, String)> {
        let mut given = Vec::new();
        let mut add = |name, value: Option<String>| given.extend(value.map(|value| (name, value)));
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes.to_string());
        let yes = |yes: bool| yes.then(|| "yes".to_owned());
        add("offset", bytes(Some(self.offset).filter(|at| *at > 0)));
        add(
            "image-format",
            self.image_format.map(|format| format.to_string()),
        );
        let overlay = self.overlay.as_ref();
        add("overlay", overlay.map(|path| path.display().to_string()));
        let journal = self.journal_device.as_ref();
        add("journal", journal.map(|path| path.display().to_string()));
        add("direct", yes(self.direct));
        add("host-cache", yes(self.host_cache));
        add("cache", bytes(self.cache));
        add("dirty-limit", bytes(self.dirty_limit));
        add("dirty-background", bytes(self.dirty_background));
        add("readahead", bytes(self.readahead));
        add("bio-target", bytes(self.bio_target.map(u64::from)));
        add("commit", bytes(self.commit.map(u64::from)));
        add("noload", yes(self.no_replay));
        add("no-sandbox", yes(self.no_sandbox));
        given
    }

    /// Refuses an I/O size that this device does not support.
    pub fn check_bio_target(&self, logical_block_bytes: u32) -> Result<(), Failure> {
        match self.bio_target {
            Some(bytes) if bytes == 0 || !bytes.is_multiple_of(logical_block_bytes) => {
                Err(Failure::Usage(format!(
                    "--bio-target {bytes} is not a multiple of the device's block of {logical_block_bytes} \
                     bytes"
                )))
            }
            _ => Ok(()),
        }
    }

    /// These options, given after a command's name. Those before the name, `outer`, are the defaults.
    pub fn over(self, outer: &Globals) -> Globals {
        let Globals {
            offset,
            image_format,
            backing,
            overlay,
            unwanted: _,
            journal_device,
            engine,
            direct,
            host_cache,
            cache,
            dirty_limit,
            dirty_background,
            readahead,
            bio_target,
            commit,
            no_replay,
            no_sandbox,
            log,
            log_file,
            quiet,
        } = self;
        Globals {
            offset: if offset == 0 { outer.offset } else { offset },
            image_format: image_format.or(outer.image_format),
            backing: match backing.is_empty() {
                true => outer.backing.clone(),
                false => backing,
            },
            overlay: overlay.or_else(|| outer.overlay.clone()),
            unwanted: Arc::clone(&outer.unwanted),
            journal_device: journal_device.or_else(|| outer.journal_device.clone()),
            engine: if engine == Engine::Auto {
                outer.engine
            } else {
                engine
            },
            direct: direct || outer.direct,
            host_cache: host_cache || outer.host_cache,
            cache: cache.or(outer.cache),
            dirty_limit: dirty_limit.or(outer.dirty_limit),
            dirty_background: dirty_background.or(outer.dirty_background),
            readahead: readahead.or(outer.readahead),
            bio_target: bio_target.or(outer.bio_target),
            commit: commit.or(outer.commit),
            no_replay: no_replay || outer.no_replay,
            no_sandbox: no_sandbox || outer.no_sandbox,
            log: log.or(outer.log),
            log_file: log_file.or_else(|| outer.log_file.clone()),
            quiet: quiet || outer.quiet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_before_hold_unless_there_are_others_behind() {
        let outer = Globals {
            direct: true,
            cache: Some(1),
            offset: 512,
            ..Globals::default()
        };
        let inner = Globals {
            cache: Some(2),
            engine: Engine::Threads,
            ..Globals::default()
        };
        let all = inner.over(&outer);
        assert_eq!((all.direct, all.cache, all.offset), (true, Some(2), 512));
        assert_eq!(all.engine, Engine::Threads);
    }
}
