//! Files replaced without a sync, in all the ways in which programs save: after any power cut, either the
//! complete old or the complete new content is there, with the rights that it had: mode, owner, access list,
//! other attributes and place.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use throughline::internal::VolumeLayers;
use throughline::{Attributes, File, FileOptions, RenameMode, Result, Volume, VolumeOptions};
use throughline_ext::Planted;
use throughline_testing::PowerDevice;

use super::fsck::Fsck;
use super::oracle::external;
use super::oracle::image::tools;
use super::oracle::seeds::{chosen, run_all, seeds, soak};
use super::recipes::{RECIPES, Recipe};
use super::rights::{self, Rights};
use super::run;
use super::whole::{self, Contents};

/// Files that must be complete at any time.
const STRICT: [&str; 4] = ["/r/a", "/r/b", "/r/c", "/r/d"];
/// Files whose name is removed before the new content exists. The old content then has the name with `~`
/// appended.
const LOOSE: [&str; 2] = ["/r/e", "/r/f"];
/// A directory, and where it is moved to. Its file `h` must be complete at any time too.
const MOVED: &str = "/r/dir";
const PLACES: [&str; 2] = ["/r/tmp/dir", "/r/other"];
/// Ages in milliseconds at which dirty data is written: one that is never reached in this workload, and one
/// that is reached while a file is being rewritten.
const AGES_MS: [u64; 2] = [30_000, 20];
/// A file that is rewritten more slowly than that. It may be empty or truncated, as in the kernel's ext4,
/// which commits a truncation at the next commit and promises nothing until the file is closed. Only the
/// volume is checked.
const SLOW: &str = "/r/g";

/// The size of an inode on volumes with inline data.
const INLINE_BYTES: usize = 512;

/// A program that saves files.
struct Saver<'a> {
    volume: &'a Volume,
    device: &'a PowerDevice,
    recipe: &'static Recipe,
    contents: Contents,
    random: fastrand::Rng,
    /// Another program's file, which is synced.
    log: File,
    written: u64,
    /// Files up to this size may be inline: their truncation is not deferred, as in the kernel's ext4.
    inline_bytes: usize,
    /// Dirty data is not written by age while a file is being rewritten.
    is_patient: bool,
}

