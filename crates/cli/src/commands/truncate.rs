//! `truncate`.

use clap::Args;
use rustix::io::Errno;
use throughline::Attributes;

use crate::context::Context;
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::text::{parse_size, quote};

/// Arguments of `truncate`.
#[derive(Args, Debug)]
pub(crate) struct TruncateArgs {
    /// Files in images; missing ones are created
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Size in bytes or with a unit; +SIZE extends by it, -SIZE shrinks by it, <SIZE at most, >SIZE at least,
    /// /SIZE rounds down to a multiple, %SIZE rounds up to a multiple
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true, value_parser = Change::parse)]
    size: Change,
    /// Do not create files
    #[arg(short = 'c', long)]
    no_create: bool,
}

/// A change of size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    To(u64),
    Grow(u64),
    Shrink(u64),
    AtMost(u64),
    AtLeast(u64),
    DownTo(u64),
    UpTo(u64),
}

impl Change {
    fn parse(text: &str) -> Result<Change, String> {
        let make: fn(u64) -> Change = match text.bytes().next() {
            Some(b'+') => Change::Grow,
            Some(b'-') => Change::Shrink,
            Some(b'<') => Change::AtMost,
            Some(b'>') => Change::AtLeast,
            Some(b'/') => Change::DownTo,
            Some(b'%') => Change::UpTo,
            _ => return parse_size(text).map(Change::To),
        };
        let size = parse_size(&text[1..])?;
        if size == 0 && matches!(make(0), Change::DownTo(_) | Change::UpTo(_)) {
            return Err(format!("invalid size {}: a multiple of zero", quote(text)));
        }
        Ok(make(size))
    }

    /// The new size; `None` if it overflows.
    fn apply(self, len: u64) -> Option<u64> {
        match self {
            Change::To(size) => Some(size),
            Change::Grow(by) => len.checked_add(by),
            Change::Shrink(by) => Some(len.saturating_sub(by)),
            Change::AtMost(size) => Some(len.min(size)),
            Change::AtLeast(size) => Some(len.max(size)),
            Change::DownTo(unit) => Some(len - len % unit),
            Change::UpTo(unit) => len.checked_next_multiple_of(unit),
        }
    }
}

/// Sets each place's size.
pub(crate) fn run(args: &TruncateArgs, context: &mut Context) -> Result<(), Failure> {
    context.each_opened(&args.places, Access::Write, |context, opened| {
        let cannot = || format!("cannot truncate {}", opened.place);
        let file = match opened.volume.open_file(&opened.path).doing(cannot) {
            Err(failure) if failure.errno() == Some(Errno::NOENT) => {
                if args.no_create {
                    return Ok(());
                }
                let made = opened.create(Attributes::new(), context.images.umask);
                made.doing(cannot)?
            }
            other => other?,
        };
        let len = file.metadata().doing(cannot)?.len();
        let size = args
            .size
            .apply(len)
            .ok_or_else(|| Problem::new("File too large").met(cannot()))?;
        file.set_len(size).doing(cannot)
    })
}

#[cfg(test)]
mod tests {
    use super::Change;

    #[test]
    fn sizes_as_coreutils_counts_them() {
        for (text, before, after) in [
            ("10", 5, Some(10)),
            ("1K", 5, Some(1024)),
            ("+5", 5, Some(10)),
            ("-3", 5, Some(2)),
            ("-9", 5, Some(0)),
            ("<3", 5, Some(3)),
            ("<9", 5, Some(5)),
            (">9", 5, Some(9)),
            ("/4", 11, Some(8)),
            ("%4", 9, Some(12)),
            ("+1", u64::MAX, None),
        ] {
            assert_eq!(
                Change::parse(text).unwrap().apply(before),
                after,
                "{text} of {before}"
            );
        }
        for text in ["", "+", "/0", "%0", "x", "--1"] {
            assert!(Change::parse(text).is_err(), "{text}");
        }
    }
}
