//! fio job files: `rw`, `bs`, `size`, `iodepth`, `numjobs`, `direct`, `fsync`, `rwmixread`, `offset`,
//! `runtime` and related keys.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Imported;
use crate::workload::file::{plain_name, seconds};
use crate::workload::{Direction, Layout, SyncPolicy, TargetSpec, Workload};
use crate::{Error, Result};

/// The value of a key, and its line. A key without a value has the value `1`.
#[derive(Clone, Debug)]
struct Setting {
    value: String,
    line: usize,
}

/// The keys of a job, including those of the `[global]` section before it.
type Keys = BTreeMap<String, Setting>;

/// Maximum numbers of jobs and keys: more jobs than in any of fio's own examples, and more keys than fio has.
/// Each job copies the global keys, so without these limits a file could become much larger in memory.
const MAX_JOBS: usize = 256;
const MAX_KEYS: usize = 512;

/// Keys that do not affect the I/O.
const NO_MATTER: &[&str] = &[
    "group_reporting",
    "unlink",
    "thread",
    "description",
    "name",
    "norandommap",
    "randrepeat",
    "disable_lat",
    "disable_clat",
    "disable_slat",
    "exitall",
];

/// Keys that set where, how large, in which order or when operations are. Ignoring one changes the pattern.
const PATTERN: &str = "bs_is_seq_rand bs_unaligned blockalign bssplit file_service_type filesize flow \
    io_size loops nrfiles number_ios offset_align offset_increment openfiles percentage_random \
    random_distribution random_generator rate rate_iops rate_min rate_process read_iolog rw_sequencer \
    softrandommap thinkcycles thinktime thinktime_blocks \
    verify zonemode zonerange zonesize zoneskip";

/// Reads all jobs of a job file.
///
/// # Errors
/// An invalid line, no job, or a job that cannot be expressed as a workload. The message names the line and
/// the key.
pub fn fio(text: &str) -> Result<Vec<Imported>> {
    let jobs = jobs(text)?;
    let several = jobs.len();
    let import = |(name, keys): (String, Keys)| {
        let mut job = Job {
            keys,
            left_out: Vec::new(),
            lost: Vec::new(),
        };
        let others = match several {
            1 => None,
            2 => Some("the other job of the file: fio runs both".to_owned()),
            _ => Some(format!(
                "the {} other jobs of the file: fio runs all",
                several - 1
            )),
        };
        job.left_out.extend(
            others.map(|others| format!("{others} at once, or one by one after stonewall")),
        );
        job.import(&name)
            .map_err(|error| Error::new(format!("job '{name}': {error}")))
    };
    jobs.into_iter().map(import).collect()
}

/// The jobs, each with all keys that apply to it.
fn jobs(text: &str) -> Result<Vec<(String, Keys)>> {
    let mut global = Keys::new();
    let mut jobs: Vec<(String, Keys)> = Vec::new();
    let mut section: Option<bool> = None;
    for (line, number) in text.lines().zip(1..) {
        let wrong = |why: &str| Error::new(format!("line {number}: {why}"));
        // As in fio, a comment may start anywhere.
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest
                .strip_suffix(']')
                .ok_or_else(|| wrong("a section without its ']'"))?;
            let is_global = name.eq_ignore_ascii_case("global");
            if !is_global {
                if jobs.len() == MAX_JOBS {
                    return Err(wrong(&format!("more than {MAX_JOBS} jobs")));
                }
                jobs.push((name.to_owned(), global.clone()));
            }
            section = Some(is_global);
            continue;
        }
        if line.split_whitespace().next() == Some("include") {
            return Err(wrong(
                "'include' is not followed: put that file's lines here",
            ));
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "1"));
        let (key, value) = (key.trim(), value.trim());
        let is_key = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if key.is_empty() || !key.chars().all(is_key) {
            return Err(wrong("neither [section] nor key=value"));
        }
        if value.contains("${") {
            return Err(wrong(
                "environment variables are not expanded: write the value",
            ));
        }
        let setting = Setting {
            value: value.trim_matches('"').to_owned(),
            line: number,
        };
        let keys = match (section, jobs.last_mut()) {
            (Some(true), _) => &mut global,
            (Some(false), Some((_, keys))) => keys,
            _ => return Err(wrong("a key before the first [section]")),
        };
        if keys.len() == MAX_KEYS {
            return Err(wrong(&format!("more than {MAX_KEYS} keys for a job")));
        }
        keys.insert(usual_name(key).to_owned(), setting);
    }
    match jobs.is_empty() {
        true => Err(Error::new(
            "no job: a fio file has a [section] for each job, besides [global]",
        )),
        false => Ok(jobs),
    }
}

