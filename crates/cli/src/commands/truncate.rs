//! `truncate`.

use clap::Args;
use rustix::io::Errno;
use throughline::Attributes;

use crate::context::Context;
use crate::pattern::Glob;
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
    #[command(flatten)]
    glob: Glob,
}

/// A change of size: `+`, `-`, `<`, `>`, `/` or `%`, or `=` for the size itself.
#[derive(Clone, Copy, Debug)]
struct Change {
    how: u8,
    size: u64,
}

impl Change {
    fn parse(text: &str) -> Result<Change, String> {
        let (how, rest) = match text.bytes().next() {
            Some(how) if b"+-<>/%".contains(&how) => (how, &text[1..]),
            _ => (b'=', text),
        };
        let size = parse_size(rest)?;
        match (how, size) {
            (b'/' | b'%', 0) => Err(format!("invalid size {}: a multiple of zero", quote(text))),
            _ => Ok(Change { how, size }),
        }
    }

    /// The new size; `None` if it overflows.
    fn apply(self, len: u64) -> Option<u64> {
        match self.how {
            b'+' => len.checked_add(self.size),
            b'-' => Some(len.saturating_sub(self.size)),
            b'<' => Some(len.min(self.size)),
            b'>' => Some(len.max(self.size)),
            b'/' => Some(len - len % self.size),
            b'%' => len.checked_next_multiple_of(self.size),
            _ => Some(self.size),
        }
    }
}

/// Sets each place's size.
pub(crate) fn run(args: &TruncateArgs, context: &mut Context) -> Result<(), Failure> {
    context.each_opened(&args.places, args.glob.changes(), |context, opened| {
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
