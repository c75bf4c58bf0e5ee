//! Times as text: parsed as by `touch -d` and `-t`, formatted as by `ls -l` and `stat`.

use std::time::SystemTime;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};
use parse_datetime::{ParsedDateTime, parse_datetime};
use throughline::internal::since_epoch;

/// A time in the time zone of this process, in a format of strftime(3).
fn shown(time: SystemTime, format: &str) -> String {
    match Timestamp::try_from(time) {
        Ok(stamp) => {
            let local = stamp.to_zoned(TimeZone::system());
            local.strftime(format).to_string()
        }
        Err(_) => "?".to_owned(),
    }
}

/// A time as `ls -l` shows it: with hour and minute within the last half year, otherwise with the year.
pub fn short(time: SystemTime, now: SystemTime) -> String {
    const HALF_YEAR_S: u64 = 365 * 24 * 3600 / 2;
    let is_recent = |age: std::time::Duration| age.as_secs() < HALF_YEAR_S;
    match now.duration_since(time).is_ok_and(is_recent) {
        true => shown(time, "%b %e %H:%M"),
        false => shown(time, "%b %e  %Y"),
    }
}

/// A time as `stat` shows it: `2024-05-06 07:08:09.123456789 +0000`.
pub fn full(time: SystemTime) -> String {
    shown(time, "%Y-%m-%d %H:%M:%S.%9f %z")
}

/// A time as `find -printf %t` shows it: `Mon May  6 07:08:09.1234567890 2024`.
pub fn ctime(time: SystemTime) -> String {
    shown(time, "%a %b %e %H:%M:%S.%9f0 %Y")
}

/// Seconds since 1970, as `find -printf %T@` shows them: with ten decimals.
pub fn seconds_with_fraction(time: SystemTime) -> String {
    let (seconds, nanos) = since_epoch(time);
    format!("{seconds}.{nanos:09}0")
}

/// A part of a time, by the letters of strftime(3) in the C locale and those of `find -printf`; `None` for
/// other letters.
pub fn part(time: SystemTime, key: u8) -> Option<String> {
    let form = match key {
        b'S' => "%S.%9f0",
        b'T' | b'X' => "%H:%M:%S.%9f0",
        b'+' => "%Y-%m-%d+%H:%M:%S.%9f0",
        b'r' => "%I:%M:%S %p",
        b'c' => "%a %b %e %H:%M:%S %Y",
        b'D' | b'x' => "%m/%d/%y",
        b'H' => "%H",
        b'I' => "%I",
        b'k' => "%k",
        b'l' => "%l",
        b'M' => "%M",
        b'p' => "%p",
        b'Z' => "%Z",
        b'a' => "%a",
        b'A' => "%A",
        b'b' | b'h' => "%b",
        b'B' => "%B",
        b'd' => "%d",
        b'F' => "%Y-%m-%d",
        b'j' => "%j",
        b'm' => "%m",
        b'U' => "%U",
        b'w' => "%w",
        b'W' => "%W",
        b'y' => "%y",
        b'Y' => "%Y",
        _ => return None,
    };
    Some(shown(time, form))
}

/// A time in RFC 3339 and UTC, for JSON.
pub fn rfc3339(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time)
        .ok()
        .map(|stamp| stamp.to_string())
}

/// Parses a time as `touch -d` takes it: dates with or without a time and a zone, `@SECONDS[.FRACTION]`,
/// `now`, `yesterday`, `2 days ago`. Without a zone, the time is local.
pub fn parse(text: &str) -> Result<SystemTime, String> {
    // An empty string would mean the start of today, which a script with an empty variable does not intend.
    match parse_datetime(text) {
        Ok(ParsedDateTime::InRange(when)) if !text.trim().is_empty() => Ok(when.timestamp().into()),
        _ => Err(format!(
            "invalid date '{text}': write YYYY-MM-DD, 'YYYY-MM-DD HH:MM:SS', with or without a zone, \
             @SECONDS or now"
        )),
    }
}