/// The usual name of a key that has aliases in fio.
fn usual_name(key: &str) -> &str {
    match key {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "blocksize_range" => "bsrange",
        "timeout" => "runtime",
        "fileoffset" => "offset",
        _ => key,
    }
}

/// A job, whose keys are consumed one by one.
struct Job {
    keys: Keys,
    left_out: Vec<String>,
    lost: Vec<String>,
}

impl Job {
    /// Records something left out that changes the pattern.
    fn lose(&mut self, text: String) {
        self.lost.push(text.clone());
        self.left_out.push(text);
    }

    fn import(mut self, name: &str) -> Result<Imported> {
        let (direction, random) = self.pattern()?;
        let block_bytes = self.block(direction)?;
        let size_bytes = self.bytes("size")?.ok_or_else(|| {
            Error::new("no size: fio would use the length of an existing file; set size=")
        })?;
        let threads = self.number("numjobs")?.unwrap_or(1);
        let (targets, shared) = self.targets()?;
        let layout = self.layout(direction, shared);
        let mut workload = Workload {
            name: plain_name(name),
            direction,
            random,
            block_bytes,
            // In fio, this is the size per job.
            size_bytes: size_bytes.saturating_mul(if shared { 1 } else { threads.max(1) }),
            offset_bytes: self.bytes("offset")?.unwrap_or(0),
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
            queue_depth: self.queue_depth()?,
            file_per_thread: !shared && threads > 1,
            direct: self.direct()?,
            sync: self.sync(direction)?,
            layout,
            runtime: self.runtime()?,
            time_based: self.yes("time_based")?.unwrap_or(false),
            cold: self.yes("invalidate")?.unwrap_or(true),
            seed: self.number("randseed")?.unwrap_or(1),
            warm_up: 1,
            rounds: 10,
            targets,
        };
        if workload.time_based && workload.runtime.is_none() {
            workload.time_based = false;
            self.left_out
                .push("time_based: has no effect without a runtime".into());
        }
        if shared && threads > 1 {
            self.lose(format!(
                "numjobs={threads} on one file: in fio each job covers the whole file, here the threads \
                 share one pass"
            ));
        }
        if random && !self.keys.contains_key("norandommap") {
            self.left_out.push(
                "fio's random map (every block once): here blocks are chosen at random, with repeats".into(),
            );
        }
        self.rest();
        // The rules for workloads are in one place, where files are parsed.
        let workload = Workload::parse(&workload.to_toml()).map_err(|error| {
            Error::new(format!("it cannot be converted to a workload: {error}"))
        })?;
        Ok(Imported {
            workload,
            left_out: self.left_out,
            lost: self.lost,
        })
    }

    /// Records the keys that were not consumed.
    fn rest(&mut self) {
        let mut rest: Vec<_> = std::mem::take(&mut self.keys).into_iter().collect();
        rest.sort_by_key(|(_, setting)| setting.line);
        for (key, setting) in rest {
            let text = format!("line {}: {key}={}", setting.line, setting.value);
            if PATTERN.split_whitespace().any(|of| of == key) {
                self.lose(text);
            } else if !NO_MATTER.contains(&key.as_str()) {
                self.left_out.push(text);
            }
        }
    }

    fn pattern(&mut self) -> Result<(Direction, bool)> {
        let setting = self.keys.remove("rw");
        let (value, line) =
            setting.map_or(("read".into(), 0), |setting| (setting.value, setting.line));
        let (word, sequence) = value.split_once(':').unwrap_or((&value, ""));
        if !sequence.is_empty() {
            self.lose(format!("line {line}: the ':{sequence}' of rw={value}"));
        }
        let read_share = self.read_share()?;
        Ok(match word {
            "read" => (Direction::Read, false),
            "write" => (Direction::Write, false),
            "rw" | "readwrite" => (Direction::Mixed(read_share), false),
            "randread" => (Direction::Read, true),
            "randwrite" => (Direction::Write, true),
            "randrw" => (Direction::Mixed(read_share), true),
            _ => {
                return Err(Error::new(format!(
                    "line {line}: rw={value} is not supported; there are read, write, rw, randread, \
                     randwrite, randrw"
                )));
            }
        })
    }

