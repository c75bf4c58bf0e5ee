//! What we need to know of a job file before fio runs it: where its files are, and how large.
//! fio parses it (`--showcmd`), which also resolves its includes and variables.

use std::path::{Component, Path};

use throughline::internal::parse_size;

use super::fio;
use crate::{Error, Result};

/// Maximum length of a job file: it is kept in the record.
const MAX_JOB_BYTES: usize = 1 << 20;
/// The size of a file system for jobs whose size is not known before they run.
const USUAL_BYTES: u64 = 1 << 30;

/// A job file as fio understands it.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) text: String,
    /// The version of fio.
    pub(super) version: String,
    /// The options of all jobs in order, with their values. `name` begins a job.
    options: Vec<(String, String)>,
}

impl Job {
    pub(super) fn read(path: &Path, interrupted: &(dyn Fn() -> bool + Sync)) -> Result<Job> {
        let text = std::fs::read_to_string(path)?;
        if text.len() > MAX_JOB_BYTES {
            return Err(Error::new("a job file of more than 1 MiB"));
        }
        let ask = |option: &str| fio(&[option.to_owned()], path, interrupted);
        Ok(Job {
            options: options(&ask("--showcmd")?),
            version: ask("--version")?.trim().to_owned(),
            text,
        })
    }

    fn of<'j>(&'j self, keys: &'j [&str]) -> impl Iterator<Item = (&'j str, &'j str)> {
        let options = self.options.iter();
        options
            .filter(|(key, _)| keys.contains(&key.as_str()))
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// An error if a file of a job is not in the directory that fio is given.
    pub(super) fn check_inside(&self) -> Result<()> {
        self.check_own_places()?;
        let inside = |name: &str| {
            // fio separates names by colons.
            let mut parts = name
                .split(':')
                .flat_map(|name| Path::new(name).components());
            parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        };
        match self
            .of(&["filename", "filename_format"])
            .find(|(_, name)| !inside(name))
        {
            Some((key, name)) => Err(Error::new(format!(
                "{key}={name} of the job leads outside the target: name a file in it, or leave it out"
            ))),
            None => Ok(()),
        }
    }

    /// An error if a job names its files, although the target is a file.
    pub(super) fn check_unnamed(&self) -> Result<()> {
        self.check_own_places()?;
        match self.of(&["filename", "filename_format", "nrfiles"]).next() {
            Some((key, value)) => Err(Error::new(format!(
                "{key}={value} of the job names its files, and the target is one: leave it out"
            ))),
            None => Ok(()),
        }
    }

    /// An error if a job says itself where it runs.
    fn check_own_places(&self) -> Result<()> {
        match self.of(&["directory", "opendir", "read_iolog"]).next() {
            Some((key, value)) => Err(Error::new(format!(
                "{key}={value} of the job says where it runs, but that is the target: leave it out"
            ))),
            None => Ok(()),
        }
    }

    /// How much data the jobs write at most, if their sizes are plain numbers.
    pub(super) fn data_bytes(&self) -> u64 {
        let starts = |option: &(String, String)| option.0 == "name";
        let first = self.options.iter().position(starts);
        let (global, jobs) = self.options.split_at(first.unwrap_or(self.options.len()));
        let value = |job: &[(String, String)], key: &str| {
            let all = global.iter().chain(job);
            let found = all.rev().find(|(name, _)| name == key);
            found.map(|(_, value)| value.clone())
        };
        let bytes = |job: &[(String, String)]| {
            let size = parse_size(&value(job, "size")?).ok()?;
            let copies = value(job, "numjobs").map_or(Some(1), |copies| copies.parse().ok())?;
            size.checked_mul(copies)
        };
        let mut jobs = jobs.chunk_by(|_, next| !starts(next)).map(bytes);
        let all = jobs.try_fold(0, |all: u64, job| all.checked_add(job?));
        all.filter(|all| *all > 0).unwrap_or(USUAL_BYTES)
    }
}

/// The options of a command line that `fio --showcmd` prints: `fio --size=1m --name=a --rw=read`.
fn options(line: &str) -> Vec<(String, String)> {
    let words = line.split(" --").skip(1);
    let option = |word: &str| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        (key.trim().to_owned(), value.trim().to_owned())
    };
    words.map(option).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(shown: &str) -> Job {
        Job {
            options: options(shown),
            ..Job::default()
        }
    }

    #[test]
    fn files_outside_the_target_are_refused() {
        for (option, expected) in [
            ("filename=a", None),
            ("filename=./sub/a:b", None),
            ("filename=/etc/a", Some("filename=/etc/a")),
            ("filename=a:../b", Some("leads outside")),
            ("filename_format=/x/$jobnum", Some("leads outside")),
            ("directory=/mnt", Some("directory=/mnt")),
            ("opendir=/etc", Some("opendir=/etc")),
            ("read_iolog=log", Some("read_iolog=log")),
        ] {
            let job = job(&format!("fio --bs=4k --name=a b --{option} --rw=read"));
            let error = job.check_inside().err().map(|e| e.to_string());
            match expected {
                None => assert_eq!(error, None, "{option}"),
                Some(expected) => assert!(error.is_some_and(|e| e.contains(expected)), "{option}"),
            }
            assert!(job.check_unnamed().is_err(), "{option}");
        }
        assert!(job("fio --name=a --rw=read").check_unnamed().is_ok());
    }

    #[test]
    fn the_size_of_all_jobs_is_known_if_each_is_a_number() {
        for (shown, expected) in [
            (
                "fio --size=1m --name=a --numjobs=3 --name=b --size=4k",
                (3 << 20) + 4096,
            ),
            ("fio --name=a --size=20%", USUAL_BYTES),
            (
                "fio --size=1m --name=a --numjobs=99999999999999999",
                USUAL_BYTES,
            ),
            ("fio --name=a --size=16E", USUAL_BYTES),
            ("fio --name=a", USUAL_BYTES),
            ("", USUAL_BYTES),
        ] {
            assert_eq!(job(shown).data_bytes(), expected, "{shown}");
        }
    }
}