/// Parses the POSIX format of `touch -t`: `[[CC]YY]MMDDhhmm[.ss]`, local time.
pub fn parse_posix(text: &str) -> Result<SystemTime, String> {
    let bad = || format!("invalid time '{text}': write [[CC]YY]MMDDhhmm[.ss]");
    let (digits, seconds) = text.split_once('.').unwrap_or((text, "00"));
    if seconds.len() != 2
        || !digits
            .bytes()
            .chain(seconds.bytes())
            .all(|byte| byte.is_ascii_digit())
    {
        return Err(bad());
    }
    let full = match digits.len() {
        8 => format!("{:04}{digits}", Zoned::now().year()),
        10 if &digits[..2] < "69" => format!("20{digits}"),
        10 => format!("19{digits}"),
        12 => digits.to_owned(),
        _ => return Err(bad()),
    };
    // A leap second is the first second of the next minute, as usual on Unix.
    let (seconds, leap) = match seconds {
        "60" => ("59", 1),
        _ => (seconds, 0),
    };
    let when = DateTime::strptime("%Y%m%d%H%M.%S", format!("{full}.{seconds}"))
        .and_then(|when| when.checked_add(leap.seconds()))
        .and_then(|when| when.to_zoned(TimeZone::system()))
        .map_err(|_| bad())?;
    Ok(when.timestamp().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanos: i32) -> SystemTime {
        Timestamp::new(seconds, nanos).unwrap().into()
    }

    #[test]
    fn dates_with_a_zone() {
        for (text, seconds, nanos) in [
            ("@0", 0, 0),
            ("@1.5", 1, 500_000_000),
            ("@-1.5", -1, -500_000_000),
            ("1970-01-02T00:00:00Z", 86_400, 0),
            ("2001-02-03 04:05:06 +0100", 981_169_506, 0),
            ("2001-02-03T04:05:06.25+01:00", 981_169_506, 250_000_000),
        ] {
            assert_eq!(parse(text), Ok(at(seconds, nanos)), "{text}");
        }
    }

    #[test]
    fn local_dates_agree_with_each_other() {
        assert_eq!(parse("2001-02-03"), parse("2001-02-03 00:00:00"));
        assert_eq!(parse("2001-02-03 04:05"), parse_posix("200102030405"));
        assert_eq!(parse("2001-02-03 04:05:06"), parse_posix("0102030405.06"));
        assert_eq!(parse("1999-02-03 04:06:00"), parse_posix("9902030405.60"));
    }

    #[test]
    fn dates_from_now() {
        let now = SystemTime::now();
        for (text, ago) in [
            ("now", 0),
            ("2 days ago", 2 * 86_400),
            ("+3 hours", -3 * 3600),
            ("last week", 7 * 86_400),
            ("2 weeks ago -1 min", 14 * 86_400 + 60),
        ] {
            // Not every day has 24 hours.
            let found = since_epoch(parse(text).unwrap()).0 - since_epoch(now).0 + ago;
            assert!(found.abs() < 2 * 3600, "{text}: {found} s off");
        }
        for bad in ["", " ", "ago", "3 parsecs", "next"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let mail = parse("Sat, 03 Feb 2001 04:05:06 +0100");
        assert_eq!(mail, Ok(at(981_169_506, 0)));
    }

    #[test]
    fn seconds_are_rounded_down() {
        for (seconds, nanos) in [(0, 0), (5, 7), (-1, 999_999_999), (-5, 0), (-5, 7)] {
            let time = SystemTime::from(
                Timestamp::from_nanosecond(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
                    .unwrap(),
            );
            assert_eq!(since_epoch(time), (seconds, nanos));
        }
    }

    #[test]
    fn rubbish_is_refused() {
        for text in [
            "yesterday-ish",
            "@",
            "@x",
            "@1.x",
            "2001-13-01",
            "2001-02-30",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in [
            "",
            "1",
            "20010203040",
            "200113030405",
            "200102030405.6",
            "200102030405.61",
            "ab0203040506",
        ] {
            assert!(parse_posix(text).is_err(), "{text}");
        }
    }
}