    fn read_share(&mut self) -> Result<u8> {
        let (read, write) = (self.number("rwmixread")?, self.number("rwmixwrite")?);
        let percent = read.or(write.map(|percent| 100u64.saturating_sub(percent)));
        match u8::try_from(percent.unwrap_or(50)) {
            Ok(percent) if percent <= 100 => Ok(percent),
            _ => Err(Error::new("rwmixread is in percent: 0 to 100")),
        }
    }

    /// Parses the block size: `bs=8k`, or `bs=4k,64k` for reads and writes.
    fn block(&mut self, direction: Direction) -> Result<u64> {
        let Some(setting) = self.keys.remove("bs") else {
            return self.block_range();
        };
        let sizes: Vec<&str> = setting.value.split(',').collect();
        let reads = sizes.first().copied().unwrap_or_default();
        let writes = sizes.get(1).copied().filter(|size| !size.is_empty());
        let writes = writes.unwrap_or(reads);
        let text = match direction {
            Direction::Read => reads,
            Direction::Write => writes,
            Direction::Mixed(_) if reads == writes => reads,
            Direction::Mixed(_) => {
                return Err(Error::new(format!(
                    "line {}: bs={}: reads and writes have one block size here",
                    setting.line, setting.value
                )));
            }
        };
        bytes(text).ok_or_else(|| setting.wrong("bs", "write bytes with a unit: 4k, 1m"))
    }

    /// Parses a range of block sizes: `bsrange=4k-16k`.
    fn block_range(&mut self) -> Result<u64> {
        let Some(setting) = self.keys.remove("bsrange") else {
            return Ok(4096);
        };
        let (least, most) = setting
            .value
            .split_once('-')
            .unwrap_or((&setting.value, ""));
        if least != most {
            self.lose(format!(
                "line {}: bsrange={}: all blocks are {least} here",
                setting.line, setting.value
            ));
        }
        bytes(least).ok_or_else(|| setting.wrong("bsrange", "write sizes with a unit: 4k-16k"))
    }

