//! Errors in the style of coreutils: operation, reason and next step.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use throughline::archive::host_tree::Unreached;
use throughline::{
    Abort, Doubtful, Error, NotAllowed, NotWhole, OnlyRead, OtherBase, PartitionError, Reason,
    archive,
};

use crate::text::{quote, shown};

/// Result of one step of a command.
pub type Result<T> = std::result::Result<T, Problem>;

/// The reason of an error, without the operation that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The text of `strerror`, or a more precise one.
    pub reason: String,
    /// What the user can do next, if known.
    pub next: Option<String>,
    /// The errno, if there is one, for commands that depend on it.
    pub errno: Option<Errno>,
}

impl Problem {
    /// A problem without an errno.
    pub fn new(reason: impl Into<String>) -> Problem {
        Problem {
            reason: reason.into(),
            next: None,
            errno: None,
        }
    }

    /// The problem of an image that cannot be opened.
    pub fn opening(source: &io::Error) -> Problem {
        Problem {
            next: open_hint(source),
            ..Problem::new(words(source))
        }
    }

    /// Adds what to do next.
    pub fn with_next(mut self, next: impl Into<String>) -> Problem {
        self.next = Some(next.into());
        self
    }

    /// Adds the operation that failed.
    pub fn met(self, doing: impl Into<String>) -> Failure {
        Failure::Failed {
            doing: doing.into(),
            problem: self,
        }
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem {
            errno: error.raw_os_error().map(Errno::from_raw_os_error),
            ..Problem::new(words(&error))
        }
    }
}

/// Removes the number from "No such file or directory (os error 2)": it does not help the user.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

impl From<throughline_explain::Error> for Problem {
    fn from(error: throughline_explain::Error) -> Problem {
        Problem::new(error.to_string())
    }
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Problem {
        io::Error::from(errno).into()
    }
}

/// The next step if the device cannot store what the image has room for: a sparse file on a full disk.
const HOST_IS_FULL: &str = "the host's disk is full, or a limit there is reached (quota, ulimit -f): make room on the file system that \
     holds the image";

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let number = error.raw_os_error();
        let problem = match error {
            Error::Open { source, .. } => Problem::opening(&source),
            Error::Caller(reason) => caller(reason),
            Error::Device(device) => {
                Problem::new(device.to_string()).with_next(device_hint(&device))
            }
            Error::Stopped(why) => stopped(&why),
            Error::Corrupt(corrupt) => Problem::new(corrupt.to_string()).with_next(
                "check with 'e2fsck -fn IMAGE', repair with 'e2fsck -f IMAGE' (on a copy, if the \
                    data is valuable)",
            ),
            other => Problem::new(other.to_string()),
        };
        Problem {
            errno: number.map(Errno::from_raw_os_error),
            ..problem
        }
    }
}

impl From<Unreached> for Problem {
    fn from(error: Unreached) -> Problem {
        match error {
            Unreached::Replaced => Problem::new("another file has replaced it meanwhile"),
            Unreached::Failed(errno) => errno.into(),
        }
    }
}

impl From<archive::Error> for Problem {
    fn from(error: archive::Error) -> Problem {
        match error {
            archive::Error::Io { place, source } => {
                let ours = source.get_ref().and_then(|inner| inner.downcast_ref());
                let problem = match ours {
                    Some(error) => Problem::from(Error::clone(error)),
                    None => Problem::from(source),
                };
                Problem {
                    reason: format!("{place}: {}", problem.reason),
                    ..problem
                }
            }
            other => Problem::new(other.to_string()),
        }
    }
}

/// The next step if a file cannot be opened as the disk that it holds.
fn open_hint(source: &io::Error) -> Option<String> {
    let why = source.get_ref()?;
    if let Some(next) = object_hint(source) {
        return Some(next.to_owned());
    }
    if why.is::<PartitionError>() {
        return Some("'throughline info IMAGE' shows the partitions".to_owned());
    }
    if let Some(needed) = why.downcast_ref::<NotAllowed>() {
        let file = quote(&needed.file);
        return Some(format!("if the image may read that file: --backing {file}"));
    }
    if let Some(base) = why.downcast_ref::<NotWhole>() {
        let url = quote(format!("{}?...", base.url));
        return Some(format!(
            "give the whole URL, one that is valid now: --backing {url}, or the URL as it is, and \
             the whole one in THROUGHLINE_URLS"
        ));
    }
    if let Some(other) = why.downcast_ref::<OtherBase>() {
        let overlay = quote(&other.overlay);
        return Some(match &other.base {
            Some(base) => format!(
                "open {}, or: throughline overlay rebase {overlay} BASE",
                quote(shown(base))
            ),
            None => "name another file: it is made if it is not there".to_owned(),
        });
    }
    if why.is::<OnlyRead>() {
        return Some("--overlay FILE keeps changes in a file of their own".to_owned());
    }
    why.is::<Doubtful>().then(|| {
        "name its format: --image-format raw, if a guest or a stranger may have written its beginning"
            .to_owned()
    })
}

/// The next step if an object cannot be opened or read.
#[cfg(feature = "remote")]
fn object_hint(error: &io::Error) -> Option<&'static str> {
    use throughline::ObjectFailure;

    Some(match error.get_ref()?.downcast_ref::<ObjectFailure>()? {
        ObjectFailure::Denied(_) => {
            "credentials are read from the environment, such as AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY, and whole https:// URLs from THROUGHLINE_URLS; \
             AWS_SKIP_SIGNATURE=true reads what is public"
        }
        ObjectFailure::NotFound => {
            "check the bucket and the key; AWS_ENDPOINT_URL names another server"
        }
        ObjectFailure::Exists => "--force replaces it",
        ObjectFailure::Exhausted { .. } => {
            "check the network and the server; THROUGHLINE_OBJECT_TIMEOUT=60 waits for 60 s"
        }
        ObjectFailure::Replaced(_) => "run the command again, or mount the image again",
        ObjectFailure::Refused(_) => {
            "the environment has the settings of the store: AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP"
        }
        _ => return None,
    })
}