impl Saver<'_> {
    /// Some bytes, of any length.
    fn bytes(&mut self) -> Vec<u8> {
        let most = [1, 600, 6000, 40_000, 150_000][self.random.usize(..5)];
        let mut bytes = vec![0; self.random.usize(1..=most)];
        self.random.fill(&mut bytes);
        bytes
    }

    /// An fsync of the other program's file, in some of the calls.
    fn others(&mut self) -> Result<()> {
        if self.random.u8(..3) == 0 {
            self.log.write_all_at(&[7; 512], self.written)?;
            self.written += 512;
            self.log.sync_all()?;
        }
        Ok(())
    }

    fn begun(&self) -> usize {
        self.device.mark()
    }

    /// Writes a file from its beginning, in some pieces.
    fn write(&mut self, file: &File, bytes: &[u8]) -> Result<()> {
        let piece = bytes.len().div_ceil(self.random.usize(1..4)).max(1);
        for (number, part) in bytes.chunks(piece).enumerate() {
            file.write_all_at(part, (number * piece) as u64)?;
            self.others()?;
        }
        Ok(())
    }

    /// Changes the rights of a file that no name shows yet, or not until it is written.
    fn prepare(&mut self, file: &File) -> Result<()> {
        for _ in 0..self.random.u8(..3) {
            rights::change(file, self.recipe, &mut self.random)?;
            self.others()?;
        }
        Ok(())
    }

    /// The file at a path, written completely, has these rights now: from `begun` on, a crash may leave it.
    fn is_saved(&mut self, path: &str, begun: usize, bytes: &[u8], file: &File) -> Result<()> {
        let rights = Rights::of(file)?;
        self.contents
            .may_be_with(path, begun, bytes.to_vec(), rights);
        Ok(())
    }

    /// The file at a path will be at another one, which is free, from now on.
    fn is_moved(&mut self, names: (&str, &str), bytes: &[u8], file: &File) -> Result<()> {
        let (begun, rights) = (self.begun(), Rights::of(file)?);
        self.contents.is_moved(names, begun, bytes.to_vec(), rights);
        Ok(())
    }

    /// Changes the rights of a file at a path, some of the time.
    fn publish(&mut self, path: &str, bytes: &[u8], file: &File) -> Result<()> {
        for _ in 0..self.random.u8(..3) {
            let begun = self.begun();
            rights::change(file, self.recipe, &mut self.random)?;
            self.is_saved(path, begun, bytes, file)?;
            self.others()?;
        }
        Ok(())
    }

    /// Creates a file with a new name and writes it.
    fn temporary(&mut self, dir: &str, bytes: &[u8]) -> Result<(String, File)> {
        let path = format!("{dir}/t{}", self.random.u64(..));
        let file = self.volume.create_new(&path)?;
        self.prepare(&file)?;
        self.write(&file, bytes)?;
        self.prepare(&file)?;
        Ok((path, file))
    }

    /// Renames a new file over the old one; the new one is closed before or after that.
    fn rename(&mut self, path: &str) -> Result<()> {
        let bytes = self.bytes();
        let dir = ["/r", "/r/tmp"][self.random.usize(..2)];
        let (new, file) = self.temporary(dir, &bytes)?;
        self.is_saved(path, self.begun(), &bytes, &file)?;
        self.volume.rename(&new, path)?;
        self.others()?;
        match self.random.bool() {
            true => self.publish(path, &bytes, &file),
            false => Ok(()),
        }
    }

    /// Opens the file with O_TRUNC, or truncates it after opening, and rewrites it. Its rights change before
    /// and after the write, and once it is closed.
    fn truncate(&mut self, path: &str) -> Result<()> {
        let bytes = self.bytes();
        let begun = self.begun();
        let file = match self.random.bool() {
            true => FileOptions::new().truncate(true).open(self.volume, path)?,
            false => {
                let file = self.volume.open_file(path)?;
                self.others()?;
                file.set_len(0)?;
                file
            }
        };
        self.others()?;
        self.prepare(&file)?;
        // Until all of it is written, no crash leaves the new content.
        self.is_saved(path, begun, &bytes, &file)?;
        self.write(&file, &bytes)?;
        self.publish(path, &bytes, &file)?;
        self.others()?;
        match self.random.u8(..6) {
            0 => {
                file.sync_all()?;
                self.contents.is_sure(path, self.device.mark());
            }
            1 => self.move_away(path, &bytes, &file)?,
            2 => {
                drop(file);
                let file = self.volume.open_file(path)?;
                return self.publish(path, &bytes, &file);
            }
            _ => {}
        }
        Ok(())
    }

    /// Moves a file to a free name, and back.
    fn move_away(&mut self, path: &str, bytes: &[u8], file: &File) -> Result<()> {
        let dir = ["/r", "/r/tmp"][self.random.usize(..2)];
        let other = format!("{dir}/m{}", self.random.u64(..));
        self.contents.may_be(&other, 0, None);
        for (from, to) in [(path, other.as_str()), (other.as_str(), path)] {
            self.is_moved((from, to), bytes, file)?;
            self.volume.rename(from, to)?;
            self.others()?;
            self.publish(to, bytes, file)?;
        }
        Ok(())
    }

    /// Rewrites a file, and moves its directory, and back. In some calls, the file is still open.
    fn move_directory(&mut self) -> Result<()> {
        let at = |dir: &str| format!("{dir}/h");
        let place = PLACES[self.random.usize(..PLACES.len())];
        let open = match self.random.bool() {
            true => Some(self.volume.open_file(at(MOVED))?),
            false => None,
        };
        self.truncate(&at(MOVED))?;
        for (from, to) in [(MOVED, place), (place, MOVED)] {
            let bytes = self.contents.now(&at(from)).map(<[u8]>::to_vec);
            let bytes = bytes.unwrap_or_default();
            let file = self.volume.open_file(at(from))?;
            self.is_moved((&at(from), &at(to)), &bytes, &file)?;
            drop(file);
            self.volume.rename(from, to)?;
            self.others()?;
        }
        drop(open);
        Ok(())
    }

    /// As [`Saver::truncate`], for a file that may be incomplete after a crash.
    fn truncate_slowly(&mut self) -> Result<()> {
        let bytes = self.bytes();
        let mut options = FileOptions::new();
        let file = options.truncate(true).open(self.volume, SLOW)?;
        self.write(&file, &bytes)
    }

    /// Exchanges the old file with a new one, and removes the old one.
    fn exchange(&mut self, path: &str) -> Result<()> {
        let bytes = self.bytes();
        let (new, file) = self.temporary("/r", &bytes)?;
        self.is_saved(path, self.begun(), &bytes, &file)?;
        drop(file);
        self.volume.rename_with(&new, path, RenameMode::Exchange)?;
        self.others()?;
        self.volume.remove_file(&new)
    }

    /// Links the old file to a backup name, and renames a new file over the first name.
    fn link(&mut self, path: &str) -> Result<()> {
        let backup = format!("{path}.bak");
        let (is_there, begun) = (self.contents.now(&backup).is_some(), self.begun());
        self.contents
            .may_be(&backup, if is_there { begun } else { 0 }, None);
        if is_there {
            self.volume.remove_file(&backup)?;
        }
        let old = self.contents.now(path).map(<[u8]>::to_vec);
        self.contents.may_be(&backup, self.begun(), old);
        self.volume.hard_link(path, &backup)?;
        self.others()?;
        self.rename(path)
    }

    /// Links an unnamed file to a name, and renames that over the old file.
    fn nameless(&mut self, path: &str) -> Result<()> {
        let bytes = self.bytes();
        let dir = self.volume.node("/")?.lookup(b"r")?;
        let node = dir.tmpfile(&Attributes::new(), true)?;
        let file = node.open(&FileOptions::new())?;
        self.prepare(&file)?;
        self.write(&file, &bytes)?;
        let name = format!("n{}", self.random.u64(..));
        let linked = format!("/r/{name}");
        self.contents.may_be(&linked, 0, None);
        self.is_saved(&linked, self.begun(), &bytes, &file)?;
        dir.link(&node, name.as_bytes())?;
        self.others()?;
        self.publish(&linked, &bytes, &file)?;
        let begun = self.begun();
        self.is_saved(path, begun, &bytes, &file)?;
        self.contents.may_be(&linked, begun, None);
        self.volume.rename(&linked, path)?;
        self.others()
    }

    /// Renames the old file to a backup name, over the previous backup, and creates a new file under its
    /// name.
    fn backup(&mut self, path: &str) -> Result<()> {
        let backup = format!("{path}~");
        let old = self.contents.now(path).map(<[u8]>::to_vec);
        let begun = self.begun();
        self.contents.may_be(&backup, begun, old);
        self.contents.may_be(path, begun, None);
        self.volume.rename(path, &backup)?;
        self.others()?;
        let bytes = self.bytes();
        let begun = self.begun();
        self.contents.may_be(path, begun, Some(bytes.clone()));
        let file = self.volume.create_new(path)?;
        self.write(&file, &bytes)
    }

    fn sync(&mut self) -> Result<()> {
        let counts = self.contents.counts();
        self.volume.sync()?;
        self.contents.are_sure(counts, self.device.mark());
        Ok(())
    }

    /// Replaces one file.
    fn one(&mut self) -> Result<()> {
        let path = STRICT[self.random.usize(..STRICT.len())];
        let loose = LOOSE[self.random.usize(..LOOSE.len())];
        let has_blocks = self.contents.now(path).map_or(0, <[u8]>::len) > self.inline_bytes;
        let nested = self.contents.now(&format!("{MOVED}/h"));
        let is_nested = nested.map_or(0, <[u8]>::len) > self.inline_bytes;
        match self.random.u8(..13) {
            12 if is_nested && self.is_patient => self.move_directory(),
            0..4 => self.rename(path),
            4..8 if has_blocks && self.is_patient => self.truncate(path),
            4..8 if has_blocks => self.truncate_slowly(),
            4..8 => self.rename(path),
            8 => self.exchange(path),
            9 => self.link(path),
            10 => self.nameless(path),
            _ => self.backup(loose),
        }
    }

    /// Creates the initial files.
    fn first(&mut self) -> Result<()> {
        for path in LOOSE {
            self.contents.loose(path);
        }
        for place in PLACES {
            self.contents.may_be(&format!("{place}/h"), 0, None);
        }
        let nested = format!("{MOVED}/h");
        let backups = LOOSE.map(|path| format!("{path}~"));
        let paths = STRICT.into_iter().chain(LOOSE);
        let nested = std::iter::once(nested.as_str());
        for path in paths
            .chain(backups.iter().map(String::as_str))
            .chain(nested)
        {
            let bytes = self.bytes();
            let file = self.volume.create_new(path)?;
            file.write_all_at(&bytes, 0)?;
            self.contents.may_be(path, 0, Some(bytes));
        }
        self.volume.create_new(SLOW)?;
        self.sync()
    }
}