    fn queue_depth(&mut self) -> Result<u32> {
        let depth = self.number("iodepth")?.unwrap_or(1);
        let engine = self.keys.remove("ioengine");
        let (name, line) =
            engine.map_or(("psync".into(), 0), |setting| (setting.value, setting.line));
        match name.as_str() {
            "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => {
                if depth > 1 {
                    self.left_out.push(format!(
                        "iodepth={depth}: with ioengine={name} fio has one operation in flight at a time"
                    ));
                }
                Ok(1)
            }
            _ => {
                let instead = match name.as_str() {
                    "libaio" | "io_uring" | "posixaio" => {
                        format!("operations are calls of threads here, {depth} at once")
                    }
                    _ => "read and write calls instead".to_owned(),
                };
                self.left_out
                    .push(format!("line {line}: ioengine={name}: {instead}"));
                Ok(u32::try_from(depth).unwrap_or(u32::MAX))
            }
        }
    }

    fn direct(&mut self) -> Result<bool> {
        let (direct, buffered) = (self.yes("direct")?, self.yes("buffered")?);
        Ok(direct.or(buffered.map(|yes| !yes)).unwrap_or(false))
    }

    fn sync(&mut self, direction: Direction) -> Result<SyncPolicy> {
        let (all, data) = (self.number("fsync")?, self.number("fdatasync")?);
        let at_end =
            self.yes("end_fsync")?.unwrap_or(false) | self.yes("fsync_on_close")?.unwrap_or(false);
        let each = self
            .keys
            .remove("sync")
            .filter(|setting| !matches!(setting.value.as_str(), "0" | "none"));
        if !direction.writes() {
            return Ok(SyncPolicy::End);
        }
        if let Some(setting) = each {
            if setting.value != "dsync" {
                self.left_out.push(format!(
                    "line {}: sync={}: O_DSYNC is used instead",
                    setting.line, setting.value
                ));
            }
            return Ok(SyncPolicy::Dsync);
        }
        if data.is_some_and(|writes| writes > 0) {
            self.left_out
                .push("fdatasync: fsync is used instead".into());
        }
        Ok(match all.filter(|writes| *writes > 0).or(data) {
            Some(writes) if writes > 0 => SyncPolicy::Every(writes),
            _ if at_end => SyncPolicy::End,
            _ => SyncPolicy::Never,
        })
    }

    /// fio creates the file and writes to it. With `overwrite`, it writes over an existing file.
    fn layout(&mut self, direction: Direction, device: bool) -> Layout {
        let overwrite = self
            .keys
            .remove("overwrite")
            .is_some_and(|setting| setting.value != "0");
        let allocated = self
            .keys
            .remove("fallocate")
            .is_none_or(|setting| setting.value != "none");
        if direction != Direction::Write || overwrite || device {
            return Layout::Written;
        }
        if allocated {
            self.left_out.push(
                "fallocate, which fio does unless it is 'none': \
                 here each round begins with an empty file"
                    .into(),
            );
        }
        Layout::Empty
    }

    /// The targets, and whether they are a single file that all threads share.
    fn targets(&mut self) -> Result<(Vec<TargetSpec>, bool)> {
        let folder = self
            .keys
            .remove("directory")
            .map_or(String::new(), |setting| setting.value);
        let Some(setting) = self.keys.remove("filename") else {
            let folder = if folder.is_empty() { "." } else { &folder };
            return Ok((vec![TargetSpec::parse(&format!("dir:{folder}"))?], false));
        };
        let (name, more) = setting
            .value
            .split_once(':')
            .unwrap_or((&setting.value, ""));
        if !more.is_empty() {
            self.lose(format!(
                "line {}: the further files of filename: {more}",
                setting.line
            ));
        }
        let path = std::path::Path::new(&folder).join(name);
        let spec = TargetSpec::parse(&format!("file:{}", path.display()))?;
        Ok((vec![spec], true))
    }

    fn runtime(&mut self) -> Result<Option<Duration>> {
        let time = |text: &str| Duration::try_from_secs_f64(seconds(text)?).ok();
        let time = self.take(
            "runtime",
            "write seconds, or a time such as 500ms, 2m",
            time,
        )?;
        Ok(time.filter(|time| !time.is_zero()))
    }

    fn number(&mut self, key: &str) -> Result<Option<u64>> {
        self.take(key, "write a whole number", |text| text.parse().ok())
    }

    fn yes(&mut self, key: &str) -> Result<Option<bool>> {
        Ok(self.number(key)?.map(|number| number != 0))
    }

    fn bytes(&mut self, key: &str) -> Result<Option<u64>> {
        let percent = |setting: &Setting| setting.value.ends_with('%');
        let why = match self.keys.get(key).is_some_and(percent) {
            true => {
                "the file's length is known only when the workload runs: write bytes, not a percentage"
            }
            false => "write bytes with a unit: 64m, 1g",
        };
        self.take(key, why, bytes)
    }

    /// Consumes a key and parses its value. If the value is invalid, `why` says what is allowed.
    fn take<T>(
        &mut self,
        key: &str,
        why: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(setting) = self.keys.remove(key) else {
            return Ok(None);
        };
        let value = read(&setting.value).ok_or_else(|| setting.wrong(key, why))?;
        Ok(Some(value))
    }
}

impl Setting {
    fn wrong(&self, key: &str, why: &str) -> Error {
        Error::new(format!("line {}: {key}={}: {why}", self.line, self.value))
    }
}

/// A size as fio parses it: `k` and `kb` are 1024, but `kib` is 1000, the reverse of the usual meaning.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let (unit, base) = match unit.strip_suffix("ib") {
        Some(letter) if !letter.is_empty() => (letter, 1000_u64),
        _ => (unit.strip_suffix('b').unwrap_or(unit), 1024),
    };
    let power = ["", "k", "m", "g", "t", "p"]
        .iter()
        .position(|known| *known == unit)?;
    number.checked_mul(base.checked_pow(u32::try_from(power).ok()?)?)
}

#[cfg(test)]
mod tests;
