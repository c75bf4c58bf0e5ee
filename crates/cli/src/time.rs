//! Times as text: parsed as by `touch -d` and `-t`, formatted as by `ls -l` and `stat`.

use std::time::{Duration, SystemTime};

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

/// The time zone of this process.
fn zone() -> TimeZone {
    TimeZone::system()
}

fn zoned(time: SystemTime) -> Option<Zoned> {
    Timestamp::try_from(time)
        .ok()
        .map(|stamp| stamp.to_zoned(zone()))
}

/// As `ls -l`: hour and minute within the last half year, otherwise the year.
pub(crate) fn short(time: SystemTime, now: SystemTime) -> String {
    let half_year = Duration::from_secs(365 * 24 * 3600 / 2);
    let recent = now.duration_since(time).is_ok_and(|age| age < half_year) || time == now;
    match zoned(time) {
        Some(time) if recent => time.strftime("%b %e %H:%M").to_string(),
        Some(time) => time.strftime("%b %e  %Y").to_string(),
        None => "?".to_owned(),
    }
}

/// As `stat`: `2024-05-06 07:08:09.123456789 +0000`.
pub(crate) fn full(time: SystemTime) -> String {
    zoned(time).map_or_else(
        || "?".to_owned(),
        |time| time.strftime("%Y-%m-%d %H:%M:%S.%9f %z").to_string(),
    )
}

/// As `find -printf %t`: `Mon May  6 07:08:09.1234567890 2024`.
pub(crate) fn ctime(time: SystemTime) -> String {
    zoned(time).map_or_else(
        || "?".to_owned(),
        |time| time.strftime("%a %b %e %H:%M:%S.%9f0 %Y").to_string(),
    )
}

/// Seconds since 1970, as `find -printf %T@` shows them: with ten decimals.
pub(crate) fn seconds_with_fraction(time: SystemTime) -> String {
    let Ok(stamp) = Timestamp::try_from(time) else {
        return "?".to_owned();
    };
    let nanos = stamp.as_nanosecond();
    let (seconds, fraction) = (
        nanos.div_euclid(1_000_000_000),
        nanos.rem_euclid(1_000_000_000),
    );
    format!("{seconds}.{fraction:09}0")
}

/// A part of a time, by the letters of strftime(3) in the C locale and those of `find -printf`; `None` for
/// other letters.
pub(crate) fn part(time: SystemTime, key: u8) -> Option<String> {
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
    zoned(time).map(|time| time.strftime(form).to_string())
}

/// RFC 3339 in UTC, for JSON.
pub(crate) fn rfc3339(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time)
        .ok()
        .map(|stamp| stamp.to_string())
}

/// Parses `now`, `@SECONDS[.FRACTION]`, `YYYY-MM-DD`, `YYYY-MM-DD HH:MM[:SS[.FRACTION]]`, also with a zone or
/// `Z`. Without a zone, the time is local.
pub(crate) fn parse(text: &str) -> Result<SystemTime, String> {
    let text = text.trim();
    let bad = || {
        format!(
            "invalid date '{text}': write YYYY-MM-DD, 'YYYY-MM-DD HH:MM:SS', with or without a zone, @SECONDS or now"
        )
    };
    if text == "now" {
        return Ok(SystemTime::now());
    }
    if let Some(seconds) = text.strip_prefix('@') {
        return parse_seconds(seconds).ok_or_else(bad);
    }
    if let Ok(stamp) = text.parse::<Timestamp>() {
        return Ok(stamp.into());
    }
    let local = |when: DateTime| {
        when.to_zoned(zone())
            .map(|when| SystemTime::from(when.timestamp()))
            .map_err(|_| bad())
    };
    if let Ok(when) = jiff::fmt::strtime::parse("%Y-%m-%d %H:%M:%S%.f %z", text)
        .and_then(|parts| parts.to_timestamp())
    {
        return Ok(when.into());
    }
    if let Ok(when) = text.parse::<DateTime>() {
        return local(when);
    }
    if let Ok(when) = text.parse::<Date>() {
        return local(when.into());
    }
    if let Ok(when) = jiff::fmt::rfc2822::parse(text) {
        return Ok(when.timestamp().into());
    }
    let now = Timestamp::now().to_zoned(zone());
    match relative(text, &now) {
        Some(when) => Ok(when.timestamp().into()),
        None => Err(bad()),
    }
}

