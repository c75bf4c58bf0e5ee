//! `sysbench fileio` command lines of version 1.0, also with the older option names of 0.4.

use std::time::Duration;

use super::Imported;
use crate::workload::{Direction, Layout, SyncPolicy, TargetSpec, Workload, file::seconds};
use crate::{Error, Result};

/// The options of the command line, with sysbench's defaults.
struct Line {
    mode: Option<String>,
    block_bytes: u64,
    total_bytes: u64,
    threads: u32,
    files: u64,
    time: String,
    events: u64,
    fsync_every: u64,
    fsync_end: bool,
    fsync_all: bool,
    read_write_ratio: f64,
    flags: String,
    seed: u64,
    left_out: Vec<String>,
    lost: Vec<String>,
}

/// Parses a command line, with or without a leading `sysbench`.
///
/// # Errors
/// An unknown option, an invalid value, or no test mode.
pub fn sysbench(command: &str) -> Result<Imported> {
    let mut line = Line {
        mode: None,
        block_bytes: 16384,
        total_bytes: 2 << 30,
        threads: 1,
        files: 128,
        time: "10".into(),
        events: 0,
        fsync_every: 100,
        fsync_end: true,
        fsync_all: false,
        read_write_ratio: 1.5,
        flags: String::new(),
        seed: 1,
        left_out: Vec::new(),
        lost: Vec::new(),
    };
    for word in command.split_whitespace() {
        match word.strip_prefix("--") {
            Some(option) => line.option(option)?,
            // In a shell, the backslash continues a line.
            None if matches!(
                word,
                "sysbench" | "fileio" | "run" | "prepare" | "cleanup" | "\\"
            ) => {}
            None if word.ends_with("/sysbench") => {}
            None => {
                return Err(Error::new(format!(
                    "'{word}' is not an option of 'sysbench fileio'"
                )));
            }
        }
    }
    line.import()
}