/// Saves `saves` files and closes the volume, with this bug planted. Returns the allowed contents, the device
/// with its record, and the position at which all initial files were durable.
fn play(
    recipe: &'static Recipe,
    seed: u64,
    saves: usize,
    bug: Option<Planted>,
) -> Result<(Contents, Arc<PowerDevice>, usize)> {
    let device = Arc::new(PowerDevice::new(recipe.image(), seed));
    let mut random = fastrand::Rng::with_seed(seed);
    let age_ms = AGES_MS[random.usize(..AGES_MS.len())];
    let age = Duration::from_millis(age_ms);
    let options = run::options_with(seed, VolumeOptions::new().dirty_age(age));
    let volume = external::open_power(&options, &device)?;
    if let Some(bug) = bug {
        volume.fs().plant(bug);
    }
    volume.create_dir_all("/r/tmp")?;
    volume.create_dir(MOVED)?;
    let mut saver = Saver {
        log: volume.create_new("/r/log")?,
        volume: &volume,
        device: &device,
        recipe,
        contents: Contents::default(),
        random,
        written: 0,
        inline_bytes: match ["inline_data", "casefold"]
            .iter()
            .any(|n| recipe.name.contains(n))
        {
            true => INLINE_BYTES,
            false => 0,
        },
        is_patient: age_ms == AGES_MS[0],
    };
    saver.first()?;
    let first = device.mark();
    for number in 0..saves {
        saver.one()?;
        if number % 16 == 15 {
            saver.sync()?;
        }
    }
    let mut contents = std::mem::take(&mut saver.contents);
    drop(saver);
    let counts = contents.counts();
    volume.close()?;
    contents.are_sure(counts, device.mark());
    Ok((contents, device, first))
}

