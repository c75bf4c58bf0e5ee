//! Reading and writing the file of a [`Record`].

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use super::{Head, Line, Record, SCHEMA};
use crate::{Error, Result};

/// Maximum length of a line: a trace of a million events.
const MAX_LINE_BYTES: u64 = 256 << 20;

/// Writes the file during the run. Each line has reached the kernel when [`Writer::line`] returns, so a
/// killed run keeps everything that it has measured.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
}

impl Writer {
    /// Creates or truncates the file and writes its head.
    ///
    /// # Errors
    /// The system's error, with the file's name.
    pub fn create(path: &Path, head: &Head) -> Result<Writer> {
        let file = File::create(path).map_err(|e| of_file(path, "cannot write", &e))?;
        Writer::to(file, path, head)
    }

    /// Like [`Writer::create`], for an open file. `path` is used in messages.
    ///
    /// # Errors
    /// As for [`Writer::create`].
    pub fn to(file: File, path: &Path, head: &Head) -> Result<Writer> {
        let mut writer = Writer {
            file,
            path: path.to_owned(),
        };
        writer.put(head)?;
        Ok(writer)
    }

    /// Writes one line.
    ///
    /// # Errors
    /// The system's error, with the file's name.
    pub fn line(&mut self, line: &Line) -> Result<()> {
        self.put(line)
    }

    fn put(&mut self, value: &impl serde::Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        self.file
            .write_all(&text)
            .map_err(|e| of_file(&self.path, "cannot write", &e))
    }
}

impl Record {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, is not a record, or has a newer version. The message names the file and
    /// the line.
    pub fn read(path: &Path) -> Result<Record> {
        let file = File::open(path).map_err(|e| of_file(path, "cannot read", &e))?;
        Record::from_lines(BufReader::new(file))
            .map_err(|error| Error::new(format!("{}: {error}", path.display())))
    }

    /// Reads a record from any reader.
    ///
    /// # Errors
    /// As for [`Record::read`], without the file's name.
    pub fn from_lines(mut from: impl BufRead) -> Result<Record> {
        let mut number = 0usize;
        let mut next = || -> Result<Option<(usize, Vec<u8>)>> {
            let mut text = Vec::new();
            std::io::Read::take(&mut from, MAX_LINE_BYTES).read_until(b'\n', &mut text)?;
            number += 1;
            Ok((!text.is_empty()).then_some((number, text)))
        };
        let no_record = || Error::new("this is not a result of 'lab run'");
        let (_, head) = next()?.ok_or_else(no_record)?;
        let head: Head = serde_json::from_slice(&head).map_err(|_| no_record())?;
        if head.schema > SCHEMA {
            return Err(Error::new(format!(
                "written by a newer version (format {}, this program reads up to {SCHEMA})",
                head.schema
            )));
        }
        let mut lines = Vec::new();
        while let Some((number, text)) = next()? {
            match serde_json::from_slice(&text) {
                Ok(line) => lines.push(line),
                // The line that a killed run was writing.
                Err(_) if text.last() != Some(&b'\n') => break,
                Err(error) => return Err(Error::new(format!("line {number}: {error}"))),
            }
        }
        Ok(Record { head, lines })
    }

    /// Writes the whole record at once.
    ///
    /// # Errors
    /// As for [`Writer::create`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut writer = Writer::create(path, &self.head)?;
        self.lines.iter().try_for_each(|line| writer.line(line))
    }
}

fn of_file(path: &Path, what: &str, error: &std::io::Error) -> Error {
    Error::new(format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Better, Sample};

    fn record() -> Record {
        let sample = |series: &str, round, value| {
            Line::Sample(Sample {
                series: series.into(),
                quantity: "throughput".into(),
                unit: "MB/s".into(),
                better: Better::Higher,
                round,
                value,
                at_s: None,
            })
        };
        Record {
            head: Head::new(
                "a test",
                "2026-01-02T03:04:05Z",
                [("scale".to_owned(), 10.into())].into(),
            ),
            lines: vec![
                sample("a", 0, 1.0),
                sample("a", 2, 3.0),
                sample("b", 1, 5.0),
                sample("a", 1, 2.0),
                sample("b", 3, 6.0),
                Line::End {
                    why: "rounds".into(),
                },
            ],
        }
    }

    #[test]
    fn a_written_record_is_read_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("run.jsonl");
        record().write(&path).expect("written");
        let read = Record::read(&path).expect("read");
        assert!(read.is_whole());
        assert_eq!(read.columns(), record().columns());
        assert_eq!(read.head.settings["scale"], 10);
        let columns = read.columns();
        assert_eq!(columns[0].values(), [2.0, 3.0], "no warm-up, by round");
        assert_eq!(columns[0].paired(&columns[1]), (vec![2.0], vec![5.0]));
    }

    #[test]
    fn a_torn_last_line_is_left_out_and_others_are_errors() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("run.jsonl");
        record().write(&path).expect("written");
        let text = std::fs::read_to_string(&path).expect("read");
        let torn = Record::from_lines(&text.as_bytes()[..text.len() - 5]).expect("read");
        assert_eq!(torn.lines.len(), record().lines.len() - 1);
        assert!(!torn.is_whole());
        let broken = text.replacen("\"kind\":\"sample\"", "\"kind\":", 1);
        let error = Record::from_lines(broken.as_bytes()).expect_err("broken");
        assert!(error.to_string().contains("line 2"), "{error}");
        let newer = text.replacen("\"schema\":2", "\"schema\":3", 1);
        assert!(Record::from_lines(newer.as_bytes()).is_err());
        assert!(Record::from_lines(&b"hello"[..]).is_err());
        let strange = text.replacen("\"kind\":\"end\"", "\"kind\":\"later\"", 1);
        assert!(Record::from_lines(strange.as_bytes()).is_ok());
    }
}