impl Line {
    fn option(&mut self, option: &str) -> Result<()> {
        let (key, value) = option.split_once('=').unwrap_or((option, "on"));
        let wrong = |why: &str| Error::new(format!("--{option}: {why}"));
        let size = || throughline::internal::parse_size(value).map_err(|why| wrong(&why));
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| wrong("write a whole number"))
        };
        let on = || match value {
            "on" | "1" => Ok(true),
            "off" | "0" => Ok(false),
            _ => Err(wrong("write on or off")),
        };
        match key {
            "test" if value == "fileio" => {}
            "file-test-mode" => self.mode = Some(value.to_owned()),
            "file-block-size" => self.block_bytes = size()?,
            "file-total-size" => self.total_bytes = size()?,
            "threads" | "num-threads" => {
                self.threads = u32::try_from(number()?).unwrap_or(u32::MAX)
            }
            "file-num" => self.files = number()?,
            "time" | "max-time" => self.time = value.to_owned(),
            "events" | "max-requests" => self.events = number()?,
            "file-fsync-freq" => self.fsync_every = number()?,
            "file-fsync-end" => self.fsync_end = on()?,
            "file-fsync-all" => self.fsync_all = on()?,
            "file-rw-ratio" => {
                let ratio = value
                    .parse()
                    .ok()
                    .filter(|ratio: &f64| ratio.is_finite() && *ratio >= 0.0);
                self.read_write_ratio =
                    ratio.ok_or_else(|| wrong("write reads for each write, such as 1.5"))?;
            }
            "file-extra-flags" => self.flags = value.to_owned(),
            "rand-seed" => self.seed = number()?,
            "file-merged-requests" | "rate" if value != "0" => {
                self.lost.push(format!("--{option}"));
                self.left_out.push(format!("--{option}"));
            }
            _ => self.left_out.push(format!("--{option}")),
        }
        Ok(())
    }

    fn import(mut self) -> Result<Imported> {
        let mode = self.mode.take().unwrap_or_default();
        // The percentage of reads.
        let share = (100.0 * self.read_write_ratio / (self.read_write_ratio + 1.0)).round();
        let (direction, random) = match mode.as_str() {
            "seqrd" => (Direction::Read, false),
            "seqwr" | "seqrewr" => (Direction::Write, false),
            "rndrd" => (Direction::Read, true),
            "rndwr" => (Direction::Write, true),
            "rndrw" => (Direction::Mixed(share.clamp(0.0, 100.0) as u8), true),
            _ => {
                return Err(Error::new(
                    "--file-test-mode must be seqwr, seqrewr, seqrd, rndrd, rndwr or rndrw",
                ));
            }
        };
        let flags: Vec<String> = self
            .flags
            .split(',')
            .filter(|flag| !flag.is_empty())
            .map(str::to_owned)
            .collect();
        let has = |flag: &str| flags.iter().any(|one| one == flag);
        let (direct, dsync) = (has("direct"), has("dsync") || has("sync"));
        let sync = self.sync(direction, dsync, has("sync"));
        if self.files > 1 {
            self.left_out.push(format!(
                "--file-num={}: here one file with their total length",
                self.files
            ));
        }
        if self.events > 0 {
            self.left_out.push(format!(
                "--events={}: here a round is one pass, or lasts for the runtime",
                self.events
            ));
        }
        let time = seconds(&self.time).and_then(|time| Duration::try_from_secs_f64(time).ok());
        let time =
            time.ok_or_else(|| Error::new(format!("--time={}: write seconds", self.time)))?;
        let runtime = Some(time).filter(|time| !time.is_zero());
        let workload = Workload {
            name: format!("sysbench-{mode}"),
            direction,
            random,
            block_bytes: self.block_bytes,
            size_bytes: self.total_bytes,
            offset_bytes: 0,
            threads: self.threads,
            queue_depth: 1,
            file_per_thread: false,
            direct,
            sync,
            layout: if mode == "seqwr" {
                Layout::Empty
            } else {
                Layout::Written
            },
            runtime,
            time_based: runtime.is_some() && mode != "seqwr",
            cold: true,
            seed: self.seed,
            warm_up: 1,
            rounds: 10,
            targets: vec![TargetSpec::parse("dir:.")?],
        };
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

    fn sync(&mut self, direction: Direction, dsync: bool, all: bool) -> SyncPolicy {
        if !direction.writes() {
            return SyncPolicy::End;
        }
        if dsync {
            if all {
                self.left_out
                    .push("--file-extra-flags=sync: O_DSYNC is used instead".into());
            }
            return SyncPolicy::Dsync;
        }
        match (self.fsync_all, self.fsync_every, self.fsync_end) {
            (true, ..) => SyncPolicy::Every(1),
            (false, 0, true) => SyncPolicy::End,
            (false, 0, false) => SyncPolicy::Never,
            (false, writes, _) => SyncPolicy::Every(writes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_5s_command_line() {
        let imported = sysbench(
            "sysbench --test=fileio --num-threads=1 --file-num=1 --file-block-size=32768 --file-total-size=4G \
             --file-test-mode=seqwr --file-io-mode=sync --file-extra-flags= --file-fsync-freq=0 --file-fsync-end=off run",
        )
        .expect("it is one");
        let w = &imported.workload;
        assert_eq!(
            (w.direction, w.random, w.layout),
            (Direction::Write, false, Layout::Empty)
        );
        assert_eq!((w.block_bytes, w.size_bytes), (32768, 4 << 30));
        assert_eq!((w.sync, w.threads), (SyncPolicy::Never, 1));
        assert_eq!(imported.left_out, ["--file-io-mode=sync"]);
    }

    #[test]
    fn sysbenchs_defaults_apply_to_missing_options() {
        let w = sysbench("fileio --file-test-mode=rndrw --threads=4 --file-extra-flags=direct run")
            .expect("it is one")
            .workload;
        assert_eq!(
            (w.direction, w.sync),
            (Direction::Mixed(60), SyncPolicy::Every(100))
        );
        assert_eq!((w.block_bytes, w.threads, w.direct), (16384, 4, true));
        assert_eq!(
            (w.runtime, w.time_based),
            (Some(Duration::from_secs(10)), true)
        );
    }

    #[test]
    fn a_command_over_several_lines_is_one() {
        let one = sysbench("sysbench fileio \\\n  --file-test-mode=seqrd \\\n  --threads=3 run")
            .expect("it is one");
        assert_eq!((one.workload.threads, one.left_out.len()), (3, 1));
        assert!(one.left_out[0].contains("--file-num=128"));
    }

    #[test]
    fn invalid_commands_are_explained() {
        for (command, expected) in [
            ("sysbench fileio run", "--file-test-mode"),
            ("sysbench oltp run", "'oltp'"),
            (
                "--file-test-mode=seqrd --file-block-size=4q",
                "--file-block-size=4q",
            ),
            ("--file-test-mode=seqrd --threads=many", "whole number"),
            ("--file-test-mode=seqrd --threads=0", "threads"),
            (
                "--file-test-mode=rndrw --file-rw-ratio=nan",
                "--file-rw-ratio",
            ),
            ("--file-test-mode=seqrd --time=later", "--time"),
        ] {
            let error = sysbench(command).expect_err(command).to_string();
            assert!(error.contains(expected), "{command}: {error}");
        }
    }
}