#[cfg(not(feature = "remote"))]
fn object_hint(_error: &io::Error) -> Option<&'static str> {
    None
}

/// The problem of a volume that was stopped by an earlier failure.
fn stopped(why: &Arc<Abort>) -> Problem {
    let text = Error::Stopped(Arc::clone(why)).to_string();
    let host = match &**why {
        Abort::Write(device) => device_hint(device),
        _ => return Problem::new(text).with_next("repair it with 'e2fsck -f IMAGE'"),
    };
    Problem::new(text).with_next(format!("{host}; then repair with 'e2fsck -f IMAGE'"))
}

/// The next step for a device that failed.
fn device_hint(device: &(dyn std::error::Error + 'static)) -> &'static str {
    let cause = device
        .source()
        .and_then(|source| source.downcast_ref::<Arc<io::Error>>());
    if let Some(next) = cause.and_then(|cause| object_hint(cause)) {
        next
    } else if cause.is_some_and(|cause| throughline::is_no_room(cause)) {
        HOST_IS_FULL
    } else {
        "the host's kernel log (dmesg) has details about a failing device"
    }
}

/// The problem of a request that cannot be carried out.
fn caller(reason: Reason) -> Problem {
    let next = match &reason {
        Reason::NoSpace => {
            "remove files, or grow the image: throughline resize IMAGE +1G; 'throughline df' and 'df -i' \
             show what is left"
        }
        Reason::Quota => {
            "remove files of this owner, or raise the limit: setquota(8) on a mount of the kernel"
        }
        Reason::NameTooLong => {
            "a name has at most 255 bytes, a symbolic link's target less than a block"
        }
        Reason::TooLarge => {
            "'throughline info' shows the image's block size, which limits the size of its files"
        }
        Reason::Permission => {
            "the file may be immutable or append-only: 'throughline lsattr' shows the flags, 'throughline \
             chattr -i -a' clears them"
        }
        Reason::InUse { next, .. } => next,
        _ => "",
    };
    let next = (!next.is_empty()).then(|| next.to_owned());
    let reason = match reason {
        Reason::Busy(who) => who,
        // These texts are more precise than the system's.
        Reason::Invalid(_)
        | Reason::NotExt(_)
        | Reason::InUse { .. }
        | Reason::NoKey
        | Reason::NoAttribute
        | Reason::AttributeName
        | Reason::ValueTooLong => reason.to_string(),
        // A copy looks up each new name, and getting the system's text would cost more than the look-up.
        Reason::NotFound => "No such file or directory".to_owned(),
        other => words(&Error::Caller(other).into()),
    };
    Problem {
        next,
        ..Problem::new(reason)
    }
}

/// Why a command ends, or skips a place.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Wrong command line: exit code 2.
    Usage(String),
    /// Failed: exit code 1.
    Failed {
        /// The operation: "cannot open 'x'".
        doing: String,
        /// The reason.
        problem: Problem,
    },
    /// The reader of our output has closed the pipe: end without a message.
    PipeClosed,
    /// The failure was already reported.
    Reported,
    /// The user has interrupted the command.
    Interrupted,
}

impl Failure {
    /// A failure whose message is a complete sentence.
    pub fn plain(message: impl Into<String>) -> Failure {
        Problem::new("").met(message)
    }

    /// A failure of standard output.
    pub fn output(error: io::Error) -> Failure {
        match Problem::from(error) {
            Problem {
                errno: Some(Errno::PIPE),
                ..
            } => Failure::PipeClosed,
            problem => problem.met("cannot write to standard output"),
        }
    }

    /// Whether it ends the whole command, not only one place.
    pub fn ends_command(&self) -> bool {
        !matches!(self, Failure::Failed { .. })
    }

    /// What the user can do next, if known.
    pub fn next(&self) -> Option<&str> {
        match self {
            Failure::Failed { problem, .. } => problem.next.as_deref(),
            _ => None,
        }
    }

    /// The reason, without the operation.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Failure::Failed { problem, .. } => Some(&problem.reason),
            _ => None,
        }
    }

    /// The errno, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Failure::Failed { problem, .. } => problem.errno,
            _ => None,
        }
    }
}

/// The message, such as `cannot open 'x': No such file or directory`.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message) => f.write_str(message),
            Failure::PipeClosed => f.write_str("broken pipe"),
            Failure::Reported => f.write_str("it was reported"),
            Failure::Interrupted => f.write_str("interrupted; changes made so far are kept"),
            Failure::Failed { doing, problem } => {
                f.write_str(doing)?;
                if problem.reason.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {}", problem.reason)
                }
            }
        }
    }
}

/// Adds the operation to a problem.
pub trait Doing<T> {
    /// `doing` returns "cannot …". It is called only on failure.
    fn doing<S: Into<String>>(self, doing: impl FnOnce() -> S) -> std::result::Result<T, Failure>;
}

impl<T, E: Into<Problem>> Doing<T> for std::result::Result<T, E> {
    fn doing<S: Into<String>>(self, doing: impl FnOnce() -> S) -> std::result::Result<T, Failure> {
        self.map_err(|error| error.into().met(doing()))
    }
}