/// `yesterday`, `2 days ago`, `+3 hours`, `last week`, `next month`, or several of them in a row.
fn relative(text: &str, now: &Zoned) -> Option<Zoned> {
    let text = text.to_lowercase().replace('+', " ").replace('-', " -");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut rest = words.as_slice();
    let mut when = now.clone();
    if rest.is_empty() {
        return None;
    }
    while let [first, behind @ ..] = rest {
        let (amount, unit, behind) = match (*first, behind) {
            ("now" | "today", _) => (0, "day", behind),
            ("yesterday", _) => (-1, "day", behind),
            ("tomorrow", _) => (1, "day", behind),
            ("next", [unit, behind @ ..]) => (1, *unit, behind),
            ("last", [unit, behind @ ..]) => (-1, *unit, behind),
            (amount, [unit, behind @ ..]) => (amount.parse::<i64>().ok()?, *unit, behind),
            _ => return None,
        };
        let (sign, behind) = match behind {
            ["ago", behind @ ..] => (-1, behind),
            _ => (1, behind),
        };
        let amount = amount.checked_mul(sign)?;
        let span = jiff::Span::new();
        let span = match unit.strip_suffix('s').unwrap_or(unit) {
            "sec" | "second" => span.try_seconds(amount),
            "min" | "minute" => span.try_minutes(amount),
            "hour" => span.try_hours(amount),
            "day" => span.try_days(amount),
            "week" => span.try_weeks(amount),
            "fortnight" => span.try_weeks(amount.checked_mul(2)?),
            "month" => span.try_months(amount),
            "year" => span.try_years(amount),
            _ => return None,
        };
        when = when.checked_add(span.ok()?).ok()?;
        rest = behind;
    }
    Some(when)
}

fn parse_seconds(text: &str) -> Option<SystemTime> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: i32 = format!("{fraction:0<9}").parse().ok()?;
    let nanos = if whole.starts_with('-') {
        -nanos
    } else {
        nanos
    };
    Timestamp::new(seconds, nanos).ok().map(SystemTime::from)
}

/// Parses the POSIX format of `touch -t`: `[[CC]YY]MMDDhhmm[.ss]`, local time.
pub(crate) fn parse_posix(text: &str) -> Result<SystemTime, String> {
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
    let field = |range: std::ops::Range<usize>| full[range].parse::<i8>().map_err(|_| bad());
    let year: i16 = full[..4].parse().map_err(|_| bad())?;
    // A leap second is the first second of the next minute, as usual on Unix.
    let (second, leap) = match seconds {
        "60" => (59, 1),
        _ => (seconds.parse::<i8>().map_err(|_| bad())?, 0),
    };
    let when = DateTime::new(
        year,
        field(4..6)?,
        field(6..8)?,
        field(8..10)?,
        field(10..12)?,
        second,
        0,
    )
    .and_then(|when| when.checked_add(leap.seconds()))
    .and_then(|when| when.to_zoned(zone()))
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
        let now: Zoned = "2024-03-31T12:00:00[UTC]".parse().unwrap();
        for (text, shown) in [
            ("yesterday", "2024-03-30T12:00:00"),
            ("2 days ago", "2024-03-29T12:00:00"),
            ("+3 hours", "2024-03-31T15:00:00"),
            ("last week", "2024-03-24T12:00:00"),
            ("1 year ago -1 min", "2023-03-31T11:59:00"),
        ] {
            let found = relative(text, &now).unwrap();
            assert_eq!(found.datetime().to_string(), shown, "{text}");
        }
        for bad in ["", "ago", "3", "3 parsecs", "next"] {
            assert!(relative(bad, &now).is_none(), "{bad}");
        }
        let mail = parse("Sat, 03 Feb 2001 04:05:06 +0100");
        assert_eq!(mail, Ok(at(981_169_506, 0)));
    }

    #[test]
    fn rubbish_is_refused() {
        for text in [
            "",
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
