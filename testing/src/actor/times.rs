//! Times, which are never the same twice, reported by their relations.
//!
//! `times P` answers access, modification and change time: seconds and nanoseconds if the time was set
//! explicitly (long ago or far in the future), else `now`. `mark P` remembers the times of an inode under
//! that name and waits until the clock has passed them; `marked P NAME` remembers those of `P` under another
//! name, for a file that will be renamed. `since P` answers which have changed since the mark: `=` the same,
//! `+` later, `-` earlier. `born P MARK` answers whether the birth time of `P` is `before` the mark, `since`
//! then, or `ahead` of the clock. `utimes P ATIME MTIME [FLAGS]` and `futimes FILE ATIME MTIME` set times:
//! `now`, `omit`, or seconds with nine digits of nanoseconds after a point.

use rustix::fs::{AtFlags, CWD, Stat, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::time::ClockId;

use super::{Answer, State, Words, done};

/// Times outside these bounds were set explicitly.
const LONG_AGO: i64 = 1_700_000_000;
const FAR_AHEAD: i64 = 2_100_000_000;

/// A time in seconds and nanoseconds.
type Instant = (i64, i64);

/// The times of an inode at one moment.
#[derive(Clone, Copy)]
pub(super) struct Moment([Instant; 3]);

impl Moment {
    /// The type of the nanoseconds depends on how rustix makes system calls.
    fn of(stat: &Stat) -> Self {
        Self([
            (stat.st_atime, stat.st_atime_nsec as i64),
            (stat.st_mtime, stat.st_mtime_nsec as i64),
            (stat.st_ctime, stat.st_ctime_nsec as i64),
        ])
    }
}

impl State {
    pub(super) fn times(&mut self, words: &Words) -> Option<Answer> {
        let stamps = || Timestamps {
            last_access: stamp(words.text(2)),
            last_modification: stamp(words.text(3)),
        };
        Some(match words.text(0) {
            "times" => rustix::fs::lstat(words.path(1)).map(|stat| {
                let text = Moment::of(&stat).0.map(instant);
                text.join(" ")
            }),
            "mark" => self.mark(words, 1),
            "marked" => self.mark(words, 2),
            "since" => self.since(words),
            "born" => self.born(words),
            "utimes" => {
                let flags: AtFlags = words.flags(4);
                done(rustix::fs::utimensat(CWD, words.path(1), &stamps(), flags))
            }
            "futimes" => done(rustix::fs::futimens(self.file(words.text(1)), &stamps())),
            _ => return None,
        })
    }

    fn mark(&mut self, words: &Words, name: usize) -> Answer {
        let moment = Moment::of(&rustix::fs::lstat(words.path(1))?);
        self.moments.insert(words.bytes(name).to_vec(), moment);
        let begun = coarse();
        // Set explicitly.
        let ahead = |time: Instant| time.0 > begun.0 + 60;
        // The clock of file systems advances once per kernel tick. Wait for two ticks, for file systems that
        // round.
        let mut ticks = 0;
        let mut last = begun;
        while ticks < 2 || !moment.0.iter().all(|time| ahead(*time) || *time < last) {
            let now = coarse();
            if now != last {
                ticks += 1;
                last = now;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(String::new())
    }

    fn moment(&self, words: &Words) -> Moment {
        let name = words.bytes(1);
        *self
            .moments
            .get(name)
            .unwrap_or_else(|| panic!("{} is not marked", words.text(1)))
    }

    fn since(&self, words: &Words) -> Answer {
        let before = self.moment(words);
        let now = Moment::of(&rustix::fs::lstat(words.path(1))?);
        let mut text = Vec::new();
        for (at, name) in ["a", "m", "c"].iter().enumerate() {
            let sign = match now.0[at].cmp(&before.0[at]) {
                std::cmp::Ordering::Less => '-',
                std::cmp::Ordering::Equal => '=',
                std::cmp::Ordering::Greater => '+',
            };
            text.push(format!("{name}{sign}"));
        }
        Ok(text.join(" "))
    }

    /// Compares the birth time of a file with the mark of another one, made before it: `born P MARK`.
    fn born(&self, words: &Words) -> Answer {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let all = rustix::fs::statx(CWD, words.path(1), flags, StatxFlags::BTIME)?;
        let birth = (all.stx_btime.tv_sec, i64::from(all.stx_btime.tv_nsec));
        let before = self.moments[words.bytes(2)].0[2];
        let now = rustix::time::clock_gettime(ClockId::Realtime);
        let text = match birth {
            birth if birth <= before => "before",
            birth if birth <= (now.tv_sec, now.tv_nsec) => "since",
            _ => "ahead",
        };
        Ok(text.to_owned())
    }
}

/// The clock that file systems use.
fn coarse() -> Instant {
    let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}

fn instant((seconds, nanos): Instant) -> String {
    if (LONG_AGO..FAR_AHEAD).contains(&seconds) {
        return "now".to_owned();
    }
    format!("{seconds}.{nanos:09}")
}

fn stamp(text: &str) -> Timespec {
    let (tv_sec, tv_nsec) = match text {
        "now" => (0, UTIME_NOW),
        "omit" => (0, UTIME_OMIT),
        _ => {
            let (seconds, nanos) = text.split_once('.').expect("seconds and nanoseconds");
            (
                seconds.parse().expect("seconds"),
                nanos.parse().expect("nanoseconds"),
            )
        }
    };
    Timespec { tv_sec, tv_nsec }
}