/// Number of states checked, printed also if one of them is wrong.
#[derive(Default)]
struct Judged(AtomicUsize);

impl Drop for Judged {
    fn drop(&mut self) {
        throughline_testkit::ledger::judged(
            *self.0.get_mut() as u64,
            "crash states of replaced files",
        );
    }
}

/// Checks the states of one workload.
fn work(
    seed: u64,
    (saves, many): (usize, usize),
    bug: Option<Planted>,
    judged: &Judged,
) -> std::result::Result<(), String> {
    let recipe = &RECIPES[seed as usize % RECIPES.len()];
    let named = |what: String| format!("seed {seed}, {}: {what}", recipe.name);
    let played = play(recipe, seed, saves, bug);
    let (contents, device, first) = played.map_err(|error| named(error.to_string()))?;
    let record = device.record().with_sectors_of(recipe.sector_bytes);
    let mut states = record.states();
    let mut fsck = Fsck::new();
    let mut seen = HashSet::new();
    let cuts = record.cuts(many, seed).into_iter();
    for cut in cuts.filter(|cut| cut.at >= first) {
        let state = states.state(cut);
        if !seen.insert((state.fingerprint(record.base()), cut.at)) {
            continue;
        }
        judged.0.fetch_add(1, Ordering::Relaxed);
        whole::judge(recipe, &contents, cut.at, &state, &mut fsck)
            .map_err(|what| named(format!("{cut:?} of {}: {what}", record.end())))?;
    }
    Ok(())
}

#[test]
fn a_replaced_file_is_whole_after_any_cut() {
    if !tools() {
        return;
    }
    let (rounds, many) = if soak() { (12, 120) } else { (1, 60) };
    let most = RECIPES.len() as u64 * rounds;
    let seeds = seeds(most);
    let judged = Judged::default();
    run_all(&seeds, |seed, _| work(seed, (48, many), None, &judged));
    let states = judged.0.load(Ordering::Relaxed);
    let least = throughline_testkit::tier::pick(60, 500, 5_000);
    assert!(
        chosen().is_some() || states >= least,
        "only {states} states"
    );
}

/// Number of workloads in which the planted bug must be found.
const ROUNDS: u64 = 6;

/// Checks the checker: attributes and names that do not wait for the deferred truncation must be found.
#[test]
fn rights_before_the_truncation_are_found() {
    if !cfg!(debug_assertions) {
        throughline_testkit::left_out!("bugs are planted only in a build with debug assertions");
        return;
    }
    if !tools() || throughline_testkit::tier::is_too_long("checks of the judge of power cuts") {
        return;
    }
    let judged = Judged::default();
    for recipe in ["ext4 1k", "ext3 1k"] {
        let number = RECIPES.iter().position(|own| own.name == recipe);
        let first = number.expect("its recipe") as u64;
        let mut seeds = (0..ROUNDS).map(|round| first + round * RECIPES.len() as u64);
        let size = (48, 60);
        let found = seeds.find_map(|seed| {
            let right = work(seed, size, None, &judged);
            assert_eq!(right, Ok(()), "without the bug");
            work(seed, size, Some(Planted::AttributesFirst), &judged).err()
        });
        let what = found.expect("it is found");
        println!("{recipe}: {}", &what[..what.len().min(400)]);
    }
}
